//! Report of the analysis: plain numbers with units in their names. It is written with `--json`,
//! read again with `--compare`, and displayed by the command line and the HTML page.
//!
//! A step lasts from the end of the previous step to its own end, on the *reference rank*: rank 0
//! if its file is given, otherwise the lowest. A step ends when its last result is in place, or at
//! its mark if the file marks steps.

mod part;

pub use part::PartKind;

use serde::{Deserialize, Serialize};

use crate::{Clock, Format, Kind, Phase};
use ronde_job::gate::Withheld;

/// Version of the structure of [`Report`].
pub const REPORT_VERSION: u32 = 1;

/// Analysis of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Always [`REPORT_VERSION`].
    pub ronde_timeline: u32,
    /// Files, in order of rank.
    pub sources: Vec<SourceReport>,
    /// Number of ranks of the job; at least 1.
    pub ranks: u32,
    /// Whether the files do not state the number of ranks: `ranks` is then the lowest possible.
    #[serde(default)]
    pub ranks_unknown: bool,
    /// Whether waiting for ranks and negotiation are part of the computation, because the file has
    /// neither ready times nor negotiations for some of the steady operations.
    #[serde(default)]
    pub compute_includes_waiting: bool,
    /// Rank whose steps are reported.
    pub reference_rank: u32,
    /// Method that separated the steps.
    pub steps_found_by: StepsFoundBy,
    /// Every step of the reference rank, in order.
    pub steps: Vec<Step>,
    /// Steps before the change point, which are slower than those after it. None if there is no
    /// change point.
    pub startup: Option<Summary>,
    /// Steps after the change point. None if no step was found.
    pub steady: Option<Summary>,
    /// Late ranks. None if ready times are known for fewer than two ranks.
    pub stragglers: Option<Stragglers>,
    /// Tensor fusion. None without executed operations.
    pub fusion: Option<Fusion>,
    /// Bandwidth of each collective, by message size.
    pub bandwidth: Vec<Bandwidth>,
    /// Tensors of a steady step in order of their median ready time on the reference rank; a
    /// profile is made from them.
    pub tensors: Vec<TensorRow>,
    /// Negotiation of a batch of cached tensors: from ready on all ranks to the start of the batch,
    /// while no other batch is moved, milliseconds.
    pub negotiate_cached_ms: Option<Quantiles>,
    /// Negotiation of a batch with at least one new tensor, milliseconds.
    pub negotiate_uncached_ms: Option<Quantiles>,
    /// At most five sentences, the most useful first.
    pub advice: Vec<Advice>,
    /// Reason, if the data do not support a recommendation of settings. Its sentence is then the
    /// only advice on settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<Withheld>,
    /// Stages of BytePS; empty for other formats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageRow>,
    /// A few complete steady steps, for drawing; not in the JSON.
    #[serde(skip)]
    pub lanes: Vec<RankBars>,
    /// Warnings that limit the validity of the report.
    pub warnings: Vec<String>,
}

/// One file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SourceReport {
    /// Path.
    pub path: String,
    /// Format.
    pub format: Format,
    /// Rank that wrote the file.
    pub rank: Option<u32>,
    /// Wall clock at the file's zero: RFC 3339 in UTC, with milliseconds. None if the file does not
    /// state it.
    pub recorded_at: Option<String>,
    /// Number of events.
    pub events: u64,
    /// Number of operations.
    pub operations: u64,
    /// Number of different tensors.
    pub tensors: u64,
    /// Number of cycle markers.
    pub cycles: u64,
    /// Time from the first to the last event, milliseconds.
    pub span_ms: f64,
    /// Cycles that the recorder dropped.
    pub dropped_cycles: u64,
    /// Relation of its clock to rank 0's.
    pub clock: Option<Clock>,
    /// Damage and oddities.
    pub warnings: Vec<String>,
    /// Number of operations by kind.
    pub kinds: Vec<(Kind, u64)>,
    /// Time in each activity by name. Each tensor's bars are counted, as in the file, so that a
    /// fused batch counts once for each member.
    pub activities: Vec<ActivityRow>,
}

/// One activity name of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ActivityRow {
    /// Name in the file; includes `NEGOTIATE_ALLREDUCE` and `ALLREDUCE`.
    pub name: String,
    /// Number of bars.
    pub count: u64,
    /// Total length of the bars, milliseconds.
    pub total_ms: f64,
}

