//! Table of knobs. Each row generates a field of [`Knobs`] and an entry of [`KNOBS`], with the same
//! documentation.

use super::elsewhere::ELSEWHERE;
use ronde_job::settings::{CYCLE_TIME_MS_MAX, FUSION_THRESHOLD_BYTES_MAX};

use super::knob::{Flag, FlagForm, Kind, Knob, Scope};
use super::setting::Setting;
use super::values::{AutotuneStart, Backend, Link, LogLevel, StepRange, TimelineTarget};
use super::{FixedKnobs, KnobError, KnobWarning};
use std::ffi::OsString;
use std::path::PathBuf;

/// Generates [`Knobs`], [`KNOBS`], and the reading and printing of all fields from the rows below.
macro_rules! knob_table {
    (
        $( $(#[doc = $doc:literal])+ $name:ident: $type:ty { $($key:ident: $value:expr),+ $(,)? } )+
    ) => {
        /// Values of the knobs, as one process read them.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Knobs {
            $( $(#[doc = $doc])+ pub $name: $type, )+
            /// Tunable knobs that the environment fixes.
            pub fixed: FixedKnobs,
            /// Probable mistakes in the environment.
            pub warnings: Vec<KnobWarning>,
            /// Resets of the elastic job so far ([`Builder::resets`](crate::Builder::resets)).
            pub resets: u64,
        }

        /// All knobs: first those of [`Knobs`], then those that give a process's rank and size,
        /// then Horovod's variables without effect here, each with the reason.
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
                    resets: 0,
                })
            }

            /// Returns the values, written as in the environment, in the table's order; empty means
            /// "none".
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
    /// Largest number of bytes fused into one collective; 0 turns fusion off. A larger tensor is
    /// sent alone.
    fusion_threshold_bytes: u64 {
        env: "HOROVOD_FUSION_THRESHOLD",
        flag: Some(Flag { long: "fusion-threshold-mb", aliases: &["fusion-mb"], form: FlagForm::Megabytes }),
        kind: Kind::Bytes { max: FUSION_THRESHOLD_BYTES_MAX },
        default: "134217728",
        tunable: true,
        scope: Scope::Runtime,
    }
    /// Shortest time between the starts of two cycles, unless all ranks are ready earlier.
    cycle_time_ms: f64 {
        env: "HOROVOD_CYCLE_TIME",
        flag: Some(Flag { long: "cycle-time-ms", aliases: &["cycle-ms"], form: FlagForm::Value }),
        kind: Kind::Real { unit: "ms", min: 0.0, max: CYCLE_TIME_MS_MAX },
        default: "1",
        tunable: true,
        scope: Scope::Runtime,
    }
    /// Capacity of each process set's response cache, in tensors; 0 turns the cache off.
    cache_capacity: usize {
        env: "HOROVOD_CACHE_CAPACITY",
        flag: Flag::value("cache-capacity"),
        kind: Kind::Count { unit: "tensors", min: 0, max: 1 << 20 },
        default: "1024",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Largest capacity of the response cache, which grows if a step has more tensors than its
    /// capacity. If it is not above HOROVOD_CACHE_CAPACITY, the cache does not grow.
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
    /// Largest number of bytes fused into one collective of tensors on GPUs, if
    /// HOROVOD_FUSION_THRESHOLD is larger. On a GPU the host runs ahead of the device, and a batch
    /// begins when the data of its last tensor are ready. Where a step's tensors are on GPUs, the
    /// tuner changes this threshold.
    gpu_fusion_threshold_bytes: u64 {
        env: "RONDE_GPU_FUSION_THRESHOLD",
        flag: Flag::value("gpu-fusion-threshold"),
        kind: Kind::Bytes { max: FUSION_THRESHOLD_BYTES_MAX },
        default: "33554432",
        tunable: true,
        scope: Scope::Runtime,
    }
    /// An operation on a GPU completes on the host as soon as it is queued on the device. Torch's
    /// current stream then waits for the result, and the host runs ahead.
    async_completion: bool {
        env: "HOROVOD_ENABLE_ASYNC_COMPLETION",
        flag: None,
        kind: Kind::Switch,
        default: "0",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Reduce within each host first, through shared memory, or by NCCL on GPUs, and then among
    /// hosts; without effect on one host.
    hierarchical_allreduce: bool {
        env: "HOROVOD_HIERARCHICAL_ALLREDUCE",
        flag: Flag::switch("hierarchical-allreduce", "no-hierarchical-allreduce"),
        kind: Kind::Switch,
        default: "0",
        tunable: true,
        scope: Scope::Runtime,
    }
    /// Send gathered data among hosts once for all ranks of a host, which share the received data;
    /// without effect on one host.
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
    /// Start a cycle as soon as all tensors that the learnt step expects are submitted, or all
    /// members wait; and wait for these tensors where that takes less time than another batch.
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
    /// CSV file to which rank 0 writes the tuner's samples.
    autotune_log: Option<PathBuf> {
        env: "HOROVOD_AUTOTUNE_LOG",
        flag: Flag::value("autotune-log-file"),
        kind: Kind::Path,
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Samples of autotune_steps_per_sample steps that are discarded at the start. Unset: one step
    /// per change, and the start-up that the tuner detects.
    autotune_warmup_samples: Option<u32> {
        env: "HOROVOD_AUTOTUNE_WARMUP_SAMPLES",
        flag: Flag::value("autotune-warmup-samples"),
        kind: Kind::Count { unit: "samples", min: 0, max: 1_000_000 },
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Steps in a sample. Unset: chosen from the noise, about 10.
    autotune_steps_per_sample: Option<u32> {
        env: "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE",
        flag: Flag::value("autotune-steps-per-sample"),
        kind: Kind::Count { unit: "steps", min: 1, max: 100_000 },
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Largest number of samples that the tuner takes.
    autotune_max_samples: u32 {
        env: "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
        flag: Flag::value("autotune-bayes-opt-max-samples"),
        kind: Kind::Count { unit: "samples", min: 1, max: 10_000 },
        default: "60",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Standard deviation of the noise of a step in the tuner's Gaussian process, as a share of the
    /// step time. Unset: estimated.
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
    /// Cost limit of tuning, in steps at the settings of the start. Unset: 20, or 2 % of
    /// RONDE_AUTOTUNE_STEPS.
    autotune_budget: Option<f64> {
        env: "RONDE_AUTOTUNE_BUDGET",
        flag: Flag::value("autotune-budget"),
        kind: Kind::Real { unit: "steps", min: 0.0, max: 1e9 },
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// After a verdict, measures the default again from time to time and returns to it if the
    /// chosen settings turn out slower.
    autotune_recheck: bool {
        env: "RONDE_AUTOTUNE_RECHECK",
        flag: Flag::switch("autotune-recheck", "no-autotune-recheck"),
        kind: Kind::Switch,
        default: "1",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Expected number of steps of the job. The cost limit of tuning follows from it.
    autotune_steps: Option<u64> {
        env: "RONDE_AUTOTUNE_STEPS",
        flag: Flag::value("autotune-steps"),
        kind: Kind::Count { unit: "steps", min: 1, max: 1_000_000_000_000 },
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// JSON file in which rank 0 keeps the tuner's results. The next run of the same job begins
    /// with its best settings. A run of the same model with other ranks uses its measurements as
    /// prior knowledge.
    autotune_state: Option<PathBuf> {
        env: "RONDE_AUTOTUNE_STATE",
        flag: Flag::value("autotune-state"),
        kind: Kind::Path,
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Autotune log of an earlier run, Horovod's or Ronde's, from which the tuner takes its first
    /// settings.
    autotune_prior: Option<PathBuf> {
        env: "RONDE_AUTOTUNE_PRIOR",
        flag: Flag::value("autotune-prior"),
        kind: Kind::Path,
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Also tune the response cache, on or off, unless HOROVOD_CACHE_CAPACITY is set. It is on at
    /// every known optimum.
    autotune_cache: bool {
        env: "RONDE_AUTOTUNE_CACHE",
        flag: Flag::switch("autotune-cache", "no-autotune-cache"),
        kind: Kind::Switch,
        default: "0",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Seed of the tuner's random choices, the order of the visits of its comparisons among them.
    /// Without it every job draws another one.
    autotune_seed: Option<u64> {
        env: "RONDE_AUTOTUNE_SEED",
        flag: Flag::value("autotune-seed"),
        kind: Kind::Count { unit: "seed", min: 0, max: u64::MAX },
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// File to which rank 0 writes the timeline, compressed if its name ends in .gz. With DYNAMIC
    /// the program starts the timeline.
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
    /// Make every rank write a timeline: beside t.json rank 1 writes t.rank1.json, and so on.
    timeline_all_ranks: bool {
        env: "RONDE_TIMELINE_ALL_RANKS",
        flag: Flag::switch("timeline-all-ranks", "no-timeline-all-ranks"),
        kind: Kind::Switch,
        default: "0",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Steps that the timeline is restricted to, such as 100..110. Steps are those that the program
    /// marks; without marks, the n-th operation on a tensor belongs to step n. Unset: all.
    timeline_steps: Option<StepRange> {
        env: "RONDE_TIMELINE_STEPS",
        flag: Flag::value("timeline-steps"),
        kind: Kind::Steps,
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Approximate largest size of a timeline: at half of it, t.json becomes t.old.json and a new
    /// file begins. 0: no limit.
    timeline_max_mb: u64 {
        env: "RONDE_TIMELINE_MAX_MB",
        flag: Flag::value("timeline-max-mb"),
        kind: Kind::Count { unit: "MB", min: 0, max: 1 << 24 },
        default: "0",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Make every rank write a trace in BytePS's format.
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
    /// Last step of the BytePS trace, included.
    byteps_trace_last_step: u64 {
        env: "BYTEPS_TRACE_END_STEP",
        flag: Flag::value("byteps-trace-end-step"),
        kind: Kind::Count { unit: "steps", min: 1, max: 1_000_000_000 },
        default: "20",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Folder of the BytePS trace: FOLDER/LOCAL_RANK/comm.json, on further hosts
    /// FOLDER/nodeN/LOCAL_RANK/comm.json.
    byteps_trace_folder: PathBuf {
        env: "BYTEPS_TRACE_DIR",
        flag: Flag::value("byteps-trace-dir"),
        kind: Kind::Folder,
        default: "./trace",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Turn off the check for stalled tensors.
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
    /// Lowest level that is logged; an unknown one means warning. TRACE, DEBUG and INFO go to
    /// standard output, the rest to standard error.
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
    /// Time limit of the start of a job or a process set: its ranks must have connected by then.
    /// Unset: 30 s, and 600 s for a job that another launcher starts (mpirun, srun, torchrun).
    start_timeout_seconds: Option<u64> {
        env: "HOROVOD_START_TIMEOUT",
        flag: Flag::value("start-timeout"),
        kind: Kind::Count { unit: "s", min: 1, max: 86_400 },
        default: "",
        tunable: false,
        scope: Scope::Launcher,
    }
    /// Name of the job, the same on all its ranks and different from other jobs. Unset: taken from
    /// the launcher.
    job_id: Option<String> {
        env: "RONDE_JOB_ID",
        flag: None,
        kind: Kind::Label { max: 128 },
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Name of the host, equal for ranks that share memory. Unset: host name, boot and network
    /// namespace.
    host_id: Option<String> {
        env: "RONDE_HOST_ID",
        flag: None,
        kind: Kind::Label { max: 128 },
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Make collectives as slow as a network of this latency and bandwidth per message.
    link: Option<Link> {
        env: "RONDE_LINK",
        flag: Flag::value("link"),
        kind: Kind::Link,
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Connection of the ranks. nccl is the same as auto for tensors in host memory, and requires a
    /// GPU for each rank.
    backend: Backend {
        env: "RONDE_BACKEND",
        flag: Flag::value("backend"),
        kind: Kind::Choice(Backend::WORDS),
        default: "auto",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Library of MPI, a file or a name for the loader. Unset: that of the launcher, if it is
    /// found.
    mpi_library: Option<PathBuf> {
        env: "RONDE_MPI_LIBRARY",
        flag: None,
        kind: Kind::Path,
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Folder of the plug-ins for MPI. Unset: beside the program or in the Python package.
    mpi_plugins: Option<PathBuf> {
        env: "RONDE_MPI_PLUGINS",
        flag: None,
        kind: Kind::Folder,
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Address where rank 0 listens for the other ranks over TCP, HOST:PORT. Unset: torchrun's
    /// MASTER_ADDR, and RONDE_TCP_PORT.
    tcp_server: Option<String> {
        env: "RONDE_TCP_SERVER",
        flag: None,
        kind: Kind::Label { max: 300 },
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Port where rank 0 listens under torchrun. Unset: MASTER_PORT + 1.
    tcp_port: Option<u32> {
        env: "RONDE_TCP_PORT",
        flag: None,
        kind: Kind::Count { unit: "port", min: 1, max: 65535 },
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Socket of the launcher of an elastic job, which sets it.
    elastic_socket: Option<PathBuf> {
        env: "RONDE_ELASTIC_SOCKET",
        flag: None,
        kind: Kind::Path,
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Number of the process in an elastic job, set by the launcher.
    elastic_member: Option<u64> {
        env: "RONDE_ELASTIC_MEMBER",
        flag: None,
        kind: Kind::Count { unit: "process", min: 1, max: 1 << 53 },
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// File with the secret of a job over TCP, of mode 0600. Unset: the ranks are not
    /// authenticated.
    secret_file: Option<PathBuf> {
        env: "RONDE_SECRET_FILE",
        flag: None,
        kind: Kind::Path,
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Network interface for connections over TCP. Unset: HOROVOD_GLOO_IFACE, or that which reaches
    /// rank 0.
    network_interface: Option<String> {
        env: "RONDE_NETWORK_INTERFACE",
        flag: None,
        kind: Kind::Label { max: 64 },
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Address where the first rank of each host serves metrics for Prometheus: PORT on 127.0.0.1,
    /// or HOST:PORT.
    metrics_addr: Option<String> {
        env: "RONDE_METRICS_ADDR",
        flag: Flag::value("metrics-addr"),
        kind: Kind::Label { max: 300 },
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// File, of mode 0600, with the token that a client must send to read the metrics. Unset: none.
    metrics_token_file: Option<PathBuf> {
        env: "RONDE_METRICS_TOKEN_FILE",
        flag: Flag::value("metrics-token-file"),
        kind: Kind::Path,
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// File that the first rank of each host replaces every 10 s by its metrics, for node-exporter.
    metrics_file: Option<PathBuf> {
        env: "RONDE_METRICS_FILE",
        flag: Flag::value("metrics-file"),
        kind: Kind::Path,
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Address where rank 0 serves the live page of the job: PORT on 127.0.0.1, or HOST:PORT; port
    /// 0 is any free one.
    dash_addr: Option<String> {
        env: "RONDE_DASH",
        flag: Flag::optional("dash", "0"),
        kind: Kind::Label { max: 300 },
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Allow the live page to stop tuning, to change settings, and to start and stop timelines.
    dash_control: bool {
        env: "RONDE_DASH_CONTROL",
        flag: Flag::switch("dash-control", "no-dash-control"),
        kind: Kind::Switch,
        default: "0",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// File, of mode 0600, with the token that opens the live page. Unset: rank 0 draws one and
    /// prints it.
    dash_token_file: Option<PathBuf> {
        env: "RONDE_DASH_TOKEN_FILE",
        flag: Flag::value("dash-token-file"),
        kind: Kind::Path,
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
    /// Horovod's time limit of the start with Gloo: extends that of HOROVOD_START_TIMEOUT.
    gloo_timeout_seconds: Option<u64> {
        env: "HOROVOD_GLOO_TIMEOUT_SECONDS",
        flag: Flag::value("gloo-timeout-seconds"),
        kind: Kind::Count { unit: "s", min: 1, max: 86_400 },
        default: "",
        tunable: false,
        scope: Scope::Launcher,
    }
    /// Network interface for connections over TCP, if RONDE_NETWORK_INTERFACE is not set.
    gloo_iface: Option<String> {
        env: "HOROVOD_GLOO_IFACE",
        flag: None,
        kind: Kind::Label { max: 64 },
        default: "",
        tunable: false,
        scope: Scope::Runtime,
    }
}
