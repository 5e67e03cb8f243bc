//! Ranks that submit different operations under one name: every rank gets the same error, which
//! names both values.

use ronde::error::Mismatch;
use ronde::{Context, Dtype, Error, NegotiationError, Operation, ReduceOp};

use super::{Ask, SUM, alike, goes_on, reduce, scatter, submit_group};

const ALLTOALL: Operation<'static> = Operation::Alltoall { splits: &[] };
const BROADCAST: Operation<'static> = Operation::Broadcast { root: 0 };

fn ask(operation: Operation<'static>, shape: &'static [usize]) -> Ask<'static> {
    Ask {
        operation,
        dtype: Dtype::F32,
        shape,
    }
}

/// Checks that the error is the mismatch `what`, between the rank `odd` with its value and another
/// rank with the other value.
fn check(error: &Error, name: &str, what: &str, odd: usize, values: [&str; 2]) {
    let Error::Negotiation(NegotiationError::Mismatch(mismatch)) = error else {
        panic!("{name}: {error}");
    };
    let Mismatch {
        tensor,
        what: differs,
        first_rank,
        expected,
        rank,
        found,
    } = &**mismatch;
    assert_eq!((tensor.as_str(), differs.name()), (name, what), "{error}");
    // The order of the first requests depends on timing.
    let (others, odds) = if *rank == odd {
        ((first_rank, expected), (rank, found))
    } else {
        ((rank, found), (first_rank, expected))
    };
    assert_eq!(*odds.0, odd, "{error}");
    assert_ne!(*others.0, odd, "{error}");
    assert_eq!(
        [others.1, odds.1].map(ToString::to_string),
        values,
        "{error}"
    );
    let text = error.to_string();
    assert_eq!(
        text,
        format!(
            "mismatched {what} for tensor {name}: rank {rank} has {found}, rank {first_rank} has {expected}"
        )
    );
}

/// Submits the mismatch once uncached, and once after the ranks have agreed and cached the tensor;
/// afterwards the tensor itself works again.
fn disagree(
    context: &Context,
    name: &str,
    what: &str,
    most: Ask<'_>,
    odd: Ask<'_>,
    values: [&str; 2],
) {
    for odd_rank in [0, 2] {
        let mine = if context.rank() == odd_rank {
            odd
        } else {
            most
        };
        let error = mine.submit(context, name).expect("submitted").wait();
        let error = error.expect_err(name);
        check(&error, name, what, odd_rank, values);
        alike(context, &error);
        let agreed = most.submit(context, name).expect("submitted").wait();
        agreed.expect(name);
    }
}

