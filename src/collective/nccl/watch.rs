//! A thread that waits for the ends of launched batches, one after another, and reports them.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use super::anchor::AnchoredClock;
use crate::collective::asynchronous::OnEnd;
use crate::device::Mark;
use crate::error::Error;
use crate::gpu::Device;

/// See the module. Dropped, it first reports all that it was given.
pub(super) struct Watch {
    /// `None` once it is dropped.
    ends: Option<Sender<(Arc<Mark>, OnEnd)>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts the thread; `rank` is this rank of the job.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start(device: &Arc<Device>, rank: usize) -> Result<Self, Error> {
        let (ends, incoming) = channel::<(Arc<Mark>, OnEnd)>();
        let device = Arc::clone(device);
        let watch = move || {
            let mut clock = AnchoredClock::new(device);
            for (ended, then) in incoming {
                then(ended.wait(), &mut clock);
            }
        };
        let thread = std::thread::Builder::new().name("ronde-gpu".into()).spawn(watch);
        let thread = thread.map_err(|error| Error::Internal {
            rank,
            message: format!("no thread for the GPU: {error}"),
        })?;
        Ok(Self {
            ends: Some(ends),
            thread: Some(thread),
        })
    }

    /// Has `then` called when `ended` is reached.
    pub(super) fn add(&self, ended: Arc<Mark>, then: OnEnd) {
        if let Some(ends) = &self.ends {
            let _ = ends.send((ended, then)); // the thread takes all that comes until the drop
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.ends = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it has no result
        }
    }
}
