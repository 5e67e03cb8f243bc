//! Cost of messages and collectives of foreign jobs.

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

use super::Draw;

/// Most rounds of a collective whose delays are drawn one by one; the others are as long.
const ROUNDS_DRAWN: usize = 8;

/// A job that shares the network, on and off.
#[derive(Clone, Copy, Debug)]
pub(super) struct CoTenant {
    /// Bandwidth that it takes, as a share; share of the steps in which it is there; mean steps of
    /// a stay.
    pub(super) takes: f64,
    pub(super) share: f64,
    pub(super) steps: f64,
}

/// Costs of a job's network and hosts; times in µs, rates in bytes per µs.
#[derive(Clone, Debug)]
pub(super) struct Network {
    ranks: f64,
    per_host: f64,
    alpha_us: f64,
    rate: f64,
    /// Rate of the slower direction as a share of the other.
    asymmetry: f64,
    inner_alpha_us: f64,
    inner_rate: f64,
    /// Largest eager message, bytes; rate of its additional copy.
    eager_bytes: f64,
    eager_copy_rate: f64,
    /// Largest buffer that is reduced by recursive doubling.
    doubling_bytes: f64,
    /// Buffer of a switch port, bytes, and the timeout after an overflow.
    port_bytes: f64,
    timeout_us: f64,
    /// Idle time after which a connection starts slowly, and bytes of its first window.
    idle_us: f64,
    window_bytes: f64,
    /// Delay of a message: scale, and Pareto shape.
    delay_us: f64,
    shape: f64,
    pub(super) tenant: CoTenant,
    /// Copies: per tensor, rate, factor on the rate across memory nodes, bytes from which half is
    /// across.
    copy_us: f64,
    copy_rate: f64,
    across: f64,
    across_bytes: f64,
    /// Negotiation: per round, per tensor with the cache and without.
    control_us: f64,
    cached_us: f64,
    uncached_us: f64,
}

/// Share of the bursts over a switch port's buffer that end in a timeout.
const OVERFLOW: f64 = 0.2;

/// How random delays are taken.
pub(super) enum Chance<'a> {
    Drawn(&'a mut Xoshiro256PlusPlus),
    Mean,
}

impl Network {
    pub(super) fn draw(draw: &mut Draw, ranks: u32, ranks_per_host: u32) -> Self {
        let rate = draw.log(100.0, 10_000.0); // 0.1 to 10 GB/s
        Self {
            ranks: f64::from(ranks),
            per_host: f64::from(ranks_per_host),
            alpha_us: draw.log(4.0, 150.0),
            rate,
            asymmetry: if draw.chance(0.4) {
                draw.even(0.4, 0.9)
            } else {
                1.0
            },
            inner_alpha_us: draw.log(1.0, 6.0),
            inner_rate: draw.log(4_000.0, 60_000.0).max(2.0 * rate),
            eager_bytes: draw.log(2e3, 1.3e5),
            eager_copy_rate: draw.log(3_000.0, 20_000.0),
            doubling_bytes: draw.log(8e3, 5e5),
            port_bytes: draw.log(1e5, 4e6),
            timeout_us: draw.log(500.0, 10_000.0),
            idle_us: draw.log(2e3, 2e5),
            window_bytes: draw.log(1.4e4, 2e5),
            delay_us: draw.log(0.5, 30.0),
            shape: draw.even(2.2, 4.0),
            tenant: CoTenant {
                takes: draw.even(0.1, 0.5),
                share: if draw.chance(0.6) {
                    draw.even(0.1, 0.5)
                } else {
                    0.0
                },
                steps: draw.log(20.0, 800.0),
            },
            copy_us: draw.log(1.0, 5.0),
            copy_rate: draw.log(4_000.0, 200_000.0),
            across: draw.even(0.4, 1.0),
            across_bytes: draw.log(4e6, 6e7),
            control_us: draw.log(5.0, 150.0),
            cached_us: draw.log(0.05, 0.5),
            uncached_us: draw.log(1.0, 10.0),
        }
    }

    /// Rate of a ring allreduce in bytes of its buffer, without a co-tenant.
    pub(super) fn bytes_per_us(&self) -> f64 {
        self.rate * self.asymmetry / 2.0
    }

    /// Cost of a message inside a host, and of a byte of it.
    pub(super) fn inner(&self) -> (f64, f64) {
        (self.inner_alpha_us, 1.0 / self.inner_rate)
    }

    pub(super) fn slow_down(&mut self, factor: f64) {
        self.alpha_us *= factor;
        self.rate /= factor;
        self.control_us *= factor;
    }

    /// Time of a cycle's negotiation: a gather to one rank and a broadcast.
    pub(super) fn negotiate_us(&self, tensors: usize, cache: bool) -> f64 {
        let rounds = self.ranks.log2().max(1.0);
        if cache {
            self.control_us * rounds + self.cached_us * tensors as f64
        } else {
            let arriving = self.ranks * 200.0 * tensors as f64;
            let incast = if arriving > self.port_bytes {
                self.timeout_us
            } else {
                0.0
            };
            2.0 * self.control_us * rounds + self.uncached_us * tensors as f64 + incast
        }
    }

