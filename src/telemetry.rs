//! What a rank records of its cycles: the timeline, step metrics, the tuner and the stall inspector, behind the
//! cycle's one [`Observer`]. All of it lives on rank 0; the other ranks only keep the settings in view.
//!
//! Of a process set other than that of all ranks, the lowest rank looks for stalls; settings come from the set of all
//! ranks. Timeline and tuner know that one alone.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;

use crate::autotune::{Autotune, Progress};
use crate::clock::{Clock, Nanos};
use crate::cycle::Cycle;
use crate::error::Error;
use crate::knobs::Knobs;
use crate::negotiation::OpKind;
use crate::negotiation::stall::{Outstanding, StallInspector};
use crate::observer::{CycleEnd, Executed, Observer};
use crate::queue::{Submission, Tensor};
use crate::settings::Settings;
use crate::timeline::event::{Activity, BatchRecord, Member, TensorId};
use crate::timeline::metrics::{ExecutedBatch, Step, StepMeter};
use crate::timeline::recorder::Recorder;

/// See the module.
pub(crate) struct Telemetry {
    clock: Arc<dyn Clock>,
    progress: Arc<Progress>,
    /// Those last shown to callers; none before the first cycle.
    settings: Option<Settings>,
    recorder: Option<Recorder>,
    tuning: Option<Tuning>,
    stalls: Option<StallInspector>,
    /// Whether settings are those of the set of all ranks, to be taken over.
    follows: bool,
}

struct Tuning {
    meter: StepMeter,
    autotune: Autotune,
    /// Settings to begin with, until they have been asked for.
    start: Option<Settings>,
    next: Option<Settings>,
}

impl Telemetry {
    /// The telemetry of rank `rank`, as the knobs want it.
    ///
    /// # Errors
    /// A timeline or log that cannot be written.
    pub(crate) fn new(
        knobs: &Knobs,
        rank: usize,
        size: usize,
        clock: Arc<dyn Clock>,
        progress: Arc<Progress>,
        quiet: bool,
    ) -> Result<Self, Error> {
        let first = rank == 0;
        let recorder = knobs.timeline_path().filter(|_| first).map(|path| {
            Recorder::create(path, knobs.timeline_mark_cycles, clock.now()).map_err(|error| Error::Output {
                what: "the timeline",
                path: path.to_owned(),
                variable: "HOROVOD_TIMELINE",
                source: Arc::new(error),
            })
        });
        let tuning = (knobs.autotune && first)
            .then(|| Tuning::new(knobs, &progress, quiet))
            .transpose()?;
        Ok(Self {
            clock,
            progress,
            settings: None,
            recorder: recorder.transpose()?,
            tuning,
            stalls: (first && size > 1).then(|| stall_inspector(knobs)).flatten(),
            follows: false,
        })
    }

    /// The telemetry of a process set of `size` ranks, in which this rank is number `rank`.
    pub(crate) fn of_process_set(
        knobs: &Knobs,
        rank: usize,
        size: usize,
        clock: Arc<dyn Clock>,
        progress: Arc<Progress>,
    ) -> Self {
        Self {
            clock,
            progress,
            settings: None,
            recorder: None,
            tuning: None,
            stalls: (rank == 0 && size > 1).then(|| stall_inspector(knobs)).flatten(),
            follows: true,
        }
    }
}

/// What the knobs say about stalls.
fn stall_inspector(knobs: &Knobs) -> Option<StallInspector> {
    let shutdown = (knobs.stall_shutdown_seconds > 0).then_some(knobs.stall_shutdown_seconds);
    (!knobs.stall_check_disable).then(|| {
        StallInspector::new(
            Duration::from_secs(knobs.stall_warning_seconds),
            shutdown.map(Duration::from_secs),
        )
    })
}

impl Tuning {
    fn new(knobs: &Knobs, progress: &Arc<Progress>, quiet: bool) -> Result<Self, Error> {
        let autotune = Autotune::new(knobs, Arc::clone(progress), quiet)?;
        let start = Some(autotune.start());
        Ok(Self {
            meter: StepMeter::new(),
            autotune,
            start,
            next: None,
        })
    }

    fn executed(&mut self, batch: &Executed<'_>) {
        let collective_ns = (batch.ended - batch.began).as_nanos() as u64;
        let executed = ExecutedBatch {
            ended: batch.ended,
            collective_ns,
            wait_ns: batch.phases.wait_ns,
        };
        let items = batch.members.iter().map(|member| member.submission.item);
        let step = self.meter.executed(&executed, items);
        self.take(step);
    }

    fn take(&mut self, step: Option<Step>) {
        if let Some(Step::Sample(sample)) = step {
            // A change waits for the end of the cycle; a later one in the same cycle replaces it.
            self.next = self.autotune.on_step(&sample).or(self.next.take());
        }
    }

    fn cycle_ended(&mut self, cycle: &CycleEnd) -> Option<Settings> {
        for &mark in &cycle.step_marks {
            let step = self.meter.mark_step(mark);
            self.take(step);
        }
        self.start
            .take()
            .filter(|start| !start.equals(&cycle.settings))
            .or_else(|| self.next.take())
    }
}

/// The tensor's number on the timeline; asked for once.
fn timeline_id(recorder: &mut Recorder, tensor: &Tensor) -> TensorId {
    match tensor.timeline_id.load(Ordering::Relaxed) {
        u32::MAX => {
            let id = recorder.tensor(&tensor.name);
            tensor.timeline_id.store(id.number(), Ordering::Relaxed);
            id
        }
        number => TensorId::from_number(number),
    }
}

