//! Tests of the shared-memory collective with ranks as threads over one region. Under valgrind
//! (memcheck), the tests of `collective::kernels` and the tests here named `spans_…` cover every
//! kind of access within about a minute (`scripts/test-valgrind`).

mod phases;
mod reducescatter;
mod transfer;

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::LocalCollective;
use super::layout::{Layout, SLOTS};
use super::patience::Patience;
use crate::collective::kernels::{Level, reference};
use crate::collective::{Collective, Reduction};
use crate::error::{Error, PeerError};
use crate::shm::{Area, Region};
use crate::tensor::{Dtype, ReduceOp, Span};

const SUM_F32: Reduction = Reduction {
    dtype: Dtype::F32,
    op: ReduceOp::Sum,
    prescale: 1.0,
    postscale: 1.0,
};

/// Creates the collectives of `size` ranks over one region.
fn ranks(size: usize, patience: Duration) -> Vec<LocalCollective> {
    let bytes = LocalCollective::required_bytes(size);
    let (region, _file) = Region::create("ronde-test", bytes).expect("shared memory");
    let area = Area::whole(Arc::new(region));
    let watch = Arc::new(Patience { limit: patience });
    (0..size)
        .map(|rank| LocalCollective::new(area.clone(), rank, size, Duration::ZERO, watch.clone()))
        .collect()
}

fn patient_ranks(size: usize) -> Vec<LocalCollective> {
    ranks(size, Duration::from_secs(60))
}

/// Runs `body` on a thread per rank; returns the results in rank order.
fn on_threads<T: Send>(
    collectives: &mut [LocalCollective],
    body: impl Fn(usize, &mut LocalCollective) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = collectives
            .iter_mut()
            .enumerate()
            .map(|(rank, collective)| scope.spawn(move || body(rank, collective)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    })
}

/// Division of the bytes of a batch into spans.
#[derive(Clone, Debug)]
struct Split {
    /// Number of elements of each span.
    elements: Vec<usize>,
    in_place: bool,
}

impl Split {
    fn one(elements: usize) -> Self {
        Self {
            elements: vec![elements],
            in_place: true,
        }
    }
}

/// Runs `run` on `input`, divided as `split` says, each span in memory of its own that starts one
/// element after the start of its vector; returns the concatenated outputs.
#[allow(unsafe_code)] // spans over the test's own buffers
fn split_run(input: &[u8], width: usize, split: &Split, run: impl FnOnce(&[Span])) -> Vec<u8> {
    let mut at = 0;
    let mut inputs: Vec<Vec<u8>> = Vec::new();
    for elements in &split.elements {
        let bytes = elements * width;
        inputs.push([&vec![0; width], &input[at..at + bytes]].concat());
        at += bytes;
    }
    assert_eq!(at, input.len());
    let mut outputs: Vec<Vec<u8>> = inputs.iter().map(|input| vec![0xaa; input.len()]).collect();
    let spans: Vec<Span> = inputs
        .iter_mut()
        .zip(&mut outputs)
        .map(|(input, output)| {
            let bytes = input.len() - width;
            let source = input[width..].as_mut_ptr();
            let target = if split.in_place {
                source
            } else {
                output[width..].as_mut_ptr()
            };
            // SAFETY: the vectors live until `run` has returned.
            unsafe { Span::new(source, target, bytes) }
        })
        .collect();
    run(&spans);
    let results = if split.in_place { inputs } else { outputs };
    results
        .iter()
        .flat_map(|result| result[width..].to_vec())
        .collect()
}

/// Place of the output of an operation whose output and input have different lengths.
struct OutputLayout {
    output_bytes: usize,
    /// Offset of the input within the output, if the operation runs in place.
    input_within: Option<usize>,
}

