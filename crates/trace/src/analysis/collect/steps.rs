//! Deals operations out to steps.
//!
//! Where the file marks the ends of steps (three times or more), a step lasts from mark to mark; where it marks beginnings too
//! (PyTorch's profiler), it is the marked span. Else a step ends when a tensor
//! comes again that it has already, at the beginning of that tensor's batch; then a step lasts until its last result is
//! in place. Only tensors that come about as often as most do count for that: one that comes several times as often (a
//! loss reduced for each micro-batch) runs along. Where names never repeat, the smallest repeating sequence of kinds,
//! types and sizes is a step, found by the runtime's own [`PeriodFinder`].

use std::collections::{HashMap, HashSet};

use super::marks::StepMark;
use super::store::{Closed, Cut};
use crate::analysis::op::{Batcher, Op};
use crate::analysis::report::StepsFoundBy;
use crate::{Kind, NameId, Span};
use ronde_job::Dtype;
use ronde_job::OpKind;
use ronde_job::step::{Item, PeriodFinder};

/// Deals out operations that come in order of beginning.
#[derive(Debug)]
pub(super) struct Stepper {
    method: Method,
    batcher: Batcher,
    step_bytes_most: usize,
    current: Vec<Op>,
    current_bytes: usize,
    /// Where the batch that is being filled begins in `current`.
    batch: usize,
    /// Where the current step begins: the end of the one before, once there is one.
    began: Option<i64>,
    first: bool,
    /// Between marked steps: what is executed there belongs to none.
    outside: bool,
    closed: Vec<Closed>,
    cut_short: u64,
}

#[derive(Debug)]
enum Method {
    /// The next mark's place in the list.
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

/// Marks that make us believe in them: two may be an accident of starting and stopping. A profiler's are meant.
const MARKS_LEAST: usize = 3;

impl Stepper {
    /// Looks at `ops`, the first of a file, in order of beginning, and at the step marks so far; `profiler` is whether
    /// one wrote it.
    pub(super) fn choose(
        ops: &[Op],
        marks: &[StepMark],
        profiler: bool,
        batcher: Batcher,
        step_bytes_most: usize,
        names: &[Box<str>],
    ) -> Self {
        // Where beginnings are marked too, steps are these spans.
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

    /// How steps are told apart.
    pub(super) fn found_by(&self) -> StepsFoundBy {
        match self.method {
            Method::Marks { .. } => StepsFoundBy::Marks,
            Method::Names { .. } => StepsFoundBy::Names,
            Method::Period { .. } => StepsFoundBy::Period,
            Method::Nothing => StepsFoundBy::Nothing,
        }
    }

    /// Steps that are over since the last call.
    pub(super) fn take_closed(&mut self) -> Vec<Closed> {
        std::mem::take(&mut self.closed)
    }

    /// The next operation. `marks` are the step marks so far, `first_compute` when the rank began to compute.
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
                .chain(first_compute);
            self.began = Some(known.fold(op.span.began, i64::min));
        }
        // What is over at a mark lies before it, though it began in the same microsecond.
        self.close_at_marks(op.span.began.min(op.span.ended.saturating_sub(1)), marks);
        let joins = (self.current.get(self.batch)).is_some_and(|first| self.batcher.joins(first, &op));
        if !joins {
            self.batch = self.current.len();
        }
        let mut complete = false;
        match &mut self.method {
            Method::Names { running_along, seen } => {
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
                // What came before the period was known has been cut by hand.
                complete =
                    ends.binary_search(fed).is_ok() || (found && ends.last().is_none_or(|last| last < fed));
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

    /// The file is over.
    pub(super) fn end(&mut self, marks: &[StepMark]) {
        if let Method::Marks { .. } = self.method {
            self.close_at_marks(i64::MAX, marks);
        }
        if !self.current.is_empty() && !self.outside {
            self.close(None, Cut::Ended);
        }
    }

    /// What went wrong.
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
                // Before the first operation there is nothing to measure from.
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

/// What an operation adds to its step's signature.
fn key(op: &Op, named: bool) -> u64 {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
    let name = named.then_some(op.tensor);
    BuildHasherDefault::<DefaultHasher>::default().hash_one((name, op.kind, op.dtype, op.elements, op.bytes))
}

/// Chooses between names and periods.
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
    // How often most tensors come, which is how many steps there are; one more if the file begins or ends in a step.
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

/// Steps by the smallest repeating sequence, if there is one. What came before it was found is cut backwards from
/// where it was, as long as the sequence is the same.
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
        // The step before is whole and like the one after it, or the file begins in it.
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
    // No payload is longer than memory; what claims to be is damaged, and need only be told apart.
    let elements = usize::try_from(elements).unwrap_or(usize::MAX) & (usize::MAX >> 4);
    Item::new(name, kind, dtype, elements)
}
