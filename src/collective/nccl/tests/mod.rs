//! Tests of programs: the simulated GPU runs them for all ranks of a set, and results are compared
//! with references.

use proptest::prelude::*;

use super::*;
use crate::collective::Reduction;
use crate::collective::reference::is_sensible;
use crate::tensor::{Dtype, ReduceOp};

mod case;
mod expected;

use case::{Case, Tensor};

/// Makes a reduction without factors.
fn plain(dtype: Dtype, op: ReduceOp) -> Reduction {
    Reduction {
        dtype,
        op,
        prescale: 1.0,
        postscale: 1.0,
    }
}

const KINDS: [OpKind; 5] = [
    OpKind::Allreduce,
    OpKind::Allgather,
    OpKind::Broadcast,
    OpKind::Alltoall,
    OpKind::Reducescatter,
];

fn tensor(size: usize, inner: usize, is_in_place: bool) -> Tensor {
    Tensor {
        rows: (0..size * size).map(|at| (at * 7 + 3) % 5).collect(),
        inner,
        is_in_place,
        dropping: 0,
        shift: 0,
    }
}

#[test]
fn every_operation_is_right_for_every_type_and_number_of_ranks() {
    let factors = [(1.0, 1.0), (0.5, 1.0), (1.0, -2.0), (0.25, 3.0)];
    for size in 1..=5 {
        for kind in KINDS {
            for dtype in Dtype::ALL {
                for op in ReduceOp::ALL {
                    for (prescale, postscale) in factors {
                        let reduction = Reduction {
                            prescale,
                            postscale,
                            ..plain(dtype, op)
                        };
                        let is_one_of_many =
                            !kind.is_reduction() && reduction != plain(dtype, ReduceOp::Sum);
                        if is_one_of_many || (kind.is_reduction() && !is_sensible(&reduction)) {
                            continue;
                        }
                        for tensors in [
                            vec![tensor(size, 3, false)],
                            vec![tensor(size, 2, true), tensor(size, 5, false)],
                        ] {
                            let case = Case {
                                kind,
                                size,
                                root: size / 2,
                                reduction,
                                wire_dtype: None,
                                tensors,
                                absent: 0,
                                limit: None,
                                seed: 1,
                            };
                            case.check();
                        }
                    }
                }
            }
        }
    }
}

fn any_tensor() -> impl Strategy<Value = Tensor> {
    let rows = prop_oneof![
        Just(vec![0; 25]),
        prop::collection::vec(0..6usize, 25),
        Just(vec![4; 25])
    ];
    let inner = prop_oneof![0..3usize, 1..40usize];
    let dropping = prop_oneof![3 => Just(0), 1 => 0..32u32];
    (rows, inner, any::<bool>(), dropping, 0..3usize).prop_map(
        |(rows, inner, is_in_place, dropping, shift)| Tensor {
            rows,
            inner,
            is_in_place,
            dropping,
            shift,
        },
    )
}

fn any_case() -> impl Strategy<Value = Case> {
    let reduction = (
        prop::sample::select(&Dtype::ALL[..]),
        prop::sample::select(&ReduceOp::ALL[..]),
        prop::sample::select(&[1.0, 1.0, 0.5, 2.0][..]),
        prop::sample::select(&[1.0, 1.0, 0.25, -3.0, 1e9][..]),
    );
    let reduction = reduction.prop_map(|(dtype, op, prescale, postscale)| Reduction {
        dtype,
        op,
        prescale,
        postscale,
    });
    let reduction = reduction.prop_filter("makes sense", is_sensible);
    let wire_dtype = prop::sample::select(&[None, Some(Dtype::F16), Some(Dtype::Bf16)][..]);
    let limit = prop::option::weighted(0.4, 0..400usize);
    let absent = prop_oneof![2 => Just(0), 1 => 0..31u32];
    let tensors = prop::collection::vec(any_tensor(), 1..6);
    (
        prop::sample::select(&KINDS[..]),
        1..=5usize,
        0..5usize,
        (reduction, wire_dtype),
        tensors,
        absent,
        limit,
        any::<u64>(),
    )
        .prop_map(
            |(kind, size, root, (reduction, wire_dtype), tensors, absent, limit, seed)| Case {
                kind,
                size,
                root: root % size,
                reduction,
                wire_dtype,
                tensors,
                absent,
                limit,
                seed,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_batch_is_right(case in any_case()) {
        case.check();
    }
}

#[test]
fn one_tensor_alone_travels_without_copies() {
    for kind in [
        OpKind::Allreduce,
        OpKind::Allgather,
        OpKind::Broadcast,
        OpKind::Alltoall,
    ] {
        let case = Case {
            kind,
            size: 3,
            root: 1,
            reduction: plain(Dtype::F32, ReduceOp::Average),
            wire_dtype: None,
            tensors: vec![tensor(3, 4, false)],
            absent: 0,
            limit: None,
            seed: 3,
        };
        assert_eq!(case.check(), 0, "{kind:?} launches a kernel");
    }
}