/// Runs `run` on `inputs`, with outputs as in `places`; returns the outputs. Checks that the bytes
/// around them are unchanged.
#[allow(unsafe_code)] // spans over the test's own buffers
fn run_placed(
    inputs: &[Vec<u8>],
    places: &[OutputLayout],
    run: impl FnOnce(&[Span]),
) -> Vec<Vec<u8>> {
    const GUARD: [u8; 8] = [0xaa; 8];
    let mut inputs: Vec<Vec<u8>> = inputs.to_vec();
    let mut outputs: Vec<Vec<u8>> = places
        .iter()
        .map(|place| [&GUARD[..], &vec![0x55; place.output_bytes], &GUARD].concat())
        .collect();
    let spans: Vec<Span> = (inputs.iter_mut().zip(&mut outputs).zip(places))
        .map(|((input, output), place)| {
            let target = output[GUARD.len()..].as_mut_ptr();
            let source = match place.input_within {
                None => input.as_mut_ptr(),
                Some(at) => {
                    output[GUARD.len() + at..][..input.len()].copy_from_slice(input);
                    target.wrapping_add(at)
                }
            };
            // SAFETY: the vectors live until `run` has returned.
            unsafe { Span::new(source, target, input.len()) }
        })
        .collect();
    run(&spans);
    outputs
        .iter()
        .map(|output| {
            let (head, rest) = output.split_at(GUARD.len());
            let (output, tail) = rest.split_at(rest.len() - GUARD.len());
            assert!(
                head == GUARD && tail == GUARD,
                "written outside of the output"
            );
            output.to_vec()
        })
        .collect()
}

/// Reduces random inputs with `collectives` under `split` and compares every rank's result with the
/// reference.
fn check(collectives: &mut [LocalCollective], reduction: &Reduction, split: &Split, seed: u64) {
    let elements = split.elements.iter().sum();
    let inputs: Vec<Vec<u8>> = (0..collectives.len())
        .map(|rank| reference::input(reduction.dtype, elements, seed + rank as u64))
        .collect();
    let expected = reference::canonical(&reference::reduce(&inputs, reduction), reduction.dtype);
    let results = on_threads(collectives, |rank, collective| {
        split_run(
            &inputs[rank],
            reduction.dtype.size_bytes(),
            split,
            |spans| {
                collective
                    .allreduce(spans, reduction, &[])
                    .expect("no rank leaves");
            },
        )
    });
    for (rank, result) in results.iter().enumerate() {
        assert!(
            *result == results[0],
            "rank {rank} has other bits than rank 0"
        );
    }
    assert!(
        reference::canonical(&results[0], reduction.dtype) == expected,
        "{reduction:?}, {} ranks, {split:?}",
        collectives.len()
    );
}

fn any_reduction() -> impl Strategy<Value = Reduction> {
    (
        prop::sample::select(&Dtype::ALL[..]),
        prop::sample::select(&ReduceOp::ALL[..]),
        prop::sample::select(vec![1.0, 0.5, -3.7]),
        prop::sample::select(vec![1.0, 0.1]),
    )
        .prop_map(|(dtype, op, prescale, postscale)| Reduction {
            dtype,
            op,
            prescale,
            postscale,
        })
        .prop_filter("bool has no average and no factors", reference::is_sensible)
}

fn any_split() -> impl Strategy<Value = Split> {
    let elements = prop_oneof![
        3 => 0..40_usize,
        3 => 0..3_000_usize,
        1 => 0..300_000_usize,
    ];
    (prop::collection::vec(elements, 0..8), any::<bool>())
        .prop_map(|(elements, in_place)| Split { elements, in_place })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The bits depend on the contributions alone: for any split, in place or not, each rank has
    /// the bits of the reference and of a single span.
    #[test]
    fn fused_equals_unfused_equals_reference(
        reduction in any_reduction(),
        split in any_split(),
        size in 1..=8_usize,
        seed: u32,
    ) {
        let mut collectives = patient_ranks(size);
        check(&mut collectives, &reduction, &split, seed.into());
        check(&mut collectives, &reduction, &Split::one(split.elements.iter().sum()), seed.into());
    }
}

#[test]
fn spans_across_every_border() {
    // At least 128 KiB of f32 per span, so that chunks (512 KiB) and parts (171 KiB) end inside
    // spans, with spans of one element around the borders.
    let split = Split {
        elements: vec![131_071, 1, 1, 40_000, 1, 0, 91_000, 1, 131_072, 3],
        in_place: false,
    };
    check(&mut patient_ranks(3), &SUM_F32, &split, 1);
}

#[test]
fn many_ranks() {
    let mut collectives = patient_ranks(64);
    check(&mut collectives, &SUM_F32, &Split::one(3), 5);
    check(&mut collectives, &SUM_F32, &Split::one(100_003), 6);
}

