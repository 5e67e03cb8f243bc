//! Bad input that one rank detects alone: refused at once and on that rank only, with nothing in
//! flight afterwards.

#![allow(unsafe_code)] // submits the test's own buffers

use ronde::{
    ArgumentError, Context, Dtype, Error, Failed, Operation, ProcessSetError, RawOutput, RawTensor,
    Reduce, ReduceOp,
};

use super::{Ask, SUM, goes_on, reduce, says, scatter, submit_group};

fn refused(
    context: &Context,
    operation: Operation<'_>,
    dtype: Dtype,
    shape: &[usize],
    text: &str,
) -> Error {
    let ask = Ask {
        operation,
        dtype,
        shape,
    };
    let error = ask.submit(context, "t").expect_err("refused");
    says(&error, text);
    error
}

/// Averages and scale factors of booleans.
pub(crate) fn dtypes(context: &Context) {
    let average = "average is not defined for bool (tensor t); convert the tensor first, or use another operation";
    let factor = "a scale factor is not defined for bool (tensor t); convert the tensor first, or use another operation";
    for (op, prescale, postscale, text) in [
        (ReduceOp::Average, 1.0, 1.0, average),
        (ReduceOp::Sum, 0.5, 1.0, factor),
        (ReduceOp::Max, 1.0, 2.0, factor),
    ] {
        for with in [reduce, scatter] {
            let error = refused(
                context,
                with(op, prescale, postscale),
                Dtype::Bool,
                &[3],
                text,
            );
            let invalid = matches!(
                &error,
                Error::Argument(ArgumentError::InvalidDtype { tensor, dtype: Dtype::Bool, .. }) if tensor == "t"
            );
            assert!(invalid, "{error:?}");
        }
    }
    let failed = context.allreduce("t", vec![true; 3], ReduceOp::Average);
    assert_eq!(
        failed.expect_err("refused").buffer,
        [true; 3],
        "it comes back"
    );
    let failed = context.grouped_allreduce("t", vec![vec![true]; 2], ReduceOp::Average);
    assert_eq!(failed.expect_err("refused").buffer.len(), 2);
}

/// Tensors without rows.
pub(crate) fn scalars(context: &Context) {
    for (operation, name) in [
        (Operation::Allgather, "ALLGATHER"),
        (Operation::Alltoall { splits: &[] }, "ALLTOALL"),
        (scatter(ReduceOp::Sum, 1.0, 1.0), "REDUCESCATTER"),
    ] {
        let text =
            format!("{name} of tensor t, which is a rank-zero tensor: give it a first dimension");
        let error = refused(context, operation, Dtype::F32, &[], &text);
        assert!(
            matches!(error, Error::Argument(ArgumentError::NoRows { operation, .. }) if operation == name)
        );
    }
    // These operations accept them.
    for operation in [SUM, Operation::Broadcast { root: 0 }] {
        let ask = Ask {
            operation,
            dtype: Dtype::F32,
            shape: &[],
        };
        ask.submit(context, "t")
            .expect("submitted")
            .wait()
            .expect("done");
    }
}

/// Shapes that do not match the buffer.
pub(crate) fn shapes(context: &Context) {
    let text = |shape: &str, expected: usize, found: usize| {
        format!("shape {shape} of tensor t has {expected} elements, its buffer {found}")
    };
    let check = |failed: Failed<Vec<u8>>, text: String| {
        assert!(
            matches!(
                failed.error,
                Error::Argument(ArgumentError::ShapeMismatch { .. })
            ),
            "{failed:?}"
        );
        says(&failed.error, &text);
    };
    let shaped = || Reduce::from(ReduceOp::Sum).shape(&[2, 3]);
    let five = || vec![0u8; 5];
    check(
        context
            .allreduce("t", five(), shaped())
            .expect_err("refused"),
        text("[2, 3]", 6, 5),
    );
    check(
        context
            .reducescatter("t", five(), shaped())
            .expect_err("refused"),
        text("[2, 3]", 6, 5),
    );
    check(
        context.allgather("t", five(), &[4]).expect_err("refused"),
        text("[4]", 4, 5),
    );
    check(
        context
            .alltoall("t", five(), &[], &[])
            .expect_err("refused"),
        text("[]", 1, 5),
    );
    let huge = context.allgather("t", five(), &[1 << 40, 1 << 40]);
    let huge = huge.expect_err("refused").error;
    let is_too_large = matches!(huge, Error::Argument(ArgumentError::ShapeTooLarge { .. }));
    assert!(is_too_large, "{huge:?}");
    says(
        &huge,
        &format!(
            "shape [{0}, {0}] of tensor t has more elements than memory can hold",
            1u64 << 40
        ),
    );
    let failed = context.grouped_allgather("g", vec![(five(), &[5]), (five(), &[6])]);
    let failed = failed.expect_err("refused");
    says(
        &failed.error,
        "shape [6] of tensor g_2of2 has 6 elements, its buffer 5",
    );
}

