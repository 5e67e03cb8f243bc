//! Samples of tuners that only propose settings: they are cut short where they are clearly worse,
//! as Ronde's are, and the search ends when nothing better comes.

use super::job::Job;
use super::truth::Setting;

/// Steps of a sample.
pub(crate) const SAMPLE_STEPS: usize = 10;
/// A sample is clearly worse after so many steps if it exceeds the best by this share and by this
/// many standard deviations of a step's noise: the least of one and two steps (the first also with
/// the discarded step), the median of five.
const CUTS: [(usize, f64, f64); 3] = [(1, 0.7, 4.0), (2, 0.1, 3.5), (5, 0.03, 1.6)];
/// The search ends after so many samples in which the best did not improve by this share.
const PATIENCE: usize = 20;
const IMPROVEMENT: f64 = 0.005;

/// Samples of one search.
#[derive(Debug, Default)]
pub(crate) struct Sampling {
    /// Median step time of the best sample, µs, its setting, and the noise of a step as a share.
    best: Option<(f64, Setting)>,
    noise: f64,
    /// Step time to improve on, and the samples since it was set.
    reference_us: Option<f64>,
    idle: usize,
}

impl Sampling {
    /// Measures a setting: one step is discarded. Returns the median step time, µs.
    pub(crate) fn sample(&mut self, job: &mut Job<'_>, setting: &Setting) -> f64 {
        let discarded = job.step_us(setting);
        let mut steps = Vec::new();
        while steps.len() < SAMPLE_STEPS && !self.is_clearly_worse(discarded, &steps) {
            steps.push(job.step_us(setting));
        }
        let is_whole = steps.len() == SAMPLE_STEPS;
        let score_us = median(&steps);
        if is_whole && self.noise == 0.0 {
            let deviations: Vec<f64> = steps.iter().map(|us| (us / score_us - 1.0).abs()).collect();
            self.noise = 1.4826 * median(&deviations);
        }
        if self.best.is_none_or(|(best_us, _)| score_us < best_us) {
            self.best = Some((score_us, *setting));
            job.incumbent(setting);
        }
        if self
            .reference_us
            .is_none_or(|reference_us| score_us < (1.0 - IMPROVEMENT) * reference_us)
        {
            (self.reference_us, self.idle) = (Some(score_us), 0);
        } else {
            self.idle += 1;
        }
        score_us
    }

    fn is_clearly_worse(&self, discarded_us: f64, steps: &[f64]) -> bool {
        let Some((best_us, _)) = self.best else {
            return false;
        };
        let Some((_, share, deviations)) = CUTS.iter().find(|(count, ..)| *count == steps.len())
        else {
            return false;
        };
        let score_us = match steps {
            [first] => first.min(discarded_us),
            [first, second] => first.min(*second),
            _ => median(steps),
        };
        score_us > best_us * (1.0 + share.max(deviations * self.noise))
    }

    /// Whether the search ends.
    pub(crate) fn is_done(&self) -> bool {
        self.idle >= PATIENCE
    }

    /// The best setting so far.
    pub(crate) fn best(&self) -> Option<Setting> {
        self.best.map(|(_, setting)| setting)
    }
}

/// Median; the mean of the two middle values of an even number.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::INFINITY,
        count if count % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::truth::{Truth, surfaces};

    #[test]
    fn a_bad_setting_is_cut_short_and_a_search_without_progress_ends() {
        let surfaces = surfaces(Truth::Lab, 1.0, Some(0.0)).unwrap();
        let surface = &surfaces[10]; // small/g25: 20 times as slow without fusion
        let mut job = Job::new(surface, 1, None);
        let mut sampling = Sampling::default();
        sampling.sample(&mut job, &Setting::DEFAULT);
        assert_eq!(job.steps(), 1 + SAMPLE_STEPS);
        sampling.sample(&mut job, &Setting::of(0.0, 1.0));
        assert_eq!(job.steps(), 1 + SAMPLE_STEPS + 2);
        let mut samples = 1;
        while !sampling.is_done() {
            sampling.sample(&mut job, &Setting::DEFAULT);
            samples += 1;
            assert!(samples < 5 * PATIENCE);
        }
        assert!(samples >= PATIENCE);
        assert_eq!(sampling.best(), Some(Setting::DEFAULT));
    }
}
