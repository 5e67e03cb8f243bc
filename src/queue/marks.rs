//! Marks: ends of steps and epochs that the program reports.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::clock::Nanos;
use crate::sync::lock;

/// Marks of each kind kept for the next cycle; a program that marks without submitting anything needs no more.
const MARKS_MAX: usize = 1024;

/// When the caller marked the ends of steps and epochs since the last cycle's end: more than one when it is quicker than
/// that.
#[derive(Default)]
pub(crate) struct Marks {
    noted: Mutex<Noted>,
    any: AtomicBool,
}

/// What was marked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) steps: Vec<Nanos>,
    pub(crate) epochs: Vec<Nanos>,
}

impl Marks {
    /// A training step ends at `now`.
    pub(crate) fn step(&self, now: Nanos) {
        self.note(|noted| &mut noted.steps, now);
    }

    /// An epoch ends at `now`.
    pub(crate) fn epoch(&self, now: Nanos) {
        self.note(|noted| &mut noted.epochs, now);
    }

    fn note(&self, kind: impl FnOnce(&mut Noted) -> &mut Vec<Nanos>, now: Nanos) {
        let mut noted = lock(&self.noted);
        let marks = kind(&mut noted);
        if marks.len() < MARKS_MAX {
            marks.push(now);
        }
        self.any.store(true, Ordering::Release);
    }

    /// The marks since the last call, if there are any.
    pub(crate) fn take(&self) -> Option<Noted> {
        let any = self.any.swap(false, Ordering::Acquire);
        any.then(|| std::mem::take(&mut *lock(&self.noted)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_taken_once_and_bounded() {
        let marks = Marks::default();
        assert_eq!(marks.take(), None);
        marks.step(Nanos(3));
        marks.epoch(Nanos(4));
        marks.step(Nanos(5));
        let noted = Noted {
            steps: vec![Nanos(3), Nanos(5)],
            epochs: vec![Nanos(4)],
        };
        assert_eq!(marks.take(), Some(noted));
        assert_eq!(marks.take(), None);
        (0..5_000).for_each(|time| marks.step(Nanos(time)));
        assert_eq!(marks.take().map(|noted| noted.steps.len()), Some(MARKS_MAX));
    }
}
