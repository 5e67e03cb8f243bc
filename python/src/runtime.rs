//! The context of this process: init, shutdown, and the queries in between.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use ronde::context::Builder;
use ronde::internal::{hosts::missing_ranks, identity};
use ronde::{Context, Error, ProcessSet, RawHandle, StartError};

use crate::elastic;
use crate::error::{About, NOT_INITIALIZED, internal, raise};
use crate::flight::{SLICE, forget_all, wait};
use crate::logging;

pub(crate) mod process_sets;

static CONTEXT: RwLock<Option<Arc<Context>>> = RwLock::new(None);

/// Numbers of unnamed operations. They restart in each context, so that ranks that failed after
/// different numbers of operations agree again.
struct Unnamed {
    /// Joins of all ranks so far.
    joins: u64,
    /// Operations of each process set so far; of the set of all ranks, since the last join.
    counts: BTreeMap<u32, u64>,
}

static UNNAMED: Mutex<Unnamed> = Mutex::new(Unnamed {
    joins: 0,
    counts: BTreeMap::new(),
});

fn unnamed() -> MutexGuard<'static, Unnamed> {
    UNNAMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Name of the set's next unnamed operation, after its kind: `noname.7`, or `noname.2.7`
/// after two joins.
pub(crate) fn next_unnamed(set_id: u32) -> String {
    let unnamed = unnamed();
    let number = 1 + unnamed.counts.get(&set_id).copied().unwrap_or(0);
    match unnamed.joins {
        // Joins are operations of the set of all ranks.
        joins if joins > 0 && set_id == 0 => format!("noname.{joins}.{number}"),
        _ => format!("noname.{number}"),
    }
}

/// Counts an unnamed operation of the set as submitted.
pub(crate) fn use_unnamed(set_id: u32) {
    *unnamed().counts.entry(set_id).or_default() += 1;
}

