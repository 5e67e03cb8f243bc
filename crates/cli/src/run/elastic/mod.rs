//! Elastic jobs: ranks are started, replaced and removed while the job runs.
//!
//! [`job`] has the loop that carries out what [`ronde_elastic::Membership`] decides, [`discovery`]
//! the hosts, [`processes`] the processes of this machine, [`remote`] another host, where an
//! [`agent`] has its processes, and [`link`] the connections of processes.

mod agent;
mod discovery;
mod job;
mod link;
mod processes;
mod remote;
mod wire;

pub use agent::{ELASTIC_AGENT, elastic_agent_main};

use super::ssh::server::InterfaceError;
use super::ssh::{self, SshError, SshFlags};
use super::{LaunchError, LaunchSpec};
use clap::ValueHint;
use discovery::Source;
use remote::Reach;
use ronde::internal::identity::random_job_key;
use ronde_elastic::{Cooldown, CooldownError, HostsError, Limits};
use ronde_net::Secret;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Flags of elastic jobs.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Elastic jobs")]
pub(super) struct ElasticFlags {
    /// Smallest number of ranks with which the job continues [default: that of -np]; also --min-np
    #[arg(long, visible_alias = "min-np", value_name = "N")]
    #[arg(value_parser = crate::range::whole::<u64>(1, super::RANKS_MAX))]
    min_num_proc: Option<u64>,
    /// Largest number of ranks [default: no limit]; also --max-np
    #[arg(long, visible_alias = "max-np", value_name = "N")]
    #[arg(value_parser = crate::range::whole::<u64>(1, super::RANKS_MAX))]
    max_num_proc: Option<u64>,
    /// Program, or shell command, that prints the hosts that can be used, one host or host:slots on
    /// each line; it is run once a second. Other hosts than this one are reached through ssh
    #[arg(long, value_name = "PROGRAM", value_hint = ValueHint::ExecutablePath)]
    #[arg(conflicts_with_all = ["hosts", "hostfile"])]
    host_discovery_script: Option<PathBuf>,
    /// Slots of hosts for which the program prints none; also --slots
    #[arg(long, visible_alias = "slots", value_name = "N")]
    #[arg(value_parser = crate::range::whole::<u64>(1, super::RANKS_MAX))]
    slots_per_host: Option<u64>,
    /// Seconds for enough ranks, at the start and after a loss; a process has half of it to call
    /// hvd.init() [default: 600]
    #[arg(long, value_name = "SECONDS")]
    #[arg(value_parser = crate::range::whole::<u64>(1, 1 << 32))]
    elastic_timeout: Option<u64>,
    /// Largest number of resets, after which the job ends [default: no limit]
    #[arg(long, value_name = "N")]
    reset_limit: Option<u64>,
    /// Shortest and longest time in seconds for which a host that failed gets no new ranks; the
    /// time doubles with each failure [default: it gets no new ranks]
    #[arg(long, num_args = 2, value_names = ["MIN", "MAX"])]
    blacklist_cooldown_range: Option<Vec<u64>>,
}

/// Elastic flags that do not fit each other or the others.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ElasticError {
    #[error("--min-np {least} is above --max-np {most}")]
    Order { least: usize, most: usize },
    #[error("-np {start} is not between --min-np {least} and --max-np {most}")]
    Start {
        start: usize,
        least: usize,
        most: usize,
    },
    #[error("--blacklist-cooldown-range: {0}")]
    Cooldown(#[from] CooldownError),
    #[error("{0} is for elastic jobs; give --host-discovery-script or --min-np as well")]
    NotElastic(&'static str),
    #[error(
        "ranks that mpirun starts are fixed: give no --mpi, --print-command, --mpi-args or \
         --binding-args to an elastic job"
    )]
    Mpirun,
    #[error("-H or the host file: {0}")]
    Hosts(#[from] HostsError),
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    #[error("--host-discovery-script {}: {reason}", path.display())]
    Script { path: PathBuf, reason: String },
}

