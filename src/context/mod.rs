//! The runtime as a program sees it: a [`Context`] for the rank, a [`ProcessSet`] for some of the job's ranks, and a
//! [`Handle`] for each tensor in flight.

use std::ops::Deref;

mod builder;
pub(crate) mod fork;
mod gathered;
mod grouped;
mod handle;
mod job;
mod operation;
mod options;
mod process_set;
mod registry;
mod scope;
mod settings;
mod timeline;

pub use crate::buffer::{Buffer, Failed};
pub use builder::Builder;
pub use gathered::{Gathered, Returned};
pub use handle::{GroupHandle, Handle, RawHandle};
pub use operation::{Operation, RawOutput, RawTensor};
pub use options::Reduce;
pub use process_set::ProcessSet;
pub use scope::{Scope, ScopedHandle};

use crate::autotune::AutotuneReport;
use crate::error::{Error, ProcessSetError};
use crate::sync::lock;
use crate::traffic::MpiTraffic;

use job::Job;
use registry::Registry;

/// A rank's membership in a job: from [`init`](Self::from_env) to drop.
///
/// All ranks submit the same tensors, each in an order of its own; the runtime agrees on what is ready
/// everywhere, fuses it and combines it. A context may be shared among threads.
///
/// It is the [`ProcessSet`] of all ranks, whose methods are the operations, and what there is once in a job.
///
/// ```
/// use ronde::{Context, ReduceOp};
/// let context = Context::builder().alone().build()?; // a job of one rank; `Context::from_env()` in a real one
/// let handle = context.allreduce("gradient", vec![1.0f32, 2.0, 3.0], ReduceOp::Average)?;
/// // … compute on …
/// let gradient: Vec<f32> = handle.wait()?;
/// assert_eq!(gradient, [1.0, 2.0, 3.0]);
/// # Ok::<(), ronde::Error>(())
/// ```
pub struct Context {
    world: ProcessSet,
    registry: Registry,
    job: Job,
}

/// The operations are those of the set of all ranks.
impl Deref for Context {
    type Target = ProcessSet;
    fn deref(&self) -> &ProcessSet {
        &self.world
    }
}

impl Context {
    /// Joins the job that the environment describes: rank and size from the launcher's variables,
    /// settings from `HOROVOD_*` and `RONDE_*` ([`crate::knobs`]). Without a launcher it is
    /// a job of one rank.
    ///
    /// # Errors
    /// Contradicting or invalid variables, ranks that do not arrive in time or are of another version, files that
    /// cannot be written, too little memory.
    pub fn from_env() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// A context with some things set by the program instead of the environment.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// This process's rank, `0..size`.
    pub fn rank(&self) -> usize {
        self.job.identity.rank
    }

