//! Step metrics: how long a step takes and where its time goes, added up as each batch is executed.
//!
//! A step lasts from one completion of its anchor to the next. The anchor is the largest allreduce of the smallest
//! [repeating period](super::period); or the caller marks the steps itself, and is believed from then on. Nothing
//! here rests on the recorder, which may drop cycles.
//!
//! Only whole, undisturbed steps are samples. A step with foreign traffic in it (validation, a broadcast, a
//! checkpoint) is reported as [interrupted](Step::Interrupted), and the next one is left out too: caches are cold and
//! hooks uneven. A pause without traffic shows as a step far longer than those before; one alone is left
//! out, a second one in a row is the new normal.

use super::period::{Item, Period, PeriodFinder};
use crate::clock::Nanos;

/// What the cycle knows about a batch that it has executed; its tensors come beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutedBatch {
    /// When its results were in place.
    pub ended: Nanos,
    /// Time inside the collective, nanoseconds.
    pub collective_ns: u64,
    /// Part of it spent waiting for peers, nanoseconds.
    pub wait_ns: u64,
}

/// One undisturbed step, on this rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepSample {
    /// From the end of the step before to its own, milliseconds.
    pub step_ms: f64,
    /// Payload of all tensors.
    pub bytes: u64,
    /// Tensors executed.
    pub tensors: u64,
    /// Batches they travelled in.
    pub batches: u64,
    /// Cycles begun.
    pub cycles: u64,
    /// Time in negotiation, milliseconds.
    pub negotiate_ms: f64,
    /// Time in collectives, milliseconds.
    pub collective_ms: f64,
    /// Part of that spent waiting for peers, milliseconds.
    pub wait_ms: f64,
}

/// Why a step is no sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// Tensors that are not part of the step came in between, or fewer or more of them than usual.
    ForeignTraffic,
    /// It took far longer than those before it.
    Pause,
    /// The step has just been learnt, or the one before it was interrupted.
    Settling,
}

/// What happened between two ends of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// A step as usual.
    Sample(StepSample),
    /// A step that says nothing about the settings.
    Interrupted(Interruption),
}

/// The end of a step as a whole: everything that belongs to it has been executed. Unlike the anchor's, it leaves no
/// tensor of a step to the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeStep {
    /// When.
    pub ended: Nanos,
    /// Whether it consisted of what steps consist of.
    pub usual: bool,
}

/// Turns executed batches into step samples. See the module.
#[derive(Debug, Default)]
pub struct StepMeter {
    finder: PeriodFinder,
    marked: bool,
    /// End of the step before; none until the first.
    boundary: Option<Nanos>,
    /// What cycles before the one under way have executed since then.
    sums: Sums,
    /// When the cycle under way began, and what it has executed: a mark made before it is heard of after it.
    cycle_began: Nanos,
    cycle: Sums,
    /// Foreign tensors since then, and whether the period changed.
    foreign: usize,
    changed: bool,
    settling: bool,
    pauses: Pauses,
    /// The same of the step as a whole, and its end once it has come.
    whole_foreign: usize,
    whole_changed: bool,
    whole: Option<WholeStep>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    bytes: u64,
    tensors: u64,
    batches: u64,
    cycles: u64,
    negotiate_ns: u64,
    collective_ns: u64,
    wait_ns: u64,
}

impl StepMeter {
    /// Knows no steps yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A cycle that began at `began` has spent `negotiate_ns` nanoseconds on negotiation. Called before its batches.
    pub fn cycle(&mut self, began: Nanos, negotiate_ns: u64) {
        self.sums.add(&std::mem::take(&mut self.cycle));
        self.cycle_began = began;
        self.cycle.cycles += 1;
        self.cycle.negotiate_ns += negotiate_ns;
    }

    /// A batch of `tensors` has been executed. Answers if it ended a step.
    pub fn executed(
        &mut self,
        batch: &ExecutedBatch,
        tensors: impl IntoIterator<Item = Item>,
    ) -> Option<Step> {
        self.cycle.batches += 1;
        self.cycle.collective_ns += batch.collective_ns;
        self.cycle.wait_ns += batch.wait_ns;
        let (mut ends, mut wholes) = (0, 0);
        for tensor in tensors {
            self.cycle.tensors += 1;
            self.cycle.bytes += tensor.bytes();
            if self.marked {
                continue;
            }
            let seen = self.finder.observe(tensor);
            self.foreign += usize::from(seen.foreign);
            self.changed |= seen.changed;
            self.whole_foreign += usize::from(seen.foreign);
            self.whole_changed |= seen.changed;
            wholes += usize::from(seen.step_complete);
            let period = self.finder.period();
            let ended = if period.is_some_and(|period| period.anchor.is_some()) {
                seen.anchor
            } else {
                seen.step_complete
            };
            ends += usize::from(ended);
        }
        self.whole_changed |= wholes > 1;
        if wholes > 0 {
            self.end_whole(batch.ended);
        }
        if ends == 0 {
            return None;
        }
        // Two steps that ended in one batch have no length of their own.
        self.changed |= ends > 1;
        self.end_step(batch.ended)
    }

