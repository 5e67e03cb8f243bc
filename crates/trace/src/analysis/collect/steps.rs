//! Step detection: assigns operations to steps by marks, repeated names or a repeating sequence.
//!
//! Three methods are tried in order:
//!
//! - Marks: if the file marks ends of steps (at least three times), a step lasts from mark to mark.
//!   If it also marks starts (PyTorch's profiler), a step is the marked span.
//! - Names: a step ends where a tensor that it already has is repeated, at the start of that
//!   tensor's batch. It lasts until its last result is in place. Only tensors that occur about as
//!   often as most others are considered: a tensor that occurs several times as often (a loss
//!   reduced for each micro-batch) does not end a step.
//! - Period: if names never repeat, a step is the smallest repeating sequence of kinds, types and
//!   sizes, found by the runtime's own [`PeriodFinder`].

use std::collections::{HashMap, HashSet};

use super::marks::StepMark;
use super::store::{Closed, Cut};
use crate::analysis::op::{Batcher, Op};
use crate::analysis::report::StepsFoundBy;
use crate::{Kind, NameId, Span};
use ronde_job::Dtype;
use ronde_job::OpKind;
use ronde_job::step::{Item, PeriodFinder};

/// Assigns operations, given in order of start, to steps.
#[derive(Debug)]
pub(super) struct Stepper {
    method: Method,
    batcher: Batcher,
    step_bytes_most: usize,
    current: Vec<Op>,
    current_bytes: usize,
    /// Index in `current` of the first member of the current batch.
    batch: usize,
    /// Start of the current step: the end of the previous one, if any.
    began: Option<i64>,
    first: bool,
    /// Whether the time is between marked steps: operations there belong to no step.
    outside: bool,
    closed: Vec<Closed>,
    cut_short: u64,
}

#[derive(Debug)]
enum Method {
    /// Index of the next mark.
    Marks {
        next: usize,
    },
    Names {
        running_along: HashSet<NameId>,
        seen: HashSet<NameId>,
    },
    Period {
        finder: Box<PeriodFinder>,
        fed: usize,
        ends: Vec<usize>,
    },
    Nothing,
}

/// Minimum number of marks, except in a profiler's trace: two may come from starting and stopping
/// the recording.
const MARKS_LEAST: usize = 3;

impl Stepper {
    /// Chooses the method from `ops`, the first of a file in order of start, and the step marks so
    /// far. `profiler` is whether a profiler wrote the file.
    pub(super) fn choose(
        ops: &[Op],
        marks: &[StepMark],
        profiler: bool,
        batcher: Batcher,
        step_bytes_most: usize,
        names: &[Box<str>],
    ) -> Self {
        // If starts are marked too, steps are the marked spans.
        let spans = marks.first().is_some_and(|mark| mark.begins);
        let least = if profiler || spans { 1 } else { MARKS_LEAST };
        let method = if marks.len() >= least {
            Method::Marks { next: 0 }
        } else {
            by_repetition(ops, names)
        };
        Self {
            outside: spans && matches!(method, Method::Marks { .. }),
            method,
            batcher,
            step_bytes_most,
            current: Vec::new(),
            current_bytes: 0,
            batch: 0,
            began: None,
            first: true,
            closed: Vec::new(),
            cut_short: 0,
        }
    }

    /// Method that separates the steps.
    pub(super) fn found_by(&self) -> StepsFoundBy {
        match self.method {
            Method::Marks { .. } => StepsFoundBy::Marks,
            Method::Names { .. } => StepsFoundBy::Names,
            Method::Period { .. } => StepsFoundBy::Period,
            Method::Nothing => StepsFoundBy::Nothing,
        }
    }

    /// Returns the steps closed since the last call.
    pub(super) fn take_closed(&mut self) -> Vec<Closed> {
        std::mem::take(&mut self.closed)
    }

