//! A step of a foreign job: events of the backward pass on every rank, and of the cycles.

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use rand_distr::{Distribution, Exp1, StandardNormal};
use ronde_job::replay::TracedBatch;

use super::super::simulation::Watch;
use super::Foreign;
use super::network::Chance;
use crate::harness::truth::Setting;

/// Random numbers of a step that do not depend on the setting.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    /// Phase of the cycles at the start of the backward pass, in cycles, 0..1.
    pub(super) phase: f64,
    /// Factor on each rank's computation, and its wait for input, µs.
    factor: Vec<f64>,
    input_us: Vec<f64>,
}

impl Arrival {
    pub(super) fn draw(job: &Foreign, rng: &mut Xoshiro256PlusPlus) -> Self {
        let factor = job.rank_factor.iter().map(|factor| {
            let normal: f64 = StandardNormal.sample(rng);
            factor * (job.jitter * normal).exp()
        });
        let factor = factor.collect();
        let input_us = job.rank_factor.iter().map(|_| {
            let wait: f64 = Exp1.sample(rng);
            job.input_us * wait
        });
        Self {
            factor,
            input_us: input_us.collect(),
            phase: rng.random(),
        }
    }
}

/// State of the environment, which lasts over several steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Weather {
    is_tenant: bool,
    /// Relative change of the computation by the clock frequency.
    clock: f64,
    is_begun: bool,
}

impl Weather {
    pub(super) fn of(is_tenant: bool) -> Self {
        Self {
            is_tenant,
            clock: 0.0,
            is_begun: true,
        }
    }

    fn advance(&mut self, job: &Foreign, rng: &mut Xoshiro256PlusPlus) {
        let tenant = job.network.tenant;
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        // The rates of coming and leaving give the tenant's share of the steps.
        let leaves = 1.0 / tenant.steps;
        let comes = (leaves * tenant.share / (1.0 - tenant.share)).min(1.0);
        self.is_tenant = match (is_first, self.is_tenant) {
            (true, _) => rng.random_bool(tenant.share),
            (false, true) => !rng.random_bool(leaves),
            (false, false) => rng.random_bool(comes),
        };
        if is_first || rng.random_bool(1.0 / job.clock_steps) {
            let normal: f64 = StandardNormal.sample(rng);
            self.clock = job.clock * normal;
        }
    }
}

impl Foreign {
    /// Draws a step under `setting`, µs.
    pub(crate) fn draw_us(
        &self,
        setting: &Setting,
        weather: &mut Weather,
        rng: &mut Xoshiro256PlusPlus,
        watch: &mut impl Watch,
    ) -> f64 {
        weather.advance(self, rng);
        let arrival = Arrival::draw(self, rng);
        self.step(setting, &arrival, weather, Some(rng), watch)
    }

    /// Time of a step, µs. Without `rng`, delays of messages are at their means.
    pub(super) fn step(
        &self,
        setting: &Setting,
        arrival: &Arrival,
        weather: &Weather,
        rng: Option<&mut Xoshiro256PlusPlus>,
        watch: &mut impl Watch,
    ) -> f64 {
        let mut chance = rng.map_or(Chance::Mean, Chance::Drawn);
        let cycle_us = setting.cycle_ms * 1e3;
        let idle_cycle_us = self.network.negotiate_us(0, setting.cache);
        // A communication thread that is awake most of the time lowers the clock of the others.
        let awake = idle_cycle_us / cycle_us.max(idle_cycle_us);
        let turbo = 1.0 + self.turbo * awake / (awake + self.turbo_share);
        let slow = turbo * (1.0 + weather.clock);
        let forward_us = self.forward_us * slow;

        let ready_at = |at: f64| {
            let ranks = arrival.factor.iter().zip(&arrival.input_us);
            ranks.fold(0.0f64, |latest, (factor, input)| {
                latest.max(input + at * slow * factor)
            })
        };
        let first_at = |at: f64| arrival.input_us[0] + at * slow * arrival.factor[0];
        let ready: Vec<f64> = self.at_us.iter().map(|at| ready_at(*at)).collect();
        for (index, (at, ready)) in self.at_us.iter().zip(&ready).enumerate() {
            watch.tensor(
                index,
                forward_us + first_at(*at).min(*ready),
                forward_us + ready,
            );
        }

        // The cycles tick from before the step; the link has been idle since the last one.
        let mut tick = arrival.phase * cycle_us;
        let (mut link_free, mut done) = (0.0f64, 0);
        let mut link_used = -forward_us;
        while done < ready.len() {
            if ready[done] > tick {
                tick += ((ready[done] - tick) / cycle_us).ceil() * cycle_us;
            }
            let taken = ready[done..]
                .iter()
                .take_while(|ready| **ready <= tick)
                .count()
                .max(1);
            let negotiate_us = watch.takes(self.network.negotiate_us(taken, setting.cache));
            watch.cycle(forward_us + tick, negotiate_us, taken, setting.cache);
            let agreed = tick + negotiate_us;
            let mut now = link_free.max(agreed);
            let began = now;
            let mut left: Vec<usize> = (done..done + taken).collect();
            while !left.is_empty() {
                let (buffer, bytes) = self.fuse(&mut left, setting.fusion_bytes);
                let copy_us = if buffer > 1 {
                    watch.takes(2.0 * self.network.copy_us(buffer, bytes as f64))
                } else {
                    0.0
                };
                let idle_us = now - link_used;
                let (hierarchical, tenant) = (setting.hierarchical, weather.is_tenant);
                let us = self.network.allreduce_us(
                    bytes as f64,
                    hierarchical,
                    idle_us,
                    tenant,
                    &mut chance,
                );
                let collective_us = watch.takes(us);
                watch.batch(TracedBatch {
                    class: 0,
                    bytes,
                    tensors: buffer as u32,
                    collective_us,
                    copy_us,
                });
                now += copy_us + collective_us;
                link_used = now;
            }
            watch.moved(now - began);
            link_free = now;
            done += taken;
            let next = if self.is_asynchronous { agreed } else { now };
            tick = next.max(tick + cycle_us);
        }
        forward_us + link_free.max(ready.last().copied().unwrap_or(0.0))
    }

    /// Takes the tensors of the next buffer from `left`: the first, and all later ones that fit.
    /// Returns their number and bytes.
    fn fuse(&self, left: &mut Vec<usize>, threshold: u64) -> (usize, u64) {
        let (mut count, mut bytes) = (0, 0u64);
        left.retain(|index| {
            let size = self.bytes[*index];
            let is_taken = count == 0 || bytes + size <= threshold;
            if is_taken {
                (count, bytes) = (count + 1, bytes + size);
            }
            !is_taken
        });
        (count, bytes)
    }
}
