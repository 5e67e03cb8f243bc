//! The runtime as a program sees it: a [`Context`] for the rank, a [`ProcessSet`] for some of the job's ranks, and a
//! [`Handle`] for each tensor in flight.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

mod buffer;
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

pub use buffer::{Buffer, Failed};
pub use builder::Builder;
pub use gathered::{Gathered, Returned};
pub use handle::{GroupHandle, Handle, RawHandle};
pub use operation::{Operation, RawOutput, RawTensor};
pub use options::Reduce;
pub use process_set::ProcessSet;
pub use scope::{Scope, ScopedHandle};

use crate::autotune::AutotuneReport;
use crate::error::Error;
use crate::queue::lock;
use crate::settings::Settings;
use crate::timeline::Order;

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

/// Longest path that Linux takes; a longer one is not sent to the other ranks.
const PATH_BYTES_MAX: usize = 4096;

/// The operations are those of the set of all ranks.
impl Deref for Context {
    type Target = ProcessSet;
    fn deref(&self) -> &ProcessSet {
        &self.world
    }
}

impl Context {
    /// Joins the job that the environment describes: rank and size from the launcher's variables
    /// ([`crate::identity`]), settings from `HOROVOD_*` and `RONDE_*` ([`crate::knobs`]). Without a launcher it is
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
    /// Process sets that are fixed, ranks that cannot be a set, ranks that ask for different sets, members that cannot
    /// meet.
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

    /// Has every rank carry out `order` in the same cycle, if this is rank 0; returns when it has done so itself.
    fn order(&self, order: Order) -> Result<(), Error> {
        if fork::forked() {
            return Err(Error::Forked);
        }
        if self.job.knobs.timeline.is_none() {
            return Err(Error::TimelineNotEnabled);
        }
        if self.job.identity.rank != 0 {
            return Ok(());
        }
        let engine = self.world.engine()?;
        let ticket = engine.front.order(order)?;
        engine.wait(&ticket, None);
        ticket.outcome().unwrap_or(Err(Error::ShutDown))
    }

    fn check_dynamic(&self) -> Result<(), Error> {
        match (fork::forked(), self.job.knobs.dynamic_process_sets) {
            (true, _) => Err(Error::Forked),
            (false, true) => Ok(()),
            (false, false) => Err(Error::StaticProcessSets),
        }
    }

    /// Says that a training step ends here. Not needed, as steps are recognized by what repeats; a program that
    /// says it makes step metrics and tuning exact from the first step on.
    pub fn mark_step(&self) {
        if let Some(running) = &self.world.inner.running {
            running.engine.front.mark_step();
        }
    }

    /// Says that an epoch ends here: the timeline shows where, and what is read from it can tell one epoch from another.
    /// The epoch's last step is marked as ever.
    ///
    /// ```
    /// # use ronde::{Context, ReduceOp};
    /// # let context = Context::builder().alone().build()?;
    /// for _epoch in 0..2 {
    ///     for _step in 0..10 {
    ///         context.allreduce("gradient", vec![1.0f32; 8], ReduceOp::Average)?.wait()?;
    ///         context.mark_step();
    ///     }
    ///     context.mark_epoch();
    /// }
    /// # Ok::<(), ronde::Error>(())
    /// ```
    pub fn mark_epoch(&self) {
        if let Some(running) = &self.world.inner.running {
            running.engine.front.mark_epoch();
        }
    }

    /// Begins to record a timeline into the file `path`, on all ranks from the same cycle on; with `mark_cycles`, cycles
    /// are marked in it. A recording under way is closed first; one into the same file goes on. Needs `HOROVOD_TIMELINE`,
    /// on every rank: a file that is recorded from the beginning, or `DYNAMIC`.
    ///
    /// Rank 0 decides: its call has an effect, and returns when its own file is there. On the other ranks the call does
    /// nothing and returns at once, so a program may call on all ranks or on rank 0 alone, from any thread, whatever is
    /// in flight. Ranks other than 0 record only with `RONDE_TIMELINE_ALL_RANKS=1`, beside rank 0's file; one that cannot
    /// write says so in its log.
    ///
    /// ```
    /// # use ronde::{Context, ReduceOp, knobs::{Knobs, TimelineTarget}};
    /// # let folder = std::env::temp_dir().join(format!("ronde-doc-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder).unwrap();
    /// # let file = folder.join("t.json");
    /// # let mut knobs = Knobs::default();
    /// # knobs.timeline = Some(TimelineTarget::Dynamic); // HOROVOD_TIMELINE=DYNAMIC
    /// # let context = Context::builder().alone().knobs(knobs).build()?;
    /// // In a job started with HOROVOD_TIMELINE=DYNAMIC:
    /// context.start_timeline(&file, false)?;
    /// context.allreduce("gradient", vec![1.0f32; 8], ReduceOp::Average)?.wait()?;
    /// context.stop_timeline()?;
    /// # drop(context);
    /// # std::fs::remove_dir_all(&folder).unwrap();
    /// # Ok::<(), ronde::Error>(())
    /// ```
    ///
    /// # Errors
    /// `HOROVOD_TIMELINE` is not set. On rank 0 also: a file that cannot be written, a context that has been shut down, a
    /// lost peer.
    pub fn start_timeline(&self, path: impl AsRef<Path>, mark_cycles: bool) -> Result<(), Error> {
        let path = path.as_ref();
        if path.as_os_str().len() > PATH_BYTES_MAX {
            return Err(Error::Output {
                what: "the timeline",
                path: path.to_owned(),
                variable: "start_timeline",
                source: Arc::new(rustix::io::Errno::NAMETOOLONG.into()),
            });
        }
        self.order(Order::Start {
            path: path.to_owned(),
            mark_cycles,
        })
    }

    /// Ends the recording of a timeline, on all ranks with the same cycle; without one it does nothing. As with
    /// [`start_timeline`](Self::start_timeline), rank 0's call counts, and returns when its file is complete.
    ///
    /// ```
    /// # use ronde::{Context, Error};
    /// let context = Context::builder().alone().build()?;
    /// if let Err(error) = context.stop_timeline() {
    ///     assert!(error.to_string().contains("HOROVOD_TIMELINE=DYNAMIC")); // it was not set
    /// }
    /// # Ok::<(), ronde::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`start_timeline`](Self::start_timeline).
    pub fn stop_timeline(&self) -> Result<(), Error> {
        self.order(Order::Stop)
    }

    /// The settings in force on this rank.
    pub fn settings(&self) -> Settings {
        self.job.progress.settings()
    }

    /// What the tuner is doing or has done: on rank 0, if `HOROVOD_AUTOTUNE` is on.
    pub fn autotune_report(&self) -> Option<AutotuneReport> {
        self.job.progress.autotune()
    }

    /// Leaves the job: pending tensors fail with [`Error::ShutDown`] here, and with [`Error::PeerLeft`] on ranks
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