    /// Adds the next operation. `marks` are the step marks so far, `first_compute` is the start of
    /// the first computation.
    pub(super) fn feed(
        &mut self,
        op: Op,
        marks: &[StepMark],
        first_compute: Option<i64>,
        names: &[Box<str>],
    ) {
        if self.first && self.began.is_none() && self.current.is_empty() {
            let known = op.negotiation.map(|span| span.began).into_iter();
            let known = known
                .chain(op.ticks.iter().map(|tick| tick.at))
                .chain(op.earlier.iter().map(|activity| activity.span.began))
                .chain(first_compute);
            self.began = Some(known.fold(op.span.began, i64::min));
        }
        // An operation that ends at a mark belongs to the step before it, even if it began in the
        // same microsecond.
        self.close_at_marks(op.span.began.min(op.span.ended.saturating_sub(1)), marks);
        let joins =
            (self.current.get(self.batch)).is_some_and(|first| self.batcher.joins(first, &op));
        if !joins {
            self.batch = self.current.len();
        }
        let mut complete = false;
        match &mut self.method {
            Method::Names {
                running_along,
                seen,
            } => {
                if !running_along.contains(&op.tensor) && !seen.insert(op.tensor) {
                    // The whole batch belongs to the next step.
                    let next = self.current.split_off(self.batch.min(self.current.len()));
                    seen.clear();
                    let members = next.iter().chain([&op]).map(|op| op.tensor);
                    seen.extend(members.filter(|tensor| !running_along.contains(tensor)));
                    self.close(None, Cut::Whole);
                    self.current_bytes = next.iter().map(Op::weight).sum();
                    self.current = next;
                }
            }
            Method::Period { finder, fed, ends } => {
                let found = finder.observe(item(&op, names)).step_complete;
                // Steps before the detection of the period were found by comparison (`ends`).
                complete = ends.binary_search(fed).is_ok()
                    || (found && ends.last().is_none_or(|last| last < fed));
                *fed += 1;
            }
            Method::Marks { .. } | Method::Nothing => {}
        }
        self.current_bytes += op.weight();
        self.current.push(op);
        if complete {
            self.close(None, Cut::Whole);
        } else if self.current_bytes > self.step_bytes_most {
            self.cut_short += 1;
            self.close(None, Cut::Ended);
        }
    }

    /// Ends the file.
    pub(super) fn end(&mut self, marks: &[StepMark]) {
        if let Method::Marks { .. } = self.method {
            self.close_at_marks(i64::MAX, marks);
        }
        if !self.current.is_empty() && !self.outside {
            self.close(None, Cut::Ended);
        }
    }

    /// Warning about steps that were too long.
    pub(super) fn warnings(&self) -> Option<String> {
        (self.cut_short > 0).then(|| {
            format!(
                "{} times a step did not end for {} MB of operations and was cut there",
                self.cut_short,
                self.step_bytes_most >> 20
            )
        })
    }

    /// Closes steps at the marks up to `until`.
    fn close_at_marks(&mut self, until: i64, marks: &[StepMark]) {
        while let Method::Marks { next } = &mut self.method
            && let Some(&StepMark { at, begins }) = marks.get(*next)
            && at <= until
        {
            *next += 1;
            if begins {
                self.current.clear();
                self.current_bytes = 0;
                self.batch = 0;
                self.began = Some(at);
                self.first = false;
                self.outside = false;
            } else if !self.outside && self.began.is_some_and(|began| began < at) {
                // Without a start, before the first operation, the step has no length.
                self.close(Some(at), Cut::Whole);
                self.outside = marks[0].begins;
            }
        }
    }

    fn close(&mut self, ended: Option<i64>, cut: Cut) {
        let ops = std::mem::take(&mut self.current);
        self.current_bytes = 0;
        self.batch = 0;
        let began = self.began.unwrap_or(0);
        let last = ops.iter().map(|op| op.span.ended).max().unwrap_or(began);
        let span = Span {
            began,
            ended: ended.unwrap_or(last).max(began),
        };
        self.began = Some(span.ended);
        let cut = match cut {
            Cut::Whole if self.first => Cut::Begun,
            cut => cut,
        };
        self.first = false;
        let named = !matches!(self.method, Method::Period { .. });
        self.closed.push(Closed {
            span,
            signature: ops
                .iter()
                .fold(0, |sum: u64, op| sum.wrapping_add(key(op, named))),
            ops,
            cut,
        });
    }
}

