//! Command line of `mpirun` for jobs on other hosts that another subcommand starts and supervises.

use std::ffi::OsString;

use super::hosts::{self, RankPlacement};
use super::mpirun::{Launch, MpiFlags};
use crate::error::Error;

/// Hosts and their slots, as in `node1:4,node2:4`, and additional options for `mpirun`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elsewhere<'a> {
    pub(crate) hosts: &'a str,
    pub(crate) mpi_args: Option<&'a str>,
}

impl Elsewhere<'_> {
    /// Whether any of the hosts for `num_proc` ranks is another machine than this.
    ///
    /// # Errors
    /// Hosts that cannot be parsed, or that have too few slots.
    pub(crate) fn is_elsewhere(&self, num_proc: usize) -> Result<bool, Error> {
        let place = hosts::place(Some(self.hosts), None, num_proc)?;
        Ok(matches!(place, RankPlacement::Hosts(_)))
    }

    /// Returns the command line that starts `num_proc` ranks of `command`, with `environment` in
    /// addition to this process's variables.
    ///
    /// # Errors
    /// Hosts that cannot be parsed, or that have too few slots; no `mpirun`, or one that does not
    /// support a requested option.
    pub(crate) fn command_line(
        &self,
        num_proc: usize,
        environment: Vec<(OsString, OsString)>,
        command: Vec<OsString>,
    ) -> Result<Vec<OsString>, Error> {
        let (RankPlacement::Here(hosts) | RankPlacement::Hosts(hosts)) =
            hosts::place(Some(self.hosts), None, num_proc)?;
        let launch = Launch {
            num_proc,
            hosts,
            environment,
            // Exported by name: other users must not learn the value, so it is set only in mpirun's
            // environment and is on no command line.
            exported: vec!["RONDE_JOB_ID".into()],
            prefix: true,
            command,
            flags: MpiFlags::with_args(self.mpi_args.map(str::to_owned)),
            ..Launch::default()
        };
        Ok(launch.line()?)
    }
}
