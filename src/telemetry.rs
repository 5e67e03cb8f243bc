//! Telemetry of a rank: passes the events of the cycle's one [`Observer`] to the timeline, the
//! tuner, the stall inspector, the metrics and the live page. Rank 0 runs the tuner; the other
//! ranks track the settings, measure their waits for metrics and page, and may record a timeline of
//! their own.
//!
//! In other process sets, the lowest rank detects stalls; settings come from the set of all ranks.
//! The tuner uses the set of all ranks only; on the timeline each set has a track.

use std::sync::Arc;

use crate::autotune::{Progress, Purpose, Tuning};
use crate::clock::{Alignment, Clock, Nanos};
use crate::cycle::Stalls;
use crate::error::Error;
use crate::identity::{Hosts, Identity};
use crate::knobs::Knobs;
use crate::negotiation::OpKind;
use crate::observer::{
    Agreed, CycleEnd, Executed, Negotiated, Observer, Pending, ReadyTimes, StallCheck, WantedTimes,
};
use crate::queue::Tensor;
use crate::settings::{Settings, Versioned};
use crate::timeline::{Timeline, TimelineCommand, Track};

mod lateness;
mod recording;
mod step_ends;
mod watchers;

use lateness::Lateness;
pub(crate) use step_ends::StepEnd;
pub(crate) use watchers::Watchers;

/// Telemetry of one process set on this rank.
pub(crate) struct Telemetry {
    clock: Arc<dyn Clock>,
    /// Settings last written to the timeline; `None` before the first cycle.
    settings: Option<Versioned<Settings>>,
    track: Track,
    /// Time at which the ranks agreed on the current cycle.
    agreed: Nanos,
    tuning: Option<Tuning>,
    stalls: Option<Stalls>,
    /// On rank 0 of the set of all ranks.
    lateness: Option<Lateness>,
    /// In the set of all ranks, if the job has metrics or a live page.
    watchers: Option<Watchers>,
    /// Job ranks of a process set other than that of all ranks. It follows the latter, which alone
    /// records settings.
    members: Option<Arc<[usize]>>,
}

impl Telemetry {
    /// Creates the telemetry of this rank as configured by the knobs.
    ///
    /// # Errors
    /// A log that cannot be written.
    pub(crate) fn new(
        knobs: &Knobs,
        &Identity {
            rank,
            size,
            local_size,
            ..
        }: &Identity,
        clock: Arc<dyn Clock>,
        progress: Arc<Progress>,
        timeline: &Arc<Timeline>,
        quiet: bool,
    ) -> Result<Self, Error> {
        let first = rank == 0;
        // From the launcher's variables, until the rendezvous is complete.
        let hosts = Hosts {
            count: size.div_ceil(local_size),
            least: local_size,
            most: local_size,
        };
        let tuning = (knobs.autotune && first)
            .then(|| Tuning::new(knobs, (size, hosts), &progress, quiet))
            .transpose()?;
        Ok(Self {
            clock,
            settings: None,
            track: timeline.track(None, rank),
            agreed: Nanos(0),
            tuning,
            stalls: stalls(knobs, rank, size),
            lateness: (first && size > 1).then(|| Lateness::new(size)),
            watchers: None,
            members: None,
        })
    }

    /// Adds the watchers of this rank.
    pub(crate) fn with_watchers(mut self, watchers: Option<Watchers>) -> Self {
        self.watchers = watchers;
        self
    }

    /// Creates the telemetry of the process set `set` of the job ranks `members`, in which this rank
    /// is number `rank`.
    pub(crate) fn of_process_set(
        knobs: &Knobs,
        set: u32,
        rank: usize,
        members: &Arc<[usize]>,
        clock: Arc<dyn Clock>,
        timeline: &Arc<Timeline>,
    ) -> Self {
        Self {
            clock,
            settings: None,
            track: timeline.track(Some(set), rank),
            agreed: Nanos(0),
            tuning: None,
            stalls: stalls(knobs, rank, members.len()),
            lateness: None,
            watchers: None,
            members: Some(Arc::clone(members)),
        }
    }
}

/// Returns the stall inspector that the knobs enable, on rank `rank` of a set of `size`.
fn stalls(knobs: &Knobs, rank: usize, size: usize) -> Option<Stalls> {
    if knobs.stall_check_disable {
        return None;
    }
    Stalls::new(rank, size, knobs.stall_warning(), knobs.stall_shutdown())
}

impl Observer for Telemetry {
    fn connected(&mut self, hosts: Hosts) {
        if let Some(tuning) = &mut self.tuning {
            tuning.connected(hosts);
        }
        if let Some(watchers) = &mut self.watchers {
            watchers.connected(hosts);
        }
    }

    fn wanted_times(&self) -> WantedTimes {
        match &self.tuning {
            _ if self.track.is_on() => WantedTimes::OfRanks,
            Some(tuning) if tuning.wants_times() => WantedTimes::Range,
            _ => WantedTimes::None,
        }
    }

    fn cycle_began(&mut self, now: Nanos) {
        self.track.begin_cycle(now);
    }

