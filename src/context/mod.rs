//! Public interface of the runtime: a [`Context`] for the rank, a [`ProcessSet`] for some of the
//! job's ranks, and a [`Handle`] for each tensor in flight.

use std::fmt;
use std::ops::Deref;

mod builder;
mod controls;
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

/// Membership of a rank in a job, from [`init`](Self::from_env) to drop.
///
/// All ranks submit the same tensors, each rank in any order. The runtime negotiates which tensors
/// are ready on all ranks, fuses and combines them. Threads may share a context.
///
/// A context dereferences to the [`ProcessSet`] of all ranks, whose methods are the operations. Its
/// own methods concern the whole job. A context itself cannot be cloned: `context.clone()` is a clone
/// of that process set, and does not keep the rank in the job. Its operations fail with
/// [`Error::ShutDown`] after the context has been shut down or dropped.
///
/// ```
/// use ronde::{Context, ReduceOp};
/// // A job of one rank; use `Context::from_env()` in a real job.
/// let context = Context::builder().alone().build()?;
/// let handle = context.allreduce("gradient", vec![1.0f32, 2.0, 3.0], ReduceOp::Average)?;
/// // … computation that overlaps with the allreduce …
/// let gradient: Vec<f32> = handle.wait()?;
/// assert_eq!(gradient, [1.0, 2.0, 3.0]);
/// # Ok::<(), ronde::Error>(())
/// ```
#[must_use = "a context that is dropped leaves the job"]
pub struct Context {
    world: ProcessSet,
    registry: Registry,
    job: Job,
}

/// Gives access to the operations of the set of all ranks.
impl Deref for Context {
    type Target = ProcessSet;
    fn deref(&self) -> &ProcessSet {
        &self.world
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("rank", &self.rank())
            .field("size", &self.size())
            .field("backend", &self.backend())
            .finish_non_exhaustive()
    }
}

impl Context {
    /// Joins the job that the environment describes: rank and size from the launcher's variables,
    /// settings from `HOROVOD_*` and `RONDE_*` ([`crate::knobs`]). Without a launcher the job has
    /// one rank.
    ///
    /// It blocks the thread until all ranks have arrived, at most for `HOROVOD_START_TIMEOUT`; in
    /// asynchronous code, call it with `spawn_blocking`.
    ///
    /// # Logging
    /// If the program has no global `tracing` subscriber, this sets one. It prints the events of
    /// Ronde and of the program as lines in Horovod's form, from the level `HOROVOD_LOG_LEVEL` on
    /// (warnings by default), and a later `tracing_subscriber::fmt::init()` panics. A program with
    /// its own subscriber sets it before this call, or calls `Context::builder().without_logging()`
    /// and then [`build`](Builder::build).
    ///
    /// # Errors
    /// Contradicting or invalid variables, ranks that do not arrive in time or have another
    /// version, files that cannot be written, too little memory.
    pub fn from_env() -> Result<Self, Error> {
        Self::builder().build()
    }

    /// Returns a builder, which takes values from the program instead of the environment.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// This process's rank, `0..size`.
    pub fn rank(&self) -> usize {
        self.job.identity.rank
    }

    /// Name of the backend: `local`, `mpi` or `tcp`, as in `RONDE_BACKEND`; `nccl` where that
    /// requires GPUs.
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

    /// Index of this host among those with this local rank.
    pub fn cross_rank(&self) -> usize {
        self.job.identity.cross_rank
    }

    /// Number of hosts with this local rank.
    pub fn cross_size(&self) -> usize {
        self.job.identity.cross_size
    }

    /// Whether all hosts have the same number of ranks.
    pub fn is_homogeneous(&self) -> bool {
        self.job.is_homogeneous()
    }

    /// Adds the process set of `ranks`. Every rank calls it, members or not, with the same ranks
    /// and in the same order as other calls that add or remove process sets. It returns when all
    /// ranks have called it, and blocks the thread until then; in asynchronous code, call it with
    /// `spawn_blocking`. Needs `HOROVOD_DYNAMIC_PROCESS_SETS=1`.
    ///
    /// The rendezvous of the members may take `HOROVOD_START_TIMEOUT`, or half of
    /// `HOROVOD_STALL_SHUTDOWN_TIME_SECONDS` if that is set and smaller. If a member is silent for
    /// this time, and does not report within another 5 s that it could not take part, the context
    /// ends on all ranks. Before and after the rendezvous all ranks run an operation of the set of
    /// all ranks. In it they wait for a silent rank as in any other operation: until
    /// `HOROVOD_STALL_SHUTDOWN_TIME_SECONDS`.
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
    /// Process sets that are fixed, ranks that cannot form a set, ranks that request different
    /// sets, a failed rendezvous of the members.
    pub fn add_process_set(&self, ranks: &[usize]) -> Result<ProcessSet, Error> {
        self.check_dynamic()?;
        self.registry.add(&self.job, ranks)
    }

    /// Removes a process set. Every rank calls it, members or not; it returns when all ranks have
    /// called it, and blocks the thread as [`add_process_set`](Self::add_process_set) does.
    ///
    /// # Errors
    /// Process sets that are fixed, the set of all ranks, a set that was removed before, and
    /// tensors in flight in the set on any rank. The set stays in these cases.
    pub fn remove_process_set(&self, set: &ProcessSet) -> Result<(), Error> {
        self.check_dynamic()?;
        self.registry.remove(set)
    }