/// An elastic job.
pub(super) struct Elastic {
    limits: Limits,
    source: Source,
    /// Address of this machine on the network interface between the hosts, if one is given.
    address: Option<IpAddr>,
}

impl ElasticFlags {
    /// Whether the job is elastic: as in Horovod, with a discovery script or a smallest number of
    /// ranks.
    pub(super) fn is_elastic(&self) -> bool {
        self.host_discovery_script.is_some() || self.min_num_proc.is_some()
    }

    /// Returns the job that starts with `start` ranks on the fixed `hosts`, or on those that the
    /// script prints.
    ///
    /// # Errors
    /// Flags that do not fit each other; a script that cannot be run.
    pub(super) fn job(
        &self,
        start: usize,
        hosts: Vec<(String, usize)>,
    ) -> Result<Elastic, ElasticError> {
        let number = |number: Option<u64>| number.map(|number| number as usize); // checked by clap
        let most = number(self.max_num_proc).unwrap_or(super::RANKS_MAX as usize);
        let least = number(self.min_num_proc).unwrap_or(start);
        if least > most {
            return Err(ElasticError::Order { least, most });
        }
        if !(least..=most).contains(&start) {
            return Err(ElasticError::Start { start, least, most });
        }
        let cooldown = match self.blacklist_cooldown_range.as_deref() {
            Some([least, most]) => Some(Cooldown::new(*least, *most)?),
            _ => None,
        };
        let limits = Limits {
            least,
            most,
            start,
            timeout: Duration::from_secs(self.elastic_timeout.unwrap_or(600)),
            are_hosts_fixed: self.host_discovery_script.is_none(),
            resets: self.reset_limit,
            cooldown,
        };
        let source = match &self.host_discovery_script {
            Some(path) => Source::script(path.clone(), number(self.slots_per_host))?,
            None if hosts.is_empty() => {
                Source::fixed(&[("localhost".to_owned(), start.max(least))])?
            }
            None => Source::fixed(&hosts)?,
        };
        Ok(Elastic {
            limits,
            source,
            address: None,
        })
    }

    /// Checks that no flag of elastic jobs was given to another job.
    pub(super) fn check_unused(&self) -> Result<(), ElasticError> {
        let given = [
            (self.max_num_proc.is_some(), "--max-np"),
            (self.slots_per_host.is_some(), "--slots-per-host"),
            (self.elastic_timeout.is_some(), "--elastic-timeout"),
            (self.reset_limit.is_some(), "--reset-limit"),
            (
                self.blacklist_cooldown_range.is_some(),
                "--blacklist-cooldown-range",
            ),
        ];
        match given.iter().find(|(is_given, _)| *is_given) {
            Some((_, name)) => Err(ElasticError::NotElastic(name)),
            None => Ok(()),
        }
    }
}

