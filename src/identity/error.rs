//! Errors in the environment variables that give a process's identity.

use std::fmt;

/// Variable with the number found in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Name of the variable.
    pub variable: &'static str,
    /// Its value.
    pub value: usize,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}={}", self.variable, self.value)
    }
}

/// The environment gives no rank and size for this process, or contradicting ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// A value is not a non-negative integer.
    #[error(
        "{variable}={value} is not a number of ranks; a launcher sets it to an integer, so unset or correct it"
    )]
    NotANumber {
        /// The variable.
        variable: &'static str,
        /// Value of the variable.
        value: String,
    },
    /// Only one of two variables that belong together is set.
    #[error("{present} is set but {missing} is not; set both, or neither")]
    Incomplete {
        /// The variable that is set.
        present: Found,
        /// The variable that is not set.
        missing: &'static str,
    },
    /// A rank without a size.
    #[error(
        "{rank} is set, but no variable gives the number of ranks (PMIx sets none); start the ranks with \
         mpirun, srun or `ronde run`, or set HOROVOD_RANK and HOROVOD_SIZE for each, on several hosts \
         HOROVOD_LOCAL_RANK and HOROVOD_LOCAL_SIZE too"
    )]
    NoSize {
        /// The rank.
        rank: Found,
    },
    /// A rank is not below its size.
    #[error("{rank} is out of range: with {size} it must be below {}", .size.value)]
    RankOutOfRange {
        /// The rank.
        rank: Found,
        /// The size it belongs to.
        size: Found,
    },
    /// Two variables contradict each other.
    #[error(
        "{first} contradicts {second}: two launchers describe this process; unset the variables of the one that did not start it"
    )]
    Contradiction {
        /// The variable that takes precedence.
        first: Found,
        /// The variable that contradicts it.
        second: Found,
    },
    /// The job is larger than supported.
    #[error(
        "{size} is more than the {max} ranks that a host can have; start fewer, or, if the ranks are on several \
         hosts, set HOROVOD_LOCAL_RANK and HOROVOD_LOCAL_SIZE for each"
    )]
    TooManyRanks {
        /// The size found.
        size: Found,
        /// Most ranks supported.
        max: usize,
    },
    /// Slurm's list of tasks per node is invalid, or does not contain this node.
    #[error(
        "{variable}={value} gives no number of tasks for node {node}; expected a list such as 2(x3),1"
    )]
    TaskList {
        /// The variable.
        variable: &'static str,
        /// Value of the variable.
        value: String,
        /// Number of this node, from `SLURM_NODEID`.
        node: usize,
    },
}
