//! What the analysis found: plain numbers with their units in their names, serialized as they stand
//! for `--json`, read again for `--compare`, and drawn by the command line and the HTML page.
//!
//! A step lasts from the end of the step before (its last result in place; its mark, where the file
//! marks steps) to its own end, on the *reference rank*: rank 0 if its file is there, else the
//! lowest.

mod part;

pub use part::PartKind;

use serde::{Deserialize, Serialize};

use crate::{Clock, Format, Kind, Phase};

/// Version of [`Report`]'s structure.
pub const REPORT_VERSION: u32 = 1;

/// All of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub ronde_timeline: u32,
    /// The files, in order of rank.
    pub sources: Vec<SourceReport>,
    /// Ranks of the job, as far as the files tell; 1 or more.
    pub ranks: u32,
    /// The rank whose steps these are.
    pub reference_rank: u32,
    /// How steps were told apart.
    pub steps_found_by: StepsFoundBy,
    /// Every step of the reference rank, in order.
    pub steps: Vec<Step>,
    /// Steps before the change point: slower than what follows, if there is such a stretch.
    pub startup: Option<Summary>,
    /// Steps from there on. None if no step was found.
    pub steady: Option<Summary>,
    /// Who was late. None if fewer than two ranks' ready times are known.
    pub stragglers: Option<Stragglers>,
    /// How tensors travelled together. None without executed operations.
    pub fusion: Option<Fusion>,
    /// How fast each collective was, by message size.
    pub bandwidth: Vec<Bandwidth>,
    /// Tensors of a steady step in order of their median ready time on the reference rank; what a
    /// profile is made of.
    pub tensors: Vec<TensorRow>,
    /// Negotiation of a batch of tensors that have travelled before: from all ready to its
    /// beginning, as long as no other batch is moved meanwhile, milliseconds.
    pub negotiate_cached_ms: Option<Quantiles>,
    /// The same for a batch with a tensor's first time.
    pub negotiate_uncached_ms: Option<Quantiles>,
    /// At most five sentences, the most useful first.
    pub advice: Vec<Advice>,
    /// A few steady steps in full, for drawing; left out of JSON.
    #[serde(skip)]
    pub lanes: Vec<RankBars>,
    /// What the reader should know before believing the numbers.
    pub warnings: Vec<String>,
}

/// One file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SourceReport {
    /// Its path.
    pub path: String,
    /// Who wrote it.
    pub format: Format,
    /// Its rank.
    pub rank: Option<u32>,
    /// The wall clock at the file's zero: RFC 3339 in UTC, to the millisecond. None if the file
    /// does not say.
    pub recorded_at: Option<String>,
    /// Events in it.
    pub events: u64,
    /// Tensors that travelled, counted each time.
    pub operations: u64,
    /// Different tensors.
    pub tensors: u64,
    /// Cycle markers.
    pub cycles: u64,
    /// From its first to its last event, milliseconds.
    pub span_ms: f64,
    /// Cycles that the recorder dropped.
    pub dropped_cycles: u64,
    /// How its clock relates to rank 0's.
    pub clock: Option<Clock>,
    /// What was damaged.
    pub warnings: Vec<String>,
    /// Operations by kind.
    pub kinds: Vec<(Kind, u64)>,
    /// Time in each activity by its name: count and total milliseconds (each tensor's bars, so that
    /// a fused batch counts once for each member, as in the file).
    pub activities: Vec<ActivityRow>,
}

/// One activity name of a file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ActivityRow {
    /// As in the file; `NEGOTIATE_ALLREDUCE` and `ALLREDUCE` too.
    pub name: String,
    /// Bars.
    pub count: u64,
    /// Their lengths added up, milliseconds.
    pub total_ms: f64,
}

/// How steps were told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepsFoundBy {
    /// The file marks them.
    Marks,
    /// A tensor's name came again.
    Names,
    /// Names never repeat, but a sequence of kinds, types and sizes does.
    Period,
    /// Not at all: everything is one step.
    Nothing,
}

/// A distribution; the unit is that of the field's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Values.
    pub n: u64,
    /// Least.
    pub min: f64,
    /// One in ten is below.
    pub p10: f64,
    /// Median.
    pub p50: f64,
    /// One in ten is above.
    pub p90: f64,
    /// One in a hundred is above.
    pub p99: f64,
    /// Greatest.
    pub max: f64,
    /// Mean.
    pub mean: f64,
}

