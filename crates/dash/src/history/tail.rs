//! List of which only the changed end is sent.

use serde::Serialize;

/// List that knows from which place on it has changed since it was last sent.
#[derive(Debug)]
pub(super) struct Tail<T> {
    rows: Vec<T>,
    /// First changed row.
    changed_from: usize,
}

/// Part of a list: the receiver keeps the rows before `from` and appends `rows`. Applying the same
/// part twice changes nothing.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Part<'a, T> {
    from: usize,
    rows: &'a [T],
}

impl<T> Default for Tail<T> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            changed_from: 0,
        }
    }
}

impl<T> Tail<T> {
    pub(super) fn rows(&self) -> &[T] {
        &self.rows
    }

    pub(super) fn push(&mut self, row: T) {
        self.rows.push(row);
    }

    /// The last row, if it has not been sent yet.
    pub(super) fn last_unsent(&mut self) -> Option<&mut T> {
        if self.unsent() == 0 {
            return None;
        }
        self.rows.last_mut()
    }

    /// Number of rows that have not been sent.
    pub(super) fn unsent(&self) -> usize {
        self.rows.len() - self.changed_from
    }

    /// Replaces all rows.
    pub(super) fn replace(&mut self, change: impl FnOnce(Vec<T>) -> Vec<T>) {
        self.rows = change(std::mem::take(&mut self.rows));
        self.changed_from = 0;
    }

    /// Adds a row; of more than `most`, the older half is forgotten.
    pub(super) fn push_bounded(&mut self, row: T, most: usize) {
        self.push(row);
        if self.rows.len() > most {
            self.replace(|mut rows| rows.split_off(most / 2));
        }
    }

    /// The part that has changed, or all rows.
    pub(super) fn part(&self, all: bool) -> Option<Part<'_, T>> {
        let from = if all { 0 } else { self.changed_from };
        let rows = &self.rows[from..];
        (all || !rows.is_empty()).then_some(Part { from, rows })
    }

    /// Everything has been sent.
    pub(super) fn sent(&mut self) {
        self.changed_from = self.rows.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_of_all_parts_has_the_list() {
        let mut tail = Tail::default();
        let mut received: Vec<u32> = Vec::new();
        for round in 0..40u32 {
            for row in 0..round % 4 {
                tail.push_bounded(10 * round + row, 8);
            }
            if let Some(Part { from, rows }) = tail.part(false) {
                for _ in 0..2 {
                    received.truncate(from);
                    received.extend(rows);
                }
            }
            tail.sent();
            assert_eq!(received, tail.rows());
            assert!(received.len() <= 8);
            assert_eq!(tail.part(false), None);
        }
    }
}
