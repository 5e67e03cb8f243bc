//! Arguments of `ronde replay`.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use crate::present::output::given;
use crate::range::{self, Limits, List};
use crate::timeline::parse_steps;
use ronde_job::replay::network::{Algorithm, Network};

/// Largest number of ranks to predict; for more, the α–β model is not informative.
const RANKS_MOST: u64 = 10_000;
/// Limits of the knobs' values, also for `ronde sweep`.
const FUSION_MB: Limits = Limits {
    bounds: (0.0, 65_536.0),
    unit: "MiB",
};
pub(crate) const CYCLE_MS: Limits = Limits {
    bounds: (0.0, 10_000.0),
    unit: "ms",
};

const EXAMPLES: &str = "\
Examples:
  ronde replay t.json                                       other settings for this job
  ronde replay p.json --fusion-mb 0,1,4,16 --cycle-ms 0.5,1,5,25
  ronde replay t.json --fusion-mb 1..128 --html grid.html   eight thresholds in geometric progression; with charts
  ronde replay p.json --ranks 16,128,1024 --network 25gbe   more ranks, on more hosts
  ronde replay p.json --ranks 64 --ranks-per-host 8 --network 25gbe,100gbe,ib-hdr --local-network nvlink
  ronde replay p.json --network 1000,2.5                    a network of 1000 µs a hop and 2.5 GB/s";

const LONG_ABOUT: &str = "\
Predict the step time of a recorded job with other settings, networks and numbers of ranks

Reads a timeline (like ronde timeline) or a profile, written by ronde timeline --profile or by hand. Fits the costs of messages, \
copies and negotiation, and simulates steps with the runtime's fusion planner. Intervals are from the 10th to the 90th \
percentile of the jobs that are consistent with the recording; they do not include effects that a recording cannot show, such as \
a congested network.";

/// Predict the step time of a recorded job with other settings, networks and numbers of ranks
#[derive(clap::Args)]
#[command(override_usage = "ronde replay TIMELINE|PROFILE… [OPTIONS]", long_about = LONG_ABOUT, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The timelines of one run, or a profile
    #[arg(value_name = "TIMELINE|PROFILE", required = true, value_hint = ValueHint::AnyPath)]
    pub(super) paths: Vec<PathBuf>,
    /// Fusion thresholds in MiB, 0 for none: 0,1,4 or 1..128 or 1..128:5 [default: 0 and powers of
    /// two up to 256]
    #[arg(long, value_name = "LIST", allow_hyphen_values = true, value_parser = fusion_mb)]
    pub(super) fusion_mb: Option<List>,
    /// Cycle times in ms, in the same form [default: 0.25 to 25]
    #[arg(long, value_name = "LIST", allow_hyphen_values = true, value_parser = cycle_ms)]
    pub(super) cycle_ms: Option<List>,
    /// Hierarchical allreduces: on, off or both [default: both where there are several hosts of
    /// several ranks]
    #[arg(long, value_name = "on,off", value_delimiter = ',', value_parser = switch())]
    pub(super) hierarchical: Vec<bool>,
    /// The response cache: on, off or both [default: on]
    #[arg(long, value_name = "on,off", value_delimiter = ',', value_parser = switch())]
    pub(super) cache: Vec<bool>,
    /// Whether a cycle starts at once when all tensors of the step are ready [default: as recorded]
    #[arg(long, value_name = "on|off", value_parser = switch())]
    pub(super) early: Option<bool>,
    /// Numbers of ranks, each doing the same work as now [default: as recorded]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = crate::range::whole::<u32>(1, RANKS_MOST))]
    pub(super) ranks: Vec<u32>,
    /// Ranks on each host [default: as recorded]
    #[arg(long, value_name = "N", value_parser = crate::range::whole::<u32>(1, RANKS_MOST), conflicts_with = "hosts")]
    pub(super) ranks_per_host: Option<u32>,
    /// Hosts, over which the ranks are spread evenly
    #[arg(long, value_name = "N", value_parser = crate::range::whole::<u32>(1, RANKS_MOST))]
    pub(super) hosts: Option<u32>,
    /// Networks between hosts: names such as 25gbe,ib-hdr, or a hop's latency and bandwidth
    /// [default: as recorded]
    #[arg(long, value_name = "NAME,…|ALPHA_US,GB_PER_S", value_parser = networks)]
    pub(super) network: Option<Networks>,
    /// The network inside hosts, in the same form [default: as recorded, or shared memory]
    #[arg(long, value_name = "NAME|ALPHA_US,GB_PER_S", value_parser = network)]
    pub(super) local_network: Option<Network>,
    /// Algorithm of flat allreduces on networks that were not measured
    #[arg(long, value_name = "ring|tree", default_value = "ring", value_parser = algorithm())]
    pub(super) algorithm: Algorithm,
    /// Ranks on each host when the job was recorded [default: all if memory was shared, else one]
    #[arg(long, value_name = "N", value_parser = crate::range::whole::<u32>(1, RANKS_MOST))]
    pub(super) recorded_ranks_per_host: Option<u32>,
    /// Use only these steps, counted from 0, the last included: A..B, A.., ..B or A
    #[arg(long, value_name = "A..B", value_parser = parse_steps)]
    pub(super) steps: Option<RangeInclusive<u64>>,
    /// Write the predictions as JSON to this file; - is standard output, instead of the text
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(super) json: Option<PathBuf>,
    /// Write a row for each prediction as CSV to this file; - is standard output, instead of the
    /// text
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(super) csv: Option<PathBuf>,
    /// Write the predictions as one HTML page with charts, which needs no network
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(super) html: Option<PathBuf>,
}

