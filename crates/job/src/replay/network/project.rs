//! Projection of a measured job to another network, topology or number of ranks.

use super::formula::{Algorithm, Terms, Topology, terms};
use super::order::expected_maximum;
use super::preset::{Link, Network};
use crate::replay::{Collective, Costs, JobTopology, Negotiation, Workload};

/// Maximum launch time of a collective, µs: the rest of its latency belongs to the link. (NCCL's
/// tuning model has 8.4.)
const LAUNCH_MOST_US: f64 = 10.0;
/// Typical delay of a rank, as a share of its ready times, if only one rank was recorded (an
/// assumption).
const JITTER: f64 = 0.008;
/// Uncertainty of projected latency, bandwidth and negotiation, in ln: on a network that was not
/// measured, and for each doubling of the ranks.
const NETWORK_SD: Widening = Widening {
    alpha: 0.5,
    beta: 0.2,
    negotiation: 0.5,
};
const DOUBLING_SD: Widening = Widening {
    alpha: 0.08,
    beta: 0.04,
    negotiation: 0.08,
};

/// Conditions under which the costs were measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Topology of the measured job.
    pub place: JobTopology,
    /// Algorithm that the measured allreduces are assumed to have used.
    pub algorithm: Algorithm,
    /// Share of a message's latency that was its launch, 0 to 1: recordings do not contain it.
    pub launch: f64,
}

/// Target of a projection.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Ranks and hosts.
    pub topology: Topology,
    /// Network between hosts, or inside the host if there is only one. `None`: as measured.
    pub network: Option<Network>,
    /// Network inside hosts. `None`: as measured, or shared memory.
    pub local: Option<Network>,
    /// Algorithm of flat allreduces.
    pub algorithm: Algorithm,
}

/// Projected job.
#[derive(Clone, Debug)]
pub struct Projected {
    /// Its workload.
    pub workload: Workload,
    /// Its costs.
    pub costs: Costs,
}

/// Additional uncertainty of projected costs: standard deviations in ln.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Widening {
    /// Of latencies.
    pub alpha: f64,
    /// Of the time per byte.
    pub beta: f64,
    /// Of negotiation.
    pub negotiation: f64,
}

/// Reason why a projection is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProjectError {
    /// The target has several hosts, but only one host was measured.
    #[error(
        "the recording is of one host and says nothing of a network between the {hosts} hosts of {ranks} ranks; name one, such \
         as --network 25gbe, or keep them on one with --ranks-per-host {ranks}"
    )]
    NoNetwork {
        /// Requested number of ranks.
        ranks: u32,
        /// Resulting number of hosts.
        hosts: u32,
    },
    /// A single rank moves no data.
    #[error(
        "the recording is of one rank, which moves nothing over a network; name one, such as --network 25gbe"
    )]
    NothingMeasured,
}

/// Links of a job.
#[derive(Clone, Copy, Debug)]
struct Links {
    inside: Link,
    across: Link,
    launch_us: f64,
}

impl Target {
    /// Returns the target that equals the measured job.
    pub fn same(place: &JobTopology) -> Self {
        Self {
            topology: Topology::new(place.ranks, place.ranks_per_host),
            network: None,
            local: None,
            algorithm: Algorithm::Ring,
        }
    }

    /// Whether the target equals `place`.
    pub fn is_same(&self, place: &JobTopology) -> bool {
        self.network.is_none()
            && self.local.is_none()
            && self.topology == Topology::new(place.ranks, place.ranks_per_host)
    }

