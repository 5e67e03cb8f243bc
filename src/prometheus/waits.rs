//! Metric of the waits of a host's ranks, read from the file that they share.

use std::fmt::Error;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Unit;

use super::metrics::Sources;
use crate::sync::lock;

/// Encodes the waits of this host's ranks.
#[derive(Debug)]
pub(super) struct WaitsCollector(pub(super) Arc<Sources>);

impl Collector for WaitsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let Some(shared) = lock(&self.0.times).clone() else {
            return Ok(());
        };
        let mut family = encoder.encode_descriptor(
            "rank_wait",
            "Time that a rank of this host had tensors which other ranks had not; the slowest rank \
             has the least",
            Some(&Unit::Seconds),
            MetricType::Counter,
        )?;
        for (rank, times) in shared.read() {
            let counter = ConstCounter::new(times.waited.as_secs_f64());
            counter.encode(family.encode_family(&[("rank", rank as u64)])?)?;
        }
        Ok(())
    }
}
