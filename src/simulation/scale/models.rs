//! Formulas for exchanges that are not simulated: the former one of Ronde, Horovod's, and those of
//! new tensors. They have the costs of the simulation, and no computation on rank 0.
//!
//! Collective operations of MPI are those with the lowest latency: a binomial tree or recursive
//! doubling, first within a host. What the ranks of a host bring to the first of them arrives at
//! the same time.

use super::costs::Measured;

/// Latency of a cycle, and bytes that a rank receives in it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) latency_ns: f64,
    /// The rank with the most bytes.
    pub(super) bytes: usize,
    /// Ranks that are not the first of their host.
    pub(super) bytes_of_most: usize,
}

impl Estimate {
    pub(super) fn json(&self) -> String {
        format!(
            "{{\"latency_us\": {:.1}, \"bytes\": {}, \"bytes_of_most\": {}}}",
            self.latency_ns / 1e3,
            self.bytes,
            self.bytes_of_most
        )
    }
}

/// A job whose hosts have the same number of ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) hosts: usize,
    pub(super) per_host: usize,
    /// Words of ready bits.
    pub(super) words: usize,
    /// Requests of a rank if all tensors are new.
    pub(super) request_bytes: usize,
}

fn rounds(count: usize) -> f64 {
    f64::from(count.next_power_of_two().ilog2())
}

impl Job {
    fn ranks(&self) -> usize {
        self.hosts * self.per_host
    }

    /// Every rank reads every rank's block: the first ranks of the hosts gather all blocks, rank 0
    /// gathers all ready times (64 for each word), and every rank adds all blocks.
    pub(super) fn former(&self, costs: &Measured) -> Estimate {
        let timed_bytes = costs.block_bytes + 8 * 64 * self.words;
        let others = self.ranks() - self.per_host;
        let in_host = (self.per_host - 1) * timed_bytes;
        let added_ns = self.ranks() as f64 * costs.add_ns;
        let blocks_bytes = (self.ranks() - 1) * costs.block_bytes;
        let mut latency_ns = costs.local_ns(in_host) + added_ns;
        if self.hosts > 1 {
            latency_ns += rounds(self.hosts) * costs.message_ns(0)
                + costs.ns_per_byte * (others * timed_bytes) as f64
                + costs.local_ns(blocks_bytes);
        }
        Estimate {
            latency_ns,
            bytes: in_host + others * timed_bytes,
            bytes_of_most: blocks_bytes,
        }
    }

    /// `allreduces` of a bit vector: the status and a bit for each tensor. A cycle has one, and a
    /// second one if a tensor in the cache has become invalid (`CacheCoordinator::sync` in
    /// `horovod/common/response_cache.cc`, `CrossRankBitwiseAnd` and `CrossRankBitwiseOr` in
    /// `horovod/common/mpi/mpi_controller.cc`).
    pub(super) fn horovod(&self, costs: &Measured, allreduces: usize) -> Estimate {
        let bytes = 8 * self.words;
        let latency_ns = rounds(self.per_host) * costs.local_ns(bytes)
            + rounds(self.hosts) * costs.message_ns(bytes);
        let messages = (rounds(self.per_host) + rounds(self.hosts)) as usize;
        Estimate {
            latency_ns: allreduces as f64 * latency_ns,
            bytes: allreduces * messages * bytes,
            bytes_of_most: allreduces * messages * bytes,
        }
    }

    /// Requests go through the first ranks of the hosts to rank 0, and the responses, which are
    /// about as long as the requests of one rank, back: lengths first, then frames. Rank 0 receives
    /// from and sends to each host.
    pub(super) fn requests_of_ronde(&self, costs: &Measured) -> Estimate {
        let others = (self.hosts - 1) as f64;
        let local = costs.local_ns((self.per_host - 1) * self.request_bytes);
        let host_bytes = self.per_host * (8 + self.request_bytes);
        let lengths = costs.fan_ns(others, 8);
        let gathered = lengths + costs.fan_ns(others, host_bytes);
        let broadcast = lengths + costs.fan_ns(others, self.request_bytes);
        Estimate {
            latency_ns: local + gathered + broadcast + costs.local_ns(self.request_bytes),
            bytes: self.ranks() * self.request_bytes,
            bytes_of_most: self.request_bytes,
        }
    }

    /// `MPI_Gather` of the lengths, `MPI_Gatherv` of the requests, `MPI_Bcast` of the length and of
    /// the responses (`RecvReadyTensors` and `SendFinalTensors` in `mpi_controller.cc`), of frames
    /// as long as Ronde's.
    pub(super) fn requests_of_horovod(&self, costs: &Measured) -> Estimate {
        let tree = |bytes: usize| {
            rounds(self.per_host) * costs.local_ns(bytes)
                + rounds(self.hosts) * costs.message_ns(bytes)
        };
        let lengths = tree(0) + costs.ns_per_byte * (4 * self.ranks()) as f64;
        let others = (self.ranks() - self.per_host) as f64;
        let gathered = costs.local_ns((self.per_host - 1) * self.request_bytes)
            + costs.fan_ns(others, self.request_bytes);
        let broadcast = tree(4) + tree(self.request_bytes);
        Estimate {
            latency_ns: lengths + gathered + broadcast,
            bytes: self.ranks() * self.request_bytes,
            bytes_of_most: self.request_bytes,
        }
    }
}

#[test]
fn one_host_sends_nothing_between_hosts() {
    let costs = Measured {
        latency_ns: 1e9,
        busy_ns: 1e9,
        ns_per_byte: 1e9,
        local_latency_ns: 1.0,
        ..Measured::default()
    };
    let job = Job {
        hosts: 1,
        per_host: 8,
        words: 3,
        request_bytes: 100,
    };
    assert_eq!(job.horovod(&costs, 1).latency_ns, 3.0);
    assert_eq!(job.former(&costs).latency_ns, 1.0);
    assert_eq!(job.requests_of_ronde(&costs).latency_ns, 2.0);
    let two = Job { hosts: 2, ..job };
    assert!(two.horovod(&costs, 1).latency_ns > 1e9 && two.former(&costs).latency_ns > 1e9);
    assert_eq!(two.horovod(&costs, 2).bytes, 2 * 4 * 24);
}
