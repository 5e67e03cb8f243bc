//! Where the ranks are: what can be said of a hierarchical collective before one was seen.

use super::Collective;

/// Where the ranks are, and what is believed of the way inside a host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// Ranks of the job.
    pub ranks: u32,
    /// Ranks on each host, ≥ 1.
    pub ranks_per_host: u32,
    /// One message from rank to rank inside a host.
    pub local: Collective,
    /// What a hierarchical collective costs beyond its messages (launches, waiting between its stages), µs.
    pub hierarchical_us: f64,
}

impl Place {
    /// All ranks on one host.
    pub fn one_host(ranks: u32) -> Self {
        Self::new(ranks, ranks)
    }

    /// `ranks_per_host` on each host, with shared memory between them: a few µs, and about what one core copies.
    pub fn new(ranks: u32, ranks_per_host: u32) -> Self {
        Self {
            ranks,
            ranks_per_host: ranks_per_host.clamp(1, ranks.max(1)),
            local: Collective {
                alpha_us: 4.0,
                us_per_byte: 1e-4,
            },
            hierarchical_us: 100.0,
        }
    }

    /// Whether a hierarchical collective differs from a flat one.
    pub fn has_hierarchy(&self) -> bool {
        self.ranks_per_host > 1 && self.ranks > self.ranks_per_host
    }

    /// What a hierarchical allreduce would take where a flat one takes `flat`: reduce-scatter and allgather inside the
    /// host, one allreduce of each part among hosts. The flat one is taken for a ring, 2 (P − 1) messages of 1/P of
    /// the bytes, or for a tree, 2 log₂ P messages of latency (Thakur, Rabenseifner, Gropp 2005, §4).
    pub fn hierarchical(&self, flat: Collective, tree: bool) -> Collective {
        let ranks = f64::from(self.ranks.max(2));
        let inside = f64::from(self.ranks_per_host.max(1));
        let hosts = (ranks / inside).max(1.0);
        let messages = |ranks: f64| if tree { ranks.log2() } else { ranks - 1.0 };
        let hop_us = flat.alpha_us / (2.0 * messages(ranks));
        let us_per_byte = flat.us_per_byte * ranks / (2.0 * (ranks - 1.0));
        Collective {
            alpha_us: self.hierarchical_us
                + 2.0 * (inside - 1.0) * self.local.alpha_us
                + 2.0 * messages(hosts) * hop_us,
            us_per_byte: 2.0 * (inside - 1.0) / inside * self.local.us_per_byte
                + 2.0 * (hosts - 1.0) / hosts * us_per_byte,
        }
    }
}