impl Observer for Telemetry {
    fn cycle_began(&mut self, now: Nanos) {
        if let Some(recorder) = &mut self.recorder {
            recorder.begin_cycle(now);
        }
    }

    fn negotiated(&mut self, tensor: &Tensor, kind: OpKind, ready_us: &mut dyn Iterator<Item = Option<u64>>) {
        if let Some(recorder) = self.recorder.as_mut().filter(|_| kind != OpKind::Agree) {
            let ended = self.clock.now();
            let id = timeline_id(recorder, tensor);
            let tick = |(rank, us): (usize, Option<u64>)| Some((rank, Nanos(us? * 1_000)));
            let ticks: SmallVec<[(usize, Nanos); 8]> = ready_us.enumerate().filter_map(tick).collect();
            let began = ticks.iter().map(|&(_, at)| at).min().unwrap_or(ended);
            recorder.negotiated(id, kind, began, ticks.into_iter(), ended);
        }
    }

    fn agreed(&mut self, began: Nanos, now: Nanos, joined: bool) {
        if let Some(tuning) = &mut self.tuning {
            tuning.meter.cycle((now - began).as_nanos() as u64);
            if joined {
                tuning.meter.disturbed(); // a step without all ranks is no sample
            }
        }
    }

    fn executed(&mut self, batch: &Executed<'_>) {
        if let Some(tuning) = &mut self.tuning {
            tuning.executed(batch);
        }
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        let op = batch.members[0].submission.params.kind;
        if op == OpKind::Agree {
            return;
        }
        let moved_from = batch.allocated.unwrap_or(batch.began);
        let allocation = batch.allocated.map(|ended| Activity {
            name: "ALLOCATE_OUTPUT",
            began: batch.began,
            ended,
        });
        let movement = batch.activity.map(|name| Activity {
            name,
            began: moved_from,
            ended: batch.ended,
        });
        let activities: SmallVec<[Activity; 2]> = allocation.into_iter().chain(movement).collect();
        let record = BatchRecord {
            op,
            began: batch.began,
            ended: batch.ended,
            activities: &activities,
        };
        for member in batch.members {
            timeline_id(recorder, &member.submission.tensor); // registers what is new, before the record borrows the names
        }
        let members = batch.members.iter().map(|member| {
            let Submission { tensor, params, .. } = &member.submission;
            Member {
                tensor: TensorId::from_number(tensor.timeline_id.load(Ordering::Relaxed)),
                output: member.output_dimensions(0).map(|shape| (params.dtype, shape)),
            }
        });
        recorder.executed(&record, members);
    }

    fn refused(&mut self, tensor: &Tensor, _error: &Error) {
        if let Some(recorder) = &mut self.recorder {
            let id = timeline_id(recorder, tensor);
            let now = self.clock.now();
            recorder.error(id, now, now);
        }
    }

    fn cycle_ended(&mut self, cycle: &CycleEnd) -> Option<Settings> {
        if let Some(recorder) = &mut self.recorder {
            recorder.end_cycle();
        }
        if self.follows {
            let newest = self.progress.agreed_settings();
            return newest.filter(|newest| newest.version > cycle.settings.version);
        }
        if self.settings != Some(cycle.settings) {
            self.settings = Some(cycle.settings);
            self.progress.set_settings(cycle.settings);
        }
        self.tuning.as_mut()?.cycle_ended(cycle)
    }

    fn look_at_stalls(&mut self, now: Nanos, cycle: &Cycle) -> Result<Option<Nanos>, Error> {
        let Some(stalls) = &mut self.stalls else {
            return Ok(None);
        };
        let mut names: Vec<(String, Nanos, Vec<usize>)> = Vec::new();
        cycle.outstanding(|name, since, missing| names.push((name.to_owned(), since, missing)));
        if names.is_empty() {
            return Ok(None);
        }
        let outstanding = names.iter().map(|(tensor, since, missing)| Outstanding {
            tensor,
            since: *since,
            missing: missing.iter().copied(),
        });
        let report = stalls.check(now, outstanding);
        match (report.text, &report.error) {
            (Some(text), None) => tracing::warn!("{text}"),
            (Some(text), Some(_)) => tracing::error!("{text}"),
            (None, _) => {}
        }
        report.error.map_or(Ok(Some(stalls.next_check())), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::MonotonicClock;

    #[test]
    fn a_process_set_takes_over_what_the_set_of_all_ranks_has_changed_to() {
        let progress = Arc::<Progress>::default();
        let knobs = Knobs::default();
        let clock = Arc::new(MonotonicClock);
        let mut telemetry = Telemetry::of_process_set(&knobs, 1, 2, clock, Arc::clone(&progress));
        let of = |version, cycle_time_ns| Settings {
            version,
            cycle_time_ns,
            ..Settings::default()
        };
        let mut ended = |settings| {
            telemetry.cycle_ended(&CycleEnd {
                settings,
                step_marks: Vec::new(),
                epoch_marks: Vec::new(),
            })
        };
        assert_eq!(ended(of(0, 700)), None); // nothing is agreed on yet
        progress.set_settings(of(0, 500)); // rank 0's environment says otherwise than this rank's
        assert_eq!(ended(of(0, 700)), Some(of(1, 500)));
        progress.set_settings(of(3, 600));
        assert_eq!(ended(of(1, 500)), Some(of(4, 600)));
        assert_eq!(ended(of(4, 600)), None);
        assert_eq!(ended(of(5, 900)), None); // another member knew first
    }
}