/// Method that separated the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepsFoundBy {
    /// The file marks them.
    Marks,
    /// A tensor's name was repeated.
    Names,
    /// Names are never repeated, but a sequence of kinds, types and sizes is.
    Period,
    /// No method applied: the whole file is one step.
    Nothing,
}

/// Quantiles of a distribution, in the unit of the field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Number of values.
    pub n: u64,
    /// Minimum.
    pub min: f64,
    /// 10th percentile.
    pub p10: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
    /// Mean.
    pub mean: f64,
}

/// One step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    /// Number in the file, from 0.
    pub index: u64,
    /// Start, milliseconds since the file's zero.
    pub began_ms: f64,
    /// Length, milliseconds.
    pub ms: f64,
    /// Exposed time of each [`Part`], in the order of [`PartKind`]; adds up to `ms`.
    #[serde(deserialize_with = "part::times")]
    pub exposed_ms: [f64; PartKind::COUNT],
    /// Total time of each part, including time that computation hides; at least the exposed time.
    #[serde(deserialize_with = "part::times")]
    pub total_ms: [f64; PartKind::COUNT],
    /// Number of tensors.
    pub tensors: u64,
    /// Number of batches.
    pub batches: u64,
    /// Payload, bytes.
    pub bytes: u64,
    /// Whether the step is excluded from the summaries, because of other operations in between or
    /// because the file begins or ends within it.
    pub partial: bool,
}

/// One part of the steps of a summary.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Kind of the part.
    pub kind: PartKind,
    /// Time that the part adds to the step, because computation does not hide it.
    pub exposed_ms: Quantiles,
    /// Total time, hidden or not.
    pub total_ms: Quantiles,
    /// Mean exposed time over mean step time.
    pub share: f64,
}

/// Summary of successive steps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// First step.
    pub first_step: u64,
    /// Number of complete steps.
    pub steps: u64,
    /// Length of a step.
    pub step_ms: Quantiles,
    /// Parts in the order of [`PartKind::ALL`]; the means of `exposed_ms` add up to the mean of
    /// `step_ms`.
    pub parts: Vec<Part>,
    /// Time with some operation in progress, hidden or not.
    pub communication_ms: Quantiles,
    /// Exposed milliseconds of a mean step by kind of operation, the largest first; known from a
    /// profiler's trace only. Operations of two kinds at once count for both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exposed_by_kind_ms: Vec<(Kind, f64)>,
    /// Share of the communication that computation hides, 0 to 1, from the medians.
    pub overlap: f64,
    /// Whether computation was recorded (a profiler's trace). Otherwise it is assumed to last until
    /// the rank's last tensor is ready.
    pub compute_known: bool,
    /// Time with some activity of a phase in progress, by phase, medians in milliseconds a step.
    pub phases_ms: Vec<(Phase, f64)>,
    /// Overlapping phases of a streaming collective, if measured: copy in, reduce, copy out and
    /// wait, medians in milliseconds a step.
    pub streamed_ms: Option<[f64; 4]>,
    /// Median payload of a step, bytes.
    pub bytes: u64,
}

impl Summary {
    /// Exposed communication of a mean step, milliseconds.
    pub fn exposed_ms(&self) -> f64 {
        let exposed = self
            .parts
            .iter()
            .filter(|part| part.kind.is_communication());
        exposed.map(|part| part.exposed_ms.mean).sum()
    }
}

/// Late ranks and tensors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stragglers {
    /// Operations in steady steps with ready times of all ranks.
    pub operations: u64,
    /// All ranks, in order.
    pub ranks: Vec<StragglerRank>,
    /// Rank with the highest cost, if it stands out: last in more than its share of operations, and
    /// by more than the error of the clocks.
    pub slowest: Option<u32>,
    /// Several ranks that stand out together, if no single rank does: at most half of all.
    #[serde(default)]
    pub slowest_group: Option<StragglerGroup>,
    /// Tensors that waited longest for their last rank, the longest first; at most 50.
    pub tensors: Vec<StragglerTensor>,
}

impl Stragglers {
    /// Row of the rank with the highest cost, if it stands out.
    pub fn slowest_rank(&self) -> Option<&StragglerRank> {
        self.ranks
            .iter()
            .find(|rank| Some(rank.rank) == self.slowest)
    }
}

