//! `ronde tune` without a command: the tuner as a service for any program, with lines of JSON on
//! standard input and output.
//!
//! `docs/TUNE.md` describes the protocol. Each line gets one line as its answer, in order. The
//! answer to an invalid line is an error with its line number, and the service continues. At the
//! end of the input, the service writes a summary and ends.

mod answer;
mod conversation;
mod input;
mod memory;
mod request;
mod space;

use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

pub use conversation::Service;
pub(crate) use request::Problem;

use crate::error::Error;

/// Serves until the end of the input. `space` has the first line, if it is a file.
pub(super) fn main(space: Option<&Path>, state: Option<&Path>) -> Result<ExitCode, Error> {
    let mut service = Service::new(state.map(Path::to_owned));
    if let Some(path) = space {
        let unread = |source| Error::Open {
            path: path.to_owned(),
            source,
        };
        let invalid = |problem| Error::Space {
            path: path.to_owned(),
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
