//! Topology of a job, and estimated costs of hierarchical collectives on it.

use serde::{Deserialize, Serialize};

use super::Collective;

/// Topology of a job, with the assumed costs inside a host.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobTopology {
    /// Number of ranks of the job.
    pub ranks: u32,
    /// Number of ranks on each host, at least 1.
    pub ranks_per_host: u32,
    /// Cost of one message between ranks of the same host.
    pub local: Collective,
    /// Cost of a hierarchical collective beyond its messages (launches, waiting between its
    /// stages), µs.
    pub hierarchical_us: f64,
    /// Source of the number of hosts.
    #[serde(default)]
    pub hosts: Hosts,
}

/// Source of the number of hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hosts {
    /// A recording or the user states it.
    Known,
    /// It is not stated, but assumed.
    #[default]
    Assumed,
    /// All ranks are on one host with a simulated network (`RONDE_LINK`): each rank counts as a
    /// host of its own.
    Shaped,
}

impl JobTopology {
    /// Topology with all ranks on one host.
    pub fn one_host(ranks: u32) -> Self {
        Self::new(ranks, ranks)
    }

    /// Topology with `ranks_per_host` on each host, connected by shared memory: a few µs per
    /// message, and about the bandwidth of one core's copies.
    pub fn new(ranks: u32, ranks_per_host: u32) -> Self {
        Self {
            ranks,
            ranks_per_host: ranks_per_host.clamp(1, ranks.max(1)),
            local: Collective {
                alpha_us: 4.0,
                us_per_byte: 1e-4,
            },
            hierarchical_us: 100.0,
            hosts: Hosts::Known,
        }
    }

    /// Returns this topology with another source.
    #[must_use]
    pub fn with_hosts(self, hosts: Hosts) -> Self {
        Self { hosts, ..self }
    }

    /// Formats ranks and hosts in a few words, and states if they are only assumed.
    pub fn words(&self) -> String {
        let count =
            |count: u32, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let ranks = count(self.ranks, "rank");
        let hosts = count(self.ranks.div_ceil(self.ranks_per_host.max(1)), "host");
        match self.hosts {
            Hosts::Known => format!("{ranks} on {hosts}"),
            Hosts::Assumed => format!("{ranks}, hosts unknown (predicted as on {hosts})"),
            Hosts::Shaped => {
                format!("{ranks} on 1 host, taken for {hosts} since their link was shaped")
            }
        }
    }

    /// Whether a hierarchical collective differs from a flat one.
    pub fn has_hierarchy(&self) -> bool {
        self.ranks_per_host > 1 && self.ranks > self.ranks_per_host
    }

    /// Estimates the cost of a hierarchical allreduce from that of a flat one, `flat`:
    /// reduce-scatter and allgather inside the host, and one allreduce of each part among hosts.
    /// The flat one is taken for a ring, 2 (P − 1) messages of 1/P of the bytes, or for a tree, 2
    /// log₂ P messages of latency (Thakur, Rabenseifner, Gropp 2005, §4).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_for_granted_is_not_told_as_known() {
        let words = |hosts| JobTopology::new(2, 1).with_hosts(hosts).words();
        assert_eq!(words(Hosts::Known), "2 ranks on 2 hosts");
        assert_eq!(
            words(Hosts::Assumed),
            "2 ranks, hosts unknown (predicted as on 2 hosts)"
        );
        assert_eq!(
            words(Hosts::Shaped),
            "2 ranks on 1 host, taken for 2 hosts since their link was shaped"
        );
        assert_eq!(JobTopology::one_host(1).words(), "1 rank on 1 host");
    }
}