/// Starts an elastic job and supervises it to its end; returns its exit code.
pub(super) fn launch(
    spec: &LaunchSpec,
    mut elastic: Elastic,
    flags: &SshFlags,
) -> Result<u8, super::Error> {
    let interface = ssh::interface(&flags.interfaces)?;
    // Ranks may be on this host only, which other hosts' agents do not know.
    let address = interface.as_deref();
    let address = address.map(|name| ssh::server::of_interface(name, true));
    elastic.address = address.transpose().map_err(ElasticError::from)?;
    let mut spec = spec.clone();
    for variable in [ssh::INTERFACE, ssh::OWN_INTERFACE] {
        let name = interface.clone();
        spec.environment
            .extend(name.map(|name| (variable.into(), name.into())));
    }
    let reach = Reach {
        ssh: ssh::options(flags, ELASTIC_AGENT)?,
        task: wire::Task {
            host: String::new(),
            job_id: random_job_key().map_err(LaunchError::system("draw a name for the job"))?,
            secret: Secret::random().map_err(SshError::from)?.to_line(),
            environment: ssh::environment(&spec, flags.backend.clone(), interface.clone()),
            interface,
            command: spec.command.clone(),
            folder: std::env::current_dir().map_or_else(|_| "/".into(), PathBuf::into_os_string),
            limit_threads: flags.limits_threads(),
            verbose: spec.verbose,
        },
    };
    Ok(job::run(&spec, elastic, reach)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use ronde_elastic::Hosts;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        elastic: ElasticFlags,
        /// Like `hostfile`, a flag of the command that one of the elastic ones excludes.
        #[arg(long)]
        hosts: Option<String>,
        #[arg(long)]
        hostfile: Option<String>,
    }

    /// Returns the job that starts with 2 ranks, from a command line.
    fn job(line: &str, hosts: &[(&str, usize)]) -> Result<Elastic, ElasticError> {
        let arguments = std::iter::once("run").chain(line.split_whitespace());
        let arguments =
            Arguments::try_parse_from(arguments).unwrap_or_else(|error| panic!("{error}"));
        let hosts = hosts.iter().map(|&(name, slots)| (name.to_owned(), slots));
        arguments.elastic.job(2, hosts.collect())
    }

    fn fixed(hosts: &[(&str, usize)]) -> Hosts {
        let hosts: Vec<_> = hosts
            .iter()
            .map(|&(name, slots)| (name.to_owned(), slots))
            .collect();
        Hosts::new(&hosts).unwrap()
    }

    #[test]
    fn every_flag_reaches_the_job() {
        let line = "--min-np 1 --max-np 5 --elastic-timeout 42 --reset-limit 3 \
                    --blacklist-cooldown-range 2 9 --slots-per-host 4 \
                    --host-discovery-script /bin/sh";
        let Elastic {
            limits,
            source,
            address,
        } = job(line, &[]).unwrap();
        let Limits {
            least,
            most,
            start,
            timeout,
            are_hosts_fixed,
            resets,
            cooldown,
        } = limits;
        assert_eq!((least, most, start), (1, 5, 2));
        assert_eq!((timeout, resets), (Duration::from_secs(42), Some(3)));
        assert_eq!(cooldown, Some(Cooldown::new(2, 9).unwrap()));
        assert!(!are_hosts_fixed && address.is_none());
        assert!(matches!(source, Source::Script { slots: Some(4), .. }));
    }

    #[test]
    fn flags_that_are_not_given_have_their_defaults() {
        let Elastic { limits, source, .. } = job("--min-np 1", &[]).unwrap();
        assert_eq!(
            (limits.least, limits.most, limits.start),
            (1, super::super::RANKS_MAX as usize, 2)
        );
        assert_eq!(
            (limits.timeout, limits.resets),
            (Duration::from_secs(600), None)
        );
        assert!(limits.cooldown.is_none() && limits.are_hosts_fixed);
        assert!(matches!(source, Source::Fixed(hosts) if hosts == fixed(&[("localhost", 2)])));
        // The smallest number is that of -np.
        let Elastic { limits, source, .. } = job("--host-discovery-script /bin/sh", &[]).unwrap();
        assert_eq!(limits.least, 2);
        assert!(matches!(source, Source::Script { slots: None, .. }));
    }

    #[test]
    fn the_hosts_of_the_command_line_are_fixed() {
        let hosts = [("one", 1), ("other", 3)];
        let Elastic { limits, source, .. } = job("--min-np 1", &hosts).unwrap();
        assert!(limits.are_hosts_fixed);
        assert!(matches!(source, Source::Fixed(found) if found == fixed(&hosts)));
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        let order = job("--min-np 6 --max-np 5", &[]).err();
        assert!(matches!(
            order,
            Some(ElasticError::Order { least: 6, most: 5 })
        ));
        for (line, expected) in [
            ("--min-np 3", (3, super::super::RANKS_MAX as usize)),
            ("--min-np 1 --max-np 1", (1, 1)),
        ] {
            match job(line, &[]).err() {
                Some(ElasticError::Start {
                    start: 2,
                    least,
                    most,
                }) => assert_eq!((least, most), expected),
                other => panic!("{line}: {other:?}"),
            }
        }
    }
}
