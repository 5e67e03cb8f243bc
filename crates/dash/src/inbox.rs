//! Queue of events from the job to the server; it never blocks the job.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Event;

/// Most steps in the queue. The server empties it at least twice a second, so a job loses steps only
/// if it has more than this many in half a second.
const STEPS_MAX: usize = 8192;

/// Most events in the queue.
const EVENTS_MAX: usize = STEPS_MAX + 1024;

/// Queue of events.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    content: Mutex<Content>,
    updates: Mutex<Updates>,
    updated: Condvar,
}

/// Updates that the server has sent to pages.
#[derive(Debug, Default)]
struct Updates {
    begun: u64,
    done: u64,
    /// Whether a page was open at the last one.
    has_pages: bool,
}

/// Events and the number of those that found no room.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) events: Vec<Event>,
    pub(crate) dropped: u64,
}

impl Inbox {
    /// Adds an event; one that finds no room is counted and dropped.
    pub(crate) fn push(&self, event: Event) {
        let mut content = self.lock();
        let most = match event {
            Event::Step(_) => STEPS_MAX,
            _ => EVENTS_MAX,
        };
        if content.events.len() < most {
            content.events.push(event);
        } else {
            content.dropped += 1;
        }
    }

    /// Takes all events. The lock is held only while two pointers are exchanged.
    pub(crate) fn take(&self) -> Content {
        std::mem::take(&mut *self.lock())
    }

    /// A page has been opened: the next update is sent to it.
    pub(crate) fn page_opened(&self) {
        self.updates().has_pages = true;
    }

    /// The server begins an update.
    pub(crate) fn begin_update(&self) {
        self.updates().begun += 1;
    }

    /// The update has been sent to the open pages, if there are any.
    pub(crate) fn end_update(&self, has_pages: bool) {
        let mut updates = self.updates();
        (updates.done, updates.has_pages) = (updates.begun, has_pages);
        self.updated.notify_all();
    }

    /// Returns when all events so far have been sent to the open pages, or after `timeout`.
    pub(crate) fn flush(&self, timeout: Duration) {
        let updates = self.updates();
        let next = updates.begun + 1; // an update that has begun may have missed an event
        let waits = |updates: &mut Updates| updates.has_pages && updates.done < next;
        let _ = self.updated.wait_timeout_while(updates, timeout, waits);
    }

    fn updates(&self) -> MutexGuard<'_, Updates> {
        self.updates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        // No code panics while it holds the lock.
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::step;
    use crate::{End, Event};

    #[test]
    fn steps_leave_room_for_other_events() {
        let inbox = Inbox::default();
        for number in 0..10_000 {
            inbox.push(Event::Step(step(number, 1.0)));
        }
        inbox.push(Event::End(End {
            failed: false,
            text: "the end".to_owned(),
        }));
        let content = inbox.take();
        assert_eq!(content.dropped, 10_000 - STEPS_MAX as u64);
        assert!(matches!(content.events.last(), Some(Event::End(_))));
        assert!(inbox.take().events.is_empty());
    }

    #[test]
    fn a_flush_waits_for_an_update_that_begins_later_if_a_page_is_open() {
        let long = Duration::from_secs(60);
        let inbox = Inbox::default();
        inbox.flush(long); // no page
        inbox.begin_update();
        inbox.end_update(true);
        inbox.begin_update();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| inbox.flush(long));
            inbox.end_update(true);
            std::thread::sleep(Duration::from_millis(20));
            inbox.begin_update();
            inbox.end_update(true);
            // It may have begun to wait after that.
            inbox.begin_update();
            inbox.end_update(false);
            waiting.join().expect("it returns");
        });
        inbox.end_update(true);
        inbox.flush(Duration::from_millis(1)); // nobody sends
    }
}
