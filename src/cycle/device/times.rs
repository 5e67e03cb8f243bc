//! Times of the parts of a batch on a device, with the activity names of Horovod's timeline.

use smallvec::SmallVec;

use super::{Ready, Start};
use crate::clock::Nanos;
use crate::collective::Phases;
use crate::collective::asynchronous::{Crossing, DeviceClock};
use crate::device::Mark;
use crate::timeline::Activity;

/// Times of one batch, as activities of the timeline.
pub(super) struct Times {
    pub(super) began: Nanos,
    pub(super) ended: Nanos,
    pub(super) phases: Phases,
    pub(super) activities: SmallVec<[Activity; 8]>,
}

impl Times {
    /// Returns the times of a batch whose end was seen at `seen`. If the device has no times, they
    /// are one activity from the launch until then. `None` for a batch that moves no data.
    pub(super) fn of(
        start: &Start,
        members: &[Ready],
        clock: Option<&dyn DeviceClock>,
        seen: Nanos,
    ) -> Option<Self> {
        let queued = start.opened.unwrap_or(start.began);
        let as_seen = Stages {
            queued,
            ready: None,
            began: queued,
            copied_in: queued,
            crossing: None,
            reduced: seen,
            ended: seen,
        };
        let stages = clock.and_then(|clock| Stages::measured(start, members, clock));
        let name = match &start.launched.crossing {
            Some(crossing) => crossing.inter_node,
            None => start.activities.name(start.kind)?,
        };
        let mut times = stages.unwrap_or(as_seen).times(name);
        if let Some(opened) = start.opened {
            let activity = activity(start.activities.init, start.began, opened, false);
            times.activities.insert(0, activity);
            times.began = start.began;
        }
        Some(times)
    }
}

/// Times at which the data of the first and of the last submitted tensor was ready.
fn ready(members: &[Ready], clock: &dyn DeviceClock) -> Option<(Nanos, Nanos)> {
    let on_device = || {
        members
            .iter()
            .filter(|member| member.submission.on.is_some())
    };
    let time = |member: &Ready| clock.time_of(&member.submission.on.as_ref()?.ready);
    let first = on_device().min_by_key(|member| member.submission.at)?;
    let last = on_device().max_by_key(|member| member.submission.at)?;
    Some((time(first)?, time(last)?))
}

/// Times of a batch, on the host's clock.
#[derive(Clone, Copy, Debug)]
struct Stages {
    /// The host has put the batch on the stream.
    queued: Nanos,
    /// The first and the last tensor's data is ready; `None` if this rank has none.
    ready: Option<(Nanos, Nanos)>,
    /// The stream has reached the batch.
    began: Nanos,
    copied_in: Nanos,
    crossing: Option<Crossed>,
    reduced: Nanos,
    ended: Nanos,
}

/// Times of the stages of a hierarchical allreduce, in order, and the names of its intra-node
/// stages.
#[derive(Clone, Copy, Debug)]
struct Crossed {
    names: [&'static str; 2],
    reduced: Nanos,
    fetched: Nanos,
    crossed: Nanos,
    sent: Nanos,
}

impl Crossed {
    fn measured(crossing: &Crossing, clock: &dyn DeviceClock) -> Option<Self> {
        Some(Self {
            names: crossing.names,
            reduced: clock.time_of(&crossing.reduced)?,
            fetched: clock.time_of(&crossing.fetched)?,
            crossed: clock.time_of(&crossing.crossed)?,
            sent: clock.time_of(&crossing.sent)?,
        })
    }
}

impl Stages {
    /// Returns the times that the device reports.
    fn measured(start: &Start, members: &[Ready], clock: &dyn DeviceClock) -> Option<Self> {
        let launched = &start.launched;
        let moments: [&Mark; 4] = [
            &launched.began,
            &launched.copied_in,
            &launched.reduced,
            &launched.ended,
        ];
        let mut moments = moments.into_iter().map(|mark| clock.time_of(mark));
        let mut next = || moments.next().flatten();
        Some(Self {
            queued: start.opened.unwrap_or(start.began),
            ready: ready(members, clock),
            began: next()?,
            copied_in: next()?,
            crossing: launched
                .crossing
                .as_ref()
                .and_then(|crossing| Crossed::measured(crossing, clock)),
            reduced: next()?,
            ended: next()?,
        })
    }