/// Splits that are too few, too many, or do not add up to the rows.
pub(crate) fn splits(context: &Context) {
    let cases: [(&[usize], &str); 5] = [
        (&[1], "[1]"),
        (&[1, 2, 3], "[1, 2, 3]"),
        (&[3, 4], "[3, 4]"),
        (&[0, 0], "[0, 0]"),
        (&[usize::MAX, 7], "[18446744073709551615, 7]"),
    ];
    for (splits, shown) in cases {
        let text = format!(
            "splits {shown} of tensor t must be 2 numbers, one per rank, that add up to its 6 rows"
        );
        let error = refused(
            context,
            Operation::Alltoall { splits },
            Dtype::F32,
            &[6, 2],
            &text,
        );
        assert!(matches!(
            error,
            Error::Argument(ArgumentError::InvalidSplits {
                size: 2,
                rows: 6,
                ..
            })
        ));
    }
    let text = "the 7 rows of tensor t are not an even multiple of 2 ranks; give the splits of its alltoall";
    let error = refused(
        context,
        Operation::Alltoall { splits: &[] },
        Dtype::F32,
        &[7],
        text,
    );
    assert!(matches!(
        error,
        Error::Argument(ArgumentError::UnevenRows {
            rows: 7,
            size: 2,
            ..
        })
    ));
    let (shape, good, bad): (&[usize], &[usize], &[usize]) = (&[2], &[1, 1], &[2]);
    let failed = context.grouped_alltoall(
        "g",
        vec![(vec![0u8; 2], shape, good), (vec![0u8; 2], shape, bad)],
    );
    let failed = failed.expect_err("refused");
    assert!(
        matches!(failed.error, Error::Argument(ArgumentError::InvalidSplits { ref tensor, .. }) if tensor == "g_2of2")
    );
}

/// Roots that are not ranks.
pub(crate) fn roots(context: &Context) {
    for root in [2, usize::MAX] {
        let text = format!("invalid root rank {root} for tensor t: ranks are 0..2");
        let error = refused(
            context,
            Operation::Broadcast { root },
            Dtype::F32,
            &[1],
            &text,
        );
        assert!(
            matches!(error, Error::Argument(ArgumentError::InvalidRoot { root: found, size: 2, .. }) if found == root)
        );
    }
    assert!(context.grouped_broadcast("g", vec![vec![1u8]], 2).is_err());
}

/// Sets that cannot be added in this job.
pub(crate) fn fixed_sets(context: &Context) {
    let text = "process sets are fixed when the context is made; set HOROVOD_DYNAMIC_PROCESS_SETS=1 on all ranks to \
                add and remove them later";
    let added = context.add_process_set(&[0]).expect_err("refused");
    let removed = context.remove_process_set(context).expect_err("refused");
    for error in [added, removed] {
        assert!(matches!(error, Error::ProcessSet(ProcessSetError::Static)));
        says(&error, text);
    }
}

/// Name that is in flight.
pub(crate) fn twice(context: &Context) {
    let rank = context.rank();
    let submit = |value: i32| context.allreduce("twice", vec![value], ReduceOp::Sum);
    if rank == 1 {
        context.barrier().expect("all come"); // rank 0's first tensor cannot be complete before
    }
    let first = submit(1).expect("submitted");
    if rank == 0 {
        let failed = submit(7).expect_err("refused");
        assert!(matches!(
            failed.error,
            Error::Argument(ArgumentError::DuplicateName { rank: 0, .. })
        ));
        says(
            &failed.error,
            "tensor twice is already in flight on rank 0; wait for its handle, or give this one another name",
        );
        assert_eq!(failed.buffer, [7], "it comes back");
        let other = context
            .broadcast("twice", vec![7u8], 0)
            .expect_err("whatever the operation");
        assert!(matches!(
            other.error,
            Error::Argument(ArgumentError::DuplicateName { .. })
        ));
        context.barrier().expect("all come");
    }
    assert_eq!(first.wait().expect("done"), [2]);
    assert_eq!(submit(3).expect("free again").wait().expect("done"), [6]);
    let reserved = context.allreduce("ronde.join", vec![7u8], ReduceOp::Sum);
    let reserved = reserved.expect_err("the runtime's own name");
    assert!(
        matches!(&reserved.error, Error::Argument(ArgumentError::ReservedName { tensor }) if tensor == "ronde.join")
    );
}

/// Member of a group that is in flight, or twice in the group: no tensor of the group is then in
/// flight.
pub(crate) fn twice_in_a_group(context: &Context) {
    let one = Ask {
        operation: SUM,
        dtype: Dtype::I64,
        shape: &[2],
    };
    let submit = |name: &str| one.submit(context, name).expect("submitted");
    if context.rank() == 1 {
        context.barrier().expect("all come");
    }
    let first = submit("g_2of3");
    if context.rank() == 0 {
        let error = context.grouped_allreduce("g", vec![vec![0i64; 2]; 3], ReduceOp::Sum);
        let failed = error.expect_err("refused");
        assert!(
            matches!(&failed.error, Error::Argument(ArgumentError::DuplicateName { tensor, rank: 0 }) if tensor == "g_2of3")
        );
        assert_eq!(failed.buffer.len(), 3, "they come back");
        let error = submit_group(context, "g", &[("p", one), ("q", one), ("p", one)]).err();
        assert!(
            matches!(error, Some(Error::Argument(ArgumentError::DuplicateName { ref tensor, .. })) if tensor == "p")
        );
        context.barrier().expect("all come");
    }
    first.wait().expect("done");
    // None of them is in flight on rank 0: all can be submitted, and all ranks agree.
    let names = ["g_1of3", "g_2of3", "g_3of3", "p", "q"];
    let handles = names.map(submit);
    handles
        .iter()
        .for_each(|handle| handle.wait().expect("done"));
}