/// Contribution of an operation to the signature of its step.
fn key(op: &Op, named: bool) -> u64 {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    let name = named.then_some(op.tensor);
    BuildHasherDefault::<DefaultHasher>::default().hash_one((
        name,
        op.kind,
        op.dtype,
        op.elements,
        op.bytes,
    ))
}

/// Chooses between names and period.
fn by_repetition(ops: &[Op], names: &[Box<str>]) -> Method {
    let mut times: HashMap<NameId, u32> = HashMap::new();
    for op in ops {
        *times.entry(op.tensor).or_default() += 1;
    }
    let mut repeated: Vec<u32> = times.values().copied().filter(|&times| times > 1).collect();
    let repeating: u64 = repeated.iter().map(|&times| u64::from(times)).sum();
    if repeating * 2 < ops.len() as u64
        && let Some(method) = by_period(ops, names)
    {
        return method;
    }
    if repeated.is_empty() {
        return Method::Nothing;
    }
    repeated.sort_unstable();
    // Median number of repetitions, which is the number of steps; one more if the file begins or
    // ends within a step.
    let usual = repeated[repeated.len() / 2];
    let most = usual + 1 + usual / 4;
    let running_along = times
        .into_iter()
        .filter(|&(_, times)| times > most)
        .map(|(tensor, _)| tensor);
    Method::Names {
        running_along: running_along.collect(),
        seen: HashSet::new(),
    }
}

/// Separates steps by the smallest repeating sequence, if there is one. Steps before its detection
/// are found backwards from there, as long as the sequence is the same.
fn by_period(ops: &[Op], names: &[Box<str>]) -> Option<Method> {
    let mut finder = PeriodFinder::new();
    let (found_at, length) = ops.iter().enumerate().find_map(|(index, op)| {
        let complete = finder.observe(item(op, names)).step_complete;
        let period = finder.period()?;
        complete.then_some((index, period.items))
    })?;
    let mut ends = vec![found_at];
    let mut end = found_at;
    while end >= length {
        let same = |index: usize| key(&ops[index], false) == key(&ops[index + length], false);
        // The previous step must be equal to the one after it, if it is complete, or the file
        // begins in it.
        if !(end + 1 - length..=end).all(|index| index < length || same(index - length)) {
            break;
        }
        end -= length;
        ends.push(end);
    }
    ends.sort_unstable();
    Some(Method::Period {
        finder: Box::new(PeriodFinder::new()),
        fed: 0,
        ends,
    })
}

fn item(op: &Op, names: &[Box<str>]) -> Item {
    let kind = match op.kind {
        Kind::Allreduce | Kind::Adasum | Kind::Other => OpKind::Allreduce,
        Kind::Allgather => OpKind::Allgather,
        Kind::Broadcast => OpKind::Broadcast,
        Kind::Alltoall | Kind::PointToPoint => OpKind::Alltoall,
        Kind::Reducescatter => OpKind::Reducescatter,
        Kind::Join => OpKind::Join,
        Kind::Barrier => OpKind::Barrier,
    };
    let name = names.get(op.tensor.0 as usize).map_or("", |name| name);
    let bytes = op.bytes.unwrap_or(0);
    let dtype = op.dtype.unwrap_or(Dtype::U8);
    let elements = op.elements.unwrap_or(bytes);
    // A payload longer than memory is damaged; it is only hashed.
    let elements = usize::try_from(elements).unwrap_or(usize::MAX) & (usize::MAX >> 4);
    Item::new(name, kind, dtype, elements)
}
