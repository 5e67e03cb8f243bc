//! The thread that completes the futures of submitted calls.

#![allow(unsafe_code)] // memory of XLA's arrays

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ronde::RawHandle;

use super::ffi::Future;
use crate::collective::{Call, Failure, complete};
use crate::runtime::current;

/// Longest wait for the oldest call before the others are looked at.
const SLICE: Duration = Duration::from_millis(1);

/// A submitted call.
pub(super) struct Pending {
    call: Arc<Call>,
    handles: Vec<RawHandle>,
    outputs: Vec<Option<(*mut u8, usize)>>,
    marks_step: bool,
}

// SAFETY: XLA keeps the arrays until the future is completed, and no other thread uses them.
unsafe impl Send for Pending {}

impl Pending {
    pub(super) fn new(
        call: Arc<Call>,
        handles: Vec<RawHandle>,
        outputs: Vec<Option<(*mut u8, usize)>>,
        marks_step: bool,
    ) -> Self {
        Self {
            call,
            handles,
            outputs,
            marks_step,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.handles.iter().all(RawHandle::is_done)
    }

    /// Waits for all arrays, also after the first failure: until then their memory is in use.
    pub(super) fn finish(self) -> Result<(), Failure> {
        let mut outcome = Ok(());
        for (handle, output) in self.handles.iter().zip(&self.outputs) {
            // SAFETY: the outputs are those of the submission, and XLA still keeps them.
            let one = unsafe { complete(&self.call, handle, *output) };
            outcome = outcome.and(one.map(drop));
        }
        if self.marks_step
            && let Some(context) = current()
        {
            context.mark_step();
        }
        outcome
    }
}

type Job = (Pending, Future);

/// Completes the future when the call has completed.
pub(super) fn later(pending: Pending, future: Future) {
    static JOBS: Mutex<Option<Sender<Job>>> = Mutex::new(None);
    let mut jobs = JOBS.lock().unwrap_or_else(PoisonError::into_inner);
    let job = match &*jobs {
        Some(sender) => sender.send((pending, future)).err().map(|failed| failed.0),
        None => Some((pending, future)),
    };
    let Some(job) = job else { return };
    let (sender, receiver) = channel();
    let thread = std::thread::Builder::new().name("ronde-jax".into());
    match thread.spawn(move || run(&receiver)) {
        Ok(_) => {
            let _ = sender.send(job); // the thread has just begun to receive
            *jobs = Some(sender);
        }
        Err(_) => {
            drop(jobs); // others need not wait for this operation
            job.1.complete(job.0.finish());
        }
    }
}

/// Completes jobs in the order in which they end. A program may use the result of a later call
/// before another rank has submitted an earlier one.
fn run(receiver: &Receiver<Job>) {
    let mut jobs: Vec<Job> = Vec::new();
    loop {
        match jobs.first() {
            None => match receiver.recv() {
                Ok(job) => jobs.push(job),
                Err(_) => return,
            },
            Some((oldest, _)) => {
                if let Some(handle) = oldest.handles.iter().find(|handle| !handle.is_done()) {
                    handle.wait_timeout(SLICE);
                }
            }
        }
        jobs.extend(receiver.try_iter());
        let mut index = 0;
        while index < jobs.len() {
            if jobs[index].0.is_done() {
                let (pending, future) = jobs.remove(index);
                future.complete(pending.finish());
            } else {
                index += 1;
            }
        }
    }
}
