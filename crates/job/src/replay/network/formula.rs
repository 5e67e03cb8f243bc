//! Number of hops and bytes of an allreduce, by algorithm and topology.
//!
//! With P ranks and n bytes, a message between two ranks taking α + β n:
//! - **Ring** (reduce-scatter, then allgather, both around the ring):
//!   2 (P − 1) α + 2 (P − 1) / P · n β. No algorithm moves fewer bytes (Patarasuk & Yuan,
//!   “Bandwidth optimal all-reduce algorithms for clusters of workstations”, J. Parallel Distrib.
//!   Comput. 69 (2009), §2–3).
//! - **Tree** (recursive halving, then recursive doubling; Rabenseifner's):
//!   2 log₂ P α + 2 (P − 1) / P · n β. If P is not a power of two, one message of all n bytes is
//!   added at each end (Thakur, Rabenseifner & Gropp, “Optimization of collective communication
//!   operations in MPICH”, Int. J. High Perform. Comput. Appl. 19 (2005), §4.5).
//! - **Hierarchical** (reduce-scatter on each host, a ring across hosts for each share, allgather
//!   on each host): with L ranks on each of N hosts, 2 (L − 1) α + 2 (L − 1) / L · n β inside, and
//!   2 (N − 1) α + 2 (N − 1) / N · n β across, since the L shares of n / L bytes pass one port.
//!   This is the composition of Chan, Heimlich, Purkayastha & van de Geijn (“Collective
//!   communication: theory, practice, and experience”, Concurrency Computat. 19 (2007), §4 and §6).
//!
//! The reduction of bytes is counted as part of moving them. A ring over several hosts uses N of
//! its P links between hosts: each byte waits for the slowest link, each hop for its own link.

/// Algorithm of an allreduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Ring of all ranks.
    Ring,
    /// Recursive halving and doubling.
    Tree,
    /// Reduce-scatter inside hosts, allreduce across hosts, allgather inside hosts.
    Hierarchical,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 3] = [Self::Ring, Self::Tree, Self::Hierarchical];

    /// Name in tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Tree => "tree",
            Self::Hierarchical => "hierarchical",
        }
    }
}

/// Number of ranks and their distribution over hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Number of ranks P, at least 1.
    pub ranks: u32,
    /// Ranks per host L, from 1 to P; the last host may have fewer.
    pub ranks_per_host: u32,
}

impl Topology {
    /// Creates a topology of `ranks` with `ranks_per_host`, both limited to valid values.
    pub fn new(ranks: u32, ranks_per_host: u32) -> Self {
        let ranks = ranks.max(1);
        Self {
            ranks,
            ranks_per_host: ranks_per_host.clamp(1, ranks),
        }
    }

    /// Returns the number of hosts N.
    pub fn hosts(self) -> u32 {
        self.ranks.div_ceil(self.ranks_per_host)
    }
}

/// Hops of one message, and transfers of each of its bytes over a link, inside hosts and across.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Terms {
    /// Hops inside hosts.
    pub hops_inside: f64,
    /// Bytes over links inside hosts, per byte of the message.
    pub volume_inside: f64,
    /// Hops across hosts.
    pub hops_across: f64,
    /// Bytes over a host's port, per byte of the message.
    pub volume_across: f64,
}

/// Returns the terms of an allreduce on `topology`.
pub fn terms(algorithm: Algorithm, topology: Topology) -> Terms {
    let (ranks, inside) = (
        f64::from(topology.ranks),
        f64::from(topology.ranks_per_host),
    );
    let hosts = f64::from(topology.hosts());
    let both_ways = |count: f64| 2.0 * (count - 1.0) / count;
    match algorithm {
        Algorithm::Ring if topology.hosts() > 1 => Terms {
            hops_inside: 2.0 * (ranks - hosts),
            volume_inside: 0.0, // hidden by the slower links
            hops_across: 2.0 * (hosts - 1.0),
            volume_across: both_ways(ranks),
        },
        Algorithm::Ring => Terms {
            hops_inside: 2.0 * (ranks - 1.0),
            volume_inside: both_ways(ranks),
            ..Terms::default()
        },
        // Neighbours first: data that crosses hosts has already been halved inside them.
        Algorithm::Tree => {
            let (hops_inside, volume_inside) = halving(topology.ranks_per_host);
            let (hops_across, volume_across) = halving(topology.hosts());
            Terms {
                hops_inside,
                volume_inside,
                hops_across,
                volume_across,
            }
        }
        Algorithm::Hierarchical => Terms {
            hops_inside: 2.0 * (inside - 1.0),
            volume_inside: both_ways(inside),
            hops_across: 2.0 * (hosts - 1.0),
            volume_across: both_ways(hosts),
        },
    }
}

/// Hops and bytes of recursive halving and doubling among `count` ranks.
fn halving(count: u32) -> (f64, f64) {
    let steps = count.max(1).ilog2();
    let power = f64::from(1u32 << steps);
    let odd = if count.is_power_of_two() { 0.0 } else { 2.0 };
    (
        2.0 * f64::from(steps) + odd,
        2.0 * (power - 1.0) / power + odd,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(algorithm: Algorithm, ranks: u32, per_host: u32) -> [f64; 4] {
        let t = terms(algorithm, Topology::new(ranks, per_host));
        [
            t.hops_inside,
            t.volume_inside,
            t.hops_across,
            t.volume_across,
        ]
    }

    #[test]
    fn hops_and_bytes_are_those_of_the_papers() {
        // One host of 4: 6 hops, 3/2 of the bytes.
        assert_eq!(all(Algorithm::Ring, 4, 4), [6.0, 1.5, 0.0, 0.0]);
        assert_eq!(all(Algorithm::Ring, 4, 1), [0.0, 0.0, 6.0, 1.5]);
        assert_eq!(all(Algorithm::Tree, 8, 1), [0.0, 0.0, 6.0, 1.75]);
        // Six ranks: four take part in halving; the other two send all their data and receive the
        // result.
        assert_eq!(all(Algorithm::Tree, 6, 1), [0.0, 0.0, 6.0, 3.5]);
        // 16 ranks in 4 hosts.
        assert_eq!(all(Algorithm::Hierarchical, 16, 4), [6.0, 1.5, 6.0, 1.5]);
        assert_eq!(all(Algorithm::Ring, 16, 4), [24.0, 0.0, 6.0, 1.875]);
        for algorithm in Algorithm::ALL {
            assert_eq!(all(algorithm, 1, 1), [0.0; 4], "{algorithm:?}");
        }
    }

    proptest! {
        #[test]
        fn a_ring_moves_the_fewest_bytes_and_a_tree_makes_the_fewest_hops(ranks in 2u32..10_000) {
            let of = |algorithm| terms(algorithm, Topology::new(ranks, 1));
            prop_assert!(of(Algorithm::Ring).volume_across <= of(Algorithm::Tree).volume_across + 1e-9 || ranks.is_power_of_two());
            prop_assert!(of(Algorithm::Tree).hops_across <= of(Algorithm::Ring).hops_across);
            prop_assert_eq!(of(Algorithm::Hierarchical), of(Algorithm::Ring));
        }
    }
}