/// Output memory that is too small or too large: an error on this rank, while the others continue.
pub(crate) fn outputs(context: &Context) {
    let (input, mut output) = ([1u8; 6], [0u8; 64]);
    let operations = [
        (SUM, 6, true),
        (Operation::Broadcast { root: 0 }, 6, true),
        (Operation::Allgather, 12, false),
        (Operation::Alltoall { splits: &[] }, 6, false),
        (scatter(ReduceOp::Sum, 1.0, 1.0), 3, false),
    ];
    for (operation, right, at_once) in operations {
        for wrong in [right - 1, right + 1, 0] {
            let submit = |bytes: usize, output: &mut [u8]| {
                let tensor = RawTensor {
                    name: "sized",
                    dtype: Dtype::U8,
                    wire_dtype: None,
                    shape: &[6],
                    device: ronde::Device::Cpu,
                    input: input.as_ptr(),
                    output: RawOutput::Into {
                        address: output.as_mut_ptr(),
                        bytes,
                    },
                };
                // SAFETY: the arrays are long enough, and are not accessed before the handle has
                // been waited for.
                unsafe { context.submit(&operation, &tensor) }
            };
            let mut outcome = Ok(());
            if context.rank() == 0 || !at_once {
                let bytes = if context.rank() == 0 { wrong } else { right };
                outcome = submit(bytes, &mut output).and_then(|handle| handle.wait());
            }
            if context.rank() == 0 {
                let error = outcome.expect_err("refused");
                assert!(
                    matches!(error, Error::Argument(ArgumentError::OutputSize { .. })),
                    "{error}"
                );
                says(
                    &error,
                    &format!(
                        "the result of tensor sized has shape [{right}], {right} bytes; the memory given for it has \
                         {wrong}"
                    ),
                );
            } else {
                outcome.expect("this rank's memory is right");
            }
            if context.rank() == 0 {
                assert_eq!(output, [0; 64], "nothing is written");
            }
            let handle = submit(right, &mut output).expect("submitted");
            handle.wait().expect("right");
            assert!(
                output[right..].iter().all(|&byte| byte == 0),
                "nothing beyond"
            );
            output.fill(0);
        }
    }
    // Also through borrowed slices.
    let (mut short, mut right) = ([0u8; 11], [0u8; 12]);
    let output = if context.rank() == 0 {
        &mut short[..]
    } else {
        &mut right[..]
    };
    let outcome = context.scope(|scope| scope.allgather("lent", &input, &[6], output)?.wait());
    assert_eq!(outcome.is_err(), context.rank() == 0);
    assert_eq!((short, right[0]), ([0; 11], context.rank() as u8));
}

/// Tensors without elements are valid, for every operation and element type.
pub(crate) fn nothing_at_all(context: &Context) {
    let operations = [
        SUM,
        Operation::Broadcast { root: 1 },
        Operation::Allgather,
        Operation::Alltoall { splits: &[0, 0] },
        scatter(ReduceOp::Max, 1.0, 1.0),
    ];
    for dtype in Dtype::ALL {
        for operation in operations {
            let ask = Ask {
                operation,
                dtype,
                shape: &[0, 5],
            };
            ask.submit(context, "empty")
                .expect("submitted")
                .wait()
                .expect("done");
        }
    }
    // Rows without elements, of any length.
    let got = context
        .allgather("wide", Vec::<u8>::new(), &[3, 0])
        .expect("submitted");
    assert_eq!(got.wait().expect("done").shape, [6, 0]);
    let wide = [0, 1 << 40];
    let got = context
        .allgather("none", Vec::<u8>::new(), &wide)
        .expect("submitted");
    assert_eq!(got.wait().expect("done").shape, wide);
    // Rows longer than the address space are refused, also if there are none.
    for longer in [[0, 1 << 40, 1 << 40], [1 << 40, 1 << 40, 0]] {
        let failed = context.allgather("longer", Vec::<u8>::new(), &longer);
        let error = failed.expect_err("refused").error;
        assert!(
            matches!(error, Error::Argument(ArgumentError::ShapeTooLarge { .. })),
            "{error}"
        );
    }
    let group = context.grouped_allreduce("nobody", Vec::<Vec<u8>>::new(), ReduceOp::Sum);
    assert!(group.expect("submitted").wait().expect("done").is_empty());
    goes_on(context);
}