/// All operations in sequence, of all shapes, some with an absent rank, each rank at its own speed,
/// while the chunk numbers wrap.
#[test]
fn counters_wrap() {
    let start = u32::MAX - 3 * SLOTS as u32;
    let mut collectives: Vec<LocalCollective> = patient_ranks(3)
        .into_iter()
        .map(|collective| collective.starting_at(start))
        .collect();
    let ends = on_threads(&mut collectives, |rank, collective| {
        for step in 0..80 {
            let elements = [1, 0, 70_000, 300_000][step % 4];
            every_operation(rank, collective, step, elements).expect("no rank leaves");
        }
        collective.next
    });
    assert!(ends[0] < start, "the number has wrapped");
    assert!(ends.iter().all(|end| *end == ends[0]));
}

/// Runs operation `step % 6` of 3 ranks on `elements` elements a rank, and checks its result.
#[allow(unsafe_code)] // spans over the test's own buffers
fn every_operation(
    rank: usize,
    collective: &mut LocalCollective,
    step: usize,
    elements: usize,
) -> Result<(), Error> {
    let bytes = elements * 4;
    let values = |rank: usize| (rank + step) as f32;
    let mut input = vec![values(rank); 3 * elements];
    let mut output = vec![0.0_f32; 3 * elements];
    let (source, target) = (
        input.as_mut_ptr().cast::<u8>(),
        output.as_mut_ptr().cast::<u8>(),
    );
    // SAFETY: the vectors outlive the operation and are not used meanwhile.
    let span = |bytes: usize| unsafe { Span::new(source, target, bytes) };
    let sum = 3 * step + 3;
    let expected: Vec<(f32, usize)> = match step % 6 {
        0 => {
            collective.allreduce(&[span(bytes)], &SUM_F32, &[])?;
            vec![(sum as f32, elements)]
        }
        1 if rank == 1 => {
            collective.allreduce(&[Span::absent(bytes)], &SUM_F32, &[1])?;
            vec![]
        }
        1 => {
            collective.allreduce(&[span(bytes)], &SUM_F32, &[1])?;
            vec![((2 * step + 2) as f32, elements)]
        }
        2 => {
            collective.broadcast(&[span(bytes)], step % 3)?;
            vec![(values(step % 3), elements)]
        }
        3 => {
            collective.allgather(&[span(bytes)], &[bytes; 3])?;
            (0..3).map(|from| (values(from), elements)).collect()
        }
        4 => {
            // Rank 0 sends to rank 1 only, the others to all.
            let table = [0, bytes, 0, bytes, bytes, bytes, bytes, bytes, bytes];
            let own: usize = table[rank * 3..][..3].iter().sum();
            collective.alltoall(&[span(own)], &table)?;
            (0..3)
                .map(|from| (values(from), table[from * 3 + rank] / 4))
                .collect()
        }
        _ => {
            let shares = [bytes, 0, 2 * bytes];
            collective.reducescatter(&[span(3 * bytes)], &shares, &SUM_F32, &[])?;
            vec![(sum as f32, shares[rank] / 4)]
        }
    };
    let expected: Vec<f32> = expected
        .into_iter()
        .flat_map(|(value, count)| std::iter::repeat_n(value, count))
        .collect();
    assert!(
        output[..expected.len()] == expected,
        "step {step}, rank {rank}"
    );
    assert!(
        output[expected.len()..].iter().all(|x| *x == 0.0),
        "step {step}, rank {rank}: nothing beyond"
    );
    Ok(())
}

#[test]
fn every_level_has_the_same_bits() {
    let input = |rank| reference::input(Dtype::Bf16, 5_001, rank);
    let mut outcomes = Level::available().into_iter().map(|level| {
        let mut collectives: Vec<LocalCollective> = patient_ranks(2)
            .into_iter()
            .map(|collective| collective.at_level(level))
            .collect();
        let reduction = Reduction {
            dtype: Dtype::Bf16,
            ..SUM_F32
        };
        let results = on_threads(&mut collectives, |rank, collective| {
            split_run(&input(rank as u64), 2, &Split::one(5_001), |spans| {
                collective
                    .allreduce(spans, &reduction, &[])
                    .expect("no rank leaves");
            })
        });
        reference::canonical(&results[1], Dtype::Bf16)
    });
    let first = outcomes.next().expect("a baseline");
    assert!(outcomes.all(|outcome| outcome == first));
}