/// Networks to compare.
#[derive(Clone, Debug)]
pub(super) struct Networks(pub(super) Vec<Network>);

impl Args {
    /// Paths of all output files.
    pub(super) fn outputs(&self) -> Vec<&Path> {
        given([&self.json, &self.csv, &self.html])
    }
}

/// Parser of a boolean: `on` or `off`.
pub(crate) fn switch() -> impl TypedValueParser<Value = bool> {
    PossibleValuesParser::new(["on", "off"]).map(|word| word == "on")
}

/// Parser of the algorithm of a flat allreduce.
fn algorithm() -> impl TypedValueParser<Value = Algorithm> {
    PossibleValuesParser::new(["ring", "tree"]).map(|word| match word.as_str() {
        "ring" => Algorithm::Ring,
        _ => Algorithm::Tree,
    })
}

pub(crate) fn fusion_mb(text: &str) -> Result<List, String> {
    range::parse(text, FUSION_MB)
}

pub(crate) fn cycle_ms(text: &str) -> Result<List, String> {
    range::parse(text, CYCLE_MS)
}

fn network(text: &str) -> Result<Network, String> {
    Network::parse(text).map_err(|error| error.to_string())
}

/// Parses one network as a pair of numbers, or several by name.
fn networks(text: &str) -> Result<Networks, String> {
    if text.starts_with(|c: char| c.is_ascii_digit() || c == '.') && Network::parse(text).is_ok() {
        return network(text).map(|network| Networks(vec![network]));
    }
    let named = |name: &str| Network::names().any(|known| known.eq_ignore_ascii_case(name.trim()));
    if text.split(',').all(named) {
        return text
            .split(',')
            .map(network)
            .collect::<Result<_, _>>()
            .map(Networks);
    }
    network(text).map(|network| Networks(vec![network]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_names_or_two_numbers() {
        let count = |text| networks(text).map(|networks| networks.0.len());
        assert_eq!(count("25gbe,ib-hdr"), Ok(2));
        assert_eq!(count("1gbe"), Ok(1));
        assert_eq!(count("1000,2.5"), Ok(1));
    }
}