/// One step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    /// Number in the file, from 0.
    pub index: u64,
    /// Its beginning, milliseconds since the file's zero.
    pub began_ms: f64,
    /// Its length.
    pub ms: f64,
    /// Parts of its length: see [`Part`]; in the order of [`PartKind`], all of them, adding up to
    /// `ms`.
    pub exposed_ms: [f64; PartKind::COUNT],
    /// The same with what went on behind computation: not less.
    pub total_ms: [f64; PartKind::COUNT],
    /// Tensors.
    pub tensors: u64,
    /// Batches.
    pub batches: u64,
    /// Payload.
    pub bytes: u64,
    /// Whether it is left out of the summaries: a step with foreign traffic or cut off by the
    /// file's ends.
    pub partial: bool,
}

/// One part of the steps of a summary.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    /// Which.
    pub kind: PartKind,
    /// What it adds to the step: not behind computation.
    pub exposed_ms: Quantiles,
    /// All of it.
    pub total_ms: Quantiles,
    /// Mean exposed time over mean step time.
    pub share: f64,
}

/// A stretch of steps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// Its first step.
    pub first_step: u64,
    /// Steps in it that are whole.
    pub steps: u64,
    /// Length of a step.
    pub step_ms: Quantiles,
    /// In the order of [`PartKind::ALL`]; the means of `exposed_ms` add up to that of `step_ms`.
    pub parts: Vec<Part>,
    /// Time with some operation moving, whether hidden or not.
    pub communication_ms: Quantiles,
    /// Part of it that computation hides, 0 to 1; of the medians.
    pub overlap: f64,
    /// Whether computation was in the files (a profiler's trace) or is taken to last until the
    /// rank's last tensor is ready.
    pub compute_known: bool,
    /// Time with some activity of a phase under way, by phase, medians in milliseconds a step.
    pub phases_ms: Vec<(Phase, f64)>,
    /// Where a streaming collective measured its overlapping phases: copy in, combine, copy out and
    /// wait, medians in milliseconds a step.
    pub streamed_ms: Option<[f64; 4]>,
    /// Payload a step, bytes, median.
    pub bytes: u64,
}

impl Summary {
    /// What of a mean step is not computation, milliseconds.
    pub fn exposed_ms(&self) -> f64 {
        let exposed = self.parts.iter().filter(|part| part.kind != PartKind::Compute);
        exposed.map(|part| part.exposed_ms.mean).sum()
    }
}

/// Who was late.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stragglers {
    /// Operations of which every rank's ready time is known, in steady steps.
    pub operations: u64,
    /// All ranks, in order.
    pub ranks: Vec<StragglerRank>,
    /// The rank that costs most, if one stands out: last in more than its share, and by more than
    /// clocks may be wrong.
    pub slowest: Option<u32>,
    /// Tensors that waited longest for their last rank, the longest first; at most 50.
    pub tensors: Vec<StragglerTensor>,
}

/// One rank as others wait for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StragglerRank {
    /// The rank.
    pub rank: u32,
    /// Operations for which it was last.
    pub last: u64,
    /// The same as a share of all.
    pub last_share: f64,
    /// How long after the one before it, when last, milliseconds.
    pub lag_ms: Quantiles,
    /// Median step if this rank had been ready no later than the others: the steady steps run again
    /// through the planner with the others' ready times; where that does not meet the recorded
    /// steps, every batch of theirs as early as the rest allowed.
    pub step_ms_without: f64,
    /// The median step minus that.
    pub cost_ms: f64,
}

/// A tensor that waits for its last rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StragglerTensor {
    /// The tensor.
    pub name: String,
    /// Times it was looked at.
    pub n: u64,
    /// The rank that was last most often.
    pub last_rank: u32,
    /// How often that was.
    pub last_share: f64,
    /// From the first rank's to the last rank's ready time, milliseconds.
    pub spread_ms: Quantiles,
}

/// How tensors travelled together, in steady steps.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fusion {
    /// Batches a step.
    pub batches_per_step: Quantiles,
    /// Tensors a batch.
    pub tensors_per_batch: Quantiles,
    /// Bytes a batch.
    pub bytes_per_batch: Quantiles,
    /// Batches by size: powers of two from 1 byte, without the empty ends.
    pub histogram: Vec<Bin>,
    /// Why batches ended where they did, the most frequent first.
    pub cuts: Vec<Cut>,
    /// The fusion threshold in force, if known.
    pub threshold_bytes: Option<u64>,
    /// Whether the file says it, or it is taken from the largest batch.
    pub threshold_from_file: bool,
    /// The cycle time in force: the file's, else the median distance of cycle markers in use.
    pub cycle_time_ms: Option<f64>,
}

