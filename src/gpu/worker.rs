//! Workers: threads that serve a device; each executes its tasks one after another.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// A task.
pub(crate) type Work = Box<dyn FnOnce() + Send>;

/// Executes tasks in order. When dropped, it first executes all tasks that it was given.
pub(crate) trait Worker: Send {
    fn put(&self, work: Work);
}

/// Worker that is a thread of this process.
pub(crate) struct Thread {
    /// `None` after the drop.
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(crate) fn start(name: &str) -> io::Result<Self> {
        let (work, incoming) = channel::<Work>();
        let live = move || incoming.into_iter().for_each(|work| work());
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(live)?;
        Ok(Self {
            work: Some(work),
            thread: Some(thread),
        })
    }
}

impl Worker for Thread {
    fn put(&self, work: Work) {
        if let Some(sender) = &self.work {
            let _ = sender.send(work); // the thread receives tasks until the drop
        }
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it has no result
        }
    }
}
