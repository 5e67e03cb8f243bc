//! Counts steps, for recordings of a range of steps: determines the step of each record.
//!
//! If the program marks its steps, step n lasts from mark n - 1 to mark n, and a tensor belongs to
//! the step in which it was submitted. Otherwise the n-th execution of a tensor's name is its step
//! n, as in BytePS: for a tensor that is executed ten times a step the count is ten times too high,
//! for one that is executed once a step it is right.

use crate::knobs::StepRange;

/// Number of marks kept: no tensor in flight is older.
const MARKS_MAX: usize = 1024;

/// Counter of steps. Times are nanoseconds on rank 0's clock.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// Numbers and ends of the steps that the program marked; ascending.
    marks: Vec<(u64, i64)>,
    /// Number of executions of each tensor, by serial number.
    travelled: Vec<u64>,
    /// Step of the last record.
    pub(super) latest: u64,
}

impl Steps {
    /// Records the program's mark that step `number` ends at `at`.
    pub(super) fn mark(&mut self, number: u64, at: i64) {
        if self.marks.len() == MARKS_MAX {
            self.marks.drain(..MARKS_MAX / 2);
        }
        self.marks.push((number, at));
        self.latest = number;
    }

    /// Number of steps that the program has marked.
    pub(super) fn marked(&self) -> u64 {
        self.marks.last().map_or(0, |&(number, _)| number)
    }

    /// Number of steps so far, as far as is known.
    pub(super) fn seen(&self) -> u64 {
        match self.marked() {
            0 => self.travelled.iter().copied().max().unwrap_or(0),
            marked => marked,
        }
    }

    /// Step of a tensor submitted at `at` that is about to be executed; it is not
    /// [counted](Self::travels) yet.
    pub(super) fn of(&self, serial: u32, at: i64) -> u64 {
        if self.marks.is_empty() {
            return self.travelled.get(serial as usize).copied().unwrap_or(0) + 1;
        }
        // Usually the last one: the search begins there.
        let before = self.marks.iter().rev().find(|&&(_, mark)| mark <= at);
        before.map_or(self.marks[0].0, |&(number, _)| number + 1)
    }

    /// Counts an execution of a tensor; returns the number of its executions.
    pub(super) fn travels(&mut self, serial: u32) -> u64 {
        let index = serial as usize;
        if index >= self.travelled.len() {
            self.travelled.resize(index + 1, 0);
        }
        self.travelled[index] += 1;
        self.travelled[index]
    }
}

/// Range of steps, and whether it has passed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) range: StepRange,
    /// Tensors that are executed repeatedly and have not reached the last step yet. Tensors that
    /// are executed only once (the first broadcast of the weights) are not waited for.
    behind: usize,
    /// Whether some tensor has been executed once more than the last step.
    ahead: bool,
}

impl Window {
    pub(super) fn new(range: StepRange) -> Self {
        Self {
            range,
            behind: 0,
            ahead: false,
        }
    }

    pub(super) fn holds(&self, step: u64) -> bool {
        self.range.holds(step)
    }

    /// Records that a tensor has been executed `count` times.
    pub(super) fn counted(&mut self, count: u64) {
        let Some(last) = self.range.last else { return };
        if count == 2 && last > 2 {
            self.behind += 1;
        }
        if count == last && last > 2 {
            self.behind -= 1;
        }
        self.ahead |= count > last;
    }

    /// Whether the last step has passed.
    pub(super) fn is_over(&self, steps: &Steps) -> bool {
        let Some(last) = self.range.last else {
            return false;
        };
        if steps.marked() > 0 {
            return steps.marked() >= last;
        }
        self.ahead && self.behind == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(first: u64, last: u64) -> Window {
        Window::new(StepRange {
            first,
            last: Some(last),
        })
    }

    #[test]
    fn without_marks_a_tensors_step_is_how_often_it_has_travelled() {
        let (mut steps, mut window) = (Steps::default(), window(2, 3));
        let mut over = Vec::new();
        steps.travels(9); // the broadcast of the weights
        window.counted(1);
        for expected in 1..=4 {
            for tensor in [0, 1] {
                assert_eq!(steps.of(tensor, 0), expected);
                let count = steps.travels(tensor);
                window.counted(count);
                over.push(window.is_over(&steps));
            }
        }
        // Over when the first tensor begins step 4: all repeated tensors have been executed in step
        // 3.
        assert_eq!(over, [false, false, false, false, false, false, true, true]);
        assert!(!window.holds(1) && window.holds(2) && window.holds(3) && !window.holds(4));
    }

    #[test]
    fn a_tensor_that_is_quick_does_not_end_the_window_for_the_others() {
        let (mut steps, mut window) = (Steps::default(), window(1, 3));
        for _ in 0..2 {
            for tensor in [0, 0, 0, 0, 1] {
                let count = steps.travels(tensor);
                window.counted(count);
            }
        }
        assert!(!window.is_over(&steps)); // tensor 1 has been executed twice
        let count = steps.travels(1);
        window.counted(count);
        assert!(window.is_over(&steps));
    }

    #[test]
    fn with_marks_a_tensors_step_is_that_of_its_submission() {
        let (mut steps, window) = (Steps::default(), window(5, 6));
        steps.mark(4, 100);
        steps.mark(5, 200);
        let of = |at| steps.of(0, at);
        assert_eq!([of(50), of(100), of(199), of(200)], [4, 5, 5, 6]);
        assert!(!window.is_over(&steps));
        steps.mark(6, 300);
        assert!(window.is_over(&steps));
    }
}