    /// Time of copying a buffer one way.
    pub(super) fn copy_us(&self, tensors: usize, bytes: f64) -> f64 {
        let remote = bytes / (bytes + self.across_bytes);
        let slow = 1.0 + remote * (1.0 / self.across - 1.0);
        self.copy_us * tensors as f64 + bytes * slow / self.copy_rate
    }

    /// Time of a message over a link of this rate.
    fn message_us(&self, bytes: f64, alpha_us: f64, rate: f64) -> f64 {
        if bytes <= self.eager_bytes {
            alpha_us + bytes / rate + bytes / self.eager_copy_rate
        } else {
            3.0 * alpha_us + bytes / rate // request, permission, data
        }
    }

    /// Sum over rounds of the delay of the slowest of `ranks` messages.
    fn delays_us(&self, rounds: f64, ranks: f64, chance: &mut Chance<'_>) -> f64 {
        match chance {
            // The mean of the maximum of n Pareto variates is n^(1/shape) Gamma(1 - 1/shape),
            // nearly.
            Chance::Mean => {
                let gamma = statrs::function::gamma::gamma(1.0 - 1.0 / self.shape);
                rounds * self.delay_us * ((ranks.powf(1.0 / self.shape) * gamma) - 1.0).max(0.0)
            }
            Chance::Drawn(rng) => {
                let drawn = (rounds as usize).clamp(1, ROUNDS_DRAWN);
                let sum: f64 = (0..drawn)
                    .map(|_| {
                        let uniform: f64 = rng.random_range(1e-12..1.0);
                        let exponential = -uniform.ln();
                        // The maximum has nearly a Fréchet distribution.
                        (ranks / exponential).powf(1.0 / self.shape) - 1.0
                    })
                    .map(|excess: f64| excess.max(0.0))
                    .sum();
                rounds * self.delay_us * sum / drawn as f64
            }
        }
    }

    /// Time of an allreduce between hosts or ranks of one kind of link.
    fn flat_us(&self, bytes: f64, ranks: f64, link: (f64, f64), chance: &mut Chance<'_>) -> f64 {
        let (alpha_us, rate) = link;
        if ranks < 2.0 {
            return 0.0;
        }
        let (rounds, message) = if bytes <= self.doubling_bytes {
            (ranks.log2().ceil(), bytes)
        } else {
            (2.0 * (ranks - 1.0), bytes / ranks)
        };
        rounds * self.message_us(message, alpha_us, rate) + self.delays_us(rounds, ranks, chance)
    }

    /// Time of the allreduce of a buffer. `idle_us` is the time since the last one; `is_shared` is
    /// whether the co-tenant is there.
    pub(super) fn allreduce_us(
        &self,
        bytes: f64,
        is_hierarchical: bool,
        idle_us: f64,
        is_shared: bool,
        chance: &mut Chance<'_>,
    ) -> f64 {
        let taken = if is_shared { self.tenant.takes } else { 0.0 };
        let rate = self.rate * self.asymmetry * (1.0 - taken);
        let hosts = (self.ranks / self.per_host).max(1.0);
        let inner = (self.inner_alpha_us, self.inner_rate);
        let outer = if hosts > 1.0 {
            (self.alpha_us, rate)
        } else {
            inner
        };
        let mut took_us = 0.0;
        if is_hierarchical && self.per_host > 1.0 {
            // Each host reduces to one rank, these reduce among each other, and each host
            // broadcasts.
            let gather = self.message_us(bytes, inner.0, inner.1);
            took_us += 2.0 * self.per_host.log2().ceil() * gather;
            took_us += self.flat_us(bytes, hosts, outer, chance);
        } else {
            // The ranks of a host share its link only where a ring does not stay inside of it.
            let crowd = if bytes <= self.doubling_bytes {
                self.per_host.min(self.ranks)
            } else {
                1.0
            };
            took_us += self.flat_us(bytes, self.ranks, (outer.0, outer.1 / crowd), chance);
            let arriving = bytes.min(self.doubling_bytes) * self.per_host;
            if bytes <= self.doubling_bytes && arriving > self.port_bytes && hosts > 1.0 {
                let timeouts = match chance {
                    Chance::Mean => OVERFLOW,
                    Chance::Drawn(rng) => f64::from(u8::from(rng.random_bool(OVERFLOW))),
                };
                took_us += timeouts * self.timeout_us;
            }
        }
        if idle_us > self.idle_us && hosts > 1.0 {
            let windows = (bytes / self.ranks / self.window_bytes).max(1.0).log2();
            took_us += 2.0 * self.alpha_us * windows;
        }
        took_us
    }
}
