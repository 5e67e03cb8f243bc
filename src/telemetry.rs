//! What a rank records of its cycles: the timeline, step metrics, the tuner and the stall inspector, behind the
//! cycle's one [`Observer`]. Metrics and tuner live on rank 0; the other ranks keep the settings in view, and may record a
//! timeline of their own.
//!
//! Of a process set other than that of all ranks, the lowest rank looks for stalls; settings come from the set of all
//! ranks. The tuner knows that one alone; on the timeline each set has a track.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;

use crate::autotune::{Autotune, Progress};
use crate::clock::{Alignment, Clock, Nanos};
use crate::cycle::Cycle;
use crate::error::Error;
use crate::knobs::Knobs;
use crate::negotiation::OpKind;
use crate::negotiation::stall::{Outstanding, StallInspector};
use crate::observer::{CycleEnd, Executed, Observer};
use crate::queue::{Submission, Tensor};
use crate::settings::Settings;
use crate::timeline::event::{Activity, BatchRecord, Member, Order, TensorId};
use crate::timeline::metrics::{ExecutedBatch, Step, StepMeter};
use crate::timeline::{Timeline, Track};

/// See the module.
pub(crate) struct Telemetry {
    clock: Arc<dyn Clock>,
    progress: Arc<Progress>,
    /// Those last shown to callers; none before the first cycle.
    settings: Option<Settings>,
    track: Track,
    /// When the ranks had agreed on the cycle under way.
    agreed: Nanos,
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
    /// A log that cannot be written.
    pub(crate) fn new(
        knobs: &Knobs,
        rank: usize,
        size: usize,
        clock: Arc<dyn Clock>,
        progress: Arc<Progress>,
        timeline: &Arc<Timeline>,
        quiet: bool,
    ) -> Result<Self, Error> {
        let first = rank == 0;
        let tuning = (knobs.autotune && first)
            .then(|| Tuning::new(knobs, &progress, quiet))
            .transpose()?;
        Ok(Self {
            clock,
            progress,
            settings: None,
            track: timeline.track(None, rank),
            agreed: Nanos(0),
            tuning,
            stalls: (first && size > 1).then(|| stall_inspector(knobs)).flatten(),
            follows: false,
        })
    }

