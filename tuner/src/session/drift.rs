//! Detection of drift: two tests of whether the step time at one setting has changed
//! permanently.
//!
//! The reference is all steps but the latest 48, at least 52, each clipped at 1.5 times their
//! median. The sharp test: all of the latest 8 steps lie beyond a factor of 1.6 from the
//! reference's mean. The slow test: the mean of the latest 48 differs from it by more than 12 %,
//! and by more than 4.5 standard deviations of the 48-step block means seen so far, which contain
//! the autocorrelation and the modes of the step time. `results/tuner/attacks.md` has the false
//! alarms on such step times.

use std::fmt;

use crate::center::{mean, median};

/// Number of steps before an alarm is possible: 52 of the reference and the latest 48.
const REFERENCE_STEPS: usize = 100;
/// Steps are clipped at this multiple of the reference's median: above the shifts that matter,
/// below a stall.
const CLIP_FACTOR: f64 = 1.5;
/// The sharp test: all of so many steps beyond this factor.
const SHARP_STEPS: usize = 8;
const SHARP_FACTOR: f64 = 1.6;
/// The slow test: steps of a block, least relative shift, and standard deviations of the block
/// means.
const BLOCK_STEPS: usize = 48;
const SHIFT_MIN: f64 = 0.12;
const SHIFT_SD: f64 = 4.5;

/// A shift of the step time that was noticed after a verdict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// The step at which it was noticed, counted from the session's first.
    pub step: u64,
    /// Step time before, ms.
    pub before_ms: f64,
    /// Step time after, ms: the median of the few steps that were seen.
    pub after_ms: f64,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after, step) = (self.before_ms, self.after_ms, self.step);
        write!(
            f,
            "step time went from {before:.2} to {after:.2} ms at step {step}"
        )
    }
}

/// Watches the steps under one setting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    /// Clip, ms, once the steps are enough for it.
    clip: Option<f64>,
    /// Sum and number of the reference's steps, clipped.
    sum: f64,
    steps: usize,
    /// The latest steps, not clipped; they join the reference later. All, until the clip is known.
    latest: Vec<f64>,
    /// Sum of the block under way; mean and squared deviations of the complete ones (Welford).
    block: f64,
    center: f64,
    squares: f64,
}

impl Watch {
    /// Takes a step, ms. On a shift: the step time before and after; watch on with a new one.
    pub(crate) fn push(&mut self, step_ms: f64) -> Option<(f64, f64)> {
        self.latest.push(step_ms);
        if self.latest.len() == REFERENCE_STEPS {
            let first = &self.latest[..REFERENCE_STEPS - BLOCK_STEPS];
            self.clip = Some(CLIP_FACTOR * median(first));
        }
        let clip = self.clip?;
        while self.latest.len() > BLOCK_STEPS {
            let oldest = self.latest.remove(0);
            self.learn(oldest.min(clip));
        }
        let reference = self.sum / self.steps as f64;
        let sharp = &self.latest[BLOCK_STEPS - SHARP_STEPS..];
        let is_slower = sharp.iter().all(|step| *step > SHARP_FACTOR * reference);
        let is_faster = sharp.iter().all(|step| *step < reference / SHARP_FACTOR);
        if is_slower || is_faster {
            return Some((reference, median(sharp)));
        }
        let latest: Vec<f64> = self.latest.iter().map(|step| step.min(clip)).collect();
        let count = (self.steps / BLOCK_STEPS) as f64;
        let sd = (self.squares / (count - 1.0).max(1.0)).sqrt() / reference;
        let limit = SHIFT_MIN.max(SHIFT_SD * sd * (1.0 + 1.0 / count).sqrt());
        let is_shifted = (mean(&latest) / reference - 1.0).abs() > limit;
        is_shifted.then(|| (reference, median(&latest)))
    }