/// Batches of `from` bytes or more and less than `to`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// Bytes.
    pub from: u64,
    /// Bytes.
    pub to: u64,
    /// Batches.
    pub batches: u64,
    /// Tensors in them.
    pub tensors: u64,
}

/// Why a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CutReason {
    /// The next tensor would not have fitted.
    Threshold,
    /// Nothing else was ready on all ranks.
    NotReady,
    /// The next tensor could not share its batch: another type or operation, or an operation that
    /// shares none (alltoall).
    OtherKind,
    /// It was the step's last.
    EndOfStep,
}

/// How often a reason held.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cut {
    /// The reason.
    pub reason: CutReason,
    /// Batches.
    pub batches: u64,
    /// Share of all.
    pub share: f64,
}

/// How fast one collective was.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bandwidth {
    /// Its name in the file, such as `SHM_ALLREDUCE`.
    pub activity: String,
    /// Batches by size: the quantiles of those between two powers of two.
    pub points: Vec<BandwidthPoint>,
    /// A line through all of them: time = α + β · bytes, robustly fitted. None with fewer than two
    /// sizes.
    pub fit: Option<Fit>,
}

/// Batches of about one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BandwidthPoint {
    /// Median size, bytes.
    pub bytes: u64,
    /// Batches.
    pub n: u64,
    /// Time of the collective, microseconds.
    pub us_p10: f64,
    /// Median.
    pub us_p50: f64,
    /// One in ten took longer.
    pub us_p90: f64,
    /// Median bytes over median time, 10⁹ bytes a second.
    pub gb_per_s: f64,
}

/// time = α + β · bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// α, microseconds: what a message costs however small.
    pub alpha_us: f64,
    /// β, microseconds a MiB.
    pub us_per_mib: f64,
    /// 1/β, 10⁹ bytes a second.
    pub gb_per_s: f64,
    /// Median of |measured − line| / measured.
    pub relative_error: f64,
}

/// A tensor of the steady step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TensorRow {
    /// Its name.
    pub name: String,
    /// What is done with it.
    pub kind: Kind,
    /// Element type, as Horovod calls it; none if the file does not say.
    pub dtype: Option<String>,
    /// Elements; likewise.
    pub elements: Option<u64>,
    /// Times it travelled in steady steps.
    pub n: u64,
    /// When it was ready, counted from the beginning of the step, median over steps; of each rank
    /// whose time is known, by rank, microseconds.
    pub ready_us: Vec<Option<f64>>,
    /// How much that varies on the reference rank: (p90 − p10) / 2, microseconds.
    pub ready_jitter_us: f64,
    /// From ready here to result in place, milliseconds.
    pub latency_ms: Quantiles,
}

/// One thing to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Advice {
    /// The sentence, with the number it rests on and what to set.
    pub sentence: String,
    /// The variable to set, if it is one.
    pub variable: Option<String>,
    /// The value to set it to.
    pub value: Option<String>,
    /// What it may gain, milliseconds a step, as far as that can be told.
    pub gain_ms: Option<f64>,
}

/// What one rank did in a few steady steps, for drawing.
#[derive(Clone, Debug)]
pub struct RankBars {
    /// The rank.
    pub rank: u32,
    /// Where its steps end, milliseconds on the reference rank's clock since the first drawn step's
    /// beginning.
    pub step_ends_ms: Vec<f64>,
    /// Bars, in order of beginning.
    pub bars: Vec<LaneBar>,
    /// Tensors that this rank reported ready, in order of time; from the reference rank's file where this rank has none.
    pub ready: Vec<LaneTick>,
    /// Starts of the cycles in which operations were executed, as `step_ends_ms`.
    pub cycles_ms: Vec<f64>,
}

/// The moment at which a rank reported a tensor ready.
#[derive(Clone, Debug)]
pub struct LaneTick {
    /// The tensor.
    pub tensor: String,
    /// As `step_ends_ms`.
    pub at_ms: f64,
}

/// One bar.
#[derive(Clone, Debug)]
pub struct LaneBar {
    /// What it says.
    pub label: String,
    /// Its colour's meaning.
    pub part: PartKind,
    /// Row within the lane, from 0: bars of a row do not overlap.
    pub row: u32,
    /// Beginning, as `step_ends_ms`.
    pub began_ms: f64,
    /// End.
    pub ended_ms: f64,
}
