//! Threads for the bars of a tensor. Bars that overlap get different threads, because viewers draw
//! overlapping bars of one thread as nested.

use ronde_trace::Span;

/// Largest number of threads of one tensor; further overlapping bars share the last one.
const LANES_MAX: usize = 64;

/// Threads of one tensor: one, unless its operations overlap.
#[derive(Default)]
pub(super) struct Lanes {
    /// Identifier and end of the last bar of each thread.
    lanes: Vec<(u64, i64)>,
}

impl Lanes {
    /// Returns the identifier of a thread without a bar that overlaps `span`. If there is none, it
    /// is a new thread `next_tid`, and its index among the tensor's threads is returned too.
    pub(super) fn place(&mut self, span: Span, next_tid: u64) -> (u64, Option<usize>) {
        if let Some((tid, end)) = self.lanes.iter_mut().find(|(_, end)| *end <= span.began) {
            *end = span.ended;
            return (*tid, None);
        }
        if self.lanes.len() == LANES_MAX {
            let (tid, end) = &mut self.lanes[LANES_MAX - 1];
            *end = span.ended.max(*end);
            return (*tid, None);
        }
        self.lanes.push((next_tid, span.ended));
        (next_tid, Some(self.lanes.len() - 1))
    }

    /// Identifier of the tensor's first thread.
    pub(super) fn first(&self) -> Option<u64> {
        self.lanes.first().map(|(tid, _)| *tid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_overlaps_gets_another_lane() {
        let mut lanes = Lanes::default();
        let mut place = |began, ended, next| lanes.place(Span { began, ended }, next);
        assert_eq!(place(0, 10, 5), (5, Some(0)));
        assert_eq!(place(10, 20, 6), (5, None));
        assert_eq!(place(15, 30, 6), (6, Some(1)));
        assert_eq!(place(20, 25, 7), (5, None));
        for next in 7..200 {
            place(0, 1, next);
        }
        assert_eq!((lanes.lanes.len(), lanes.first()), (LANES_MAX, Some(5)));
    }
}