    /// Projects `workload` and `costs`, measured under the conditions in `measured`, to this
    /// target.
    ///
    /// # Errors
    /// [`ProjectError`] if a link is needed that was neither measured nor named.
    pub fn project(
        &self,
        measured: &Measured,
        workload: &Workload,
        costs: &Costs,
    ) -> Result<Projected, ProjectError> {
        if self.is_same(&measured.place) {
            return Ok(Projected {
                workload: workload.clone(),
                costs: costs.clone(),
            });
        }
        let flat_terms = terms(self.algorithm, self.topology);
        let hierarchical_terms = terms(Algorithm::Hierarchical, self.topology);
        let several = self.topology.hosts() > 1 && self.topology.ranks_per_host > 1;
        let mut there = costs.clone();
        let hop_us = self
            .links(measured, costs.flat.first())?
            .slowest(self.topology)
            .alpha_us;
        for (index, cost) in costs.flat.iter().enumerate() {
            let links = self.links(measured, Some(cost))?;
            there.flat[index] = links.collective(flat_terms, self.algorithm == Algorithm::Ring);
            if let Some(hierarchical) = there.hierarchical.get_mut(index) {
                *hierarchical = there.flat[index];
                if several {
                    *hierarchical = links.collective(hierarchical_terms, false);
                    hierarchical.alpha_us += measured.place.hierarchical_us;
                }
            }
        }
        self.negotiation(measured, &mut there, hop_us);
        Ok(Projected {
            workload: self.workload(&measured.place, workload),
            costs: there,
        })
    }

    /// Returns the additional uncertainty of costs at this target, relative to a measurement at
    /// `place`.
    pub fn widening(&self, place: &JobTopology) -> Widening {
        let named = f64::from(u8::from(self.network.is_some() || self.local.is_some()));
        let doublings = (f64::from(self.topology.ranks) / f64::from(place.ranks.max(1)))
            .log2()
            .abs();
        let of = |network: f64, doubling: f64| (named * network).hypot(doubling * doublings);
        Widening {
            alpha: of(NETWORK_SD.alpha, DOUBLING_SD.alpha),
            beta: of(NETWORK_SD.beta, DOUBLING_SD.beta),
            negotiation: of(NETWORK_SD.negotiation, DOUBLING_SD.negotiation),
        }
    }

    /// Returns the assumptions as sentences: equal for all targets to which the same assumptions
    /// apply.
    pub fn assumptions(&self, place: &JobTopology) -> Vec<String> {
        if self.is_same(place) {
            return Vec::new();
        }
        let mut sentences = vec![format!("The recording is of {}.", place.words())];
        for (network, between) in [
            (&self.network, "between hosts"),
            (&self.local, "inside hosts"),
        ] {
            if let Some(network) = network {
                let between = if self.topology.hosts() == 1 {
                    "between the ranks of one host"
                } else {
                    between
                };
                let source = if network.source.is_empty() {
                    "as given".to_owned()
                } else {
                    network.source.to_owned()
                };
                sentences.push(format!(
                    "{}, {between}: {} µs a hop, {:.3} GB/s one way ({source}).",
                    network.name,
                    network.link.alpha_us,
                    network.link.gb_per_s(),
                ));
            }
        }
        sentences.push(format!(
            "Flat allreduces use {}; α–β model without congestion. The share of launch time in a measured latency is unknown.",
            match self.algorithm {
                Algorithm::Tree => "recursive halving and doubling",
                Algorithm::Ring | Algorithm::Hierarchical => "a ring",
            }
        ));
        if self.topology.ranks != place.ranks {
            sentences.push(format!(
                "Each rank does the same work for any number of ranks; the delay of the last one is the expected maximum of P normally distributed delays{}.",
                if place.ranks > 1 {
                    ", with the scatter of the recorded ranks"
                } else {
                    ", with a standard deviation of 0.8 % of the computation, because one rank was recorded"
                }
            ));
        }
        sentences
    }

