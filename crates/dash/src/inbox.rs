//! Queue of events between the job and the server, which never blocks the job.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Event;

/// Most steps in the queue. The server empties it twice a second, so a job loses steps only if it
/// has more than this many in half a second.
const STEPS_MAX: usize = 8192;

/// Most events in the queue.
const EVENTS_MAX: usize = STEPS_MAX + 1024;

/// Queue of events.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    content: Mutex<Content>,
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
}
