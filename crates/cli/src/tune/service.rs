//! `ronde tune` without a command: the tuner as a service for any program, with lines of JSON on
//! standard input and output.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::ExitCode;

use ronde_command::Service;

use crate::error::Error;
use crate::present::warn;

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
        for warning in service.open(&text).map_err(invalid)? {
            warn("tune", &warning);
        }
    }
    let served = service.serve(&mut io::stdin().lock(), &mut io::stdout().lock());
    // The measurements are saved even if a stream failed.
    service.save()?;
    match served {
        Ok(()) if service.is_open() => Ok(ExitCode::SUCCESS),
        Ok(()) => Err(Error::NoSpace),
        // The reader of the answers has closed the pipe.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Error::system("read or write a line")(error)),
    }
}
