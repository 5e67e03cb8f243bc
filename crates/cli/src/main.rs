//! Entry point of the `ronde` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    ronde_cli::main()
}
