//! Jobs on other hosts that another subcommand starts and watches over: how `mpirun` starts them.

use std::ffi::OsString;

use super::hosts::{self, HostsError, RankPlacement};
use super::mpi_flags::MpiFlags;
use super::mpirun::{Launch, MpirunError};

/// Why there is no such job.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ElsewhereError {
    #[error(transparent)]
    Hosts(#[from] HostsError),
    #[error(transparent)]
    Mpirun(#[from] MpirunError),
}

/// Hosts and their slots, as in `node1:4,node2:4`, and further options for `mpirun`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elsewhere<'a> {
    pub(crate) hosts: &'a str,
    pub(crate) mpi_args: Option<&'a str>,
}

impl Elsewhere<'_> {
    /// Whether `num_proc` ranks are on other machines than this, or on others too.
    ///
    /// # Errors
    /// Hosts that cannot be read, or have too few slots.
    pub(crate) fn is_elsewhere(&self, num_proc: usize) -> Result<bool, ElsewhereError> {
        let place = hosts::place(Some(self.hosts), None, num_proc)?;
        Ok(matches!(place, RankPlacement::Hosts(_)))
    }

    /// The command line that starts `num_proc` ranks of `command`, to whom `environment` is set beside this process's variables.
    ///
    /// # Errors
    /// Hosts that cannot be read, or have too few slots; no `mpirun`, or one that lacks what is asked for.
    pub(crate) fn command_line(
        &self,
        num_proc: usize,
        environment: Vec<(OsString, OsString)>,
        command: Vec<OsString>,
    ) -> Result<Vec<OsString>, ElsewhereError> {
        let (RankPlacement::Here(hosts) | RankPlacement::Hosts(hosts)) =
            hosts::place(Some(self.hosts), None, num_proc)?;
        let launch = Launch {
            num_proc,
            hosts,
            environment,
            // By name: its value, which others must not be able to guess, is set for mpirun alone, and shows in no
            // command line.
            exported: vec!["RONDE_JOB_ID".into()],
            prefix: true,
            command,
            ..Launch::default()
        };
        let flags = MpiFlags::of(self.mpi_args.map(str::to_owned));
        Ok(flags.command_line(launch)?)
    }
}