/// Lateness of one rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StragglerRank {
    /// The rank.
    pub rank: u32,
    /// Number of operations for which it was the last rank.
    pub last: u64,
    /// Share of all operations for which it was the last rank.
    pub last_share: f64,
    /// Delay after the second-last rank when it was last, milliseconds.
    pub lag_ms: Quantiles,
    /// Median step if this rank had been ready no later than the others. The steady steps are
    /// simulated with the other ranks' ready times; if the simulation does not reproduce the
    /// recorded steps, every batch is moved to the earliest time that the rest allows.
    pub step_ms_without: f64,
    /// Difference between the median step and `step_ms_without`.
    pub cost_ms: f64,
}

/// Ranks that are late together, like those of one host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StragglerGroup {
    /// The ranks, in order.
    pub ranks: Vec<u32>,
    /// Share of all operations for which they were the last ranks.
    pub last_share: f64,
    /// Delay of all of them after the last other rank when they were the last, milliseconds.
    pub lag_ms: Quantiles,
    /// Median step if they had been ready no later than the others.
    pub step_ms_without: f64,
    /// Difference between the median step and `step_ms_without`.
    pub cost_ms: f64,
}

impl StragglerGroup {
    /// The ranks in words: `2 and 3`, `4 to 7`, `1, 5 and 9`, or, of many, the first ones.
    pub fn ranks_text(&self) -> String {
        const SHOWN: usize = 8;
        let texts: Vec<String> = self.ranks.iter().map(u32::to_string).collect();
        match (&self.ranks[..], &texts[..]) {
            ([first, .., last], [_, _, _, ..]) if (last - first) as usize == texts.len() - 1 => {
                format!("{first} to {last}")
            }
            (_, [start @ .., last]) if !start.is_empty() && texts.len() <= SHOWN => {
                format!("{} and {last}", start.join(", "))
            }
            (_, texts) => {
                let start = &texts[..texts.len().min(SHOWN)];
                let others = texts.len() - start.len();
                format!("{} and {others} others", start.join(", "))
            }
        }
    }
}

/// A tensor that waits for its last rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StragglerTensor {
    /// Name.
    pub name: String,
    /// Number of operations.
    pub n: u64,
    /// Rank that was last most often.
    pub last_rank: u32,
    /// Share of the operations in which that rank was last.
    pub last_share: f64,
    /// Time from the first to the last ready rank, milliseconds.
    pub spread_ms: Quantiles,
}

/// Tensor fusion in steady steps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fusion {
    /// Batches per step.
    pub batches_per_step: Quantiles,
    /// Tensors per batch.
    pub tensors_per_batch: Quantiles,
    /// Bytes per batch.
    pub bytes_per_batch: Quantiles,
    /// Batches by size: powers of two from 1 byte, without empty bins at the ends.
    pub histogram: Vec<Bin>,
    /// Reasons why batches ended, the most frequent first.
    pub cuts: Vec<Cut>,
    /// Fusion threshold in force, if known.
    pub threshold_bytes: Option<u64>,
    /// Whether the file states the threshold; otherwise it is the size of the largest batch.
    pub threshold_from_file: bool,
    /// Threshold of `HOROVOD_FUSION_THRESHOLD`, if the lower one of `RONDE_GPU_FUSION_THRESHOLD` is
    /// in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_threshold_bytes: Option<u64>,
    /// Cycle time in force: the file's, otherwise the median distance of the cycle markers.
    pub cycle_time_ms: Option<f64>,
}

/// Batches of at least `from` and less than `to` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// Lower limit, bytes.
    pub from: u64,
    /// Upper limit, bytes.
    pub to: u64,
    /// Number of batches.
    pub batches: u64,
    /// Number of tensors in these batches.
    pub tensors: u64,
}

/// Reason why a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CutReason {
    /// The next tensor would have exceeded the threshold.
    Threshold,
    /// No other tensor was ready on all ranks.
    NotReady,
    /// The next tensor could not be in the same batch: it has another type or operation, or the
    /// operation is never fused (alltoall).
    OtherKind,
    /// The batch was the last one of the step.
    EndOfStep,
}

/// Frequency of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cut {
    /// Reason.
    pub reason: CutReason,
    /// Number of batches.
    pub batches: u64,
    /// Share of all batches.
    pub share: f64,
}

