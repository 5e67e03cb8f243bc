//! Drift: has the job become another one since the verdict? A two-sided Page–Hinkley test on the log step time.
//!
//! ```text
//!  l ─► d = clip(l − m, ±3σ) ─► up   = max(0, up   + d − D) ─► alarm above λσ
//!          ▲                    down = max(0, down − d − D) ─► alarm above λσ
//!          └ m += 0.003 d
//! ```
//!
//! The reference m and the noise σ come from the first 60 steps under the chosen setting. D = max(2.5 %, 0.75 σ) leaves shifts of 3 %
//! and less alone; the clip leaves a spike, and a pause of up to six steps, without consequence; m follows a machine that wanders
//! slowly. Sources: E. S. Page, Continuous inspection schemes, Biometrika 41 (1954); constants from a simulation of 14 jobs, with one
//! change: σ is taken for 2 % at least instead of 1.5 %. The clip then lets a large shift reach λσ in at most nine steps (at 1.5 % and
//! below it took twelve), and the limit itself is higher, so quiet jobs have fewer false alarms, not more.
//!
//! False alarms in 300,000 steps of the tests' made-up job: none at 2 % and at 5 % noise; with an AR(1) drift of sd 1 % beneath,
//! four at 2 % (0.13 per 10,000 steps) and none at 5 %.

use serde::{Deserialize, Serialize};

use crate::center::{huber_center, median};

/// Steps that the reference is made of.
const REFERENCE_STEPS: usize = 60;
/// Steps whose median is the level after an alarm, at most.
const AFTER_STEPS: usize = 15;
/// A shift that is left alone: in log step time, and in noise.
const IGNORED: f64 = 0.025;
const IGNORED_NOISE: f64 = 0.75;
/// The limit, in noise.
const LIMIT: f64 = 15.0;
/// How far one step can count, in noise.
const CLIP: f64 = 3.0;
/// How fast the reference follows.
const FOLLOW: f64 = 0.003;
/// The least noise that is believed.
const NOISE_MIN: f64 = 0.02;

/// A shift of the step time that was noticed after a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drift {
    /// The step at which it was noticed, counted from the session's first.
    pub step: u64,
    /// Step time before, ms.
    pub before_ms: f64,
    /// Step time after, ms: the median of the few steps that were seen.
    pub after_ms: f64,
}

/// Watches the steps under one setting.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    /// The first steps, until they are enough.
    reference: Vec<f64>,
    level: f64,
    noise: f64,
    up: f64,
    down: f64,
    /// The latest steps, oldest first, since a sum left zero.
    latest: Vec<f64>,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            reference: Vec::with_capacity(REFERENCE_STEPS),
            level: f64::NAN,
            noise: f64::NAN,
            up: 0.0,
            down: 0.0,
            latest: Vec::new(),
        }
    }
}

impl Watch {
    /// Takes the ln of a step's time in ms. On a shift: ln of the step time before and after; watch on with a new one.
    pub(crate) fn push(&mut self, log_time: f64) -> Option<(f64, f64)> {
        if self.reference.len() < REFERENCE_STEPS {
            self.reference.push(log_time);
            if self.reference.len() == REFERENCE_STEPS {
                self.level = huber_center(&self.reference);
                let deviations: Vec<f64> = self
                    .reference
                    .iter()
                    .map(|l| (l - self.level).abs())
                    .collect();
                self.noise = (1.4826 * median(&deviations)).max(NOISE_MIN);
            }
            return None;
        }
        let deviation = (log_time - self.level).clamp(-CLIP * self.noise, CLIP * self.noise);
        let ignored = IGNORED.max(IGNORED_NOISE * self.noise);
        self.up = (self.up + deviation - ignored).max(0.0);
        self.down = (self.down - deviation - ignored).max(0.0);
        if self.up == 0.0 && self.down == 0.0 {
            self.latest.clear();
        } else {
            if self.latest.len() == AFTER_STEPS {
                self.latest.remove(0);
            }
            self.latest.push(log_time);
        }
        if self.up > LIMIT * self.noise || self.down > LIMIT * self.noise {
            return Some((self.level, median(&self.latest)));
        }
        self.level += FOLLOW * deviation;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Job;

    /// Alarms in `steps` steps, with a new watch after each.
    fn alarms(job: &mut Job, steps: usize) -> usize {
        let mut watch = Watch::default();
        let mut alarms = 0;
        for _ in 0..steps {
            if watch.push(job.step(0.0)).is_some() {
                alarms += 1;
                watch = Watch::default();
            }
        }
        alarms
    }

    /// Steps until a shift by `shift` is noticed, sorted, over 101 seeds; a false alarm before it counts 0.
    fn delays(noise: f64, drift: f64, shift: f64) -> Vec<usize> {
        let delay = |seed| {
            let mut job = Job::new(seed, noise, drift);
            let mut watch = Watch::default();
            for _ in 0..200 {
                if watch.push(job.step(0.0)).is_some() {
                    return 0;
                }
            }
            (1..2000)
                .find(|_| watch.push(job.step(shift)).is_some())
                .unwrap_or(2000)
        };
        let mut delays: Vec<usize> = (0..101).map(delay).collect();
        delays.sort_unstable();
        delays
    }

    #[test]
    fn false_alarms_are_rare() {
        for (noise, drift, most) in [
            (0.02, 0.0, 0),
            (0.05, 0.0, 0),
            (0.02, 0.01, 6),
            (0.05, 0.01, 6),
        ] {
            let count: usize = (0..10)
                .map(|seed| alarms(&mut Job::new(seed, noise, drift), 30_000))
                .sum();
            println!("noise {noise}, drift {drift}: {count} false alarms in 300,000 steps");
            assert!(count <= most, "{count}");
        }
    }

    #[test]
    fn a_network_four_times_slower_is_noticed_within_ten_steps() {
        for noise in [0.005, 0.02, 0.035, 0.05] {
            for drift in [0.0, 0.01] {
                let (slow, fast) = (delays(noise, drift, 0.5), delays(noise, drift, -0.5));
                println!(
                    "noise {noise}, drift {drift}: {} and {} steps",
                    slow[50], fast[50]
                );
                assert!(
                    slow[50] <= 10 && fast[50] <= 10 && slow[95] <= 14,
                    "{slow:?} {fast:?}"
                );
            }
        }
        assert!((8..=20).contains(&delays(0.05, 0.0, 0.10)[50]));
    }

    #[test]
    fn shifts_of_three_percent_spikes_and_short_pauses_are_no_drift() {
        let mut watch = Watch::default();
        (0..60).for_each(|_| assert_eq!(watch.push(1.0), None));
        (0..5000).for_each(|_| assert_eq!(watch.push(1.02), None));
        for _ in 0..50 {
            (0..20).for_each(|_| assert_eq!(watch.push(1.0), None));
            (0..6).for_each(|_| assert_eq!(watch.push(3.0), None, "a pause of six steps"));
            (0..40).for_each(|_| assert_eq!(watch.push(1.0), None));
        }
    }

    #[test]
    fn an_alarm_says_from_where_to_where() {
        let mut watch = Watch::default();
        (0..100).for_each(|_| assert_eq!(watch.push(2.0), None));
        // At σ = 0.02: 0.06 − 0.025 a step against 0.3: the ninth.
        let alarm = (1..100).find_map(|n| watch.push(2.7).map(|shift| (n, shift)));
        let (steps, (before, after)) = alarm.unwrap();
        assert_eq!((steps, after), (9, 2.7));
        assert!((before - 2.0).abs() < 0.01);
    }
}
