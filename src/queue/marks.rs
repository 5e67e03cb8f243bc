//! Marks: ends of steps and epochs that the program reports.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::clock::Nanos;
use crate::sync::lock;

/// Most marks of each kind kept for the next cycle; a program that marks without submitting tensors
/// needs no more.
const MARKS_MAX: usize = 1024;

/// Times at which the caller marked ends of steps and epochs since the last cycle ended. Several
/// steps may end between two cycles.
#[derive(Default)]
pub(crate) struct Marks {
    noted: Mutex<Noted>,
    any: AtomicBool,
}

/// Marks of both kinds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) steps: Vec<Nanos>,
    pub(crate) epochs: Vec<Nanos>,
}

impl Marks {
    /// Marks the end of a training step at `now`.
    pub(crate) fn step(&self, now: Nanos) {
        self.note(|noted| &mut noted.steps, now);
    }

    /// Marks the end of an epoch at `now`.
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

    /// Takes the marks since the last call, if there are any.
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
