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

/// Thread of a bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BarThread {
    /// Identifier of the thread.
    pub(super) tid: u64,
    /// Index among the tensor's threads, if this is the thread's first bar.
    pub(super) new: Option<usize>,
}

impl Lanes {
    /// Returns a thread without a bar that overlaps `span`; it is a new thread `next_tid` if there
    /// is none.
    pub(super) fn place(&mut self, span: Span, next_tid: u64) -> BarThread {
        if let Some((tid, end)) = self.lanes.iter_mut().find(|(_, end)| *end <= span.began) {
            *end = span.ended;
            return BarThread {
                tid: *tid,
                new: None,
            };
        }
        if self.lanes.len() == LANES_MAX {
            let (tid, end) = &mut self.lanes[LANES_MAX - 1];
            *end = span.ended.max(*end);
            return BarThread {
                tid: *tid,
                new: None,
            };
        }
        self.lanes.push((next_tid, span.ended));
        BarThread {
            tid: next_tid,
            new: Some(self.lanes.len() - 1),
        }
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
        assert_eq!(
            place(0, 10, 5),
            BarThread {
                tid: 5,
                new: Some(0)
            }
        );
        assert_eq!(place(10, 20, 6), BarThread { tid: 5, new: None });
        assert_eq!(
            place(15, 30, 6),
            BarThread {
                tid: 6,
                new: Some(1)
            }
        );
        assert_eq!(place(20, 25, 7), BarThread { tid: 5, new: None });
        for next in 7..200 {
            place(0, 1, next);
        }
        assert_eq!((lanes.lanes.len(), lanes.first()), (LANES_MAX, Some(5)));
    }
}