/// Bandwidth of one collective.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bandwidth {
    /// Name in the file, such as `SHM_ALLREDUCE`.
    pub activity: String,
    /// Batches by size: quantiles for each range between two powers of two.
    pub points: Vec<BandwidthPoint>,
    /// Robust fit of a line through all batches: time = α + β · bytes. None with fewer than two
    /// sizes.
    pub fit: Option<Fit>,
}

/// Batches of about one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BandwidthPoint {
    /// Median size, bytes.
    pub bytes: u64,
    /// Number of batches.
    pub n: u64,
    /// 10th percentile of the collective's time, microseconds.
    pub us_p10: f64,
    /// Median time, microseconds.
    pub us_p50: f64,
    /// 90th percentile of the time, microseconds.
    pub us_p90: f64,
    /// Median bytes divided by median time, 10⁹ bytes a second.
    pub gb_per_s: f64,
}

/// Fitted line: time = α + β · bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// α, microseconds: the cost of a message, independent of its size.
    pub alpha_us: f64,
    /// β, microseconds per MiB.
    pub us_per_mib: f64,
    /// 1/β, 10⁹ bytes a second.
    pub gb_per_s: f64,
    /// Median of |measured − line| / measured.
    pub relative_error: f64,
}

/// One tensor of the steady step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TensorRow {
    /// Name.
    pub name: String,
    /// Kind of the operation.
    pub kind: Kind,
    /// Element type in Horovod's notation; none if the file does not state it.
    pub dtype: Option<String>,
    /// Number of elements; none if the file does not state it.
    pub elements: Option<u64>,
    /// Largest payload in steady steps, bytes; none if the file does not state sizes.
    #[serde(default)]
    pub bytes_max: Option<u64>,
    /// Number of operations in steady steps.
    pub n: u64,
    /// Median ready time after the start of the step, microseconds, by rank; none for ranks whose
    /// time is unknown.
    pub ready_us: Vec<Option<f64>>,
    /// Variation of the ready time on the reference rank: (p90 − p10) / 2, microseconds.
    pub ready_jitter_us: f64,
    /// Time from ready on this rank to the result in place, milliseconds.
    pub latency_ms: Quantiles,
}

/// One stage of BytePS (`PUSH`, `PULL`, `COPYD2H`, …) in the steady steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageRow {
    /// Name in the file.
    pub name: String,
    /// Rows per step.
    pub rows: f64,
    /// Total length of the rows, milliseconds a step.
    pub total_ms: f64,
    /// Time with at least one row in progress, milliseconds a step.
    pub under_way_ms: f64,
    /// Share of that time with another stage in progress too, 0 to 1.
    pub overlap: f64,
}

/// One recommendation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Advice {
    /// Sentence with the number it is based on and the setting to change.
    pub sentence: String,
    /// Variable to set, if any.
    pub variable: Option<String>,
    /// Value of the variable.
    pub value: Option<String>,
    /// Predicted gain, milliseconds a step, if known.
    pub gain_ms: Option<f64>,
}

/// Lane of one rank in a few steady steps, for drawing.
#[derive(Clone, Debug)]
pub struct RankBars {
    /// Rank.
    pub rank: u32,
    /// Ends of its steps, in milliseconds on the reference rank's clock since the start of the
    /// first drawn step.
    pub step_ends_ms: Vec<f64>,
    /// Bars, in order of start.
    pub bars: Vec<LaneBar>,
    /// Tensors that this rank reported ready, in order of time; from the reference rank's file if
    /// this rank has no file.
    pub ready: Vec<LaneTick>,
    /// Starts of the cycles that executed operations; time as in `step_ends_ms`.
    pub cycles_ms: Vec<f64>,
}

/// Time at which a rank reported a tensor ready.
#[derive(Clone, Debug)]
pub struct LaneTick {
    /// Name of the tensor.
    pub tensor: String,
    /// Time, as in `step_ends_ms`.
    pub at_ms: f64,
}

/// One bar.
#[derive(Clone, Debug)]
pub struct LaneBar {
    /// Text.
    pub label: String,
    /// Part of the step, which determines the colour.
    pub part: PartKind,
    /// Row within the lane, from 0; bars in a row do not overlap.
    pub row: u32,
    /// Start, as in `step_ends_ms`.
    pub began_ms: f64,
    /// End, as in `step_ends_ms`.
    pub ended_ms: f64,
}
