//! Variables that are not fields of [`Knobs`](super::Knobs): a process's rank and size, and
//! Horovod's variables without effect here, each with the reason. They are accepted, so that an
//! environment made for Horovod needs no change.

use super::knob::{Flag, Kind, Knob, Scope};

/// Names that Horovod itself does not read in a job that Ronde could run: accepted without a
/// warning.
#[derive(Clone, Copy, Debug)]
pub struct IgnoredNames {
    /// Reason why they have no effect here.
    pub reason: &'static str,
    /// The variables.
    pub names: &'static [&'static str],
}

/// Variables of Horovod's build, its tests, its own launchers and its earlier releases.
pub static IGNORED: &[IgnoredNames] = &[
    IgnoredNames {
        reason: "read only when Horovod is built",
        names: &[
            "HOROVOD_WITH_PYTORCH",
            "HOROVOD_WITHOUT_PYTORCH",
            "HOROVOD_WITH_TENSORFLOW",
            "HOROVOD_WITHOUT_TENSORFLOW",
            "HOROVOD_WITH_MXNET",
            "HOROVOD_WITHOUT_MXNET",
            "HOROVOD_WITH_MPI",
            "HOROVOD_WITHOUT_MPI",
            "HOROVOD_WITH_GLOO",
            "HOROVOD_WITHOUT_GLOO",
            "HOROVOD_WITH_NVTX",
            "HOROVOD_WITHOUT_NVTX",
            "HOROVOD_GPU_OPERATIONS",
            "HOROVOD_GPU_ALLREDUCE",
            "HOROVOD_GPU_ALLGATHER",
            "HOROVOD_GPU_BROADCAST",
            "HOROVOD_GPU_ALLTOALL",
            "HOROVOD_GPU_REDUCESCATTER",
            "HOROVOD_ALLOW_MIXED_GPU_IMPL",
            "HOROVOD_GPU",
            "HOROVOD_CUDA_HOME",
            "HOROVOD_CUDA_INCLUDE",
            "HOROVOD_CUDA_LIB",
            "HOROVOD_NCCL_HOME",
            "HOROVOD_ROCM_HOME",
            "HOROVOD_NCCL_INCLUDE",
            "HOROVOD_NCCL_LIB",
            "HOROVOD_NCCL_LINK",
            "HOROVOD_NVTX_INCLUDE",
            "HOROVOD_BUILD_ARCH_FLAGS",
            "HOROVOD_BUILD_CUDA_CC_LIST",
            "HOROVOD_CMAKE",
            "HOROVOD_DEBUG",
            "HOROVOD_SKIP_COMPILE",
            "HOROVOD_LOCAL_VERSION",
        ],
    },
    IgnoredNames {
        reason: "read only by Horovod's tests",
        names: &["HOROVOD_TEST_GPU", "HOROVOD_MIXED_INSTALL"],
    },
    IgnoredNames {
        reason: "read only by Horovod's own launcher and on Spark",
        names: &[
            "HOROVOD_SECRET_KEY",
            "HOROVOD_SPARK_PYTHONPATH",
            "HOROVOD_SPARK_START_TIMEOUT",
            "HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX",
            "HOROVOD_SPARK_WORK_DIR",
        ],
    },
    IgnoredNames {
        reason: "read only by earlier releases of Horovod",
        names: &[
            "HOROVOD_CCL_BGT_AFFINITY",
            "HOROVOD_LOG_TIMESTAMP",
            "HOROVOD_MLSL_BGT_AFFINITY",
            "HOROVOD_MPICXX_SHOW",
        ],
    },
];

