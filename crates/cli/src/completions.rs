//! `ronde completions`: completion scripts for shells, generated from the definition of the command
//! line.

use clap::ValueEnum;
use clap_complete::Shell;
use std::process::ExitCode;

/// Print a completion script for a shell
#[derive(clap::Args)]
pub(super) struct Args {
    /// Shell to complete in
    #[arg(value_parser = ["bash", "zsh", "fish"])]
    shell: String,
}

pub(super) fn main(args: &Args, mut command: clap::Command) -> ExitCode {
    let shell = Shell::from_str(&args.shell, false).expect("clap has checked the name");
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "ronde", &mut script);
    super::print(&String::from_utf8_lossy(&script))
}
