//! Rows for bars: a viewer draws what overlaps on one thread as nested, whether it is or not.

use ronde_trace::Span;

/// More rows than this are not needed to see that there are too many.
const LANES_MAX: usize = 64;

/// The threads of one tensor: one, unless its operations overlap.
#[derive(Default)]
pub(super) struct Lanes {
    /// Thread and end of the last bar of each.
    lanes: Vec<(u64, i64)>,
}

/// Where a bar goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BarThread {
    /// The thread.
    pub(super) tid: u64,
    /// Its number among the tensor's, if this is its first bar.
    pub(super) new: Option<usize>,
}

impl Lanes {
    /// A thread on which nothing overlaps `span`, `next_tid` if there is none yet.
    pub(super) fn place(&mut self, span: Span, next_tid: u64) -> BarThread {
        if let Some((tid, end)) = self.lanes.iter_mut().find(|(_, end)| *end <= span.began) {
            *end = span.ended;
            return BarThread { tid: *tid, new: None };
        }
        if self.lanes.len() == LANES_MAX {
            let (tid, end) = &mut self.lanes[LANES_MAX - 1];
            *end = span.ended.max(*end);
            return BarThread { tid: *tid, new: None };
        }
        self.lanes.push((next_tid, span.ended));
        BarThread {
            tid: next_tid,
            new: Some(self.lanes.len() - 1),
        }
    }

    /// The tensor's first thread.
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
        assert_eq!(place(0, 10, 5), BarThread { tid: 5, new: Some(0) });
        assert_eq!(place(10, 20, 6), BarThread { tid: 5, new: None });
        assert_eq!(place(15, 30, 6), BarThread { tid: 6, new: Some(1) });
        assert_eq!(place(20, 25, 7), BarThread { tid: 5, new: None });
        for next in 7..200 {
            place(0, 1, next);
        }
        assert_eq!((lanes.lanes.len(), lanes.first()), (LANES_MAX, Some(5)));
    }
}