    /// The running step is not like the others, whatever it looks like.
    pub fn disturbed(&mut self) {
        self.changed = true;
        self.whole_changed = true;
    }

    /// The step that the job repeats, if it is known.
    pub fn period(&self) -> Option<Period> {
        self.finder.period()
    }

    /// The end of a step as a whole, if one has ended since the last call; of several the last, which is then not usual.
    pub fn take_whole(&mut self) -> Option<WholeStep> {
        self.whole.take()
    }

    fn end_whole(&mut self, ended: Nanos) {
        let foreign = std::mem::take(&mut self.whole_foreign);
        let changed = std::mem::take(&mut self.whole_changed);
        let usual = self.finder.period().map_or(0, |period| period.foreign);
        let usual = !changed && self.whole.is_none() && (self.marked || foreign == usual);
        self.whole = Some(WholeStep { ended, usual });
    }

    /// The caller says that a step ends now. From the first call on steps are what the caller says.
    pub fn mark_step(&mut self, now: Nanos) -> Option<Step> {
        let is_first = !std::mem::replace(&mut self.marked, true);
        self.changed |= is_first;
        self.whole_changed |= is_first;
        self.end_whole(now);
        self.end_step(now)
    }

    fn end_step(&mut self, now: Nanos) -> Option<Step> {
        if self.cycle_began < now {
            self.sums.add(&std::mem::take(&mut self.cycle));
        }
        let sums = std::mem::take(&mut self.sums);
        let foreign = std::mem::take(&mut self.foreign);
        let changed = std::mem::take(&mut self.changed);
        let began = self.boundary.replace(now)?;
        let usual = self.finder.period().map_or(0, |period| period.foreign);
        let settling = std::mem::take(&mut self.settling) || changed;
        let step_ns = now.0.saturating_sub(began.0);
        let interruption = if !self.marked && !changed && foreign != usual {
            self.settling = true;
            Some(Interruption::ForeignTraffic)
        } else if settling {
            Some(Interruption::Settling)
        } else if self.pauses.is_pause(step_ns) {
            self.settling = true;
            Some(Interruption::Pause)
        } else {
            None
        };
        Some(interruption.map_or_else(|| Step::Sample(sums.sample(step_ns)), Step::Interrupted))
    }
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.tensors += other.tensors;
        self.batches += other.batches;
        self.cycles += other.cycles;
        self.negotiate_ns += other.negotiate_ns;
        self.collective_ns += other.collective_ns;
        self.wait_ns += other.wait_ns;
    }

    fn sample(&self, step_ns: u64) -> StepSample {
        StepSample {
            step_ms: ms(step_ns),
            bytes: self.bytes,
            tensors: self.tensors,
            batches: self.batches,
            cycles: self.cycles,
            negotiate_ms: ms(self.negotiate_ns),
            collective_ms: ms(self.collective_ns),
            wait_ms: ms(self.wait_ns),
        }
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// Tells pauses from steps by the last few steps.
#[derive(Clone, Debug, Default)]
struct Pauses {
    recent_ns: [u64; Self::RECENT],
    count: usize,
    /// The step before was taken for a pause.
    paused: bool,
}

impl Pauses {
    /// Enough for a median; few enough to follow a change of settings.
    const RECENT: usize = 9;
    /// A pause is this many times the median step: settings in the tuner's range rarely differ by so much …
    const FACTOR: u64 = 4;
    /// … and longer than it by at least this: short steps are easily stretched by the scheduler alone.
    const MARGIN_NS: u64 = 50_000_000;

    fn is_pause(&mut self, step_ns: u64) -> bool {
        let mut sorted = self.recent_ns;
        sorted.sort_unstable();
        let known = self.count >= Self::RECENT;
        let limit_ns =
            (sorted[Self::RECENT / 2] * Self::FACTOR).max(sorted[Self::RECENT / 2] + Self::MARGIN_NS);
        if known && !self.paused && step_ns > limit_ns {
            self.paused = true;
            return true;
        }
        if self.paused && step_ns > limit_ns {
            // Twice in a row: this is how long steps are now.
            self.count = 0;
        }
        self.paused = false;
        self.recent_ns[self.count % Self::RECENT] = step_ns;
        self.count += 1;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::negotiation::OpKind;
    use crate::tensor::Dtype;

    const MS: u64 = 1_000_000;

    /// A job on a clock of its own: 30 tensors of 1 KiB and one of 1 MiB in a step.
    #[derive(Default)]
    struct Job {
        meter: StepMeter,
        now_ns: u64,
    }

    impl Job {
        fn batch(&mut self, after_ms: u64, items: Vec<Item>) -> Option<Step> {
            let began = Nanos(self.now_ns);
            self.now_ns += after_ms * MS;
            self.meter.cycle(began, MS / 4);
            let batch = ExecutedBatch {
                ended: Nanos(self.now_ns),
                collective_ns: 2 * MS,
                wait_ns: MS,
            };
            self.meter.executed(&batch, items)
        }

        fn gradients(range: std::ops::Range<usize>) -> Vec<Item> {
            let elements = |tensor| if tensor == 30 { 1 << 18 } else { 256 };
            range
                .map(|t| Item::new(&format!("g{t}"), OpKind::Allreduce, Dtype::F32, elements(t)))
                .collect()
        }

        /// A step in two batches, the second of which has the anchor.
        fn step(&mut self, step_ms: u64) -> Option<Step> {
            let first = self.batch(step_ms / 2, Self::gradients(0..20));
            assert_eq!(first, None);
            self.batch(step_ms - step_ms / 2, Self::gradients(20..31))
        }

        fn learnt() -> Self {
            let mut job = Self::default();
            let answers: Vec<_> = (0..5).map(|_| job.step(20)).collect();
            assert_eq!(answers, [None; 5]);
            job
        }
    }

    fn sample_ms(step: Option<Step>) -> f64 {
        match step {
            Some(Step::Sample(sample)) => sample.step_ms,
            other => panic!("{other:?}"),
        }
    }

    fn interrupted(reason: Interruption) -> Option<Step> {
        Some(Step::Interrupted(reason))
    }

    #[test]
    fn a_step_is_measured_from_anchor_to_anchor() {
        let sample = StepSample {
            step_ms: 20.0,
            bytes: 30 * 1024 + (1 << 20),
            tensors: 31,
            batches: 2,
            cycles: 2,
            negotiate_ms: 0.5,
            collective_ms: 4.0,
            wait_ms: 2.0,
        };
        let mut job = Job::learnt();
        assert_eq!(job.step(20), Some(Step::Sample(sample)));
        assert_eq!(sample_ms(job.step(26)), 26.0);
    }

    #[test]
    fn validation_and_broadcasts_feed_no_sample_nor_does_the_step_after() {
        let mut job = Job::learnt();
        let loss = || vec![Item::new("validation", OpKind::Allreduce, Dtype::F32, 1)];
        let weights = || vec![Item::new("w", OpKind::Broadcast, Dtype::F32, 1 << 20)];
        for traffic in [loss, weights] {
            assert_eq!(sample_ms(job.step(20)), 20.0);
            for _ in 0..50 {
                assert_eq!(job.batch(10, traffic()), None);
            }
            assert_eq!(job.step(20), interrupted(Interruption::ForeignTraffic));
            assert_eq!(job.step(20), interrupted(Interruption::Settling));
        }
        assert_eq!(sample_ms(job.step(20)), 20.0);
    }

    #[test]
    fn a_pause_feeds_no_sample_but_slow_steps_do() {
        let mut job = Job::learnt();
        for _ in 0..12 {
            job.step(20);
        }
        assert_eq!(job.step(900), interrupted(Interruption::Pause));
        assert_eq!(job.step(20), interrupted(Interruption::Settling));
        assert_eq!(sample_ms(job.step(20)), 20.0);
        assert_eq!(job.step(200), interrupted(Interruption::Pause));
        assert_eq!(job.step(200), interrupted(Interruption::Settling));
        for _ in 0..20 {
            assert_eq!(sample_ms(job.step(200)), 200.0);
        }
    }

    #[test]
    fn another_set_of_tensors_is_measured_once_it_is_learnt() {
        let mut job = Job::learnt();
        job.step(20);
        let mut small = || job.batch(7, Job::gradients(0..20));
        let answers: Vec<_> = (0..12).map(|_| small()).collect();
        assert!(
            answers[..4]
                .iter()
                .all(|answer| !matches!(answer, Some(Step::Sample(_))))
        );
        assert_eq!(sample_ms(answers[11]), 7.0);
    }

    #[test]
    fn marked_steps_override_what_was_found() {
        let mut job = Job::learnt();
        assert_eq!(sample_ms(job.step(20)), 20.0);
        job.now_ns += 3 * MS;
        assert_eq!(
            job.meter.mark_step(Nanos(job.now_ns)),
            interrupted(Interruption::Settling)
        );
        assert_eq!(job.step(20), None);
        assert_eq!(job.step(20), None);
        let Some(Step::Sample(sample)) = job.meter.mark_step(Nanos(job.now_ns)) else {
            panic!("no sample");
        };
        assert_eq!((sample.step_ms, sample.tensors, sample.batches), (40.0, 62, 4));
    }

    #[test]
    fn what_moves_after_a_mark_belongs_to_the_next_step() {
        let mut job = Job::default();
        let mut tensors = Vec::new();
        for step in 0..6 {
            // The mark is heard of at the end of a cycle that has moved tensors of the next step, more of them each time.
            let mark = Nanos(job.now_ns);
            job.now_ns += MS;
            job.batch(10, Job::gradients(0..1 + step));
            if let Some(Step::Sample(sample)) = job.meter.mark_step(mark) {
                tensors.push((sample.tensors, sample.batches, sample.cycles));
            }
            job.batch(10, Job::gradients(1 + step..31));
        }
        assert_eq!(tensors, [(31, 2, 2); 5]); // the first mark ends nothing
    }
}