    /// Returns all process sets, ordered by number; the first is the set of all ranks.
    pub fn process_sets(&self) -> Vec<ProcessSet> {
        self.registry.sets()
    }

    /// Returns the process set with number `id`.
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

    /// Report of the tuner, on rank 0 if `HOROVOD_AUTOTUNE` is on.
    pub fn autotune_report(&self) -> Option<AutotuneReport> {
        self.job.progress.autotune()
    }

    /// Messages that this process has sent over MPI or TCP so far; `None` for other backends.
    pub fn mpi_traffic(&self) -> Option<MpiTraffic> {
        self.job.mpi_traffic()
    }

    /// Ends all operations of this rank with [`Error::Aborted`], also those that wait for other
    /// ranks, within about 0.1 s; no further operation is possible. Any thread may call it, when it
    /// has learned that the job cannot continue. The other ranks then lose this one.
    ///
    /// ```
    /// # use ronde::{Context, Error, ReduceOp};
    /// let context = Context::builder().alone().build()?;
    /// context.abort("the launcher has ended");
    /// let refused = context.allreduce("x", vec![1.0f32], ReduceOp::Sum).unwrap_err();
    /// assert!(matches!(refused.error, Error::Aborted { .. }));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn abort(&self, reason: &str) {
        if fork::forked() {
            return;
        }
        let reason = reason.into();
        self.job.abort(&Error::Aborted { reason });
    }

    /// Leaves the job: pending tensors fail with [`Error::ShutDown`] here, and with
    /// [`PeerError::Left`](crate::error::PeerError::Left) on ranks that still wait for this one.
    /// Waits up to 10 s for an operation that other ranks delay; the rank then leaves when that
    /// operation ends. Dropping the context does the same. Both block the thread; in asynchronous
    /// code, call this with `spawn_blocking`.
    pub fn shutdown(self) {
        self.leave();
    }

    /// Leaves the job as [`shutdown`](Self::shutdown) does, while other threads still have the
    /// context: their operations fail. What it has in memory is freed when the last of them has
    /// dropped it.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use ronde::{Context, Error, ReduceOp};
    /// let context = Arc::new(Context::builder().alone().build()?);
    /// let of_thread = Arc::clone(&context);
    /// context.leave();
    /// let refused = of_thread.allreduce("x", vec![1.0f32], ReduceOp::Sum).unwrap_err();
    /// assert!(matches!(refused.error, Error::ShutDown));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn leave(&self) {
        if fork::forked() {
            // A forked child: the threads, held locks and mappings belong to the parent and stay
            // unchanged.
            for set in self.registry.sets_if_free() {
                if let Some(running) = &set.inner.running {
                    std::mem::forget(lock(&running.thread).take());
                }
                std::mem::forget(set);
            }
            return;
        }
        // The other sets end first: they may have work for ranks that leave when the set of all
        // ranks ends.
        let sets = self.registry.sets();
        let stopped = |set: &ProcessSet| {
            let running = set.inner.running.as_ref();
            running.is_none_or(|running| running.stop(&Error::ShutDown))
        };
        if sets
            .iter()
            .rev()
            .map(stopped)
            .filter(|stopped| !stopped)
            .count()
            > 0
        {
            tracing::error!(
                "this rank leaves while its cycle still waits for a silent rank; \
                 set HOROVOD_STALL_SHUTDOWN_TIME_SECONDS to end such a wait with an error"
            );
        }
    }
}

/// Leaves the job as [`shutdown`](Context::shutdown) does, and blocks the thread for as long.
impl Drop for Context {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::tensor::ReduceOp;

    fn alone() -> Context {
        let builder = Context::builder().alone().without_logging();
        builder.build().expect("a job of one rank starts")
    }

    #[test]
    fn types_of_the_interface_print_in_a_line() {
        let context = alone();
        assert_eq!(
            format!("{context:?}"),
            "Context { rank: 0, size: 1, backend: \"local\", .. }"
        );
        assert_eq!(
            format!("{:?}", context.clone()),
            "ProcessSet { id: 0, rank: Some(0), size: 1, .. }"
        );
        let tensors = vec![vec![0.5f32]; 2];
        let group = context.grouped_allreduce("layer", tensors, ReduceOp::Sum);
        let group = group.expect("nothing is in flight");
        while !group.is_done() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!(
            format!("{group:?}"),
            "GroupHandle { tensors: 2, is_done: true, .. }"
        );
        let handle = &group.into_handles()[0];
        assert_eq!(format!("{handle:?}"), "Handle { is_done: true, .. }");
        context.scope(|scope| {
            assert_eq!(format!("{scope:?}"), "Scope { set: 0, tensors: 0, .. }");
        });
    }

    #[test]
    fn a_clone_does_not_keep_the_rank_in_the_job() {
        let context = alone();
        let set: ProcessSet = context.clone();
        context.shutdown();
        let refused = set.allreduce("x", vec![0.5f32], ReduceOp::Sum).unwrap_err();
        assert!(refused.error.is_shut_down(), "{refused:?}");
    }
}