    /// How the ranks reach one another: `local` or `mpi`, as `RONDE_BACKEND` names it; `nccl` where that asks for GPUs.
    pub fn backend(&self) -> &'static str {
        self.job.backend()
    }

    /// Number of ranks in the job.
    pub fn size(&self) -> usize {
        self.job.identity.size
    }

    /// This process's rank among those of its host.
    pub fn local_rank(&self) -> usize {
        self.job.identity.local_rank
    }

    /// Number of ranks on this host.
    pub fn local_size(&self) -> usize {
        self.job.identity.local_size
    }

    /// Index of this host among those that have this local rank.
    pub fn cross_rank(&self) -> usize {
        self.job.identity.cross_rank
    }

    /// Number of hosts that have this local rank.
    pub fn cross_size(&self) -> usize {
        self.job.identity.cross_size
    }

    /// Makes the process set of `ranks`. Every rank calls it, members or not, with the same ranks, and in the same order
    /// as other calls to add and remove process sets; it returns when all have. Needs `HOROVOD_DYNAMIC_PROCESS_SETS=1`.
    ///
    /// The members have the time of `HOROVOD_START_TIMEOUT`, or half of `HOROVOD_STALL_SHUTDOWN_TIME_SECONDS` where that is set and
    /// less, for the rendezvous. If one of them is silent for so long, and then does not say within 5 s that it could not come, the
    /// context ends on all ranks. Before and after the rendezvous all ranks agree in an operation of the set of all ranks, in
    /// which a silent rank is waited for as in any other: until `HOROVOD_STALL_SHUTDOWN_TIME_SECONDS`.
    ///
    /// ```no_run
    /// # use ronde::{Context, ReduceOp};
    /// let context = Context::from_env()?; // of three ranks or more
    /// let outer = context.add_process_set(&[0, 2])?;
    /// if outer.included() {
    ///     outer.allreduce("loss", vec![0.5f32], ReduceOp::Average)?.wait()?;
    /// }
    /// context.remove_process_set(&outer)?;
    /// # Ok::<(), ronde::Error>(())
    /// ```
    ///
    /// # Errors
    /// Process sets that are fixed, ranks that cannot be a set, ranks that ask for different sets, a rendezvous of
    /// the members that fails.
    pub fn add_process_set(&self, ranks: &[usize]) -> Result<ProcessSet, Error> {
        self.check_dynamic()?;
        self.registry.add(&self.job, ranks)
    }

    /// Removes a process set. Every rank calls it, members or not; it returns when all have.
    ///
    /// # Errors
    /// Process sets that are fixed, the set of all ranks, a set that has been removed already, and work in flight for
    /// it on any rank: then it stays.
    pub fn remove_process_set(&self, set: &ProcessSet) -> Result<(), Error> {
        self.check_dynamic()?;
        self.registry.remove(set)
    }

    /// The process sets there are, by number; the first is that of all ranks.
    pub fn process_sets(&self) -> Vec<ProcessSet> {
        self.registry.sets()
    }

    /// The process set with this number.
    pub fn process_set(&self, id: u32) -> Option<ProcessSet> {
        self.registry.get(id)
    }

    fn make_process_set(&self, ranks: &[usize]) -> Result<ProcessSet, Error> {
        self.registry.make(&self.job, ranks)
    }

    fn check_dynamic(&self) -> Result<(), Error> {
        match (fork::forked(), self.job.knobs.dynamic_process_sets) {
            (true, _) => Err(Error::Forked),
            (false, true) => Ok(()),
            (false, false) => Err(ProcessSetError::Static.into()),
        }
    }

    /// What the tuner is doing or has done: on rank 0, if `HOROVOD_AUTOTUNE` is on.
    pub fn autotune_report(&self) -> Option<AutotuneReport> {
        self.job.progress.autotune()
    }

    /// What this process has sent over MPI so far; `None` where the ranks reach one another in another way.
    pub fn mpi_traffic(&self) -> Option<MpiTraffic> {
        self.job.mpi_traffic()
    }

    /// Leaves the job: pending tensors fail with [`Error::ShutDown`] here, and with [`PeerError::Left`](crate::error::PeerError::Left) on ranks
    /// that still wait for this one. Dropping the context does the same.
    pub fn shutdown(mut self) {
        self.leave();
    }

    fn leave(&mut self) {
        if fork::forked() {
            // The threads, the locks' owner and the mappings are the parent's: leave all as it is.
            for set in self.registry.sets_if_free() {
                if let Some(running) = &set.inner.running {
                    std::mem::forget(lock(&running.thread).take());
                }
                std::mem::forget(set);
            }
            return;
        }
        // All others first: they may have work for ranks that leave when this one does.
        let sets = self.registry.sets();
        let stopped = |set: &ProcessSet| {
            let running = set.inner.running.as_ref();
            running.is_none_or(|running| running.stop(&Error::ShutDown))
        };
        if sets.iter().rev().map(stopped).filter(|stopped| !stopped).count() > 0 {
            tracing::error!(
                "this rank leaves while its cycle still waits for a silent rank; \
                 set HOROVOD_STALL_SHUTDOWN_TIME_SECONDS to have such a wait end with an error"
            );
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.leave();
    }
}
