//! Simulation of a step of a job: a forward pass, a backward pass that produces gradients, and a
//! background loop that fuses and reduces them (`results/tuner/README.md`, "The simulated job"). It
//! is independent of `ronde_job::replay`, which it is to judge.

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use rand_distr::{Distribution, StandardNormal, StudentT};
use ronde_job::replay::TracedBatch;

use super::model::Model;
use super::network::{Effects, Network};
use super::setting::Setting;

/// Relative variation of each rank's computation time.
const RANK_JITTER: f64 = 0.008;
/// Delay of a tensor on the slowest of many ranks, µs, before the number of ranks is considered.
const TENSOR_JITTER_US: f64 = 20.0;

/// Steps of a job.
#[derive(Clone, Debug)]
pub(crate) struct Simulation {
    pub(crate) model: Model,
    pub(crate) network: Network,
    pub(crate) effects: Effects,
}

/// Random numbers of a step, independent of the setting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draws {
    /// Phase of the background loop at the start of the backward pass, in cycles, 0..1.
    pub(crate) phase: f64,
    /// Relative delay of the slowest rank's computation.
    pub(crate) late: f64,
    /// Delay of each tensor, µs.
    pub(crate) jitter_us: Vec<f64>,
}

/// Receives the events of a step.
pub(crate) trait Watch {
    /// Returns the duration this time of `us` of work.
    fn takes(&mut self, us: f64) -> f64 {
        us
    }
    /// Tensor `index` can be reduced, µs since the start of the step: `pending` on the first rank,
    /// `ready` on the last.
    fn tensor(&mut self, _index: usize, _pending: f64, _ready: f64) {}
    /// A cycle began, negotiated, and begins to execute tensors.
    fn cycle(&mut self, _began: f64, _negotiate: f64, _tensors: usize, _cached: bool) {}
    /// The cycle executed a batch.
    fn batch(&mut self, _batch: TracedBatch) {}
    /// The last result of the cycle is complete.
    fn moved(&mut self, _moving: f64) {}
}

/// Receiver that ignores all events.
pub(crate) struct Unwatched;

impl Watch for Unwatched {}

impl Draws {
    /// Draws new numbers.
    pub(crate) fn redraw(&mut self, job: &Simulation, rng: &mut Xoshiro256PlusPlus) {
        self.phase = rng.random();
        let ranks = job.network.ranks as usize;
        let late = (0..ranks).map(|_| match job.effects.jitter_freedom {
            Some(freedom) => StudentT::new(freedom).map_or(0.0, |t| t.sample(rng)),
            None => StandardNormal.sample(rng),
        });
        self.late = RANK_JITTER * late.fold(f64::NEG_INFINITY, f64::max);
        let scale = TENSOR_JITTER_US * (job.network.ranks.log2() + 1.0).sqrt();
        self.jitter_us.clear();
        self.jitter_us.extend((0..job.model.bytes.len()).map(|_| {
            let late: f64 = StandardNormal.sample(rng);
            late.abs() * scale
        }));
    }
}

impl Simulation {
    /// Returns the time of a step, µs. `ready` is scratch memory.
    pub(crate) fn step_us(
        &self,
        setting: &Setting,
        draws: &Draws,
        ready: &mut Vec<f64>,
        watch: &mut impl Watch,
    ) -> f64 {
        let Self {
            model,
            network,
            effects,
        } = self;
        let cycle_us = setting.cycle_ms * 1e3;
        let (idle_us, tensor_us) = network.negotiation(setting.cache);
        let period_us = cycle_us.max(idle_us);
        let slow =
            (1.0 + network.polling * idle_us / period_us) * (1.0 + effects.ready_late(setting));
        let forward_us = model.forward_us * slow;

        ready.clear();
        let mut latest = 0.0f64;
        for (index, (&at, &jitter)) in model.ready_us.iter().zip(&draws.jitter_us).enumerate() {
            // In order: a tensor waits for those before it.
            latest = latest.max(at * (1.0 + draws.late) * slow + jitter);
            ready.push(latest);
            let first = at * (1.0 - draws.late) * slow;
            watch.tensor(index, forward_us + first.min(latest), forward_us + latest);
        }

        let (mut next, mut ended, mut busy_us) = (draws.phase * period_us, 0.0, 0.0);
        let (mut done, mut messages) = (0, 0);
        let mut used = vec![false; ready.len()];
        while done < ready.len() {
            if ready[done] > next {
                next += ((ready[done] - next) / period_us).ceil() * period_us;
            }
            let mut taken = done;
            while taken < ready.len() && ready[taken] <= next {
                taken += 1;
            }
            let taken = taken.max(done + 1); // rounding
            let negotiate_us = watch.takes(idle_us + tensor_us * (taken - done) as f64);
            watch.cycle(forward_us + next, negotiate_us, taken - done, setting.cache);
            let moving = next + negotiate_us;
            // Ends of copy in, collective and copy out of the latest buffer.
            let (mut copied, mut reduced, mut out) = (moving, moving, moving);
            while done < taken {
                let (count, bytes) =
                    batch(&model.bytes[..taken], done, &mut used, setting, effects);
                let copy_us = if count > 1 {
                    watch.takes(network.copy_us(count, bytes as f64, effects))
                } else {
                    0.0
                };
                let collective_us =
                    network.allreduce_us(bytes as f64, setting.hierarchical, messages, effects);
                let collective_us = watch.takes(collective_us);
                watch.batch(TracedBatch {
                    class: 0,
                    bytes,
                    tensors: count as u32,
                    collective_us,
                    copy_us: 2.0 * copy_us,
                });
                if network.overlaps {
                    copied += copy_us;
                    reduced = copied.max(reduced) + collective_us;
                    out = reduced.max(out) + copy_us;
                } else {
                    out += copy_us + collective_us + copy_us;
                }
                messages += 1;
                while done < taken && used[done] {
                    done += 1;
                }
            }
            watch.moved(out - moving);
            ended = out;
            busy_us += out - next;
            next = ended.max(next + cycle_us);
        }
        ended += effects.contention * busy_us.min(latest);
        forward_us + ended.max(latest)
    }
}

