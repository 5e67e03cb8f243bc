//! Metrics of the tuner, read from its last report.

use std::fmt::Error;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use super::metrics::Sources;
use crate::sync::lock;

/// States of the tuner: off, or its phase.
const STATES: [&str; 5] = ["off", "default", "sample", "ab", "final"];

/// Encodes the tuner's state, and gain and cost once there is a verdict.
#[derive(Debug)]
pub(super) struct TunerCollector(pub(super) Arc<Sources>);

impl Collector for TunerCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let report = lock(&self.0.progress)
            .as_ref()
            .and_then(|progress| progress.autotune());
        let state = report
            .as_ref()
            .map_or("off".to_owned(), |report| report.phase.to_string());
        let mut family = encoder.encode_descriptor(
            "tuner_state",
            "1 for the tuner's state, 0 for the others",
            None,
            MetricType::Gauge,
        )?;
        for name in STATES {
            let is_it = ConstGauge::new(i64::from(name == state));
            is_it.encode(family.encode_family(&[("state", name)])?)?;
        }
        let Some(verdict) = report.and_then(|report| report.verdict) else {
            return Ok(());
        };
        let [low, high] = verdict.gain_pct.map(|percent| percent / 100.0);
        let gain = 1.0 - verdict.chosen_step_ms / verdict.default_step_ms;
        let gains = match verdict.kept_default || verdict.gain_is_known() {
            true => &[
                (
                    "tuner_gain",
                    "Part of the default's step time that the chosen settings save",
                    gain,
                ),
                (
                    "tuner_gain_lower",
                    "Lower bound of the gain, 95 % interval",
                    low,
                ),
                (
                    "tuner_gain_upper",
                    "Upper bound of the gain, 95 % interval",
                    high,
                ),
            ][..],
            false => &[],
        };
        for &(name, help, value) in gains {
            let gauge = ConstGauge::new(value);
            let unit = Unit::Other("ratio".to_owned());
            gauge.encode(encoder.encode_descriptor(
                name,
                help,
                Some(&unit),
                MetricType::Gauge,
            )?)?;
        }
        let lost = ConstCounter::new(verdict.steps_lost.max(0.0));
        lost.encode(encoder.encode_descriptor(
            "tuner_steps_lost",
            "Cost of the last search, in steps at the default settings",
            None,
            MetricType::Counter,
        )?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ronde_tuner::Phase;

    use super::super::Job;
    use super::super::metrics::Metrics;
    use crate::autotune::{AutotuneReport, AutotuneVerdict, Progress};
    use crate::identity::Identity;
    use crate::settings::Settings;

    /// Returns the lines about the tuner in the metrics of a job with this report.
    fn lines(report: Option<AutotuneReport>) -> Vec<String> {
        let progress = Arc::<Progress>::default();
        if let Some(report) = report {
            progress.set_autotune(report);
        }
        let job = Job {
            identity: &Identity::single(),
            backend: "local",
            resets: 0,
            progress: &progress,
            times: &None,
        };
        let metrics = Metrics::new(&job, None);
        metrics.continue_with(&job);
        let text = metrics.prometheus().unwrap();
        let of_tuner = |line: &&str| line.starts_with("ronde_tuner_");
        text.lines().filter(of_tuner).map(str::to_owned).collect()
    }

    fn report(phase: Phase, verdict: Option<AutotuneVerdict>) -> AutotuneReport {
        AutotuneReport {
            phase,
            sample: 3,
            settings: Settings::default(),
            step_ms: None,
            best: None,
            steps_left: 0,
            verdict,
            not_tuned: Vec::new(),
        }
    }

    fn verdict() -> AutotuneVerdict {
        AutotuneVerdict {
            kept_default: false,
            settings: Settings::default(),
            reverted: false,
            default_step_ms: 8.0,
            chosen_step_ms: 6.0,
            gain_pct: [12.5, 37.5],
            steps_active: 160,
            steps_lost: 6.5,
            budget_steps: 20.0,
            budget_kept: true,
            payback_step: None,
            reason: String::new(),
            retuned: None,
        }
    }

    fn state_lines(state: &str) -> Vec<String> {
        let states = ["off", "default", "sample", "ab", "final"];
        let line = |name| {
            let value = u8::from(name == state);
            format!("ronde_tuner_state{{state=\"{name}\"}} {value}")
        };
        states.map(line).to_vec()
    }

    #[test]
    fn the_state_is_the_phase() {
        assert_eq!(lines(None), state_lines("off"));
        for (phase, state) in [
            (Phase::Default, "default"),
            (Phase::Sample, "sample"),
            (Phase::Ab, "ab"),
            (Phase::Final, "final"),
        ] {
            assert_eq!(lines(Some(report(phase, None))), state_lines(state));
        }
    }

    #[test]
    fn a_verdict_has_its_gain_the_bounds_and_the_cost() {
        let mut expected = state_lines("final");
        expected.extend([
            "ronde_tuner_gain_ratio 0.25".to_owned(),
            "ronde_tuner_gain_lower_ratio 0.125".to_owned(),
            "ronde_tuner_gain_upper_ratio 0.375".to_owned(),
            "ronde_tuner_steps_lost_total 6.5".to_owned(),
        ]);
        let found = lines(Some(report(Phase::Final, Some(verdict()))));
        assert_eq!(found, expected);
    }

    #[test]
    fn an_unknown_gain_is_left_out() {
        let unknown = AutotuneVerdict {
            gain_pct: [0.0; 2],
            ..verdict()
        };
        let mut expected = state_lines("final");
        expected.push("ronde_tuner_steps_lost_total 6.5".to_owned());
        let found = lines(Some(report(Phase::Final, Some(unknown.clone()))));
        assert_eq!(found, expected);
        // With the default kept it is known to be 0.
        let kept = AutotuneVerdict {
            kept_default: true,
            chosen_step_ms: 8.0,
            ..unknown
        };
        let found = lines(Some(report(Phase::Final, Some(kept))));
        assert!(
            found.contains(&"ronde_tuner_gain_ratio 0.0".to_owned()),
            "{found:?}"
        );
    }
}
