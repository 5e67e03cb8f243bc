//! Ranks as threads over one region. Under valgrind (memcheck) the tests of `collective::kernels` and
//! `spans_across_every_border` go over every kind of access in less than a minute.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::LocalCollective;
use super::layout::{Layout, SLOTS};
use super::patience::Patience;
use crate::collective::kernels::{Level, reference};
use crate::collective::{Collective, Reduction};
use crate::error::Error;
use crate::shm::{Area, Region};
use crate::tensor::{Dtype, ReduceOp, Span};

const SUM_F32: Reduction = Reduction {
    dtype: Dtype::F32,
    op: ReduceOp::Sum,
    prescale: 1.0,
    postscale: 1.0,
};

/// The collectives of `size` ranks over one region.
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

/// Runs `body` on a thread per rank; the results in the ranks' order.
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

/// How the bytes of a batch are laid out in memory.
#[derive(Clone, Debug)]
struct Split {
    /// Elements of each span.
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

/// Gives `input`, split as `split` says and each span in memory of its own that starts one element off its vector's
/// beginning, to `run`; the outputs, joined.
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
            // SAFETY: vectors that live until `run` is over.
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

/// Reduces random inputs with `collectives` under `split` and compares every rank's result with the reference.
fn check(collectives: &mut [LocalCollective], reduction: &Reduction, split: &Split, seed: u64) {
    let elements = split.elements.iter().sum();
    let inputs: Vec<Vec<u8>> = (0..collectives.len())
        .map(|rank| reference::input(reduction.dtype, elements, seed + rank as u64))
        .collect();
    let expected = reference::canonical(&reference::reduce(&inputs, reduction), reduction.dtype);
    let results = on_threads(collectives, |rank, collective| {
        split_run(&inputs[rank], reduction.dtype.size_bytes(), split, |spans| {
            collective
                .allreduce(spans, reduction, &[])
                .expect("nobody leaves");
        })
    });
    for (rank, result) in results.iter().enumerate() {
        assert!(*result == results[0], "rank {rank} has other bits than rank 0");
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

    /// The bits depend on the contributions alone: however split, in place or not, each rank has the reference's,
    /// and so has a single span.
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

    #[test]
    fn broadcast_gives_everyone_the_roots_bytes(split in any_split(), size in 1..=5_usize, root: prop::sample::Index) {
        let root = root.index(size);
        let elements: usize = split.elements.iter().sum();
        let mut collectives = patient_ranks(size);
        let results = on_threads(&mut collectives, |rank, collective| {
            let input = vec![rank as u8; elements];
            split_run(&input, 1, &split, |spans| {
                collective.broadcast(spans, root).expect("nobody leaves");
            })
        });
        prop_assert!(results.iter().all(|result| result.len() == elements));
        prop_assert!(results.iter().flatten().all(|byte| *byte == root as u8));
    }
}

#[test]
fn spans_across_every_border() {
    // 128 KiB of f32 and more per span, so that chunks (512 KiB) and parts (171 KiB) end amid spans, and one-element
    // spans around the borders.
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

/// Allreduces of all shapes and broadcasts in a row, each rank at its own pace.
#[test]
fn counters_wrap() {
    let start = u32::MAX - 3 * SLOTS as u32;
    let mut collectives: Vec<LocalCollective> = patient_ranks(3)
        .into_iter()
        .map(|collective| collective.starting_at(start))
        .collect();
    let totals = on_threads(&mut collectives, |rank, collective| {
        let mut total = 0.0;
        for step in 0..40 {
            let elements = [1, 0, 70_000, 400_000][step % 4];
            let mut values = vec![(rank + step) as f32; elements];
            let base = values.as_mut_ptr().cast::<u8>();
            // SAFETY: the vector lives on and is not used meanwhile.
            let spans = [unsafe { Span::new(base, base, elements * 4) }];
            if step % 5 == 4 {
                collective.broadcast(&spans, step % 3).expect("nobody leaves");
            } else {
                collective
                    .allreduce(&spans, &SUM_F32, &[])
                    .expect("nobody leaves");
            }
            let expected = if step % 5 == 4 {
                step % 3 + step
            } else {
                3 + 3 * step
            };
            assert!(values.iter().all(|x| *x == expected as f32), "step {step}");
            total += values.iter().sum::<f32>();
        }
        (total, collective.next)
    });
    assert!(totals[0].1 < start, "the counter has wrapped");
    assert!(totals.iter().all(|total| *total == totals[0]));
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
                    .expect("nobody leaves");
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
        // Rank 2 of 3 never calls: the others fail, in an allreduce as in a broadcast from it, and name a rank.
        for broadcast in [false, true] {
            let mut collectives = ranks(3, Duration::from_millis(150));
            let began = Instant::now();
            let outcomes = on_threads(&mut collectives[..2], |_, collective| {
                let mut values = vec![1.0_f32; elements];
                let base = values.as_mut_ptr().cast::<u8>();
                // SAFETY: as above.
                let spans = [unsafe { Span::new(base, base, elements * 4) }];
                if broadcast {
                    collective.broadcast(&spans, 2)
                } else {
                    collective.allreduce(&spans, &SUM_F32, &[])
                }
            });
            assert!(began.elapsed() < Duration::from_secs(20));
            for outcome in outcomes {
                assert!(
                    matches!(outcome, Err(Error::PeerStalled { rank: 0..=2, .. })),
                    "{outcome:?}"
                );
            }
        }
    }
}

#[test]
fn phases_are_filed() {
    let mut collectives = patient_ranks(2);
    let phases = on_threads(&mut collectives, |_, collective| {
        let mut values = vec![1.0_f32; 1 << 20];
        let base = values.as_mut_ptr().cast::<u8>();
        // SAFETY: as above.
        let spans = [unsafe { Span::new(base, base, 4 << 20) }];
        collective
            .allreduce(&spans, &SUM_F32, &[])
            .expect("nobody leaves")
    });
    for phases in phases {
        assert!(
            phases.copy_in_ns > 0 && phases.reduce_ns > 0 && phases.copy_out_ns > 0,
            "{phases:?}"
        );
    }
}

#[test]
fn nothing_to_do_touches_no_peer() {
    // Were anything waited for, this would never end: nobody else calls.
    let mut collectives = ranks(2, Duration::from_millis(100));
    assert!(collectives[0].allreduce(&[], &SUM_F32, &[]).is_ok());
    assert!(collectives[0].broadcast(&[], 1).is_ok());
}

#[test]
#[should_panic(expected = "does not fit")]
fn an_area_too_small_is_refused() {
    let (region, _file) = Region::create("ronde-test", 4096).expect("shared memory");
    Layout::new(&Area::whole(Arc::new(region)), 64);
}
