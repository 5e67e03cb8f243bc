//! Watch: waits for the ends of launched batches, one after another, on its own thread, and reports
//! them.

use std::sync::{Arc, Mutex};

use super::anchor::AnchoredClock;
use crate::collective::asynchronous::OnEnd;
use crate::device::Mark;
use crate::error::Error;
use crate::gpu::{Device, Worker};
use crate::sync::lock;

/// Thread that waits for marks. When dropped, it first reports all marks that it was given.
pub(super) struct Watch {
    worker: Box<dyn Worker>,
    /// Used by the worker alone.
    clock: Arc<Mutex<AnchoredClock>>,
}

impl Watch {
    /// Starts the thread; `rank` is this rank of the job.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start(device: &Arc<Device>, rank: usize) -> Result<Self, Error> {
        let worker = device
            .gpu
            .worker("ronde-gpu")
            .map_err(|error| Error::Internal {
                rank,
                message: format!("no thread for the GPU: {error}"),
            })?;
        let clock = Arc::new(Mutex::new(AnchoredClock::new(Arc::clone(device))));
        Ok(Self { worker, clock })
    }

    /// Calls `then` when `ended` is reached.
    pub(super) fn add(&self, ended: Arc<Mark>, then: OnEnd) {
        let clock = Arc::clone(&self.clock);
        self.worker
            .put(Box::new(move || then(ended.wait(), &mut *lock(&clock))));
    }
}
