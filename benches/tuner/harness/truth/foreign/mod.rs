//! Foreign jobs: data-parallel steps with effects that are drawn for each job, simulated by a
//! program of its own.
//!
//! The other simulated truths and the replay that is the tuner's prior describe a step in similar
//! words, so a tuner that is right about one is right about the other. These jobs are written from
//! the literature and from the documentation of Horovod's tensor fusion. They share with the
//! replay the setting and the format of a trace, and no code. Parameters of a job are drawn from
//! its number. A job has most of these effects:
//!
//! | effect | source |
//! | --- | --- |
//! | recursive doubling for small buffers, a ring for large ones | Thakur, Rabenseifner and Gropp, *Optimization of collective communication operations in MPICH*, IJHPCA 2005 |
//! | eager and rendezvous protocols by the size of a message | Open MPI and UCX documentation |
//! | incast: simultaneous messages to one receiver overflow a switch's buffer | Phanishayee et al., *Measurement and analysis of TCP throughput collapse*, FAST 2008 |
//! | slow start after an idle connection | RFC 5681, section 4.1 |
//! | heavy-tailed delay of each message; a round ends with its slowest message | Dean and Barroso, *The tail at scale*, CACM 2013; Hoefler et al., *Characterizing the influence of system noise*, SC 2010 |
//! | copies across memory nodes for large buffers | Lameter, *NUMA: an overview*, ACM Queue 2013 |
//! | clock frequency that depends on the number of busy cores, and changes over time | Hackenberg et al., *An energy efficiency feature survey of the Intel Haswell processor*, IPDPSW 2015 |
//! | a co-tenant of the network that comes and goes | Bhatele et al., *There goes the neighborhood*, SC 2013 |
//! | links that are slower one way | Alizadeh et al., *CONGA*, SIGCOMM 2014 |
//! | ready times that differ by rank: lasting offsets, slow input, jitter | Chen et al., *Revisiting distributed synchronous SGD*, 2016 |

mod network;
mod step;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, StandardNormal};

use super::setting::Setting;
use network::{CoTenant, Network};
use step::Arrival;
pub(crate) use step::Weather;

/// Number of jobs of the set.
pub(crate) const JOBS: u64 = 20;
/// Number of steps, with evenly spaced phases, whose mean is a true step time.
const TRUE_STEPS: usize = 24;

/// A job.
#[derive(Clone, Debug)]
pub(crate) struct Foreign {
    /// Bytes of each gradient, in the order of the backward pass, and its time after the start of
    /// the backward pass on a rank of usual speed, µs.
    pub(crate) bytes: Vec<u64>,
    at_us: Vec<f64>,
    forward_us: f64,
    pub(crate) ranks: u32,
    pub(crate) ranks_per_host: u32,
    /// Relative speed of each rank's computation, and the wait of each for its input, µs.
    rank_factor: Vec<f64>,
    input_us: f64,
    jitter: f64,
    network: Network,
    /// Slow-down of the computation by a communication thread that never sleeps, and the share of
    /// the time that it has to be awake for half of that.
    turbo: f64,
    turbo_share: f64,
    /// Standard deviation of the clock frequency over time, mean steps between its changes.
    clock: f64,
    clock_steps: f64,
    /// Whether the next cycle negotiates while the previous one's buffers are in flight.
    is_asynchronous: bool,
    /// Standard deviation of the noise of a step.
    pub(crate) sigma: f64,
}

/// Draws of parameters.
struct Draw(Xoshiro256PlusPlus);

impl Draw {
    /// Between the ends, evenly in the logarithm.
    fn log(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.0.random::<f64>())
    }

    fn even(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.0.random::<f64>()
    }

    fn choice<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.0.random_range(0..of.len())]
    }

    fn chance(&mut self, share: f64) -> bool {
        self.0.random_bool(share)
    }

    fn normal(&mut self) -> f64 {
        StandardNormal.sample(&mut self.0)
    }
}

