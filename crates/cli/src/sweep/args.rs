//! Arguments of `ronde sweep`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueHint;

use crate::bench::LoadArgs;
use crate::knob_flags::NotSwept;
use crate::range::List;
use crate::replay::{cycle_ms, fusion_mb, switch};
use ronde::internal::identity::MAX_RANKS;

const EXAMPLES: &str = "\
Examples:
  ronde sweep --model resnet50 -np 2 --compute-ms 40 --link 1000,2.5 --fusion-mb 0,1,4,16,64,128 --cycle-ms 0.5,1,2.5,5,10
  ronde sweep --model bert-base -np 2 --fusion-mb 1..256 --out bert      eight thresholds at a constant ratio; folder bert
  ronde sweep --out bert --resume                                        continue an interrupted sweep
  ronde sweep --fusion-mb 1..128 --cycle-ms 0.5..10 --budget 10m         as many measurements as fit into ten minutes
  ronde sweep -np 1,2,4 --cache on,off                                   numbers of ranks, and the response cache
  ronde sweep -np 4 -H node1:2,node2:2 --hierarchical-allreduce on,off   several hosts, with mpirun
  ronde sweep --replay t.json --fusion-mb 0.25..256 --cycle-ms 0.1..100 --verify 3
                                                                         predicted; the best three measured

The folder contains sweep.csv (a row for each measurement, written before the next one starts), sweep.json (plan, machine, \
versions), summary.md, summary.json and heat maps as SVG and PNG. Ctrl-C ends the sweep with a report of the measurements so far.

Exit code: 0 with a report, even of a part; 1 if nothing could be measured; 2 for wrong usage; 128 and the signal's number if it \
was interrupted.";

const LONG_ABOUT: &str = "\
Measure settings and compare them with the default: the best setting and its gain with a confidence interval

The ranks are started once, and the settings are changed in the running job. The grid is measured in blocks, each in a random \
order with the default in between, so that drift of the machine does not favour a setting. Measurements of clearly worse settings \
end early and are not repeated. Then the settings that cannot be distinguished from the best and the default are measured in turns, \
which gives the interval of the gain. Every step's results are checked.";

/// Measure settings and compare them with the default: the best setting and its gain with a
/// confidence interval
#[derive(clap::Args)]
#[command(override_usage = "ronde sweep [-np N,…] [OPTIONS]", long_about = LONG_ABOUT, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Numbers of ranks: 2 or 1,2,4 (also -np) [default: 2]
    #[arg(
        short = 'n',
        long = "num-proc",
        visible_alias = "np",
        value_name = "N,…",
        value_delimiter = ','
    )]
    #[arg(value_parser = crate::range::whole::<u32>(1, MAX_RANKS as u64))]
    pub(super) np: Vec<u32>,
    /// Fusion thresholds in MiB, 0 for none: 0,1,4 or 1..128 or 1..128:5 [default: 0,1,4,16,64,128,
    /// or the default threshold where cycle times or switches are given]
    #[arg(long, visible_alias = "fusion-threshold-mb", value_name = "LIST", allow_negative_numbers = true, value_parser = fusion_mb)]
    pub(super) fusion_mb: Option<List>,
    /// Cycle times in ms, likewise [default: 0.5,1,2.5,5,10, or the default cycle time where
    /// thresholds or switches are given]
    #[arg(long, visible_alias = "cycle-time-ms", value_name = "LIST", allow_negative_numbers = true, value_parser = cycle_ms)]
    pub(super) cycle_ms: Option<List>,
    /// The response cache: on, off or both [default: on]
    #[arg(long, value_name = "on,off", value_delimiter = ',', value_parser = switch())]
    pub(super) cache: Vec<bool>,
    /// Hierarchical allreduces: on, off or both; needs several hosts [default: off]
    #[arg(long, value_name = "on,off", value_delimiter = ',', value_parser = switch())]
    pub(super) hierarchical_allreduce: Vec<bool>,
    /// Hosts and their slots, as in node1:2,node2:2, this one first: mpirun starts the ranks
    #[arg(short = 'H', long, value_name = "HOST:SLOTS,…", conflicts_with = "replay", value_hint = ValueHint::Other)]
    pub(super) hosts: Option<String>,
    /// With --hosts: further options for mpirun, in one word
    #[arg(long, value_name = "\"OPTIONS\"", requires = "hosts", allow_hyphen_values = true, value_hint = ValueHint::Other)]
    pub(super) mpi_args: Option<String>,
    #[command(flatten)]
    pub(super) load: LoadArgs,
    /// Number of times that the whole grid is measured [default: 3]
    #[arg(long, value_name = "R", value_parser = crate::range::whole::<u32>(1, 100))]
    pub(super) repeats: Option<u32>,
    /// Number of rounds in which the best settings and the default are measured again in turns
    /// [default: twice --repeats; 0 with --repeats 1]
    #[arg(long, value_name = "ROUNDS", value_parser = crate::range::whole::<u32>(0, 100))]
    pub(super) confirm: Option<u32>,
    /// Timed steps of each measurement [default: 20, or as many as take a quarter of a second]
    #[arg(long, value_name = "N", value_parser = crate::range::whole::<u32>(1, 1_000_000))]
    pub(super) steps: Option<u32>,
    /// Untimed steps of each measurement [default: 3]
    #[arg(long, value_name = "N", value_parser = crate::range::whole::<u32>(1, 1_000_000))]
    pub(super) warmup: Option<u32>,
    /// Time limit of the sweep, such as 90s, 10m or 1.5h: fewer steps, then fewer repeats
    #[arg(long, value_name = "TIME", value_parser = crate::range::time)]
    pub(super) budget: Option<Duration>,
    /// Folder of the sweep's files [default: sweep- and the name of the model or profile]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(super) out: Option<PathBuf>,
    /// Write the summary as JSON to this file too; - is standard output, instead of the text
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(super) json: Option<PathBuf>,
    /// Continue the sweep in that folder; other arguments must be unchanged, except --budget
    #[arg(long)]
    pub(super) resume: bool,
    /// With --resume: continue on another machine than at the start
    #[arg(long, requires = "resume")]
    pub(super) other_machine: bool,
    /// Seed of the random order [default: random]
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
    /// Predict step times from these timelines of one run, or from a profile, instead of measuring
    #[arg(long, value_name = "TIMELINE|PROFILE", num_args = 1, value_hint = ValueHint::AnyPath)]
    pub(super) replay: Vec<PathBuf>,
    /// With --replay: measure the K settings with the best predictions, and the default
    #[arg(long, value_name = "K", requires = "replay", value_parser = crate::range::whole::<u32>(1, 100))]
    pub(super) verify: Option<u32>,
    /// Seconds without a step after which a job hangs, for tests
    #[arg(long, hide = true, value_name = "SECONDS", value_parser = crate::range::whole::<u32>(1, 86_400))]
    pub(super) hang_seconds: Option<u32>,
    #[command(flatten)]
    pub(super) flags: NotSwept,
}
