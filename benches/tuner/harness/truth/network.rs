//! Networks and hosts: constants of the parts of a step, and effects beyond all cost models.

/// Costs of the parts of a step; times in µs, rates in µs per byte.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Network {
    pub(crate) ranks: f64,
    pub(crate) ranks_per_host: f64,
    /// Cost of a message between hosts, and of each byte of it.
    pub(crate) alpha_us: f64,
    pub(crate) us_per_byte: f64,
    /// The costs inside a host.
    pub(crate) inner_alpha_us: f64,
    pub(crate) inner_us_per_byte: f64,
    /// A hop of negotiation.
    pub(crate) control_us: f64,
    /// Negotiation per tensor by the cache, and without it; without it also per rank.
    pub(crate) cached_us_per_tensor: f64,
    pub(crate) uncached_us_per_tensor: f64,
    pub(crate) uncached_us_per_rank: f64,
    /// Start of a collective; additional time of a hierarchical one.
    pub(crate) launch_us: f64,
    pub(crate) hierarchical_us: f64,
    /// Copy into a fusion buffer, one way.
    pub(crate) copy_us_per_tensor: f64,
    pub(crate) copy_us_per_byte: f64,
    /// Slow-down of copies of large buffers.
    pub(crate) copy_slowdown: f64,
    /// Whether copies of one buffer overlap the collective of another.
    pub(crate) overlaps: bool,
    /// Slow-down of the computation by cycles without a pause.
    pub(crate) polling: f64,
}

impl Network {
    /// GPUs with a link such as NVLink inside hosts of `ranks_per_host`, and 9 GB/s between hosts.
    pub(crate) fn nv(ranks: u32, ranks_per_host: u32) -> Self {
        Self {
            overlaps: true,
            copy_slowdown: 0.0,
            ..Self::new(
                ranks,
                ranks_per_host,
                [6.0, 9e9],
                [3.0, 80e9],
                20.0,
                20.0,
                [3.0, 250e9],
            )
        }
    }

    /// 25 Gbit/s Ethernet, buffers in the host's memory.
    pub(crate) fn g25(ranks: u32, ranks_per_host: u32) -> Self {
        Self::new(
            ranks,
            ranks_per_host,
            [25.0, 2.4e9],
            [4.0, 10e9],
            45.0,
            30.0,
            [3.0, 9e9],
        )
    }

    /// 1 Gbit/s Ethernet, buffers in the host's memory.
    pub(crate) fn g1(ranks: u32, ranks_per_host: u32) -> Self {
        Self::new(
            ranks,
            ranks_per_host,
            [60.0, 0.112e9],
            [4.0, 10e9],
            90.0,
            30.0,
            [2.0, 9e9],
        )
    }

    /// Makes a network. Pairs are µs for each message or tensor, and bytes per second.
    fn new(
        ranks: u32,
        ranks_per_host: u32,
        outer: [f64; 2],
        inner: [f64; 2],
        control_us: f64,
        launch_us: f64,
        copy: [f64; 2],
    ) -> Self {
        let ranks = f64::from(ranks);
        Self {
            ranks,
            ranks_per_host: f64::from(ranks_per_host).min(ranks),
            alpha_us: outer[0],
            us_per_byte: 1e6 / outer[1],
            inner_alpha_us: inner[0],
            inner_us_per_byte: 1e6 / inner[1],
            control_us,
            cached_us_per_tensor: 0.2,
            uncached_us_per_tensor: 2.0 + 0.1 * ranks,
            uncached_us_per_rank: 1.0,
            launch_us,
            hierarchical_us: 120.0,
            copy_us_per_tensor: copy[0],
            copy_us_per_byte: 1e6 / copy[1],
            copy_slowdown: 1.0,
            overlaps: false,
            polling: 0.04,
        }
    }

    /// Multiplies the costs of all traffic between hosts by `factor`.
    pub(crate) fn slower(mut self, factor: f64) -> Self {
        self.alpha_us *= factor;
        self.us_per_byte *= factor;
        self.control_us *= factor;
        self
    }

    /// Hops of the negotiation.
    pub(crate) fn hops(&self) -> f64 {
        self.ranks.max(2.0).log2()
    }

    /// Negotiation time of a cycle without tensors, and for each tensor, µs.
    pub(crate) fn negotiation(&self, cache: bool) -> (f64, f64) {
        if cache {
            (self.control_us * self.hops(), self.cached_us_per_tensor)
        } else {
            let base_us =
                2.0 * self.control_us * self.hops() + self.ranks * self.uncached_us_per_rank;
            (base_us, self.uncached_us_per_tensor)
        }
    }

    /// Time of copying a buffer one way, µs.
    pub(crate) fn copy_us(&self, tensors: usize, bytes: f64, effects: &Effects) -> f64 {
        let squared = (bytes / effects.copy_knee_bytes).powi(2);
        let slow = 1.0 + self.copy_slowdown * squared / (1.0 + squared);
        self.copy_us_per_tensor * tensors as f64 + bytes * self.copy_us_per_byte * slow
    }

