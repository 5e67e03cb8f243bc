//! What a rank records of its cycles: the timeline, step metrics, the tuner and the stall inspector, behind the
//! cycle's one [`Observer`]. All of it lives on rank 0; the other ranks only keep the settings in view.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use crate::autotune::{Autotune, Progress};
use crate::clock::{Clock, Nanos};
use crate::cycle::{Cycle, CycleEnd, Executed, Observer};
use crate::error::Error;
use crate::knobs::Knobs;
use crate::negotiation::OpKind;
use crate::negotiation::stall::{Outstanding, StallInspector};
use crate::queue::Tensor;
use crate::settings::Settings;
use crate::timeline::event::{Activity, BatchRecord, Member, TensorId};
use crate::timeline::metrics::StepMeter;
use crate::timeline::period::Item;
use crate::timeline::recorder::Recorder;

/// See the module.
pub(crate) struct Telemetry {
    clock: Arc<dyn Clock>,
    progress: Arc<Progress>,
    settings: Settings,
    recorder: Option<Recorder>,
    tuning: Option<Tuning>,
    stalls: Option<StallInspector>,
    size: usize,
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
        let tuning = (knobs.autotune && first).then(|| Tuning::new(knobs, &progress, quiet)).transpose()?;
        let stalls = (first && size > 1 && !knobs.stall_check_disable)
            .then(|| StallInspector::new(knobs.stall_warning_seconds, knobs.stall_shutdown_seconds, clock.now()));
        let settings = Settings::default();
        Ok(Self { clock, progress, settings, recorder: recorder.transpose()?, tuning, stalls, size })
    }
}

impl Tuning {
    fn new(knobs: &Knobs, progress: &Arc<Progress>, quiet: bool) -> Result<Self, Error> {
        let autotune = Autotune::new(knobs, Arc::clone(progress), quiet)?;
        let start = Some(autotune.start());
        Ok(Self { meter: StepMeter::new(), autotune, start, next: None })
    }
}

impl Observer for Telemetry {
    fn cycle_began(&mut self, now: Nanos) {
        if let Some(recorder) = &mut self.recorder {
            recorder.begin_cycle(now);
        }
    }

    fn negotiated(&mut self, tensor: &Tensor, kind: OpKind, ready_us: &mut dyn Iterator<Item = Option<u64>>) {
        if let Some(recorder) = &mut self.recorder {
            let ended = self.clock.now();
            let id = timeline_id(recorder, tensor);
            let tick = |(rank, us): (usize, Option<u64>)| Some((rank, Nanos(us? * 1_000)));
            let ticks: SmallVec<[(usize, Nanos); 8]> = ready_us.enumerate().filter_map(tick).collect();
            let began = ticks.iter().map(|&(_, at)| at).min().unwrap_or(ended);
            recorder.negotiated(id, kind, began, ticks.into_iter(), ended);
        }
    }

    fn executed(&mut self, batch: &Executed<'_>) {
        if let Some(tuning) = &mut self.tuning {
            tuning.executed(batch);
        }
        let Some(recorder) = &mut self.recorder else { return };
        let activity = batch.activity.map(|name| Activity { name, began: batch.began, ended: batch.ended });
        let op = batch.members[0].params.kind;
        let record =
            BatchRecord { op, began: batch.began, ended: batch.ended, activities: activity.as_slice() };
        for member in batch.members {
            timeline_id(recorder, &member.tensor); // registers what is new, before the record borrows the names
        }
        let members = batch.members.iter().map(|member| Member {
            tensor: TensorId::from_number(member.tensor.timeline_id.load(Ordering::Relaxed)),
            output: (op != OpKind::Barrier).then_some((member.params.dtype, &member.params.shape[..])),
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
        if cycle.settings != self.settings || cycle.settings.version == 0 {
            self.settings = cycle.settings;
            self.progress.set_settings(cycle.settings);
        }
        self.tuning.as_mut()?.cycle_ended(cycle)
    }

    fn look_at_stalls(&mut self, now: Nanos, cycle: &Cycle) -> Result<Option<Nanos>, Error> {
        let Some(stalls) = &mut self.stalls else { return Ok(None) };
        let mut outstanding = Vec::new();
        cycle.outstanding(|name, ready_us| {
            let ready_us: Vec<Option<u64>> = ready_us.collect();
            let since_us = ready_us.iter().flatten().min().copied().unwrap_or(now.as_micros());
            let missing = (0..self.size).filter(|&rank| ready_us.get(rank).copied().flatten().is_none()).collect();
            outstanding.push(Outstanding { tensor: name.to_owned(), since: Nanos(since_us * 1_000), missing });
        });
        stalls.check(now, &outstanding)
    }
}