/// Rows of [`KNOBS`](super::KNOBS) after those that [`Knobs`](super::Knobs) holds.
#[rustfmt::skip] // one row, one line or two: it is read as a table
pub(super) const ELSEWHERE: &[Knob] = &[
    place("rank", "HOROVOD_RANK", RANK, "Number of this process in the job; set by the launcher."),
    place("size", "HOROVOD_SIZE", RANKS, "Processes in the job; set by the launcher."),
    place("local_rank", "HOROVOD_LOCAL_RANK", RANK, "Number of this process on its host; set by the launcher."),
    place("local_size", "HOROVOD_LOCAL_SIZE", RANKS, "Processes of the job on this host; set by the launcher."),
    place("cross_rank", "HOROVOD_CROSS_RANK", RANK, "Number of this host among the hosts that have this local rank; set by the launcher."),
    place("cross_size", "HOROVOD_CROSS_SIZE", RANKS, "Hosts that have this local rank; set by the launcher."),
    foreign("torus_allreduce", "HOROVOD_TORUS_ALLREDUCE", NO_TORUS, "Reduce over a torus of local and cross ranks.")
        .switch("torus-allreduce", "no-torus-allreduce"),
    foreign("batch_d2d_memcopies", "HOROVOD_BATCH_D2D_MEMCOPIES", "the fusion buffer is always packed in one kernel", "Pack the fusion buffer in one kernel."),
    foreign("num_nccl_streams", "HOROVOD_NUM_NCCL_STREAMS", "each process set has a stream", "NCCL streams used in turn.")
        .value("num-nccl-streams"),
    foreign("disable_nvtx_ranges", "HOROVOD_DISABLE_NVTX_RANGES", "Ronde emits none", "Emit no NVTX ranges."),
    foreign("enable_xla_ops", "HOROVOD_ENABLE_XLA_OPS", "the operations have no kernels for XLA", "XLA operations."),
    foreign("controller", "HOROVOD_CONTROLLER", "RONDE_BACKEND chooses the transport", "Control plane, mpi or gloo."),
    foreign("cpu_operations", "HOROVOD_CPU_OPERATIONS", "RONDE_BACKEND chooses the collectives", "CPU data plane."),
    foreign("gloo_rendezvous_addr", "HOROVOD_GLOO_RENDEZVOUS_ADDR", NO_GLOO, "Address of Gloo's key-value server."),
    foreign("gloo_rendezvous_port", "HOROVOD_GLOO_RENDEZVOUS_PORT", NO_GLOO, "Port of Gloo's key-value server."),
    foreign("hostname", "HOROVOD_HOSTNAME", "RONDE_HOST_ID names the host", "Key of Gloo's local communicator."),
    foreign("ccl_cache", "HOROVOD_CCL_CACHE", "oneCCL is not used", "oneCCL's cache."),
    foreign("mpi_threads_disable", "HOROVOD_MPI_THREADS_DISABLE", ONE_THREAD, "Ask MPI for a single thread.")
        .switch("mpi-threads-disable", "no-mpi-threads-disable"),
    foreign("adasum_mpi_chunk_size", "HOROVOD_ADASUM_MPI_CHUNK_SIZE", NO_ADASUM, "Bytes per message of Adasum."),
    foreign("elastic", "HOROVOD_ELASTIC", ELASTIC, "Elastic mode."),
    foreign("elastic_timeout", "HOROVOD_ELASTIC_TIMEOUT", "ronde run has --elastic-timeout", "Time to wait for enough slots."),
];

const RANK: Kind = Kind::Count {
    unit: "rank",
    min: 0,
    max: RANKS_MAX - 1,
};
const RANKS: Kind = Kind::Count {
    unit: "ranks",
    min: 1,
    max: RANKS_MAX,
};
/// More ranks than any job has; a host has at most [`MAX_RANKS`](crate::identity::MAX_RANKS).
const RANKS_MAX: u64 = 1 << 20;

/// Row of a variable with the rank or size of a process.
const fn place(name: &'static str, env: &'static str, kind: Kind, doc: &'static str) -> Knob {
    Knob {
        name,
        env,
        flag: None,
        kind,
        default: "",
        tunable: false,
        scope: Scope::Identity,
        doc,
    }
}

const NO_TORUS: &str = "hierarchical allreduces have a lane for each rank of a host";
const NO_GLOO: &str = "the rendezvous uses a local socket, MPI or RONDE_TCP_SERVER, not Gloo";
const ONE_THREAD: &str = "one thread makes all calls of MPI";
const NO_ADASUM: &str = "Adasum gathers whole tensors";
const ELASTIC: &str =
    "only PyTorch's optimizer reads it, and reduces on one rank too if it is 1, as in elastic jobs";

/// Row of a variable that only Horovod reads.
const fn foreign(
    name: &'static str,
    env: &'static str,
    reason: &'static str,
    doc: &'static str,
) -> Knob {
    let scope = Scope::NotHere(reason);
    Knob {
        name,
        env,
        flag: None,
        kind: Kind::Foreign,
        default: "",
        tunable: false,
        scope,
        doc,
    }
}

impl Knob {
    const fn switch(self, long: &'static str, off: &'static str) -> Knob {
        Knob {
            flag: Flag::switch(long, off),
            ..self
        }
    }

    const fn value(self, long: &'static str) -> Knob {
        Knob {
            flag: Flag::value(long),
            ..self
        }
    }
}