impl Foreign {
    /// Draws job `number`.
    pub(crate) fn draw(number: u64) -> Self {
        let mut draw = Draw(Xoshiro256PlusPlus::seed_from_u64(0xf0_4e16 + 7919 * number));
        let ranks = draw.choice(&[2u32, 4, 8, 16, 32, 64]);
        let ranks_per_host = draw.choice(&[1u32, 2, 4, 8]).min(ranks);
        let tensors = draw.log(24.0, 400.0) as usize;
        let median_bytes = draw.log(8e3, 1e6);
        let mut bytes: Vec<u64> = (0..tensors)
            .map(|_| (median_bytes * (1.8 * draw.normal()).exp()).clamp(256.0, 8e7) as u64 & !3)
            .collect();
        if draw.chance(0.4) {
            // An embedding, whose gradient comes last, or a classifier, whose gradient comes first.
            let at = if draw.chance(0.5) { 0 } else { tensors - 1 };
            bytes[at] = draw.log(2e7, 2e8) as u64 & !3;
        }
        let network = Network::draw(&mut draw, ranks, ranks_per_host);
        // Between a fifth and six times as long as the transfer of all bytes.
        let total: f64 = bytes.iter().sum::<u64>() as f64;
        let transfer_us = total / network.bytes_per_us();
        let backward_us = (transfer_us * draw.log(0.2, 6.0)).clamp(8e3, 2e6);
        let mut work: Vec<f64> = (0..tensors).map(|_| draw.log(0.2, 5.0)).collect();
        let sum: f64 = work.iter().sum();
        let mut now = 0.0;
        for time in &mut work {
            now += backward_us * *time / sum;
            *time = now;
        }
        let spread = draw.log(0.003, 0.03);
        Self {
            forward_us: backward_us * draw.even(0.3, 0.6),
            at_us: work,
            bytes,
            rank_factor: (0..ranks).map(|_| (spread * draw.normal()).exp()).collect(),
            input_us: if draw.chance(0.5) {
                draw.log(100.0, 3000.0)
            } else {
                0.0
            },
            jitter: draw.log(0.002, 0.02),
            network,
            turbo: draw.even(0.0, 0.06),
            turbo_share: draw.log(0.05, 0.5),
            clock: draw.even(0.0, 0.02),
            clock_steps: draw.log(50.0, 2000.0),
            is_asynchronous: draw.chance(0.5),
            sigma: draw.log(0.01, 0.05),
            ranks,
            ranks_per_host,
        }
    }

    /// Name in tables.
    pub(crate) fn name(&self, number: u64) -> String {
        format!("job {number} {}x{}", self.ranks, self.ranks_per_host)
    }

    /// Cost of a message inside a host, and of a byte of it, µs.
    pub(crate) fn inner(&self) -> (f64, f64) {
        self.network.inner()
    }

    /// Makes all traffic between hosts `factor` times as slow.
    pub(crate) fn slower(mut self, factor: f64) -> Self {
        self.network.slow_down(factor);
        self
    }

    /// True mean step time under a setting, µs: over phases and arrivals, which are the same for
    /// every setting, and over the states of the co-tenant. Message delays and timeouts are at
    /// their means.
    pub(crate) fn mean_us(&self, setting: &Setting) -> f64 {
        let CoTenant { share, .. } = self.network.tenant;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(0x7ea1);
        let mut sum_us = 0.0;
        for step in 0..TRUE_STEPS {
            let mut arrival = Arrival::draw(self, &mut rng);
            arrival.phase = (step as f64 + 0.5) / TRUE_STEPS as f64;
            for (is_tenant, weight) in [(false, 1.0 - share), (true, share)] {
                if weight > 0.0 {
                    let weather = Weather::of(is_tenant);
                    let step = self.step(setting, &arrival, &weather, None, &mut super::Unwatched);
                    sum_us += weight * step;
                }
            }
        }
        sum_us / TRUE_STEPS as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_differ_and_equal_numbers_give_equal_jobs() {
        let names: Vec<String> = (0..JOBS)
            .map(|n| format!("{:?}", Foreign::draw(n)))
            .collect();
        let mut distinct = names.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len() as u64, JOBS);
        assert_eq!(names[3], format!("{:?}", Foreign::draw(3)));
    }

    #[test]
    fn steps_average_to_the_true_step_time() {
        for number in 0..4 {
            let job = Foreign::draw(number);
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(number);
            let steps = 8000; // each with a state of its own of what lasts over steps
            let drawn: f64 = (0..steps)
                .map(|_| {
                    job.draw_us(
                        &Setting::DEFAULT,
                        &mut Weather::default(),
                        &mut rng,
                        &mut super::super::Unwatched,
                    )
                })
                .sum();
            let ratio = drawn / f64::from(steps) / job.mean_us(&Setting::DEFAULT);
            assert!((ratio - 1.0).abs() < 0.03, "job {number}: {ratio}");
        }
    }

    #[test]
    fn no_step_is_shorter_than_its_computation() {
        for number in 0..JOBS {
            let job = Foreign::draw(number);
            let least = job.forward_us + job.at_us.last().unwrap();
            for (fusion_mb, cycle_ms) in [(128.0, 1.0), (0.0, 0.1), (2.0, 30.0)] {
                let step_us = job.mean_us(&Setting::of(fusion_mb, cycle_ms));
                assert!(step_us.is_finite() && step_us > 0.9 * least, "job {number}");
            }
        }
    }
}