/// Every parameter on which ranks must agree, for every operation.
pub(crate) fn parameters(context: &Context) {
    let operations = [
        ("allreduce", SUM),
        ("allgather", Operation::Allgather),
        ("broadcast", BROADCAST),
        ("alltoall", ALLTOALL),
        ("reducescatter", scatter(ReduceOp::Sum, 1.0, 1.0)),
    ];
    for (name, operation) in operations {
        let good = ask(operation, &[6, 2]);
        for (dtype, text) in [
            (Dtype::I32, "int32"),
            (Dtype::Bf16, "bfloat16"),
            (Dtype::Bool, "bool"),
        ] {
            let odd = Ask { dtype, ..good };
            disagree(context, name, "data types", good, odd, ["float32", text]);
        }
        let what = format!("{} tensor shapes", name.to_uppercase());
        let what = match name {
            "allgather" | "alltoall" => format!("{what} (all dimensions but the first)"),
            _ => what,
        };
        let shapes: [(&'static [usize], &str); 4] = [
            (&[6, 3], "[6, 3]"),
            (&[12], "[12]"),
            (&[6, 2, 1], "[6, 2, 1]"),
            (&[6, 0], "[6, 0]"),
        ];
        for (shape, text) in shapes {
            disagree(
                context,
                name,
                &what,
                good,
                Ask { shape, ..good },
                ["[6, 2]", text],
            );
        }
        if !what.ends_with(')') {
            let odd = ask(operation, &[9, 2]);
            disagree(context, name, &what, good, odd, ["[6, 2]", "[9, 2]"]);
        }
    }
    let scalar = ask(SUM, &[]);
    disagree(
        context,
        "scalar",
        "ALLREDUCE tensor shapes",
        ask(SUM, &[1]),
        scalar,
        ["[1]", "[]"],
    );
    let (sum, factors) = (ReduceOp::Sum, "prescale and/or postscale factors");
    for (name, with) in [
        (
            "reduce",
            reduce as fn(ReduceOp, f64, f64) -> Operation<'static>,
        ),
        ("scatter", scatter),
    ] {
        let ask = |op, prescale, postscale| ask(with(op, prescale, postscale), &[4]);
        let good = ask(sum, 1.0, 1.0);
        for (op, text) in [
            (ReduceOp::Average, "average"),
            (ReduceOp::Min, "min"),
            (ReduceOp::Max, "max"),
            (ReduceOp::Product, "product"),
        ] {
            let values = ["sum", text];
            disagree(
                context,
                name,
                "reduction operation",
                good,
                ask(op, 1.0, 1.0),
                values,
            );
        }
        let one = "prescale 1 and postscale 1";
        let values = [one, "prescale 0.5 and postscale 1"];
        disagree(context, name, factors, good, ask(sum, 0.5, 1.0), values);
        let values = [one, "prescale 1 and postscale 2"];
        disagree(context, name, factors, good, ask(sum, 1.0, 2.0), values);
    }
    // NaN, but the same on all ranks.
    let nan = ask(reduce(sum, f64::NAN, 1.0), &[4]);
    let handle = nan.submit(context, "nan").expect("submitted");
    handle.wait().expect("no disagreement");
    let values = ["prescale 1 and postscale 1", "prescale NaN and postscale 1"];
    disagree(context, "reduce", factors, ask(SUM, &[4]), nan, values);
    let elsewhere = ask(Operation::Broadcast { root: 1 }, &[4]);
    disagree(
        context,
        "root",
        "BROADCAST root ranks",
        ask(BROADCAST, &[4]),
        elsewhere,
        ["0", "1"],
    );
    goes_on(context);
}

/// Every operation against every other.
pub(crate) fn operations(context: &Context) {
    let operations = [
        ("ALLREDUCE", SUM),
        ("ALLGATHER", Operation::Allgather),
        ("BROADCAST", BROADCAST),
        ("ALLTOALL", ALLTOALL),
        ("REDUCESCATTER", scatter(ReduceOp::Sum, 1.0, 1.0)),
    ];
    for (most, good) in operations {
        for (odd, other) in operations {
            if most != odd {
                let (good, other) = (ask(good, &[3]), ask(other, &[3]));
                disagree(context, "kind", "operations", good, other, [most, odd]);
            }
        }
    }
    goes_on(context);
}

/// Group of two on one rank, no group or a group of three on the others.
pub(crate) fn groups(context: &Context) {
    let (one, odd) = (ask(SUM, &[3]), context.rank() == 1);
    for name in ["cold", "warm"] {
        for round in 0..2 {
            let handles = match (odd, round) {
                (false, _) => {
                    submit_group(context, "g", &[("a", one), ("b", one)]).expect("submitted")
                }
                (true, 0) => {
                    let alone =
                        ["a", "b"].map(|name| one.submit(context, name).expect("submitted"));
                    alone.into()
                }
                (true, _) => submit_group(context, "g", &[("a", one), ("b", one), ("c", one)])
                    .expect("submitted"),
            };
            for (handle, tensor) in handles.iter().zip(["a", "b"]) {
                let error = handle.wait().expect_err(name);
                let Error::Negotiation(NegotiationError::Mismatch(mismatch)) = &error else {
                    panic!("{error}");
                };
                let Mismatch {
                    expected, found, ..
                } = &**mismatch;
                let has = |start: &str| {
                    [expected, found]
                        .iter()
                        .any(|value| value.to_string().starts_with(start))
                };
                let other = ["no group", "a group of 3 ("][round];
                assert!(has("a group of 2 (") && has(other), "{error}");
                assert_eq!(
                    (mismatch.tensor.as_str(), mismatch.what.name()),
                    (tensor, "groups")
                );
                assert!(mismatch.rank == 1 || mismatch.first_rank == 1, "{error}");
                alike(context, &error);
            }
            if round == 1 {
                // The other ranks submit its third tensor without a group.
                let third = match handles.into_iter().nth(2) {
                    Some(third) => third,
                    None => one.submit(context, "c").expect("submitted"),
                };
                let error = third.wait().expect_err("c");
                assert!(
                    error.to_string().contains("mismatched groups for tensor c"),
                    "{error}"
                );
            }
        }
        // Agreed, in a group of its own name and of the same one; the second time the ranks have it
        // cached.
        let group = submit_group(context, "g", &[("a", one), ("b", one)]).expect("submitted");
        group
            .iter()
            .for_each(|handle| handle.wait().expect("agreed"));
        goes_on(context);
    }
}

/// Mismatch in one member: the other members of the group are executed.
pub(crate) fn one_of_a_group(context: &Context) {
    let good = ask(SUM, &[4]);
    for round in 0..3 {
        let odd = context.rank() == 2 && round != 1;
        let second = if odd { ask(SUM, &[5]) } else { good };
        let group = [("x", good), ("y", second), ("z", good)];
        let handles = submit_group(context, "h", &group).expect("submitted");
        let outcomes: Vec<_> = handles.iter().map(|handle| handle.wait()).collect();
        assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
        match &outcomes[1] {
            Ok(()) => assert_eq!(round, 1),
            Err(error) => check(error, "y", "ALLREDUCE tensor shapes", 2, ["[4]", "[5]"]),
        }
        assert_eq!(outcomes[1].is_ok(), round == 1);
    }
    goes_on(context);
}

/// Valid differences: rows of an allgather, splits of an alltoall.
pub(crate) fn rows_may_differ(context: &Context) {
    let shapes: [&'static [usize]; 3] = [&[0, 2], &[3, 2], &[6, 2]];
    let mine = shapes[context.rank()];
    for operation in [Operation::Allgather, ALLTOALL] {
        let handle = ask(operation, mine)
            .submit(context, "rows")
            .expect("submitted");
        handle.wait().expect("rows may differ");
        let delivery = handle.take_delivery().expect("a result");
        let rows = if operation == ALLTOALL { 3 } else { 9 };
        assert_eq!(delivery.shape[..], [rows, 2]);
    }
}