    fn times(self, collective: &'static str) -> Times {
        // Times come from two clocks, and data may have been ready long before: times must not
        // decrease.
        let mut last = self.queued;
        let mut at_least = |moment: Nanos| {
            last = last.max(moment);
            last
        };
        let queued = self.queued;
        let (first, ready) = self.ready.unwrap_or((queued, queued));
        let first = at_least(first.min(self.began));
        let ready = at_least(ready.min(self.began));
        let began = at_least(self.began);
        let copied_in = at_least(self.copied_in);
        let crossing = self.crossing.map(|crossing| Crossed {
            reduced: at_least(crossing.reduced),
            fetched: at_least(crossing.fetched),
            crossed: at_least(crossing.crossed),
            sent: at_least(crossing.sent),
            ..crossing
        });
        let reduced = at_least(self.reduced);
        let ended = at_least(self.ended);
        let mut parts: SmallVec<[_; 10]> = SmallVec::from_slice(&[
            ("WAIT_FOR_DATA", queued, first),
            ("WAIT_FOR_OTHER_TENSOR_DATA", first, ready),
            ("QUEUE", ready, began),
            ("MEMCPY_IN_FUSION_BUFFER", began, copied_in),
        ]);
        match crossing {
            None => parts.push((collective, copied_in, reduced)),
            Some(stages) => parts.extend([
                (stages.names[0], copied_in, stages.reduced),
                ("MEMCPY_IN_HOST_BUFFER", stages.reduced, stages.fetched),
                (collective, stages.fetched, stages.crossed),
                ("MEMCPY_OUT_HOST_BUFFER", stages.crossed, stages.sent),
                (stages.names[1], stages.sent, reduced),
            ]),
        }
        parts.push(("MEMCPY_OUT_FUSION_BUFFER", reduced, ended));
        let activities = parts
            .into_iter()
            .filter(|&(name, from, to)| to - from >= SHORTEST || name == collective)
            .map(|(name, from, to)| activity(name, from, to, name == collective))
            .collect();
        // Durations before the inter-node stage begins and after it has ended.
        let (lead_in, tail_out) = crossing.map_or((copied_in, reduced), |stages| {
            (stages.fetched, stages.crossed)
        });
        let nanos = |from: Nanos, to: Nanos| (to - from).as_nanos() as u64;
        Times {
            began: queued,
            ended,
            phases: Phases {
                copy_in_ns: nanos(began, copied_in),
                copy_out_ns: nanos(reduced, ended),
                lead_in_ns: nanos(began, lead_in),
                tail_out_ns: nanos(tail_out, ended),
                ..Phases::default()
            },
            activities,
        }
    }
}

/// Shorter activities are two consecutive events without work between them.
const SHORTEST: std::time::Duration = std::time::Duration::from_micros(2);

const fn activity(name: &'static str, began: Nanos, ended: Nanos, measured: bool) -> Activity {
    Activity {
        name,
        began,
        ended,
        measured,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(stages: Stages) -> Vec<(&'static str, u64, u64)> {
        parts_of(stages, "NCCL_ALLREDUCE")
    }

    fn parts_of(stages: Stages, collective: &'static str) -> Vec<(&'static str, u64, u64)> {
        let times = stages.times(collective);
        let micros = |at: Nanos| at.0 / 1_000;
        let activities = times.activities.iter();
        activities
            .map(|activity| {
                (
                    activity.name,
                    micros(activity.began),
                    micros(activity.ended),
                )
            })
            .collect()
    }

    fn at(us: u64) -> Nanos {
        Nanos(us * 1_000)
    }

    const STAGES: Stages = Stages {
        queued: Nanos(100_000),
        ready: Some((Nanos(150_000), Nanos(300_000))),
        began: Nanos(310_000),
        copied_in: Nanos(350_000),
        crossing: None,
        reduced: Nanos(600_000),
        ended: Nanos(650_000),
    };

    #[test]
    fn a_batch_waits_for_its_first_data_for_the_others_and_for_the_stream() {
        let expected = [
            ("WAIT_FOR_DATA", 100, 150),
            ("WAIT_FOR_OTHER_TENSOR_DATA", 150, 300),
            ("QUEUE", 300, 310),
            ("MEMCPY_IN_FUSION_BUFFER", 310, 350),
            ("NCCL_ALLREDUCE", 350, 600),
            ("MEMCPY_OUT_FUSION_BUFFER", 600, 650),
        ];
        assert_eq!(parts(STAGES), expected);
    }

    #[test]
    fn what_was_ready_before_waits_for_the_stream_alone_and_no_copy_is_no_bar() {
        let stages = Stages {
            ready: Some((at(20), at(90))),
            copied_in: at(311),
            ended: at(601),
            ..STAGES
        };
        assert_eq!(
            parts(stages),
            [("QUEUE", 100, 310), ("NCCL_ALLREDUCE", 311, 600)]
        );
    }

    #[test]
    fn a_hierarchical_allreduce_has_parts_of_its_own() {
        let crossing = Some(Crossed {
            names: ["NCCL_REDUCESCATTER", "NCCL_ALLGATHER"],
            reduced: at(400),
            fetched: at(420),
            crossed: at(500),
            sent: at(510),
        });
        let parts = parts_of(Stages { crossing, ..STAGES }, "MPI_ALLREDUCE");
        let expected = [
            ("NCCL_REDUCESCATTER", 350, 400),
            ("MEMCPY_IN_HOST_BUFFER", 400, 420),
            ("MPI_ALLREDUCE", 420, 500),
            ("MEMCPY_OUT_HOST_BUFFER", 500, 510),
            ("NCCL_ALLGATHER", 510, 600),
            ("MEMCPY_OUT_FUSION_BUFFER", 600, 650),
        ];
        assert_eq!(parts[4..], expected);
    }

    #[test]
    fn clocks_that_disagree_do_not_make_time_go_backwards() {
        let stages = Stages {
            began: at(99),
            copied_in: at(120),
            ..STAGES
        };
        let parts = parts(stages);
        assert!(parts.is_sorted_by(|a, b| a.2 <= b.1), "{parts:?}");
    }
}
