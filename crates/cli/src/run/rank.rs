//! Process of one rank, with pipes for its output.

use super::job::Part;
use super::output::{Queue, Target};
use super::process::Process;
use super::sink::Sink;
use super::stream::{READ_BYTES, Stream};
use super::{LaunchError, LaunchSpec, Output};
use ronde::internal::identity::IDENTITY_VARIABLES;
use ronde_elastic::Place;
use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::process::{Command, Stdio};

/// Variables of a process of an elastic job. A job that a rank of it starts must not inherit them.
pub(super) const ELASTIC_VARIABLES: [&str; 3] = [
    "RONDE_ELASTIC_SOCKET",
    "RONDE_ELASTIC_MEMBER",
    "HOROVOD_ELASTIC",
];

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
    /// Starts a rank of a job with a fixed number of ranks.
    pub(super) fn start(
        spec: &LaunchSpec,
        part: &Part<'_>,
        place: &Place,
    ) -> Result<Rank, LaunchError> {
        let identity = place
            .variables()
            .map(|(name, value)| (name, value.to_string()));
        let job = ("RONDE_JOB_ID", part.job_id.clone());
        let variables = identity.into_iter().chain([job]);
        let inherits = place.rank == 0 && !part.is_of_launcher();
        Self::with_variables(spec, place.rank, variables, inherits, |target| {
            part.sink(spec, place.rank, target)
        })
    }

    /// Starts process number `number` with these variables instead of any identity. With
    /// `inherits`, it has standard input unless that is a terminal.
    pub(super) fn with_variables(
        spec: &LaunchSpec,
        number: usize,
        variables: impl IntoIterator<Item = (&'static str, impl AsRef<OsStr>)>,
        inherits: bool,
        sink: impl Fn(Target) -> Result<Sink, LaunchError>,
    ) -> Result<Rank, LaunchError> {
        let Some((program, arguments)) = spec.command.split_first() else {
            return Err(LaunchError::NoCommand);
        };
        let live = spec.output == Output::Live;
        let mut command = Command::new(program);
        command.args(arguments);
        for name in IDENTITY_VARIABLES.iter().chain(&ELASTIC_VARIABLES) {
            command.env_remove(name);
        }
        command
            .envs(variables)
            .envs(spec.environment.iter().map(|(name, value)| (name, value)));
        // A process group in the background is stopped when it reads from a terminal.
        let inherits = inherits && !io::stdin().is_terminal();
        command.stdin(if inherits {
            Stdio::inherit()
        } else {
            Stdio::null()
        });
        command.stdout(match (live, number) {
            (false, _) => Stdio::piped(),
            (true, 0) => Stdio::inherit(),
            (true, _) => Stdio::null(),
        });
        command.stderr(if live && number == 0 {
            Stdio::inherit()
        } else {
            Stdio::piped()
        });
        let failed = |source| LaunchError::Start {
            program: program.into(),
            rank: number,
            source,
        };
        let (process, pipes) = Process::start(&mut command, failed)?;
        let mut rank = Rank {
            number,
            process,
            streams: Vec::new(),
        };
        let pipes = [
            (Target::Stdout, pipes.stdout),
            (Target::Stderr, pipes.stderr),
        ];
        for (target, pipe) in pipes {
            let Some(pipe) = pipe else { continue };
            match sink(target).and_then(|sink| Stream::new(pipe, sink)) {
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

    /// Gives the process another rank: its output has that prefix from now on.
    pub(super) fn renumber(&mut self, rank: usize) {
        self.number = rank;
        self.streams
            .iter_mut()
            .for_each(|stream| stream.renumber(rank));
    }

    /// Reads the available output without waiting.
    pub(super) fn drain(&mut self, queue: &mut Queue) {
        for stream in &mut self.streams {
            // Bounded, because a process outside of the group may write forever.
            let _ = (0..READS_MAX).take_while(|_| stream.read(queue)).count();
        }
    }
}
