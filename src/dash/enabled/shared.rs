//! State that the cycle, the feed and the page's controls share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::Thread;

use ronde_dash::{End, LogKind};

use crate::queue::Ticket;
use crate::sync::lock;

/// Most log entries and requests that wait for the feed.
const WAITING_MAX: usize = 256;

/// State of one context's page.
pub(super) struct Shared {
    /// For each rank, how long the others have waited for it, ns.
    late_ns: Box<[AtomicU64]>,
    logs: Mutex<Vec<(LogKind, String)>>,
    /// Requests whose outcome is not known yet, with their description.
    requests: Mutex<Vec<(String, Arc<Ticket>)>>,
    /// Whether the page's next change of settings has not come into force yet.
    changes_settings: AtomicBool,
    end: Mutex<Option<End>>,
    is_over: AtomicBool,
    pub(super) feed: OnceLock<Thread>,
}

impl Shared {
    /// Of a job of `size` ranks.
    pub(super) fn new(size: usize) -> Self {
        Self {
            late_ns: (0..size).map(|_| AtomicU64::new(0)).collect(),
            logs: Mutex::default(),
            requests: Mutex::default(),
            changes_settings: AtomicBool::new(false),
            end: Mutex::default(),
            is_over: AtomicBool::new(false),
            feed: OnceLock::new(),
        }
    }

    /// Adds a time for which the others have waited for `rank`.
    pub(super) fn late(&self, rank: usize, late_us: u64) {
        if let Some(late_ns) = self.late_ns.get(rank) {
            late_ns.fetch_add(late_us.saturating_mul(1000), Ordering::Relaxed);
        }
    }

    /// For each rank, how long the others have waited for it, ns.
    pub(super) fn lateness_ns(&self) -> Vec<u64> {
        let all = self.late_ns.iter();
        all.map(|late| late.load(Ordering::Relaxed)).collect()
    }

    /// Adds an entry to the event log.
    pub(super) fn log(&self, kind: LogKind, text: String) {
        let mut logs = lock(&self.logs);
        if logs.len() < WAITING_MAX {
            logs.push((kind, text));
        }
        self.wake();
    }

    pub(super) fn take_logs(&self) -> Vec<(LogKind, String)> {
        std::mem::take(&mut lock(&self.logs))
    }

    /// Follows a request of the page.
    pub(super) fn follow(&self, what: String, ticket: Arc<Ticket>) {
        let mut requests = lock(&self.requests);
        if requests.len() < WAITING_MAX {
            requests.push((what, ticket));
        }
    }

    /// Requests that have failed since the last call, with the reason.
    pub(super) fn failed_requests(&self) -> Vec<(String, String)> {
        let mut failed = Vec::new();
        lock(&self.requests).retain(|(what, ticket)| match ticket.outcome() {
            None => true,
            Some(Ok(())) => false,
            Some(Err(error)) => {
                failed.push((what.clone(), error.to_string()));
                false
            }
        });
        failed
    }

    /// The page has requested other settings.
    pub(super) fn page_changes_settings(&self, does: bool) {
        self.changes_settings.store(does, Ordering::Relaxed);
    }

    /// Whether the change of settings that has come into force is the page's.
    pub(super) fn take_change(&self) -> bool {
        self.changes_settings.swap(false, Ordering::Relaxed)
    }

    /// Sets the end of the job, unless it has been set before.
    pub(super) fn set_end(&self, end: End) {
        lock(&self.end).get_or_insert(end);
    }

    pub(super) fn take_end(&self) -> Option<End> {
        lock(&self.end).take()
    }

    /// Ends the feed: no further records follow.
    pub(super) fn finish(&self) {
        self.is_over.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn wake(&self) {
        if let Some(feed) = self.feed.get() {
            feed.unpark();
        }
    }
}
