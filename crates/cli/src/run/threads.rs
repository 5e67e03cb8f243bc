//! Thread limit of each rank: sets `OMP_NUM_THREADS`, so that the ranks of this machine share its
//! cores.
//!
//! Libraries with OpenMP (among them PyTorch) and OpenBLAS start as many threads in each process as
//! the machine has cores. With several ranks, threads then wait for cores instead of computing. A
//! value that the user has set is never changed.

use std::ffi::OsString;

/// Environment variable that OpenMP and OpenBLAS read.
const VARIABLE: &str = "OMP_NUM_THREADS";

/// Thread limit of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Threads {
    /// No limit: the user has set the variable or refused the limit, or the number of cores is
    /// unknown.
    Unchanged,
    /// Each rank gets its share of the cores.
    Shared { cores: usize, ranks: usize },
    /// No limit: the ranks may be on other hosts, whose number of cores is unknown.
    Unknown,
}

impl Threads {
    /// Limit for a job of `ranks` ranks; `are_here` tells whether all of them are on this machine.
    /// `cores` is the number of cores that this process may use, if known.
    pub(super) fn new(
        is_limited: bool,
        are_here: bool,
        ranks: usize,
        cores: Option<usize>,
    ) -> Self {
        match cores {
            _ if !is_limited || std::env::var_os(VARIABLE).is_some() => Self::Unchanged,
            _ if !are_here => Self::Unknown,
            None => Self::Unchanged,
            Some(cores) => Self::Shared { cores, ranks },
        }
    }

    /// Variable for the ranks, if there is a limit.
    pub(super) fn variable(self) -> Option<(OsString, OsString)> {
        self.each()
            .map(|each| (VARIABLE.into(), each.to_string().into()))
    }

    /// Message for the user, if there is one.
    pub(super) fn note(self) -> Option<String> {
        match self {
            Self::Unchanged => None,
            Self::Shared { cores, ranks } => self.each().map(|each| {
                format!(
                    "{VARIABLE}={each} for each rank (cores: {cores}, ranks: {ranks}); set it to choose \
                     another number, or pass --no-thread-limit"
                )
            }),
            Self::Unknown => Some(format!(
                "{VARIABLE} is not set, so each rank may start as many threads as its host has cores; \
                 set it to the cores of a host divided by its ranks, or pass --no-thread-limit"
            )),
        }
    }

    fn each(self) -> Option<usize> {
        match self {
            Self::Shared { cores, ranks } => Some((cores / ranks.max(1)).max(1)),
            Self::Unchanged | Self::Unknown => None,
        }
    }
}

/// Number of cores that this process may use, by its CPU affinity and its control group's quota.
pub(super) fn cores() -> Option<usize> {
    std::thread::available_parallelism().ok().map(usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_the_cores_and_each_has_one_at_least() {
        for (cores, ranks, each) in [
            (2, 1, 2),
            (2, 2, 1),
            (2, 3, 1),
            (64, 8, 8),
            (64, 7, 9),
            (1, 1, 1),
        ] {
            let threads = Threads::Shared { cores, ranks };
            assert_eq!(
                threads.variable(),
                Some((VARIABLE.into(), each.to_string().into())),
                "{threads:?}"
            );
            assert!(
                threads
                    .note()
                    .unwrap()
                    .starts_with(&format!("OMP_NUM_THREADS={each} for each rank"))
            );
        }
        assert_eq!(Threads::Unknown.variable(), None);
        assert!(Threads::Unknown.note().unwrap().contains("not set"));
        assert_eq!(
            (Threads::Unchanged.variable(), Threads::Unchanged.note()),
            (None, None)
        );
    }
}