pub(crate) fn current() -> Option<Arc<Context>> {
    CONTEXT
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// The context, for queries.
fn context() -> PyResult<Arc<Context>> {
    current().ok_or_else(|| PyValueError::new_err(NOT_INITIALIZED))
}

/// The context, for operations.
fn working_context(py: Python<'_>) -> PyResult<Arc<Context>> {
    current().ok_or_else(|| internal(py, NOT_INITIALIZED, About::default()))
}

/// Why an operation could not be submitted.
pub(crate) enum Unavailable {
    /// This process is in no job.
    NotInitialized,
    /// There is no process set of this number.
    UnknownSet(u32),
    /// The runtime has refused it.
    Refused(Error),
}

/// Calls `work` with the process set of this number, without Python.
pub(crate) fn use_set<R>(
    id: u32,
    work: impl FnOnce(&ProcessSet) -> Result<R, Error>,
) -> Result<R, Unavailable> {
    let context = CONTEXT.read().unwrap_or_else(PoisonError::into_inner);
    let Some(context) = context.as_deref() else {
        return Err(Unavailable::NotInitialized);
    };
    if id == 0 {
        return work(context).map_err(Unavailable::Refused);
    }
    let set = context.process_set(id);
    let set = set.ok_or(Unavailable::UnknownSet(id))?;
    work(&set).map_err(Unavailable::Refused)
}

/// Calls `work` with the process set of this number.
pub(crate) fn with_set<R>(
    py: Python<'_>,
    id: u32,
    work: impl FnOnce(&ProcessSet) -> Result<R, Error>,
) -> PyResult<R> {
    // Creating an exception runs Python code, which may end the context: `use_set` has released
    // its lock by then.
    use_set(id, work).map_err(|unavailable| match unavailable {
        Unavailable::NotInitialized => internal(py, NOT_INITIALIZED, About::default()),
        Unavailable::UnknownSet(id) => process_sets::unknown(id),
        Unavailable::Refused(error) => raise(py, &error),
    })
}

/// Joins the job that the environment describes: all of it, or the part with these ranks, in this
/// order. `resets`: how often the ranks of an elastic job have changed. No effect if the process
/// has joined already.
#[pyfunction]
#[pyo3(signature = (ranks, process_sets, dynamic, resets, /))]
pub(crate) fn init(
    py: Python<'_>,
    ranks: Option<Vec<usize>>,
    process_sets: Vec<Vec<usize>>,
    dynamic: bool,
    resets: u64,
) -> PyResult<()> {
    if current().is_some() {
        return Ok(());
    }
    logging::begin(py)?;
    let failed = |error: &dyn std::fmt::Display| {
        PyValueError::new_err(format!("Horovod initialization failed: {error}"))
    };
    let mut builder = part_of_job(ranks).map_err(|error| failed(&error))?;
    builder = builder
        .process_sets(process_sets)
        .strict_join()
        .resets(resets);
    if dynamic {
        builder = builder.dynamic_process_sets();
    }
    // Operations of the last context would keep its connections and its port.
    forget_all();
    crate::tensorflow::forget_all();
    // On a thread of its own, so that a wait for missing ranks can be interrupted. The thread then
    // gives up as well.
    let is_abandoned = Arc::new(AtomicBool::new(false));
    let abandoned = Arc::clone(&is_abandoned);
    builder = builder.give_up_when(move || {
        let is_abandoned = abandoned.load(Ordering::Relaxed);
        is_abandoned.then(|| "init() no longer waits for the other ranks".to_owned())
    });
    let (sender, receiver) = channel();
    std::thread::Builder::new()
        .name("ronde-init".into())
        .spawn(move || {
            // Nobody receives once it is abandoned; then a context is dropped here.
            let _ = sender.send(builder.build());
        })
        .map_err(|error| failed(&error))?;
    let receiver = Mutex::new(receiver);
    let built = loop {
        let received = py.detach(|| {
            let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            receiver.recv_timeout(SLICE)
        });
        match received {
            Ok(built) => break built,
            Err(RecvTimeoutError::Timeout) => {
                let interrupted = py.check_signals().err().or_else(|| {
                    let is_over = elastic::is_over();
                    is_over.then(|| {
                        elastic::note_failed_join(&[]);
                        failed(&elastic::OVER)
                    })
                });
                if let Some(error) = interrupted {
                    is_abandoned.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(failed(&"the initialization thread has ended"));
            }
        }
    };
    let context = built.map_err(|error| {
        if let Error::Start(StartError::Rendezvous(reason)) = &error {
            elastic::note_failed_join(missing_ranks(&**reason));
        }
        failed(&error)
    })?;
    *unnamed() = Unnamed {
        joins: 0,
        counts: BTreeMap::new(),
    };
    *CONTEXT.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(context));
    if elastic::is_over() {
        abort(elastic::OVER); // the message came before there was a context
    }
    Ok(())
}

/// Ends all operations of this process, also those that wait for other ranks.
pub(crate) fn abort(reason: &str) {
    if let Some(context) = current() {
        context.abort(reason);
    }
}

fn part_of_job(ranks: Option<Vec<usize>>) -> Result<Builder, String> {
    let Some(ranks) = ranks else {
        return Ok(Context::builder());
    };
    let me = identity::Identity::from_env().map_err(|error| error.to_string())?;
    if ranks.iter().copied().eq(0..me.size) {
        return Ok(Context::builder());
    }
    if me.local_size != me.size {
        return Err(
            "a part of a job's ranks (comm=[…]) must be on one host; use process sets on several"
                .to_owned(),
        );
    }
    let mut members = ranks.clone();
    members.sort_unstable();
    members.dedup();
    if members.len() != ranks.len() || members.last().is_some_and(|&rank| rank >= me.size) {
        return Err(format!(
            "comm={ranks:?} must be different ranks of 0..{}",
            me.size
        ));
    }
    let Some(rank) = ranks.iter().position(|&rank| rank == me.rank) else {
        return Err(format!("rank {} is not in comm={ranks:?}", me.rank));
    };
    let key = identity::job_key(&identity::environment, &identity::ProcessTable);
    Ok(Context::builder()
        .rank(rank, ranks.len())
        .job(format!("{key}/part{ranks:?}")))
}

/// Leaves the job. No effect outside of a job.
#[pyfunction]
pub(crate) fn shutdown(py: Python<'_>) {
    py.detach(|| {
        let context = CONTEXT
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(context); // operations in other threads hold their own reference
    });
    logging::flush(py);
}

/// Whether this process is in a job.
#[pyfunction]
pub(crate) fn is_initialized() -> bool {
    current().is_some()
}

macro_rules! asked {
    ($($(#[$doc:meta])* $name:ident -> $result:ty;)*) => {$(
        $(#[$doc])*
        #[pyfunction]
        pub(crate) fn $name() -> PyResult<$result> {
            Ok(context()?.$name())
        }
    )*};
}
asked! {
    /// This process's rank.
    rank -> usize;
    /// Number of ranks in the job.
    size -> usize;
    /// This process's rank on its host.
    local_rank -> usize;
    /// Number of ranks on this host.
    local_size -> usize;
    /// Index of this host among the hosts with this local rank.
    cross_rank -> usize;
    /// Number of hosts with this local rank.
    cross_size -> usize;
    /// Transport between ranks: `local` or `mpi`.
    backend -> &'static str;
}

/// Whether all hosts have the same number of ranks.
#[pyfunction]
pub(crate) fn is_homogeneous() -> PyResult<bool> {
    let context = context()?;
    // If hosts differ, some local rank exists on fewer hosts; with one host there is no difference.
    Ok(context.local_size() * context.cross_size() == context.size())
}

/// Whether the package contains a plug-in for MPI.
#[pyfunction]
pub(crate) fn mpi_built() -> bool {
    ronde::internal::mpi::has_mpi_plugin()
}

/// Version of the NCCL library that can be loaded: major · 10000 + minor · 100 + patch; 0 if there
/// is none.
#[pyfunction]
pub(crate) fn nccl_version() -> u32 {
    ronde::nccl_version().unwrap_or(0)
}

/// Waits until every rank of the set has called it.
#[pyfunction]
#[pyo3(signature = (set_id, /))]
pub(crate) fn barrier(py: Python<'_>, set_id: u32) -> PyResult<()> {
    let handle = with_set(py, set_id, ProcessSet::start_barrier)?;
    finish(py, &handle)
}

/// Declares that this rank has no more data, and waits until all ranks have. Returns the rank that
/// joined last.
#[pyfunction]
pub(crate) fn join(py: Python<'_>) -> PyResult<usize> {
    let context = working_context(py)?;
    let handle = context.start_join().map_err(|error| raise(py, &error))?;
    finish(py, &handle)?;
    all_joined();
    let last = handle
        .take_delivery()
        .and_then(|delivery| delivery.last_joined);
    Ok(last.unwrap_or(context.rank()))
}

/// Restarts the count of unnamed operations, as the ranks have had different numbers of them. The
/// names differ from those before, as a GPU may still work on earlier operations.
pub(crate) fn all_joined() {
    let mut unnamed = unnamed();
    unnamed.joins += 1;
    unnamed.counts.remove(&0);
}

fn finish(py: Python<'_>, handle: &RawHandle) -> PyResult<()> {
    wait(py, handle)?;
    handle.wait().map_err(|error| raise(py, &error))
}

/// Starts a timeline; rank 0 decides for all ranks.
#[pyfunction]
#[pyo3(signature = (path, mark_cycles, /))]
pub(crate) fn start_timeline(
    py: Python<'_>,
    path: std::path::PathBuf,
    mark_cycles: bool,
) -> PyResult<()> {
    let context = context()?;
    told(py, py.detach(|| context.start_timeline(path, mark_cycles)))
}

/// Stops the timeline.
#[pyfunction]
pub(crate) fn stop_timeline(py: Python<'_>) -> PyResult<()> {
    let context = context()?;
    told(py, py.detach(|| context.stop_timeline()))
}

fn told(py: Python<'_>, outcome: Result<(), Error>) -> PyResult<()> {
    outcome.map_err(|error| raise(py, &error))
}

/// Marks the end of a training step.
#[pyfunction]
pub(crate) fn mark_step() -> PyResult<()> {
    context()?.mark_step();
    Ok(())
}

/// Marks the end of an epoch.
#[pyfunction]
pub(crate) fn mark_epoch() -> PyResult<()> {
    context()?.mark_epoch();
    Ok(())
}

/// State and results of the tuner, on rank 0 if autotuning is on.
#[pyfunction]
pub(crate) fn autotune_report(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    let Some(report) = context()?.autotune_report() else {
        return Ok(None);
    };
    let text =
        serde_json::to_string(&report).map_err(|error| PyValueError::new_err(error.to_string()))?;
    py.import("json")?.call_method1("loads", (text,)).map(Some)
}