    /// A step that is old enough joins the reference, clipped.
    fn learn(&mut self, step_ms: f64) {
        self.sum += step_ms;
        self.block += step_ms;
        self.steps += 1;
        if self.steps.is_multiple_of(BLOCK_STEPS) {
            let block = std::mem::take(&mut self.block) / BLOCK_STEPS as f64;
            let deviation = block - self.center;
            self.center += deviation / (self.steps / BLOCK_STEPS) as f64;
            self.squares += deviation * (block - self.center);
        }
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
            if watch.push(job.step(0.0).exp()).is_some() {
                alarms += 1;
                watch = Watch::default();
            }
        }
        alarms
    }

    /// Steps until a shift by `shift` is noticed, sorted, over 101 seeds; a false alarm before it
    /// counts 0.
    fn delays(noise: f64, drift: f64, shift: f64) -> Vec<usize> {
        let delay = |seed| {
            let mut job = Job::new(seed, noise, drift);
            let mut watch = Watch::default();
            for _ in 0..400 {
                if watch.push(job.step(0.0).exp()).is_some() {
                    return 0;
                }
            }
            (1..2000)
                .find(|_| watch.push(job.step(shift).exp()).is_some())
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
    fn correlated_steps_and_two_modes_are_no_drift() {
        // AR(1) with 0.9 and 4 %, a fair mode of 9 %, and a square wave of 9 %.
        let mut job = Job::new(3, 0.004, 0.0);
        let (mut log, mut watch, mut count) = (0.0, [(); 3].map(|()| Watch::default()), [0; 3]);
        for step in 0..100_000u32 {
            log = 0.9 * log
                + (1.0f64 - 0.81).sqrt() * 0.04 * (job.step(0.0) / 0.004).clamp(-4.0, 4.0);
            let noise = job.step(0.0).min(0.02);
            let mode = if job.step(0.0) > 0.0 { 0.09 } else { 0.0 };
            let square = if step % 22 < 11 { 0.09 } else { 0.0 };
            for (index, log_time) in [log, mode, square].into_iter().enumerate() {
                count[index] += usize::from(watch[index].push((log_time + noise).exp()).is_some());
            }
        }
        assert_eq!(count, [0; 3]);
    }

    #[test]
    fn a_network_four_times_slower_is_noticed_within_eight_steps() {
        for noise in [0.005, 0.02, 0.035, 0.05] {
            for drift in [0.0, 0.01] {
                for shift in [4f64.ln(), -4f64.ln()] {
                    let delays = delays(noise, drift, shift);
                    assert!(delays[0] >= 6 && delays[100] <= 8, "{delays:?}");
                }
            }
        }
    }

    #[test]
    fn a_shift_of_15_percent_is_noticed_within_60_steps() {
        let delays = delays(0.02, 0.0, 1.15f64.ln());
        assert!(delays[0] > 10 && delays[100] <= 60, "{delays:?}");
    }

    #[test]
    fn shifts_of_three_percent_spikes_and_short_pauses_are_no_drift() {
        let mut watch = Watch::default();
        (0..100).for_each(|_| assert_eq!(watch.push(10.0), None));
        (0..5000).for_each(|_| assert_eq!(watch.push(10.3), None));
        for _ in 0..50 {
            (0..20).for_each(|_| assert_eq!(watch.push(10.0), None));
            (0..6).for_each(|_| assert_eq!(watch.push(70.0), None, "a pause of six steps"));
            (0..40).for_each(|_| assert_eq!(watch.push(10.0), None));
        }
    }

    #[test]
    fn an_alarm_says_from_where_to_where() {
        let mut watch = Watch::default();
        (0..150).for_each(|_| assert_eq!(watch.push(10.0), None));
        let alarm = (1..100).find_map(|n| watch.push(20.0).map(|shift| (n, shift)));
        let (steps, (before, after)) = alarm.unwrap();
        assert_eq!((steps, after), (8, 20.0));
        assert!((before - 10.0).abs() < 1e-9);
        let drift = Drift {
            step: 158,
            before_ms: before,
            after_ms: after,
        };
        assert_eq!(
            drift.to_string(),
            "step time went from 10.00 to 20.00 ms at step 158"
        );
    }
}
