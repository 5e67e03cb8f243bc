//! Tests of `Phases`: relations between the times that hold on a machine with other load.

#![allow(unsafe_code)] // spans over the test's own buffers

use super::*;
use crate::collective::Phases;

/// Bytes that fit in one chunk and are not a tiny batch, for two ranks.
const ONE_CHUNK: usize = 256 << 10;
/// Sixteen chunks of the largest size.
const MANY_CHUNKS: usize = 8 << 20;

/// Runs `operation` once on each of two ranks, on a span of `bytes` bytes and an output twice as
/// long; returns the phases by rank.
fn run(
    bytes: usize,
    operation: impl Fn(&mut LocalCollective, &[Span]) -> Result<Phases, Error> + Sync,
) -> Vec<Phases> {
    let mut collectives = patient_ranks(2);
    on_threads(&mut collectives, |_, collective| {
        let mut input = vec![1_u8; bytes];
        let mut output = vec![0_u8; 2 * bytes];
        // SAFETY: the vectors live until the operation has returned.
        let span = unsafe { Span::new(input.as_mut_ptr(), output.as_mut_ptr(), bytes) };
        let began = Instant::now();
        let phases = operation(collective, &[span]).expect("no rank leaves");
        let took = began.elapsed().as_nanos() as u64;
        let Phases {
            copy_in_ns,
            reduce_ns,
            copy_out_ns,
            wait_ns,
            late_ns,
            lead_in_ns,
            tail_out_ns,
        } = phases;
        assert!(late_ns <= wait_ns, "{phases:?}");
        assert!(
            copy_in_ns + reduce_ns + copy_out_ns + wait_ns <= took,
            "{phases:?} of {took}"
        );
        assert!(
            lead_in_ns <= copy_in_ns && tail_out_ns <= copy_out_ns,
            "{phases:?}"
        );
        phases
    })
}

fn allreduce(bytes: usize) -> Vec<Phases> {
    run(bytes, |collective, spans| {
        collective.allreduce(spans, &SUM_U8, &[])
    })
}

const SUM_U8: Reduction = Reduction {
    dtype: Dtype::U8,
    ..SUM_F32
};

#[test]
fn one_chunk_is_all_lead_in_and_tail_out() {
    for phases in allreduce(ONE_CHUNK) {
        assert!(phases.reduce_ns > 0 && phases.lead_in_ns > 0 && phases.tail_out_ns > 0);
        assert_eq!(phases.lead_in_ns, phases.copy_in_ns);
        assert_eq!(phases.tail_out_ns, phases.copy_out_ns);
    }
}

#[test]
fn many_chunks_lead_in_with_the_first_and_tail_out_with_the_last() {
    let alltoall = |collective: &mut LocalCollective, spans: &[Span]| {
        let half = MANY_CHUNKS / 2;
        collective.alltoall(spans, &[half; 4])
    };
    let both = [allreduce(MANY_CHUNKS), run(MANY_CHUNKS, alltoall)];
    for phases in both.into_iter().flatten() {
        assert!(
            phases.lead_in_ns > 0 && phases.lead_in_ns < phases.copy_in_ns,
            "{phases:?}"
        );
        assert!(
            phases.tail_out_ns > 0 && phases.tail_out_ns < phases.copy_out_ns,
            "{phases:?}"
        );
    }
    // A root copies nothing out, except the bytes for itself along with each chunk.
    let broadcast = run(MANY_CHUNKS, |collective, spans| {
        collective.broadcast(spans, 1)
    });
    assert_eq!((broadcast[0].lead_in_ns, broadcast[0].copy_in_ns), (0, 0));
    assert!(broadcast[0].tail_out_ns > 0 && broadcast[1].lead_in_ns > 0);
    let allgather = |collective: &mut LocalCollective, spans: &[Span]| {
        collective.allgather(spans, &[MANY_CHUNKS; 2])
    };
    assert!(
        run(MANY_CHUNKS, allgather)
            .iter()
            .all(|phases| phases.lead_in_ns > 0 && phases.tail_out_ns > 0)
    );
}

#[test]
fn a_reduction_into_the_output_has_no_tail_out() {
    let reducescatter = |collective: &mut LocalCollective, spans: &[Span]| {
        let half = spans[0].bytes() / 2;
        collective.reducescatter(spans, &[half; 2], &SUM_U8, &[])
    };
    for phases in [allreduce(1 << 10), run(ONE_CHUNK, reducescatter)].concat() {
        assert!(phases.lead_in_ns > 0 && phases.reduce_ns > 0, "{phases:?}");
        assert_eq!((phases.copy_out_ns, phases.tail_out_ns), (0, 0));
    }
}
