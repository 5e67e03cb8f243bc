//! Identity of a process in its job: rank, size, local and cross rank, and the keys of the
//! rendezvous.
//!
//! Launchers set environment variables. The first source that is present decides: `HOROVOD_*`
//! (which `ronde run` sets), Open MPI, PMI (MPICH, Intel MPI), Slurm inside a step, torchrun.
//! Without any of them the job has one rank. If sources disagree, the error names both variables,
//! because a guess would start the wrong job or hang. Two kinds of sources never disagree with
//! another one: a source of size 1, because a launcher is often the only task of another launcher
//! (`srun -n 1 torchrun …`), and a Slurm step of one task per node, because these tasks may be a
//! launcher's daemons.
//!
//! All functions depend only on their arguments: an environment lookup, a process table, properties
//! of the host.
//!
//! ```
//! use ronde::internal::identity::{Identity, Source};
//!
//! let environment = |name: &str| match name {
//!     "RANK" => Some("1".to_owned()),
//!     "WORLD_SIZE" => Some("2".to_owned()),
//!     _ => None,
//! };
//! let identity = Identity::from_lookup(&environment)?;
//! assert_eq!((identity.rank, identity.size, identity.source), (1, 2, Source::Torchrun));
//! # Ok::<(), ronde::internal::identity::IdentityError>(())
//! ```

mod digest;
mod error;
mod host_key;
mod hosts;
mod job_key;
mod slurm;
mod sources;

pub(crate) use digest::digest;
pub(crate) use error::Found;
pub use error::IdentityError;
pub use host_key::{HostFacts, host_key};
pub(crate) use hosts::Hosts;
pub use job_key::{Process, ProcessTable, Processes, job_key, random_job_key};
pub use sources::{IDENTITY_VARIABLES, Source};

use sources::Claim;

/// Most ranks on a host: each pair of them shares slots of the ring and a readiness word of 64
/// bits.
pub const MAX_RANKS: usize = 64;

/// Returns the value of an environment variable, `None` if it is unset.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Position of a process among the processes of its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Number of this process, from 0 to `size - 1`.
    pub rank: usize,
    /// Number of processes in the job.
    pub size: usize,
    /// Number of this process on its host, from 0 to `local_size - 1`.
    pub local_rank: usize,
    /// Number of processes of the job on this host.
    pub local_size: usize,
    /// Number of this host among the hosts with this local rank.
    pub cross_rank: usize,
    /// Number of hosts with this local rank.
    pub cross_size: usize,
    /// Source of these values.
    pub source: Source,
}

impl Identity {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// As for [`Identity::from_lookup`].
    pub fn from_env() -> Result<Identity, IdentityError> {
        Identity::from_lookup(&environment)
    }

    /// Reads variables through `lookup`.
    ///
    /// If no source gives the local values, all ranks are taken to be on this host. If none gives
    /// the cross values, ranks are taken to fill equal hosts in order.
    ///
    /// # Errors
    /// [`IdentityError`] when a variable is not a number or out of range, when one of a pair is
    /// missing, or when two sources disagree.
    pub fn from_lookup(lookup: Lookup) -> Result<Identity, IdentityError> {
        let claims = heeded(lookup)?;
        let Some(first) = claims.first() else {
            return Ok(Identity::single());
        };
        for other in &claims[1..] {
            agree(first.size, other.size)?;
            agree(first.rank, other.rank)?;
        }
        let (rank, size) = (first.rank.value, first.size.value);
        if rank >= size {
            return Err(IdentityError::RankOutOfRange {
                rank: first.rank,
                size: first.size,
            });
        }
        let local = claims.iter().find_map(|claim| claim.local);
        let (local_rank, local_size) = match local {
            Some((local_rank, local_size)) => within(local_rank, local_size, first.size)?,
            None => (rank, size),
        };
        if local_size > MAX_RANKS {
            return Err(IdentityError::TooManyRanks {
                size: local.map_or(first.size, |(_, local_size)| local_size),
                max: MAX_RANKS,
            });
        }
        let (cross_rank, cross_size) = match claims.iter().find_map(|claim| claim.cross) {
            Some((cross_rank, cross_size)) => within(cross_rank, cross_size, first.size)?,
            None if local_size == size => (0, 1),
            None => (rank / local_size, size.div_ceil(local_size)),
        };
        Ok(Identity {
            rank,
            size,
            local_rank,
            local_size,
            cross_rank,
            cross_size,
            source: first.source,
        })
    }

    /// Identity in a job of one process.
    pub fn single() -> Identity {
        Self::on_one_host(0, 1)
    }

    /// Checks a rank that the program has given.
    ///
    /// # Errors
    /// It is not below the size.
    pub(crate) fn check(&self) -> Result<(), IdentityError> {
        if self.rank < self.size {
            return Ok(());
        }
        let found = |variable, value| Found { variable, value };
        Err(IdentityError::RankOutOfRange {
            rank: found("rank", self.rank),
            size: found("size", self.size),
        })
    }

    /// Rank `rank` of `size`, all on this host, as given by the program.
    pub(crate) fn on_one_host(rank: usize, size: usize) -> Identity {
        Identity {
            rank,
            size,
            local_rank: rank,
            local_size: size,
            cross_rank: 0,
            cross_size: 1,
            source: Source::Single,
        }
    }
}

/// Returns the values of the sources that count.
fn heeded(lookup: Lookup) -> Result<Vec<Claim>, IdentityError> {
    let mut claims = sources::claims(lookup)?;
    // An outer launcher that started this job as its single task does not know the inner ranks.
    let largest = claims
        .iter()
        .map(|claim| claim.size.value)
        .max()
        .unwrap_or(1);
    claims.retain(|claim| claim.size.value != 1 || largest <= 1);
    Ok(claims)
}

/// Returns the source, and its variables, that give this process rank `rank` of `size`; `None` if
/// the environment gives other values.
pub(crate) fn said_by(lookup: Lookup, rank: usize, size: usize) -> Option<(Source, [Found; 2])> {
    let first = heeded(lookup).ok()?.into_iter().next()?;
    let says_so = (first.rank.value, first.size.value) == (rank, size);
    says_so.then_some((first.source, [first.rank, first.size]))
}

/// Looks up a variable in the process's environment. A value that is not UTF-8 counts as unset: no
/// variable read here has such a value.
pub fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn agree(first: Found, second: Found) -> Result<(), IdentityError> {
    if first.value == second.value {
        Ok(())
    } else {
        Err(IdentityError::Contradiction { first, second })
    }
}

/// Checks a local or cross pair: rank below its size, its size at most the job's.
fn within(rank: Found, size: Found, job_size: Found) -> Result<(usize, usize), IdentityError> {
    if rank.value >= size.value {
        return Err(IdentityError::RankOutOfRange { rank, size });
    }
    if size.value > job_size.value {
        return Err(IdentityError::Contradiction {
            first: job_size,
            second: size,
        });
    }
    Ok((rank.value, size.value))
}

#[cfg(test)]
mod tests;

/// Returns the lookup of an environment that is written as `NAME=value NAME=value`, for tests.
#[cfg(test)]
pub(crate) fn written(environment: &str) -> impl Fn(&str) -> Option<String> {
    let pairs = environment.split_whitespace();
    let pairs = pairs.map(|pair| pair.split_once('=').expect("a variable and its value"));
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let variables: std::collections::HashMap<String, String> = pairs.collect();
    move |name| variables.get(name).cloned()
}
