//! Records executed batches on the timeline.

use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;

use crate::clock::Nanos;
use crate::negotiation::OpKind;
use crate::observer::Executed;
use crate::queue::Tensor;
use crate::timeline::{Activity, BatchRecord, Member, TensorId, Track};

/// Returns the tensor's number on the timeline, which is requested once.
pub(super) fn timeline_id(track: &mut Track, tensor: &Tensor) -> TensorId {
    match tensor.timeline_id.load(Ordering::Relaxed) {
        u32::MAX => {
            let id = track.tensor(&tensor.name);
            tensor.timeline_id.store(id.number(), Ordering::Relaxed);
            id
        }
        number => TensorId::from_number(number),
    }
}

/// Records an executed batch; `agreed` is the time by which the ranks had agreed on it.
pub(super) fn record(track: &mut Track, batch: &Executed<'_>, agreed: Nanos) {
    let op = batch.members[0].submission.params.kind;
    if op == OpKind::Agree {
        return;
    }
    for member in batch.members {
        timeline_id(track, &member.submission.tensor); // registers new tensors before the record borrows the names
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
        let submission = &member.submission;
        Member {
            tensor: TensorId::from_number(submission.tensor.timeline_id.load(Ordering::Relaxed)),
            submitted: (!submission.is_absent()).then_some(submission.at),
            output: member
                .output_dimensions(rank)
                .map(|shape| (submission.params.dtype, shape)),
        }
    });
    track.executed(&record, members);
}

/// Returns the activities of a batch, one after another: for a streaming collective the parts that
/// do not overlap with others ([`horovod`](crate::timeline::horovod)).
fn activities(batch: &Executed<'_>) -> SmallVec<[Activity; 4]> {
    if let Some(activities) = batch.on_device {
        return activities.into();
    }
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
    let Some(stages) = batch.stages else {
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
        put(stages.lead_in, moved_from, copied_in, false);
    }
    put(stages.collective, copied_in, reduced, true);
    if tail_ns > 0 {
        put(stages.tail_out, reduced, batch.ended, false);
    }
    activities
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::{Phases, Stages};

    #[test]
    fn the_parts_of_a_streaming_collective_that_do_not_overlap_follow_one_another() {
        let parts = |lead_in_ns, tail_out_ns, allocated: Option<u64>| {
            const STAGES: Stages = Stages::streamed("SHM_ALLGATHER");
            let batch = Executed {
                members: &[],
                stages: Some(&STAGES),
                began: Nanos(100),
                allocated: allocated.map(Nanos),
                ended: Nanos(200),
                phases: Phases {
                    lead_in_ns,
                    tail_out_ns,
                    ..Phases::default()
                },
                on_device: None,
            };
            let activities = activities(&batch);
            let spans = activities
                .iter()
                .map(|activity| (activity.name, activity.began.0, activity.ended.0));
            assert_eq!(
                activities
                    .iter()
                    .filter(|activity| activity.measured)
                    .count(),
                1
            );
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
        // Longer than the batch: the clocks of the two sides are read at different times.
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
