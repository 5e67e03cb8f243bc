//! Where the ranks are: what can be said of a hierarchical collective before one was seen.

use serde::{Deserialize, Serialize};

use super::Collective;

/// Where the ranks are, and what is believed of the way inside a host.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobTopology {
    /// Ranks of the job.
    pub ranks: u32,
    /// Ranks on each host, ≥ 1.
    pub ranks_per_host: u32,
    /// One message from rank to rank inside a host.
    pub local: Collective,
    /// What a hierarchical collective costs beyond its messages (launches, waiting between its stages), µs.
    pub hierarchical_us: f64,
    /// How it is known on which hosts the ranks are.
    #[serde(default)]
    pub hosts: Hosts,
}

/// How it is known on which hosts ranks are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hosts {
    /// A recording or the user says so.
    Known,
    /// Nobody says so: it is taken for granted.
    #[default]
    Assumed,
    /// All are on one, and their link was shaped to be like a network (`RONDE_LINK`): each is taken to be on a host of its own.
    Shaped,
}

impl JobTopology {
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
            hosts: Hosts::Known,
        }
    }

    /// The same place, of which so much is known.
    #[must_use]
    pub fn with_hosts(self, hosts: Hosts) -> Self {
        Self { hosts, ..self }
    }

    /// Ranks and hosts in a few words, with what is only taken for granted.
    pub fn words(&self) -> String {
        let count = |count: u32, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let ranks = count(self.ranks, "rank");
        let hosts = count(self.ranks.div_ceil(self.ranks_per_host.max(1)), "host");
        match self.hosts {
            Hosts::Known => format!("{ranks} on {hosts}"),
            Hosts::Assumed => format!("{ranks}, hosts unknown (predicted as on {hosts})"),
            Hosts::Shaped => format!("{ranks} on 1 host, taken for {hosts} since their link was shaped"),
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
