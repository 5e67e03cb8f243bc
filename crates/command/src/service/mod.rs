//! The tuner as a service for any program: lines of JSON in, lines of JSON out.
//!
//! `docs/TUNE.md` describes the protocol. Each line gets one line as its answer, in order. The
//! answer to an invalid line is an error with its line number, and the service continues. At the
//! end of the input, the service writes a summary and ends.
//!
//! ```
//! let mut service = ronde_command::Service::new(None);
//! let parameters = r#"{"parameters":[{"name":"on","scale":"boolean"}],"start":{"on":false}}"#;
//! assert_eq!(service.reply(parameters), r#"{"ready":{"settings":2,"setting":{"on":false}}}"#);
//! ```

mod answer;
mod conversation;
mod input;
mod memory;
mod request;
mod space;

use std::io::{self, BufRead, Write};

pub use conversation::Service;
pub use request::Problem;

impl Service {
    /// Answers every line of `input` until its end.
    ///
    /// # Errors
    /// A line cannot be read or written.
    pub fn serve(&mut self, input: &mut dyn BufRead, output: &mut dyn Write) -> io::Result<()> {
        let mut number = 0;
        while let Some(line) = input::next_line(input)? {
            number += 1;
            let answer = match line {
                Ok(line) if line.trim().is_empty() => continue,
                Ok(line) => self.answer(&line, number),
                Err(problem) => problem.answer(number),
            };
            writeln!(output, "{answer}")?;
            // The program waits for the answer.
            output.flush()?;
        }
        if let Some(answer) = self.end() {
            writeln!(output, "{answer}")?;
        }
        output.flush()
    }
}
