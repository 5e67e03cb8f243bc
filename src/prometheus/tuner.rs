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