    /// Time of the allreduce of a buffer, after `messages` others in this step, µs.
    pub(crate) fn allreduce_us(
        &self,
        bytes: f64,
        hierarchical: bool,
        messages: usize,
        effects: &Effects,
    ) -> f64 {
        let bytes = bytes + effects.ramp_bytes;
        let (alpha, beta) = effects.rates(bytes, messages);
        let ring = |ranks: f64, hops: f64, alpha_us: f64, us_per_byte: f64| {
            2.0 * hops * alpha_us * alpha + 2.0 * (ranks - 1.0) / ranks * bytes * us_per_byte * beta
        };
        let hops = |ranks: f64| effects.tree.map_or(ranks - 1.0, |hops| hops * ranks.log2());
        if !hierarchical {
            return self.launch_us
                + ring(
                    self.ranks,
                    hops(self.ranks),
                    self.alpha_us,
                    self.us_per_byte,
                );
        }
        let (local, hosts) = (
            self.ranks_per_host,
            (self.ranks / self.ranks_per_host).max(1.0),
        );
        let mut took_us = self.launch_us
            + self.hierarchical_us
            + ring(
                local,
                local - 1.0,
                self.inner_alpha_us,
                self.inner_us_per_byte,
            );
        if hosts > 1.0 {
            took_us += ring(hosts, hops(hosts), self.alpha_us, self.us_per_byte);
        }
        took_us
    }
}

/// A protocol of the collective, for messages of at most this many bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Protocol {
    up_to_bytes: f64,
    /// Factors on the costs of a message and of a byte.
    alpha: f64,
    beta: f64,
}

/// Effects beyond the constants; [`Effects::LAB`] is the family of programs that the cost models
/// describe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Effects {
    /// Whether a tensor that does not fit is passed over, as in Ronde and Horovod, or ends the
    /// buffer.
    pub(crate) looks_ahead: bool,
    /// Bytes at which the slow-down of copies is half of its maximum.
    pub(crate) copy_knee_bytes: f64,
    /// The number of hops is this times log2 of the ranks instead of a ring's, half of them each
    /// way.
    pub(crate) tree: Option<f64>,
    /// Bytes that are added to the cost of every message.
    pub(crate) ramp_bytes: f64,
    /// Time that each µs of communication beside computation adds to the step, µs.
    pub(crate) contention: f64,
    /// In ascending order; above the last, all factors are 1.
    pub(crate) protocols: &'static [Protocol],
    /// Most bandwidth that other traffic takes, as a share; half of it once a step has sent
    /// `traffic_messages`.
    pub(crate) traffic: f64,
    pub(crate) traffic_messages: f64,
    /// Ready times are late by up to this share: as large buffers are in the allocator's way.
    pub(crate) ready_by_fusion: f64,
    /// Student's t with so many degrees of freedom instead of a normal distribution for the ranks'
    /// jitter.
    pub(crate) jitter_freedom: Option<f64>,
    /// Steps are disturbed with this likelihood...
    pub(crate) spikes: f64,
    /// ...and then take 1 + this longer...
    pub(crate) spike: f64,
    /// ...times a Pareto variate of this shape, if any.
    pub(crate) spike_shape: Option<f64>,
}

impl Effects {
    /// The effects of the set `lab`.
    pub(crate) const LAB: Self = Self {
        looks_ahead: true,
        copy_knee_bytes: 24.0 * 1048576.0,
        tree: None,
        ramp_bytes: 0.0,
        contention: 0.0,
        protocols: &[],
        traffic: 0.0,
        traffic_messages: 1.0,
        ready_by_fusion: 0.0,
        jitter_freedom: None,
        spikes: 0.03,
        spike: 0.5,
        spike_shape: None,
    };

    /// Effects that the ensemble of replays draws too, with other parameters: hops as in a tree,
    /// computation slowed by communication, copies that slow down from some size on. Only the
    /// additional bytes of each message are beyond it.
    pub(crate) const DRAWN: Self = Self {
        copy_knee_bytes: 6.0 * 1048576.0,
        tree: Some(3.0),
        ramp_bytes: 262_144.0,
        contention: 0.12,
        ..Self::LAB
    };

    /// A truth held out: no constant of the tuner was fitted to it. Protocols as in NCCL's
    /// three, which trade latency for bandwidth; a network shared with others; computation slowed
    /// by communication; heavy tails.
    pub(crate) const HELD_OUT: Self = Self {
        contention: 0.08,
        protocols: &[
            Protocol {
                up_to_bytes: 32.0 * 1024.0,
                alpha: 0.6,
                beta: 2.2,
            },
            Protocol {
                up_to_bytes: 512.0 * 1024.0,
                alpha: 0.8,
                beta: 1.3,
            },
            Protocol {
                up_to_bytes: f64::INFINITY,
                alpha: 1.5,
                beta: 1.0,
            },
        ],
        traffic: 0.3,
        traffic_messages: 40.0,
        ready_by_fusion: 0.015,
        jitter_freedom: Some(4.0),
        spikes: 0.04,
        spike: 0.3,
        spike_shape: Some(2.5),
        ..Self::LAB
    };

    /// Factors on what a message and a byte take.
    fn rates(&self, bytes: f64, messages: usize) -> (f64, f64) {
        let protocol = self
            .protocols
            .iter()
            .find(|protocol| bytes <= protocol.up_to_bytes);
        let (alpha, beta) = protocol.map_or((1.0, 1.0), |protocol| (protocol.alpha, protocol.beta));
        let messages = messages as f64;
        let shared = self.traffic * messages / (messages + self.traffic_messages);
        (alpha, beta / (1.0 - shared))
    }
}