    /// The telemetry of the process set `set` of `size` ranks, in which this rank is number `rank`.
    pub(crate) fn of_process_set(
        knobs: &Knobs,
        set: u32,
        rank: usize,
        size: usize,
        clock: Arc<dyn Clock>,
        progress: Arc<Progress>,
        timeline: &Arc<Timeline>,
    ) -> Self {
        Self {
            clock,
            progress,
            settings: None,
            track: timeline.track(Some(set), rank),
            agreed: Nanos(0),
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
fn timeline_id(track: &mut Track, tensor: &Tensor) -> TensorId {
    match tensor.timeline_id.load(Ordering::Relaxed) {
        u32::MAX => {
            let id = track.tensor(&tensor.name);
            tensor.timeline_id.store(id.number(), Ordering::Relaxed);
            id
        }
        number => TensorId::from_number(number),
    }
}

/// Records an executed batch; `agreed` is when the ranks had agreed on its cycle.
fn record(track: &mut Track, batch: &Executed<'_>, agreed: Nanos) {
    let op = batch.members[0].submission.params.kind;
    if op == OpKind::Agree {
        return;
    }
    for member in batch.members {
        timeline_id(track, &member.submission.tensor); // registers what is new, before the record borrows the names
    }
    let activities = activities(batch);
    let record = BatchRecord {
        op,
        agreed,
        began: batch.began,
        ended: batch.ended,
        activities: &activities,
        phases: batch.phases,
    };
    let rank = track.timeline().rank();
    let members = batch.members.iter().map(|member| {
        let Submission {
            tensor, params, at, ..
        } = &member.submission;
        Member {
            tensor: TensorId::from_number(tensor.timeline_id.load(Ordering::Relaxed)),
            submitted: (!member.submission.is_absent()).then_some(*at),
            output: member.output_dimensions(rank).map(|shape| (params.dtype, shape)),
        }
    });
    track.executed(&record, members);
}

/// What happened while a batch was executed, one after another: of a streaming collective the parts that do not overlap
/// with others ([`horovod`](crate::timeline::horovod)).
fn activities(batch: &Executed<'_>) -> SmallVec<[Activity; 4]> {
    let mut activities = SmallVec::new();
    let mut put = |name, began, ended, measured| {
        activities.push(Activity {
            name,
            began,
            ended,
            measured,
        });
    };
    if let Some(allocated) = batch.allocated {
        put("ALLOCATE_OUTPUT", batch.began, allocated, false);
    }
    let Some(collective) = batch.activity else {
        return activities;
    };
    let moved_from = batch.allocated.unwrap_or(batch.began);
    let phases = &batch.phases;
    let copied_in = (moved_from + Duration::from_nanos(phases.lead_in_ns)).min(batch.ended);
    let tail_ns = phases
        .tail_out_ns
        .min((batch.ended - copied_in).as_nanos() as u64);
    let reduced = Nanos(batch.ended.0 - tail_ns);
    if phases.lead_in_ns > 0 {
        put("MEMCPY_IN_FUSION_BUFFER", moved_from, copied_in, false);
    }
    put(collective, copied_in, reduced, true);
    if tail_ns > 0 {
        put("MEMCPY_OUT_FUSION_BUFFER", reduced, batch.ended, false);
    }
    activities
}

impl Observer for Telemetry {
    fn cycle_began(&mut self, now: Nanos) {
        self.track.begin_cycle(now);
    }

    fn negotiated(&mut self, tensor: &Tensor, kind: OpKind, ready_us: &mut dyn Iterator<Item = Option<u64>>) {
        if self.track.is_on() && kind != OpKind::Agree {
            let ended = self.clock.now();
            let id = timeline_id(&mut self.track, tensor);
            let ticks = ready_us.enumerate().filter_map(|(rank, us)| Some((rank, us?)));
            self.track.negotiated(id, kind, ticks, ended);
        }
    }

    fn agreed(&mut self, began: Nanos, now: Nanos, joined: bool) {
        self.agreed = now;
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
        if self.track.is_on() {
            record(&mut self.track, batch, self.agreed);
        }
    }

    fn refused(&mut self, tensor: &Tensor, _error: &Error) {
        if self.track.is_on() {
            let id = timeline_id(&mut self.track, tensor);
            let now = self.clock.now();
            self.track.error(id, now, now);
        }
    }

    fn ordered(&mut self, order: &Order) -> Result<(), Error> {
        // The cycle has ended. Nothing of it may come to a recording that begins now.
        self.track.interrupt();
        self.track.timeline().obey(order)
    }

    fn aligned(&mut self, alignment: &Alignment) {
        self.track.timeline().align(alignment);
    }

    fn cycle_ended(&mut self, cycle: &CycleEnd) -> Option<Settings> {
        self.track.mark_steps(&cycle.step_marks);
        self.track.mark_epochs(&cycle.epoch_marks);
        if self.follows {
            self.track.end_cycle();
            let newest = self.progress.agreed_settings();
            return newest.filter(|newest| newest.version > cycle.settings.version);
        }
        if self.settings != Some(cycle.settings) {
            self.settings = Some(cycle.settings);
            self.track.settings(cycle.settings, self.agreed);
            self.progress.set_settings(cycle.settings);
        }
        self.track.end_cycle();
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

impl Drop for Telemetry {
    /// The set of all ranks ends last: with it the timeline is complete and closed, whatever becomes of the process.
    fn drop(&mut self) {
        if !self.follows {
            self.track.interrupt();
            self.track.timeline().finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::MonotonicClock;
    use crate::collective::Phases;
    use crate::timeline::Options;

    #[test]
    fn a_process_set_takes_over_what_the_set_of_all_ranks_has_changed_to() {
        let progress = Arc::<Progress>::default();
        let knobs = Knobs::default();
        let clock = Arc::new(MonotonicClock);
        let timeline = Timeline::new(Options::default(), &MonotonicClock).unwrap();
        let mut telemetry =
            Telemetry::of_process_set(&knobs, 1, 1, 2, clock, Arc::clone(&progress), &timeline);
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

    #[test]
    fn the_parts_of_a_streaming_collective_that_do_not_overlap_follow_one_another() {
        let parts = |lead_in_ns, tail_out_ns, allocated: Option<u64>| {
            let batch = Executed {
                members: &[],
                activity: Some("SHM_ALLGATHER"),
                began: Nanos(100),
                allocated: allocated.map(Nanos),
                ended: Nanos(200),
                phases: Phases {
                    lead_in_ns,
                    tail_out_ns,
                    ..Phases::default()
                },
            };
            let activities = activities(&batch);
            let spans = activities
                .iter()
                .map(|activity| (activity.name, activity.began.0, activity.ended.0));
            assert_eq!(activities.iter().filter(|activity| activity.measured).count(), 1);
            spans.collect::<Vec<_>>()
        };
        let (copy_in, copy_out) = ("MEMCPY_IN_FUSION_BUFFER", "MEMCPY_OUT_FUSION_BUFFER");
        assert_eq!(parts(0, 0, None), [("SHM_ALLGATHER", 100, 200)]);
        assert_eq!(
            parts(30, 20, Some(110)),
            [
                ("ALLOCATE_OUTPUT", 100, 110),
                (copy_in, 110, 140),
                ("SHM_ALLGATHER", 140, 180),
                (copy_out, 180, 200)
            ]
        );
        // More than there was: the clocks of the two sides are read at different times.
        assert_eq!(
            parts(80, 30, None),
            [
                (copy_in, 100, 180),
                ("SHM_ALLGATHER", 180, 180),
                (copy_out, 180, 200)
            ]
        );
    }
}
