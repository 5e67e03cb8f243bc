//! Handles that are waited for twice or dropped, joined ranks, and contexts after their shutdown.

#![allow(unsafe_code)] // a buffer that counts its drops

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ronde::{
    ArgumentError, Buffer, Context, Dtype, Error, NegotiationError, Operation, ProcessSetError,
    ReduceOp,
};

use super::{Ask, SUM, goes_on, says};

const ONE: Ask<'static> = Ask {
    operation: SUM,
    dtype: Dtype::F64,
    shape: &[3],
};

/// Waiting twice returns the same outcome; the output is delivered once.
pub(crate) fn waits_again(context: &Context) {
    let handle = ONE.submit(context, "again").expect("submitted");
    for _ in 0..3 {
        handle.wait().expect("done");
        assert!(handle.is_done());
    }
    assert!(handle.take_delivery().is_some());
    assert!(handle.take_delivery().is_none());
    // Also while its name is in use again.
    let odd = context.rank() == 1;
    let shape: &[usize] = if odd { &[4] } else { &[3] };
    let refused = Ask { shape, ..ONE }
        .submit(context, "again")
        .expect("submitted");
    let errors = [(); 2].map(|()| refused.wait().expect_err("shapes differ"));
    let third = ONE.submit(context, "again").expect("submitted");
    third.wait().expect("done");
    let again = refused.wait().expect_err("as before");
    assert!(again.is_mismatch());
    assert_eq!(
        errors.map(|error| error.to_string()),
        [(); 2].map(|()| again.to_string())
    );
    handle.wait().expect("as before");
    assert!(matches!(handle.wait_timeout(Duration::ZERO), Some(Ok(()))));
}

/// Buffer that counts when it is freed.
struct Counted {
    elements: Vec<f32>,
    freed: Arc<AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.freed.fetch_add(1, Ordering::SeqCst);
    }
}

// SAFETY: the elements lie on the heap and stay there while the buffer is only moved.
unsafe impl Buffer for Counted {
    type Element = f32;
    fn elements(&self) -> usize {
        self.elements.len()
    }
    fn address(&mut self) -> *mut u8 {
        self.elements.as_mut_ptr().cast()
    }
}

/// Dropped handles: the operation is still performed, and the buffer is freed once, when it is no
/// longer used.
pub(crate) fn dropped(context: &Context) {
    let freed = Arc::new(AtomicUsize::new(0));
    let buffer = || Counted {
        elements: vec![1.0; 3000],
        freed: Arc::clone(&freed),
    };
    let is_freed = |count: usize| {
        let began = Instant::now();
        while freed.load(Ordering::SeqCst) < count && began.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
        assert_eq!(freed.load(Ordering::SeqCst), count);
    };
    if context.rank() == 1 {
        context.barrier().expect("all come");
    }
    let first = context.allreduce("dropped", buffer(), ReduceOp::Sum);
    drop(first.map_err(|failed| failed.error).expect("submitted"));
    let group = context.grouped_allreduce("group", vec![buffer(), buffer()], ReduceOp::Sum);
    drop(group.map_err(|failed| failed.error).expect("submitted"));
    let rows = context.allgather("rows", buffer(), &[3000]);
    drop(rows.map_err(|failed| failed.error).expect("submitted"));
    if context.rank() == 0 {
        // The other rank has submitted nothing: all of them are in use.
        assert_eq!(freed.load(Ordering::SeqCst), 0);
        let failed = context.allreduce("dropped", vec![1.0f32], ReduceOp::Sum);
        let error = failed.expect_err("still in flight").error;
        assert!(
            matches!(error, Error::Argument(ArgumentError::DuplicateName { .. })),
            "{error}"
        );
        context.barrier().expect("all come");
    }
    is_freed(4);
    // One whose handle is dropped after it is done, one that is refused in flight, and one that is
    // refused at once.
    let handle = context.allreduce("dropped", buffer(), ReduceOp::Sum);
    let handle = handle.map_err(|failed| failed.error).expect("submitted");
    while !handle.is_done() {
        std::thread::yield_now();
    }
    assert_eq!(freed.load(Ordering::SeqCst), 4);
    drop(handle);
    is_freed(5);
    let op = [ReduceOp::Sum, ReduceOp::Max][context.rank()];
    let handle = context.allreduce("dropped", buffer(), op);
    drop(handle.map_err(|failed| failed.error).expect("submitted"));
    is_freed(6);
    drop(context.broadcast("dropped", buffer(), 9));
    is_freed(7);
}

