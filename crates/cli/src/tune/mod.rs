//! `ronde tune`: the tuner as a service for any program, with lines of JSON on standard input and
//! output.
//!
//! `docs/TUNE.md` describes the protocol. Each line gets one line as its answer, in order. The
//! answer to an invalid line is an error with its line number, and the service continues. At the
//! end of the input, the service writes a summary and ends.

mod answer;
mod input;
mod memory;
mod request;
mod service;
mod space;

use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueHint;
pub(super) use request::Problem;
pub use service::Service;

use super::error::Error;

const EXAMPLES: &str = r#"Examples:
  A loop that reports each step and does what the answer says ("keep", "switch" or "finished"):
    > {"parameters":[{"name":"bucket_cap_mb","scale":"log","low":1,"high":256}],"start":{"bucket_cap_mb":25}}
    < {"ready":{"settings":18,"setting":{"bucket_cap_mb":25.0}}}
    > {"step_ms":41.2}
    < {"action":"keep"}
  Ask and tell, for a program that measures a setting in its own way; lower values are better:
    > {"tell":{"setting":{"bucket_cap_mb":25},"value":41.2,"spread":0.8,"steps":10}}
    < {"told":{"settings":1}}
    > {"ask":{}}
    < {"sample":{"setting":{"bucket_cap_mb":64.0}}}
  From a shell; what is learnt is kept, and the next run begins with it:
    ronde tune --space space.json --state state.json < requests.jsonl"#;

const LONG_ABOUT: &str = "\
Tune any program: a line of JSON in, a line of JSON out

The first line gives the parameters and the setting in force; then either each step's time comes in \
and settings to switch to go out, until the winner has beaten the setting in force at the start in \
interleaved windows or that stays; or the program asks for settings and tells what it measured. The \
protocol stands in docs/TUNE.md. For a training loop in Python, ronde.tune does this within its \
process.";

/// Tune any program: a line of JSON in, a line of JSON out
#[derive(clap::Args)]
#[command(long_about = LONG_ABOUT, after_help = EXAMPLES)]
pub(super) struct Args {
    /// Read the parameters (the first line of the protocol) from this file instead of standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    space: Option<PathBuf>,
    /// State file: read the measurements of an earlier run, and write those of this run
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    state: Option<PathBuf>,
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Error> {
    let mut service = Service::new(args.state.clone());
    if let Some(path) = &args.space {
        let unread = |source| Error::Open {
            path: path.clone(),
            source,
        };
        let invalid = |problem| Error::Space {
            path: path.clone(),
            problem,
        };
        let text = ronde_tuner::read_text(path).map_err(unread)?;
        service.set_space(&text).map_err(invalid)?;
    }
    let served = serve(
        &mut service,
        &mut io::stdin().lock(),
        &mut io::stdout().lock(),
    );
    // The measurements are saved even if a stream failed.
    service.save()?;
    match served {
        Ok(()) if service.has_space() => Ok(ExitCode::SUCCESS),
        Ok(()) => Err(Error::NoSpace),
        // The reader of the answers has closed the pipe.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Error::system("read or write a line")(error)),
    }
}

/// Answers every line of `input` until its end.
fn serve(
    service: &mut Service,
    input: &mut dyn io::BufRead,
    output: &mut dyn Write,
) -> io::Result<()> {
    let mut number = 0;
    while let Some(line) = input::next_line(input)? {
        number += 1;
        let answer = match line {
            Ok(line) if line.trim().is_empty() => continue,
            Ok(line) => service.answer(&line, number),
            Err(problem) => problem.answer(number),
        };
        writeln!(output, "{answer}")?;
        // The program waits for the answer.
        output.flush()?;
    }
    if let Some(answer) = service.end() {
        writeln!(output, "{answer}")?;
    }
    output.flush()
}
