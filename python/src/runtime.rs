//! The context of this process: init, shutdown, and the queries in between.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use ronde::context::Builder;
use ronde::internal::{hosts::missing_ranks, identity};
use ronde::{Context, Error, ProcessSet, ProcessSetError, RawHandle, StartError};

use crate::elastic;
use crate::error::{About, NOT_INITIALIZED, internal, raise};
use crate::flight::{SLICE, forget_all, wait};
use crate::logging;

pub(crate) mod process_sets;

/// Time for which a rank goes on joining a generation that is over. Rank 0 may be about to name the
/// ranks that have not come, one of which has given up first.
const LAST_WAIT: Duration = Duration::from_secs(1);

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

/// Runs `work`, which waits for other ranks, on a thread of its own and returns its result; calls
/// `check` every [`SLICE`] meanwhile. After an error of `check`, the result is dropped when it
/// comes.
///
/// # Errors
/// Those of `check`; a thread that cannot be started.
fn on_a_thread<R: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> R + Send + 'static,
    check: impl Fn(Python<'_>) -> PyResult<()>,
) -> PyResult<R> {
    let (sender, receiver) = channel();
    std::thread::Builder::new()
        .name("ronde-python".into())
        .spawn(move || {
            // Nobody receives once `check` has failed.
            let _ = sender.send(work());
        })?;
    let receiver = Mutex::new(receiver);
    loop {
        let received = py.detach(|| {
            let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            receiver.recv_timeout(SLICE)
        });
        match received {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => check(py)?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err(
                    "a thread of the runtime has panicked",
                ));
            }
        }
    }
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
    // A second thread waits, and finds the context of the first.
    static INIT: Mutex<()> = Mutex::new(());
    let _only = INIT
        .lock_py_attached(py)
        .unwrap_or_else(PoisonError::into_inner);
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
    // When a wait for missing ranks is interrupted, the thread gives up as well.
    let is_abandoned = Arc::new(AtomicBool::new(false));
    let abandoned = Arc::clone(&is_abandoned);
    builder = builder.give_up_when(move || {
        let is_abandoned = abandoned.load(Ordering::Relaxed);
        is_abandoned.then(|| "init() no longer waits for the other ranks".to_owned())
    });
    let over_since = Cell::new(None);
    let built = on_a_thread(
        py,
        move || builder.build(),
        |py| {
            py.check_signals()?;
            if elastic::is_over() {
                let since = over_since.get().unwrap_or_else(Instant::now);
                over_since.set(Some(since));
                if since.elapsed() >= LAST_WAIT {
                    elastic::note_failed_join(&[]);
                    return Err(failed(&elastic::OVER));
                }
            }
            Ok(())
        },
    );
    let built = built.inspect_err(|_| is_abandoned.store(true, Ordering::Relaxed))?;
    let context = built.map_err(|error| {
        if let Some(missing) = failed_join(&error) {
            elastic::note_failed_join(missing);
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

/// Ranks that have not come to the rendezvous, as far as is known, if other ranks are the reason why
/// the job could not be joined. The launcher kills them. Ranks that were lost later are none of
/// them: they may have left because of another rank.
fn failed_join(error: &Error) -> Option<&[usize]> {
    match error {
        Error::Start(StartError::Rendezvous(reason)) => missing_ranks(&**reason),
        Error::ProcessSet(ProcessSetError::Start { .. }) | Error::Peer(_) => Some(&[]),
        _ => None,
    }
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
        // Operations in other threads hold their own reference, and end with an error.
        if let Some(context) = context {
            context.leave();
        }
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
    /// Whether all hosts have the same number of ranks.
    is_homogeneous -> bool;
    /// Transport between ranks: `local`, `mpi` or `tcp`.
    backend -> &'static str;
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
    // The context is not kept while the others are waited for: shutdown must be able to end it.
    let (handle, own) = {
        let context = working_context(py)?;
        let handle = context.start_join().map_err(|error| raise(py, &error))?;
        (handle, context.rank())
    };
    finish(py, &handle)?;
    all_joined();
    let last = handle
        .take_delivery()
        .and_then(|delivery| delivery.last_joined);
    Ok(last.unwrap_or(own))
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
    let start = move || context.start_timeline(path, mark_cycles);
    told(py, on_a_thread(py, start, |py| py.check_signals())?)
}

/// Stops the timeline.
#[pyfunction]
pub(crate) fn stop_timeline(py: Python<'_>) -> PyResult<()> {
    let context = context()?;
    let stop = move || context.stop_timeline();
    told(py, on_a_thread(py, stop, |py| py.check_signals())?)
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
