//! Process of one rank, with pipes for its output.

use super::job::Part;
use super::output::{Queue, Target};
use super::place::Place;
use super::process::Process;
use super::stream::{READ_BYTES, Stream};
use super::{LaunchError, LaunchSpec, Output};
use ronde::internal::identity::IDENTITY_VARIABLES;
use std::io::{self, IsTerminal};
use std::process::{Command, Stdio};

/// Number of reads that empty a pipe of 1 MiB, the largest size that an unprivileged process can
/// set.
const READS_MAX: usize = (1 << 20) / READ_BYTES;

/// Rank that has been started.
pub(super) struct Rank {
    pub(super) number: usize,
    pub(super) process: Process,
    pub(super) streams: Vec<Stream>,
}

impl Rank {
    /// Starts a rank.
    pub(super) fn start(
        spec: &LaunchSpec,
        part: &Part<'_>,
        place: &Place,
    ) -> Result<Rank, LaunchError> {
        let Some((program, arguments)) = spec.command.split_first() else {
            return Err(LaunchError::NoCommand);
        };
        let (rank, live) = (place.rank, spec.output == Output::Live);
        let mut command = Command::new(program);
        command.args(arguments);
        for name in IDENTITY_VARIABLES {
            command.env_remove(name);
        }
        for (name, value) in place.variables() {
            command.env(name, value.to_string());
        }
        command
            .env("RONDE_JOB_ID", &part.job_id)
            .envs(spec.environment.iter().map(|(name, value)| (name, value)));
        // A process group in the background is stopped when it reads from a terminal.
        let inherits = rank == 0 && !part.is_of_launcher() && !io::stdin().is_terminal();
        command.stdin(if inherits {
            Stdio::inherit()
        } else {
            Stdio::null()
        });
        command.stdout(match (live, rank) {
            (false, _) => Stdio::piped(),
            (true, 0) => Stdio::inherit(),
            (true, _) => Stdio::null(),
        });
        command.stderr(if live && rank == 0 {
            Stdio::inherit()
        } else {
            Stdio::piped()
        });
        let failed = |source| LaunchError::Start {
            program: program.into(),
            rank,
            source,
        };
        let (process, pipes) = Process::start(&mut command, failed)?;
        let mut rank = Rank {
            number: rank,
            process,
            streams: Vec::new(),
        };
        let pipes = [
            (Target::Stdout, pipes.stdout),
            (Target::Stderr, pipes.stderr),
        ];
        for (target, pipe) in pipes {
            let Some(pipe) = pipe else { continue };
            let number = rank.number;
            match part
                .sink(spec, number, target)
                .and_then(|sink| Stream::new(pipe, sink))
            {
                Ok(stream) => rank.streams.push(stream),
                Err(error) => {
                    rank.process.signal(rustix::process::Signal::KILL);
                    rank.process.reap();
                    return Err(error);
                }
            }
        }
        Ok(rank)
    }

    /// Reads the available output without waiting.
    pub(super) fn drain(&mut self, queue: &mut Queue) {
        for stream in &mut self.streams {
            // Bounded, because a process outside of the group may write forever.
            let _ = (0..READS_MAX).take_while(|_| stream.read(queue)).count();
        }
    }
}
