//! The table of knobs. Each row makes a field of [`Knobs`] and an entry of [`KNOBS`], with the same words of documentation.

use super::elsewhere::ELSEWHERE;
use ronde_job::settings::{CYCLE_TIME_MS_MAX, FUSION_THRESHOLD_BYTES_MAX};

use super::knob::{Flag, FlagForm, Kind, Knob, Scope};
use super::setting::Setting;
use super::values::{AutotuneStart, Backend, Link, LogLevel, StepRange, TimelineTarget};
use super::{FixedKnobs, KnobError, KnobWarning};
use std::ffi::OsString;
use std::path::PathBuf;

/// Turns the rows below into [`Knobs`], [`KNOBS`], and reading and printing of all fields.
macro_rules! knob_table {
    (
        $( $(#[doc = $doc:literal])+ $name:ident: $type:ty { $($key:ident: $value:expr),+ $(,)? } )+
    ) => {
        /// The knobs' values, as one process read them.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Knobs {
            $( $(#[doc = $doc])+ pub $name: $type, )+
            /// Which tunable knobs the environment fixes.
            pub fixed: FixedKnobs,
            /// What looked wrong in the environment without being an error.
            pub warnings: Vec<KnobWarning>,
        }

        /// Every knob: first those read here, as [`Knobs`] has them, then those that say a process's place in the job, then
        /// Horovod's names that nothing reads here, each with the reason.
        pub static KNOBS: &[Knob] = {
            const HERE: &[Knob] = &[
                $( Knob { name: stringify!($name), doc: concat!($($doc),+).trim_ascii(), $($key: $value),+ } ),+
            ];
            const ALL: [Knob; HERE.len() + ELSEWHERE.len()] = joined(HERE, ELSEWHERE);
            &ALL
        };

        impl Knobs {
            pub(super) fn read(lookup: &dyn Fn(&str) -> Option<OsString>) -> Result<Knobs, KnobError> {
                Ok(Knobs {
                    $( $name: super::read(stringify!($name), lookup)?, )+
                    fixed: FixedKnobs::default(),
                    warnings: Vec::new(),
                })
            }

            /// The values as one would write them in the environment, in the table's order; empty means "none".
            pub fn print(&self) -> Vec<(&'static Knob, OsString)> {
                let values = [$( Setting::print(&self.$name) ),+];
                KNOBS.iter().zip(values).collect()
            }
        }
    };
}

/// Joins two slices at compile time, so that the table is one static slice.
const fn joined<const N: usize>(first: &[Knob], second: &[Knob]) -> [Knob; N] {
    assert!(first.len() + second.len() == N);
    let mut all = [first[0]; N];
    let mut i = 1;
    while i < N {
        all[i] = if i < first.len() {
            first[i]
        } else {
            second[i - first.len()]
        };
        i += 1;
    }
    all
}

knob_table! {
    /// Most bytes fused into one collective; 0 turns fusion off. A tensor larger than this goes alone.
    fusion_threshold_bytes: u64 {
        env: "HOROVOD_FUSION_THRESHOLD",
        flag: Some(Flag { long: "fusion-threshold-mb", aliases: &["fusion-mb"], form: FlagForm::Megabytes }),
        kind: Kind::Bytes { max: FUSION_THRESHOLD_BYTES_MAX },
        default: "134217728",
        tunable: true,
        scope: Scope::Runtime,
    }
    /// Longest time from the start of one cycle to the start of the next while tensors are pending.
    cycle_time_ms: f64 {
        env: "HOROVOD_CYCLE_TIME",
        flag: Some(Flag { long: "cycle-time-ms", aliases: &["cycle-ms"], form: FlagForm::Value }),
        kind: Kind::Real { unit: "ms", min: 0.0, max: CYCLE_TIME_MS_MAX },
        default: "1",
        tunable: true,
        scope: Scope::Runtime,
    }
    /// Tensors whose negotiation each process set remembers; 0 turns the response cache off.
    cache_capacity: usize {
        env: "HOROVOD_CACHE_CAPACITY",
        flag: Flag::value("cache-capacity"),
        kind: Kind::Count { unit: "tensors", min: 0, max: 1 << 20 },
        default: "1024",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Bound up to which the response cache grows by itself when its capacity is too small for a step; not above
    /// HOROVOD_CACHE_CAPACITY: it never grows.
    cache_capacity_max: usize {
        env: "RONDE_CACHE_CAPACITY_MAX",
        flag: Flag::value("cache-capacity-max"),
        kind: Kind::Count { unit: "tensors", min: 0, max: 1 << 20 },
        default: "16384",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Fuse the tensors of a group only with each other.
    disable_group_fusion: bool {
        env: "HOROVOD_DISABLE_GROUP_FUSION",
        flag: Flag::switch("disable-group-fusion", "no-disable-group-fusion"),
        kind: Kind::Switch,
        default: "0",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Most bytes fused into one collective of tensors on GPUs, where HOROVOD_FUSION_THRESHOLD allows more; the same on all ranks.
    /// There the host runs ahead of the device, and a batch begins with its last tensor's data.
    gpu_fusion_threshold_bytes: u64 {
        env: "RONDE_GPU_FUSION_THRESHOLD",
        flag: Flag::value("gpu-fusion-threshold"),
        kind: Kind::Bytes { max: FUSION_THRESHOLD_BYTES_MAX },
        default: "33554432",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// An operation on a GPU is over for the host as soon as it is on the device's list; torch's current stream then waits for the
    /// result, and the host runs ahead.
    async_completion: bool {
        env: "HOROVOD_ENABLE_ASYNC_COMPLETION",
        flag: None,
        kind: Kind::Switch,
        default: "0",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Reduce within hosts first, through shared memory, or NCCL on GPUs, and only then between them; of no effect on one host.
    hierarchical_allreduce: bool {
        env: "HOROVOD_HIERARCHICAL_ALLREDUCE",
        flag: Flag::switch("hierarchical-allreduce", "no-hierarchical-allreduce"),
        kind: Kind::Switch,
        default: "0",
        tunable: true,
        scope: Scope::Runtime,
    }
    /// Gather between hosts once for all ranks of a host, which share what has come; of no effect on one host.
    hierarchical_allgather: bool {
        env: "HOROVOD_HIERARCHICAL_ALLGATHER",
        flag: Flag::switch("hierarchical-allgather", "no-hierarchical-allgather"),
        kind: Kind::Switch,
        default: "0",
        tunable: true,
        scope: Scope::Runtime,
    }
    /// Allow process sets to be added and removed while the job runs.
    dynamic_process_sets: bool {
        env: "HOROVOD_DYNAMIC_PROCESS_SETS",
        flag: Flag::switch("dynamic-process-sets", "no-dynamic-process-sets"),
        kind: Kind::SwitchNonzero,
        default: "0",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Start a cycle as soon as all that the learnt step expects is submitted, or all members wait; the cycle time is
    /// then only an upper bound.
    early_cycle: bool {
        env: "RONDE_EARLY_CYCLE",
        flag: Flag::switch("early-cycle", "no-early-cycle"),
        kind: Kind::Switch,
        default: "1",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Tune the tunable knobs while training runs. A tunable knob that is set is fixed.
    autotune: bool {
        env: "HOROVOD_AUTOTUNE",
        flag: Flag::switch("autotune", "no-autotune"),
        kind: Kind::Switch,
        default: "0",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// CSV file that rank 0 writes the tuner's samples to.
    autotune_log: Option<PathBuf> {
        env: "HOROVOD_AUTOTUNE_LOG",
        flag: Flag::value("autotune-log-file"),
        kind: Kind::Path,
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Samples of autotune_steps_per_sample steps discarded at the start. Unset: one step per change, plus the start-up
    /// that the tuner detects.
    autotune_warmup_samples: Option<u32> {
        env: "HOROVOD_AUTOTUNE_WARMUP_SAMPLES",
        flag: Flag::value("autotune-warmup-samples"),
        kind: Kind::Count { unit: "samples", min: 0, max: 1_000_000 },
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Steps in a sample. Unset: as many as the noise asks for, about 10.
    autotune_steps_per_sample: Option<u32> {
        env: "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE",
        flag: Flag::value("autotune-steps-per-sample"),
        kind: Kind::Count { unit: "steps", min: 1, max: 1_000_000 },
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Most samples that the tuner takes.
    autotune_max_samples: u32 {
        env: "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
        flag: Flag::value("autotune-bayes-opt-max-samples"),
        kind: Kind::Count { unit: "samples", min: 1, max: 10_000 },
        default: "60",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Standard deviation of the noise in the tuner's Gaussian process. Unset: fitted.
    autotune_noise: Option<f64> {
        env: "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
        flag: Flag::value("autotune-gaussian-process-noise"),
        kind: Kind::Real { unit: "std dev", min: 0.0, max: 1.0 },
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Settings that the tuner starts from, without fixing them. Unset: the knobs' values.
    autotune_start: Option<AutotuneStart> {
        env: "RONDE_AUTOTUNE_START",
        flag: Flag::value("autotune-start"),
        kind: Kind::Start,
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// What tuning may cost, in steps at the settings of the start. Unset: 20, or 2 % of RONDE_AUTOTUNE_STEPS.
    autotune_budget: Option<f64> {
        env: "RONDE_AUTOTUNE_BUDGET",
        flag: Flag::value("autotune-budget"),
        kind: Kind::Real { unit: "steps", min: 0.0, max: 1e9 },
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Steps that the job will run, as far as that is known: what tuning may cost, and whether it still pays, follow from
    /// it.
    autotune_steps: Option<u64> {
        env: "RONDE_AUTOTUNE_STEPS",
        flag: Flag::value("autotune-steps"),
        kind: Kind::Count { unit: "steps", min: 1, max: 1_000_000_000_000 },
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// JSON file in which rank 0 keeps what the tuner has learnt: the next run of the same job begins with its best settings,
    /// one of the same model on other ranks begins with what it suggests.
    autotune_state: Option<PathBuf> {
        env: "RONDE_AUTOTUNE_STATE",
        flag: Flag::value("autotune-state"),
        kind: Kind::Path,
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Autotune log of an earlier run, Horovod's or Ronde's, from which the tuner takes what to try first.
    autotune_prior: Option<PathBuf> {
        env: "RONDE_AUTOTUNE_PRIOR",
        flag: Flag::value("autotune-prior"),
        kind: Kind::Path,
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Tune the response cache too, on or off; unless HOROVOD_CACHE_CAPACITY is set. It is on at every optimum known.
    autotune_cache: bool {
        env: "RONDE_AUTOTUNE_CACHE",
        flag: Flag::switch("autotune-cache", "no-autotune-cache"),
        kind: Kind::Switch,
        default: "0",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Seed of the tuner's random choices.
    autotune_seed: u64 {
        env: "RONDE_AUTOTUNE_SEED",
        flag: Flag::value("autotune-seed"),
        kind: Kind::Count { unit: "seed", min: 0, max: u64::MAX },
        default: "7",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// File that rank 0 writes the timeline to, compressed if its name ends in .gz; DYNAMIC leaves the start to the
    /// program.
    timeline: Option<TimelineTarget> {
        env: "HOROVOD_TIMELINE",
        flag: Flag::value("timeline-filename"),
        kind: Kind::Timeline,
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Mark the start of every cycle in the timeline.
    timeline_mark_cycles: bool {
        env: "HOROVOD_TIMELINE_MARK_CYCLES",
        flag: Flag::switch("timeline-mark-cycles", "no-timeline-mark-cycles"),
        kind: Kind::Switch,
        default: "0",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Have every rank write a timeline: rank 1 beside t.json into t.rank1.json, and so on.
    timeline_all_ranks: bool {
        env: "RONDE_TIMELINE_ALL_RANKS",
        flag: Flag::switch("timeline-all-ranks", "no-timeline-all-ranks"),
        kind: Kind::Switch,
        default: "0",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Steps that the timeline is restricted to, such as 100..110. Steps are those that the program marks; where it marks
    /// none, the n-th time that a tensor travels is its step n. Unset: all.
    timeline_steps: Option<StepRange> {
        env: "RONDE_TIMELINE_STEPS",
        flag: Flag::value("timeline-steps"),
        kind: Kind::Steps,
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Size that a timeline comes to at most, about: at half of it, t.json becomes t.old.json and a new one begins. 0: no
    /// bound.
    timeline_max_mb: u64 {
        env: "RONDE_TIMELINE_MAX_MB",
        flag: Flag::value("timeline-max-mb"),
        kind: Kind::Count { unit: "MB", min: 0, max: 1 << 24 },
        default: "0",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Have every rank write a trace in BytePS's format.
    byteps_trace: bool {
        env: "BYTEPS_TRACE_ON",
        flag: Flag::switch("byteps-trace", "no-byteps-trace"),
        kind: Kind::Switch,
        default: "0",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// First step of the BytePS trace.
    byteps_trace_first_step: u64 {
        env: "BYTEPS_TRACE_START_STEP",
        flag: Flag::value("byteps-trace-start-step"),
        kind: Kind::Count { unit: "steps", min: 1, max: 1_000_000_000 },
        default: "10",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Last step of the BytePS trace, itself included.
    byteps_trace_last_step: u64 {
        env: "BYTEPS_TRACE_END_STEP",
        flag: Flag::value("byteps-trace-end-step"),
        kind: Kind::Count { unit: "steps", min: 1, max: 1_000_000_000 },
        default: "20",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Folder of the BytePS trace: FOLDER/LOCAL_RANK/comm.json, on further hosts FOLDER/nodeN/LOCAL_RANK/comm.json.
    byteps_trace_folder: PathBuf {
        env: "BYTEPS_TRACE_DIR",
        flag: Flag::value("byteps-trace-dir"),
        kind: Kind::Folder,
        default: "./trace",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Do not look for stalled tensors.
    stall_check_disable: bool {
        env: "HOROVOD_STALL_CHECK_DISABLE",
        flag: Flag::switch("no-stall-check", "stall-check"),
        kind: Kind::Switch,
        default: "0",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Time after which a tensor that some ranks have not submitted is reported.
    stall_warning_seconds: u64 {
        env: "HOROVOD_STALL_CHECK_TIME_SECONDS",
        flag: Flag::value("stall-check-warning-time-seconds"),
        kind: Kind::Count { unit: "s", min: 1, max: 31_536_000 },
        default: "60",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Time after which such a tensor ends the job; 0 means never.
    stall_shutdown_seconds: u64 {
        env: "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
        flag: Flag::value("stall-check-shutdown-time-seconds"),
        kind: Kind::Count { unit: "s", min: 0, max: 31_536_000 },
        default: "0",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// How much is logged. TRACE, DEBUG and INFO go to standard output, the rest to standard error.
    log_level: LogLevel {
        env: "HOROVOD_LOG_LEVEL",
        flag: Flag::value("log-level"),
        kind: Kind::Choice(LogLevel::WORDS),
        default: "warning",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Leave the time out of log lines.
    log_hide_time: bool {
        env: "HOROVOD_LOG_HIDE_TIME",
        flag: Some(Flag {
            long: "log-without-timestamp",
            aliases: &["log-hide-timestamp"],
            form: FlagForm::Switch { off: "log-with-timestamp", off_aliases: &["no-log-hide-timestamp"] },
        }),
        kind: Kind::Switch,
        default: "0",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Cores of the cycle threads: entry i is for local rank i.
    thread_affinity: Vec<usize> {
        env: "HOROVOD_THREAD_AFFINITY",
        flag: Flag::value("thread-affinity"),
        kind: Kind::Cores,
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Time that the ranks, or the members of a process set, have to find each other and start.
    start_timeout_seconds: u64 {
        env: "HOROVOD_START_TIMEOUT",
        flag: Flag::value("start-timeout"),
        kind: Kind::Count { unit: "s", min: 1, max: 86_400 },
        default: "30",
        tunable: false,
        scope: Scope::Launcher,
    }
    /// Name of the job, the same on all its ranks and no other's. Unset: taken from the launcher.
    job_id: Option<String> {
        env: "RONDE_JOB_ID",
        flag: None,
        kind: Kind::Label { max: 128 },
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Name of the host, equal for ranks that share memory. Unset: host name, boot and network namespace.
    host_id: Option<String> {
        env: "RONDE_HOST_ID",
        flag: None,
        kind: Kind::Label { max: 128 },
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Shape the local collective to a network of this latency and bandwidth per message.
    link: Option<Link> {
        env: "RONDE_LINK",
        flag: Flag::value("link"),
        kind: Kind::Link,
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// How the ranks reach each other. nccl is auto for what is in host memory, and says that each rank has a GPU.
    backend: Backend {
        env: "RONDE_BACKEND",
        flag: Flag::value("backend"),
        kind: Kind::Choice(Backend::WORDS),
        default: "auto",
        tunable: false,
        scope: Scope::Runtime,
    }
}
