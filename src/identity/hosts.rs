//! Distribution of the ranks of a job, or of a process set, over hosts.

/// Number of hosts, and smallest and largest number of ranks on one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hosts {
    /// Number of hosts with at least one of the ranks.
    pub(crate) count: usize,
    /// Smallest number of ranks on a host.
    pub(crate) least: usize,
    /// Largest number of ranks on a host.
    pub(crate) most: usize,
}

impl Hosts {
    /// `ranks` ranks on one host.
    pub(crate) fn one(ranks: usize) -> Self {
        Self::of([ranks])
    }

    /// Hosts with these numbers of ranks.
    pub(crate) fn of(sizes: impl IntoIterator<Item = usize>) -> Self {
        let none = Self {
            count: 0,
            least: usize::MAX,
            most: 0,
        };
        sizes.into_iter().fold(none, |hosts, ranks| Self {
            count: hosts.count + 1,
            least: hosts.least.min(ranks),
            most: hosts.most.max(ranks),
        })
    }

    /// Reason why no operation can be hierarchical; `None` if operations can be.
    pub(crate) fn why_flat(&self) -> Option<&'static str> {
        match self {
            Self { count: 0 | 1, .. } => Some("all ranks are on one host"),
            Self { most: 0 | 1, .. } => Some("every host has one rank"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchical_operations_need_several_hosts_and_a_host_with_several_ranks() {
        assert_eq!(Hosts::one(4).why_flat(), Some("all ranks are on one host"));
        assert_eq!(
            Hosts::of([1, 1, 1]).why_flat(),
            Some("every host has one rank")
        );
        let uneven = Hosts::of([2, 1, 1]);
        assert_eq!((uneven.count, uneven.least, uneven.most), (3, 1, 2));
        assert_eq!(uneven.why_flat(), None);
    }
}