/// Returns the number of tensors in the next buffer, and their bytes: the first ready one, and
/// those behind it that fit. Marks them as used. The look-ahead ends when a threshold of bytes that
/// would have fit into an empty buffer has been passed over (`docs/TENSOR.md`).
fn batch(
    ready: &[u64],
    first: usize,
    used: &mut [bool],
    setting: &Setting,
    effects: &Effects,
) -> (usize, u64) {
    let threshold = setting.fusion_bytes;
    let (mut count, mut bytes, mut passed_over) = (1, ready[first], 0);
    used[first] = true;
    for index in first + 1..ready.len() {
        if bytes >= threshold || passed_over > threshold {
            break;
        }
        if used[index] {
            continue;
        }
        if bytes + ready[index] <= threshold {
            (count, bytes) = (count + 1, bytes + ready[index]);
            used[index] = true;
        } else if effects.looks_ahead {
            passed_over += if ready[index] <= threshold {
                ready[index]
            } else {
                0
            };
        } else {
            break;
        }
    }
    (count, bytes)
}

impl Effects {
    /// Relative delay of ready times under a setting.
    fn ready_late(&self, setting: &Setting) -> f64 {
        /// Bytes above which buffers are large.
        const LARGE: f64 = 8.0 * 1048576.0;
        let large = setting.fusion_bytes as f64 / LARGE;
        self.ready_by_fusion * large / (1.0 + large)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two tensors, ready after 1 and 2 ms, on two ranks with 1 byte/µs between them.
    fn job() -> (Simulation, Draws) {
        let model = Model {
            bytes: vec![1000, 3000],
            ready_us: vec![1000.0, 2000.0],
            forward_us: 500.0,
        };
        let mut network = Network::g25(2, 1).slower(1.0);
        network.alpha_us = 100.0;
        network.us_per_byte = 1.0;
        network.control_us = 50.0;
        network.launch_us = 0.0;
        network.copy_us_per_tensor = 10.0;
        network.copy_us_per_byte = 0.0;
        network.cached_us_per_tensor = 0.0;
        network.polling = 0.0;
        let simulation = Simulation {
            model,
            network,
            effects: Effects::LAB,
        };
        let draws = Draws {
            jitter_us: vec![0.0; 2],
            ..Draws::default()
        };
        (simulation, draws)
    }

    #[test]
    fn a_step_by_hand() {
        let (job, draws) = job();
        let step_us =
            |setting: &Setting| job.step_us(setting, &draws, &mut Vec::new(), &mut Unwatched);
        // Cycles at 0, 1, ... ms: the first tensor goes at 1000 and is done at 1000 + 50 + 200 +
        // 1000 = 2250; the second at 2250 + 50 + 200 + 3000 = 5500, and the forward pass before it
        // all.
        assert_eq!(step_us(&Setting::of(128.0, 1.0)), 6000.0);
        // Cycles at 0, 2, ... ms: both at 2000, fused: 2000 + 50 + (20 + 200 + 4000 + 20) = 6290.
        assert_eq!(step_us(&Setting::of(128.0, 2.0)), 6790.0);
        // Not fused: 2000 + 50 + (200 + 1000) + (200 + 3000) = 6450.
        assert_eq!(step_us(&Setting::of(0.0, 2.0)), 6950.0);
    }

    #[test]
    fn a_buffer_looks_ahead_past_what_does_not_fit() {
        let fuse = |ready: &[u64], looks_ahead: bool| {
            let effects = Effects {
                looks_ahead,
                ..Effects::LAB
            };
            let setting = Setting {
                fusion_bytes: 100,
                ..Setting::DEFAULT
            };
            let (mut used, mut buffers) = (vec![false; ready.len()], Vec::new());
            while let Some(first) = used.iter().position(|used| !used) {
                buffers.push(batch(ready, first, &mut used, &setting, &effects).1);
            }
            buffers
        };
        assert_eq!(fuse(&[60, 70, 30, 500, 10], true), [100, 70, 500]);
        assert_eq!(fuse(&[60, 70, 30, 500, 10], false), [60, 100, 500, 10]);
        // The first buffer passes over 60 and 60, and does not look at the 40 any more.
        assert_eq!(fuse(&[60, 60, 60, 40], true), [60, 100, 60]);
    }

    #[test]
    fn a_step_by_hand_where_copies_overlap() {
        let (mut job, draws) = job();
        job.network.overlaps = true;
        job.model.bytes = vec![1000; 4];
        job.model.ready_us = vec![2000.0; 4];
        let draws = Draws {
            jitter_us: vec![0.0; 4],
            ..draws
        };
        let setting = Setting {
            fusion_bytes: 2000,
            ..Setting::of(0.0, 2.0)
        };
        // Two buffers of 2000: in at 2070 and 2090, reduced at 2070 + 2200 and 2200 later, out 20
        // after that.
        let step_us = job.step_us(&setting, &draws, &mut Vec::new(), &mut Unwatched);
        assert_eq!(step_us, 500.0 + 2070.0 + 2.0 * 2200.0 + 20.0);
    }
}