/// Submissions of a joined rank, and operations of others that need it.
pub(crate) fn joined(context: &Context) {
    let rank = context.rank();
    if rank == 0 {
        std::thread::scope(|threads| {
            let join = threads.spawn(|| context.join());
            // Until the other thread has joined, this is an ordinary submission, which the other
            // ranks join in eventually.
            let began = Instant::now();
            let error = (0..)
                .find_map(|attempt| {
                    assert!(began.elapsed() < Duration::from_secs(20), "never joined");
                    ONE.submit(context, &format!("late.{attempt}")).err()
                })
                .expect("an endless search");
            assert!(
                matches!(
                    error,
                    Error::Argument(ArgumentError::HasJoined { rank: 0, .. })
                ),
                "{error}"
            );
            let text = error.to_string();
            assert!(
                text.starts_with("rank 0 has joined and cannot submit tensor late."),
                "{text}"
            );
            let group = context.grouped_allreduce("late", vec![vec![1.0f32]; 2], ReduceOp::Sum);
            let failed = group.expect_err("refused");
            assert!(
                matches!(&failed.error, Error::Argument(ArgumentError::HasJoined { tensor, .. }) if tensor == "late_1of2")
            );
            assert!(matches!(
                context.barrier(),
                Err(Error::Argument(ArgumentError::HasJoined { .. }))
            ));
            assert!(matches!(
                context.join(),
                Err(Error::Argument(ArgumentError::HasJoined { .. }))
            ));
            let last = join.join().expect("no panic").expect("all join");
            assert_ne!(last, 0);
        });
    } else {
        // Ordinary tensors are executed without rank 0; a broadcast from it fails.
        for round in 0..2 {
            let sum = context
                .allreduce("two", vec![1i32], ReduceOp::Sum)
                .expect("submitted");
            sum.wait().expect("done");
            let ask = Ask {
                operation: Operation::Broadcast { root: 0 },
                ..ONE
            };
            let error = ask.submit(context, "from 0").expect("submitted").wait();
            let error = error.expect_err("its root has joined");
            assert!(
                matches!(
                    error,
                    Error::Negotiation(NegotiationError::RankJoined { rank: 0, .. })
                ),
                "round {round}: {error}"
            );
            says(
                &error,
                "tensor from 0 needs rank 0, which has joined and has no more data",
            );
        }
        let from_1 = context
            .broadcast("from 1", vec![rank as i64], 1)
            .expect("submitted");
        assert_eq!(from_1.wait().expect("rank 1 has not joined"), [1]);
        context.join().expect("all join");
    }
    goes_on(context);
}

/// All calls after the shutdown, through a reference to a process set that outlives the context.
pub(crate) fn shut_down(context: Context) {
    let pair = context.add_process_set(&[0, 1]);
    let exists = pair.expect_err("the set of all ranks has these");
    says(
        &exists,
        "process set of ranks [0, 1]: process set 0 has the same ranks; use that one",
    );
    let single = context.add_process_set(&[1]).expect("added");
    let world = context.process_set(0).expect("the first set");
    goes_on(&context);
    context.barrier().expect("all come");
    let done = ONE.submit(&world, "done").expect("submitted");
    done.wait().expect("done");
    let rank = context.rank();
    context.shutdown();
    let text = "the context has been shut down; create a new one before submitting tensors";
    let refused = ONE.submit(&world, "late").expect_err("refused");
    assert!(refused.is_shut_down());
    says(&refused, text);
    let failed = world
        .allreduce("late", vec![4u8; 3], ReduceOp::Sum)
        .expect_err("refused");
    assert!(failed.error.is_shut_down());
    assert_eq!(failed.buffer, [4; 3], "it comes back");
    assert!(
        world
            .grouped_allreduce("late", vec![vec![1u8]], ReduceOp::Sum)
            .is_err()
    );
    assert!(matches!(world.barrier(), Err(Error::ShutDown)));
    assert!(matches!(world.join(), Err(Error::ShutDown)));
    if rank == 1 {
        assert!(matches!(single.barrier(), Err(Error::ShutDown)));
    } else {
        assert!(matches!(
            single.barrier(),
            Err(Error::ProcessSet(ProcessSetError::NotAMember { .. }))
        ));
    }
    done.wait().expect("as before");
}

/// Tensors with names that the runtime uses internally: they are unrelated.
pub(crate) fn names_of_its_own(context: &Context) {
    let sum = |name: &str| {
        context
            .allreduce(name, vec![1i32], ReduceOp::Sum)
            .expect("submitted")
    };
    if context.rank() == 0 {
        let (barrier, join) = (sum("barrier"), sum("join"));
        context.barrier().expect("all come");
        let others = [barrier.wait().expect("done"), join.wait().expect("done")];
        assert_eq!(others, [[3], [3]]);
        context.join().expect("all join");
    } else {
        context.barrier().expect("all come");
        assert_eq!(sum("barrier").wait().expect("done"), [3]);
        assert_eq!(sum("join").wait().expect("done"), [3]);
        context.join().expect("all join");
    }
    goes_on(context);
}