    /// Returns the links of this target, given the measured cost `flat` of a flat message.
    fn links(&self, measured: &Measured, flat: Option<&Collective>) -> Result<Links, ProjectError> {
        let place = &measured.place;
        let from = Topology::new(place.ranks, place.ranks_per_host);
        let flat = flat.copied().unwrap_or_default();
        let counted = terms(measured.algorithm, from);
        let hops = counted.hops_inside + counted.hops_across;
        let volume = counted.volume_inside.max(counted.volume_across);
        let launch_us = (flat.alpha_us * measured.launch).min(LAUNCH_MOST_US);
        let seen = (hops > 0.0).then(|| Link {
            alpha_us: (flat.alpha_us - launch_us).max(0.0) / hops,
            us_per_byte: flat.us_per_byte / volume,
        });
        let memory = Link {
            alpha_us: place.local.alpha_us,
            us_per_byte: place.local.us_per_byte,
        };
        let one_host = from.hosts() == 1;
        let named = |network: &Option<Network>| network.as_ref().map(|network| network.link);
        let to_hosts = self.topology.hosts();
        let across = named(&self.network).or(seen.filter(|_| !one_host));
        let inside = named(&self.local)
            .or(named(&self.network).filter(|_| to_hosts == 1))
            .or(seen.filter(|_| one_host))
            .unwrap_or(memory);
        let across = match across {
            Some(across) => across,
            None if to_hosts == 1 || self.topology.ranks == 1 => inside,
            None if seen.is_none() => return Err(ProjectError::NothingMeasured),
            None => {
                return Err(ProjectError::NoNetwork {
                    ranks: self.topology.ranks,
                    hosts: to_hosts,
                });
            }
        };
        Ok(Links {
            inside,
            across,
            launch_us,
        })
    }

    /// Projects negotiation: through the cache in log₂ P rounds; through rank 0 with work for each
    /// rank. Over a network that was not measured, each round takes an additional hop.
    fn negotiation(&self, measured: &Measured, costs: &mut Costs, hop_us: f64) {
        let rounds = |ranks: u32| f64::from(ranks.max(2)).log2();
        let (from, to) = (measured.place.ranks, self.topology.ranks);
        let more = if to <= 1 {
            1.0
        } else {
            rounds(to) / rounds(from)
        };
        let per_rank = f64::from(to) / f64::from(from.max(1));
        let hops_us = if self.network.is_some() && to > 1 {
            rounds(to) * hop_us
        } else {
            0.0
        };
        let Negotiation {
            base_us,
            per_tensor_us,
        } = costs.cached;
        costs.cached = Negotiation {
            base_us: base_us * more + hops_us,
            per_tensor_us,
        };
        // Rank 0 needs one more µs for each additional rank.
        costs.uncached.base_us = costs.uncached.base_us * more
            + 2.0 * hops_us
            + (f64::from(to) - f64::from(from)).max(0.0);
        costs.uncached.per_tensor_us *= per_rank.max(1.0);
    }

    /// With more ranks, the first rank is ready earlier and the last one later.
    fn workload(&self, place: &JobTopology, workload: &Workload) -> Workload {
        let (from, to) = (
            expected_maximum(place.ranks),
            expected_maximum(self.topology.ranks),
        );
        let mut there = workload.clone();
        for tensor in &mut there.tensors {
            // The expected range of P delays is twice their expected maximum.
            let spread_us = if from > 0.0 {
                (tensor.ready_us - tensor.pending_us).max(0.0) / (2.0 * from)
            } else {
                JITTER * tensor.ready_us
            };
            tensor.ready_us = (tensor.ready_us + spread_us * (to - from)).max(0.0);
            tensor.pending_us =
                (tensor.pending_us - spread_us * (to - from)).clamp(0.0, tensor.ready_us);
        }
        there
            .tensors
            .sort_by(|a, b| a.ready_us.total_cmp(&b.ready_us));
        there
    }
}

impl Links {
    /// Returns the link that a flat collective waits for.
    fn slowest(self, topology: Topology) -> Link {
        if topology.hosts() > 1 {
            self.across
        } else {
            self.inside
        }
    }

    /// Returns the cost of a message; in a ring each byte waits for the slowest link.
    fn collective(self, terms: Terms, ring: bool) -> Collective {
        let across = if ring {
            self.across.us_per_byte.max(self.inside.us_per_byte)
        } else {
            self.across.us_per_byte
        };
        Collective {
            alpha_us: self.launch_us
                + terms.hops_inside * self.inside.alpha_us
                + terms.hops_across * self.across.alpha_us,
            us_per_byte: terms.volume_inside * self.inside.us_per_byte
                + terms.volume_across * across,
        }
    }
}

#[cfg(test)]
mod tests;
