//! Tests of reducescatter against slices of an allreduce, including absent ranks.

use super::super::layout::{Layout, chunk_bytes};
use super::*;

/// Reduces random inputs whose shares have `elements[t * size + rank]` elements; compares every
/// rank's shares with slices of an allreduce's result, and that result with the reference.
fn check_shares(
    collectives: &mut [LocalCollective],
    reduction: &Reduction,
    elements: &[usize],
    absent: &[usize],
    seed: u64,
) {
    let (size, width) = (collectives.len(), reduction.dtype.size_bytes());
    let bytes: Vec<usize> = elements.iter().map(|elements| elements * width).collect();
    let tensors = elements.len() / size;
    let row = |t: usize| &bytes[t * size..][..size];
    let inputs: Vec<Vec<Vec<u8>>> = (0..size)
        .map(|rank| {
            let input = |t: usize| {
                let elements = row(t).iter().sum::<usize>() / width;
                reference::input(reduction.dtype, elements, seed + (100 * t + rank) as u64)
            };
            (0..tensors).map(input).collect()
        })
        .collect();
    let whole: Vec<Vec<u8>> = (0..tensors)
        .map(|t| {
            let present = (0..size).filter(|rank| !absent.contains(rank));
            let column: Vec<Vec<u8>> = present.map(|rank| inputs[rank][t].clone()).collect();
            reference::canonical(
                &reference::reduce_present(&column, size, reduction),
                reduction.dtype,
            )
        })
        .collect();
    on_threads(collectives, |rank, collective| {
        if absent.contains(&rank) {
            let spans: Vec<Span> = (0..tensors)
                .map(|t| Span::absent(row(t).iter().sum()))
                .collect();
            collective
                .allreduce(&spans, reduction, absent)
                .expect("no rank leaves");
            collective
                .reducescatter(&spans, &bytes, reduction, absent)
                .expect("no rank leaves");
            return;
        }
        let places = |output_bytes: &dyn Fn(usize) -> usize| -> Vec<OutputLayout> {
            (0..tensors)
                .map(|t| OutputLayout {
                    output_bytes: output_bytes(t),
                    input_within: None,
                })
                .collect()
        };
        let canonical = |outputs: Vec<Vec<u8>>| -> Vec<Vec<u8>> {
            outputs
                .iter()
                .map(|output| reference::canonical(output, reduction.dtype))
                .collect()
        };
        let reduced = canonical(run_placed(
            &inputs[rank],
            &places(&|t| row(t).iter().sum()),
            |spans| {
                collective
                    .allreduce(spans, reduction, absent)
                    .expect("no rank leaves");
            },
        ));
        assert!(
            reduced == whole,
            "rank {rank}, {reduction:?}, {elements:?}, absent {absent:?}"
        );
        let share = canonical(run_placed(
            &inputs[rank],
            &places(&|t| row(t)[rank]),
            |spans| {
                collective
                    .reducescatter(spans, &bytes, reduction, absent)
                    .expect("no rank leaves");
            },
        ));
        for t in 0..tensors {
            let start: usize = row(t)[..rank].iter().sum();
            assert!(
                share[t] == reduced[t][start..][..row(t)[rank]],
                "tensor {t}, rank {rank}, {reduction:?}, {elements:?}, absent {absent:?}"
            );
        }
    });
}

fn sum_of(dtype: Dtype) -> Reduction {
    Reduction { dtype, ..SUM_F32 }
}

#[test]
fn spans_of_a_reducescatter_are_slices_of_the_allreduce() {
    for size in [1, 2, 3, 5, 8] {
        let mut collectives = patient_ranks(size);
        for equal in [0, 1, 1009] {
            check_shares(&mut collectives, &SUM_F32, &vec![equal; size], &[], 1);
        }
        let uneven: Vec<usize> = (0..3 * size).map(|entry| entry * entry % 7 * 37).collect();
        check_shares(&mut collectives, &SUM_F32, &uneven, &[], 2);
        check_shares(&mut collectives, &sum_of(Dtype::Bool), &uneven, &[], 3);
    }
}

#[test]
fn every_type_and_operation_with_and_without_absent_ranks() {
    let mut collectives = patient_ranks(3);
    let elements = [35, 0, 40, 1, 17, 300];
    for dtype in Dtype::ALL {
        for op in ReduceOp::ALL {
            for (prescale, postscale) in [(1.0, 1.0), (-3.7, 0.1)] {
                let reduction = Reduction {
                    dtype,
                    op,
                    prescale,
                    postscale,
                };
                if !reference::is_sensible(&reduction) {
                    continue;
                }
                for absent in [&[][..], &[0], &[1], &[2], &[0, 2]] {
                    check_shares(&mut collectives, &reduction, &elements, absent, 4);
                }
            }
        }
    }
}

#[test]
fn shares_around_the_parts_edges() {
    for size in [2, 3] {
        let mut collectives = patient_ranks(size);
        let (region, _file) = Region::create("ronde-test", LocalCollective::required_bytes(size))
            .expect("shared memory");
        let part = Layout::new(&Area::whole(Arc::new(region)), size).part_bytes();
        let part = part / 8; // in elements of 8 bytes
        for elements in [part - 1, part, part + 1, 3 * part + 5] {
            check_shares(
                &mut collectives,
                &sum_of(Dtype::I64),
                &vec![elements; size],
                &[],
                5,
            );
        }
        // One rank owns all of it, its neighbour is absent, and parts and chunks end inside
        // tensors.
        let mut skewed = vec![0; 2 * size];
        (skewed[1], skewed[size + 1]) = (part + 3, chunk_bytes(size) / 8 + 11);
        check_shares(&mut collectives, &sum_of(Dtype::I64), &skewed, &[], 6);
        check_shares(&mut collectives, &sum_of(Dtype::I64), &skewed, &[0], 7);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_shares_and_any_absence(
        reduction in any_reduction(),
        size in 1..=6_usize,
        tensors in 0..4_usize,
        lengths in prop::collection::vec(prop_oneof![2 => Just(0), 4 => 0..300_usize, 1 => 0..60_000_usize], 18),
        absent in prop::collection::btree_set(0..6_usize, 0..3),
        seed: u32,
    ) {
        let absent: Vec<usize> = absent.into_iter().filter(|rank| *rank < size).collect();
        prop_assume!(absent.len() < size);
        let mut collectives = patient_ranks(size);
        check_shares(&mut collectives, &reduction, &lengths[..tensors * size], &absent, seed.into());
    }
}
