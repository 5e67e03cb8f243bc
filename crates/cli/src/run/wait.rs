//! Wait for one of several events, by poll(2).

use super::LaunchError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Events, each with the descriptor that reports it.
pub(super) struct Waiting<'a, Event> {
    events: Vec<Event>,
    fds: Vec<PollFd<'a>>,
}

impl<'a, Event> Waiting<'a, Event> {
    pub(super) fn new() -> Self {
        Self {
            events: Vec::new(),
            fds: Vec::new(),
        }
    }

    /// Adds an event that occurs when `descriptor` is readable, or has ended.
    pub(super) fn readable(&mut self, descriptor: BorrowedFd<'a>, event: Event) {
        self.add(descriptor, PollFlags::IN, event);
    }

    /// Adds an event that occurs when `descriptor` is writable, or closed at the other end.
    pub(super) fn writable(&mut self, descriptor: BorrowedFd<'a>, event: Event) {
        self.add(descriptor, PollFlags::OUT, event);
    }

    fn add(&mut self, descriptor: BorrowedFd<'a>, flags: PollFlags, event: Event) {
        self.events.push(event);
        self.fds.push(PollFd::from_borrowed_fd(descriptor, flags));
    }

    /// Waits until an event has occurred, or until `deadline`; returns those that have.
    pub(super) fn wait(mut self, deadline: Option<Instant>) -> Result<Vec<Event>, LaunchError> {
        let now = Instant::now();
        let timeout = deadline.map(|deadline| timespec(deadline.saturating_duration_since(now)));
        match poll(&mut self.fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(LaunchError::system("wait for the ranks")(error)),
        }
        let ready = self.fds.iter().map(|fd| !fd.revents().is_empty());
        Ok(self
            .events
            .into_iter()
            .zip(ready)
            .filter(|(_, ready)| *ready)
            .map(|(event, _)| event)
            .collect())
    }
}

fn timespec(duration: Duration) -> Timespec {
    // Rounded up to a whole millisecond, so that the deadline has passed when the wait ends.
    let millis = duration.as_millis() as i64 + 1;
    Timespec {
        tv_sec: millis / 1000,
        tv_nsec: millis % 1000 * 1_000_000,
    }
}