#[test]
fn a_watch_that_gives_up_ends_every_wait() {
    for elements in [1, 500_000] {
        // Rank 2 of 3 never calls: for every operation, the others fail and name a rank. Step 2
        // broadcasts from it.
        for step in [0, 1, 2, 3, 4, 5] {
            let mut collectives = ranks(3, Duration::from_millis(150));
            let began = Instant::now();
            let outcomes = on_threads(&mut collectives[..2], |rank, collective| {
                every_operation(rank, collective, step, elements)
            });
            assert!(began.elapsed() < Duration::from_secs(20));
            for (rank, outcome) in outcomes.into_iter().enumerate() {
                // In these two small operations rank 1 is absent or has no share: it waits for no
                // peer.
                if elements == 1 && rank == 1 && [1, 5].contains(&step) {
                    assert!(outcome.is_ok(), "step {step}: {outcome:?}");
                    continue;
                }
                // The other rank that calls may wait for rank 2 itself.
                assert!(
                    matches!(
                        outcome,
                        Err(Error::Peer(PeerError::Stalled { rank: on @ 0..=2, .. })) if on != rank
                    ),
                    "step {step}, rank {rank}: {outcome:?}"
                );
            }
        }
    }
}

#[test]
#[allow(unsafe_code)] // spans over the test's own buffers
fn a_wait_that_is_given_up_names_the_only_other_rank() {
    for elements in [1, 500_000] {
        for operation in 0..5 {
            let mut collectives = ranks(2, Duration::from_millis(100));
            let rank_0 = &mut collectives[0];
            let bytes = elements * 4;
            let mut input = vec![1.0_f32; 2 * elements];
            let mut output = vec![0.0_f32; 2 * elements];
            let (source, target) = (
                input.as_mut_ptr().cast::<u8>(),
                output.as_mut_ptr().cast::<u8>(),
            );
            // SAFETY: the vectors outlive the operation and are not used meanwhile.
            let span = |bytes: usize| unsafe { Span::new(source, target, bytes) };
            let outcome = match operation {
                0 => rank_0.allreduce(&[span(bytes)], &SUM_F32, &[]),
                1 => rank_0.broadcast(&[span(bytes)], 1),
                2 => rank_0.allgather(&[span(bytes)], &[bytes; 2]),
                3 => rank_0.alltoall(&[span(2 * bytes)], &[bytes; 4]),
                _ => rank_0.reducescatter(&[span(2 * bytes)], &[bytes; 2], &SUM_F32, &[]),
            };
            assert!(
                matches!(
                    outcome,
                    Err(Error::Peer(PeerError::Stalled { rank: 1, .. }))
                ),
                "operation {operation}: {outcome:?}"
            );
        }
    }
}

#[test]
fn nothing_to_do_touches_no_peer() {
    // The other rank never calls: a wait would fail.
    let mut collectives = ranks(2, Duration::from_millis(100));
    assert!(collectives[0].allreduce(&[], &SUM_F32, &[]).is_ok());
    assert!(collectives[0].broadcast(&[], 1).is_ok());
    assert!(collectives[0].allgather(&[], &[]).is_ok());
    assert!(collectives[0].alltoall(&[], &[]).is_ok());
    assert!(
        collectives[0]
            .reducescatter(&[], &[], &SUM_F32, &[])
            .is_ok()
    );
    let nothing = [Span::absent(0), Span::absent(0)];
    assert!(collectives[0].allreduce(&nothing, &SUM_F32, &[]).is_ok());
    assert!(collectives[0].allgather(&nothing, &[0; 4]).is_ok());
    assert!(collectives[0].alltoall(&nothing, &[0; 8]).is_ok());
    assert!(
        collectives[0]
            .reducescatter(&nothing, &[0; 4], &SUM_F32, &[])
            .is_ok()
    );
    assert!(collectives[0].broadcast(&nothing, 1).is_ok());
    // In a tiny batch, no rank waits for an absent rank; if all are absent, no rank waits.
    assert!(
        collectives[0]
            .allreduce(&[Span::absent(1 << 30)], &SUM_F32, &[0, 1])
            .is_ok()
    );
}

#[test]
#[should_panic(expected = "does not fit")]
fn an_area_too_small_is_refused() {
    let (region, _file) = Region::create("ronde-test", 4096).expect("shared memory");
    Layout::new(&Area::whole(Arc::new(region)), 64);
}