    fn negotiated(&mut self, negotiated: &Negotiated<'_>, ready: ReadyTimes<'_>) {
        let (mut first_us, mut last_us) = (u64::MAX, 0);
        let mut no_ranks = std::iter::empty();
        let ready_us = match ready {
            ReadyTimes::OfRanks(ready_us) => ready_us,
            ReadyTimes::Range {
                first_us: first,
                last_us: last,
            } => {
                (first_us, last_us) = (first, last);
                &mut no_ranks
            }
        };
        let members = self.members.as_deref();
        let job_rank = |rank: usize| members.map_or(rank, |members| members[rank]);
        let ticks = ready_us
            .enumerate()
            .filter_map(|(rank, us)| Some((job_rank(rank), us?)));
        let ticks = ticks.inspect(|&(_, us)| {
            (first_us, last_us) = (first_us.min(us), last_us.max(us));
        });
        if self.track.is_on() && negotiated.kind != OpKind::Agree {
            let ended = self.clock.now();
            let id = recording::timeline_id(&mut self.track, negotiated.tensor);
            self.track.negotiated(id, negotiated.kind, ticks, ended);
        } else if self.tuning.is_some() {
            ticks.for_each(drop);
        }
        if let Some(tuning) = &mut self.tuning
            && first_us <= last_us
        {
            let nanos = |us: u64| Nanos(us.saturating_mul(1_000));
            tuning.negotiated(negotiated, nanos(first_us), nanos(last_us));
        }
    }

    fn agreed(&mut self, agreed: &Agreed) {
        self.agreed = agreed.ended;
        if let Some(lateness) = &mut self.lateness {
            agreed.last.iter().for_each(|last| lateness.add(last));
        }
        if let Some(tuning) = &mut self.tuning {
            tuning.agreed(agreed.began, agreed.ended, agreed.has_joined);
        }
        if let Some(watchers) = &mut self.watchers {
            watchers.agreed(agreed);
        }
    }

    fn executed(&mut self, batch: &Executed<'_>) {
        if let Some(tuning) = &mut self.tuning {
            tuning.executed(batch);
        }
        // A batch on a device may have been agreed on in an earlier cycle.
        let agreed = self.agreed.min(batch.began);
        if let Some(watchers) = &mut self.watchers {
            watchers.executed(batch, agreed);
        }
        if self.track.is_on() {
            recording::record(&mut self.track, batch, agreed);
        }
    }

    fn refused(&mut self, tensor: &Tensor, _error: &Error) {
        if let Some(tuning) = &mut self.tuning {
            tuning.refused(tensor);
        }
        if self.track.is_on() {
            let id = recording::timeline_id(&mut self.track, tensor);
            let now = self.clock.now();
            self.track.error(id, now, now);
        }
    }

    fn apply_timeline_command(&mut self, command: &TimelineCommand) -> Result<(), Error> {
        // The cycle has ended. A recording that begins now contains nothing of it.
        self.track.interrupt();
        let outcome = self.track.timeline().apply(command);
        if let Some(watchers) = &mut self.watchers {
            watchers.timeline_command(command, &outcome);
        }
        outcome
    }

    fn aligned(&mut self, alignment: &Alignment) {
        self.track.timeline().align(alignment);
    }

    fn cycle_ended(&mut self, cycle: &CycleEnd) -> Option<Settings> {
        self.track.mark_steps(&cycle.step_marks);
        self.track.mark_epochs(&cycle.epoch_marks);
        if self.members.is_none() && self.settings != Some(cycle.settings) {
            self.settings = Some(cycle.settings);
            self.track.settings(cycle.settings.value, self.agreed);
        }
        self.track.end_cycle();
        let tuning = self.tuning.as_mut();
        let next = tuning.and_then(|tuning| tuning.cycle_ended(cycle));
        if let Some(watchers) = &mut self.watchers {
            let tuning = self.tuning.as_ref();
            watchers.cycle_ended(cycle, tuning.map_or(Purpose::None, Tuning::purpose));
        }
        next
    }

    fn ended(&mut self, error: &Error) {
        if let Some(watchers) = &mut self.watchers {
            watchers.ended(error);
        }
    }

    fn check_stalls(&mut self, now: Nanos, pending: &dyn Pending) -> Result<StallCheck, Error> {
        let Some(stalls) = &mut self.stalls else {
            return Ok(StallCheck::default());
        };
        let watchers = &mut self.watchers;
        stalls.look(now, pending, &mut |text| {
            if let Some(watchers) = watchers {
                watchers.stalled(text);
            }
        })
    }
}

impl Drop for Telemetry {
    /// Logs which rank was late. The set of all ranks ends last: the timeline is then complete and
    /// is closed, even if the process is killed later.
    fn drop(&mut self) {
        if let Some(text) = self.lateness.as_ref().and_then(Lateness::summary) {
            tracing::debug!("{text}");
        }
        if self.members.is_none() {
            self.track.interrupt();
            self.track.timeline().finish();
        }
    }
}
