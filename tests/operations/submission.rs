//! Operations between real processes: orders, forms of submission, and refusals. (`matrix` tests
//! all results.)

use crate::support::{Draw, job};
use ronde::{ArgumentError, Context, Error, Reduce, ReduceOp};

fn context() -> Context {
    Context::from_env().expect("the job starts")
}

/// Returns every rank's contribution to element `index` of tensor `tensor`: small integers, exact
/// in every type.
fn value(rank: usize, tensor: usize, index: usize) -> i64 {
    ((rank + 1) * (tensor % 3 + 1) + index % 5) as i64
}

#[test]
fn ranks_may_submit_in_any_order_and_at_any_time() {
    job(
        "submission::ranks_may_submit_in_any_order_and_at_any_time",
        5,
        || {
            let context = context();
            let mut draw = Draw(0x9e37_79b9 + context.rank() as u64);
            for step in 0..40 {
                let mut order: Vec<usize> = (0..30).collect();
                for index in (1..order.len()).rev() {
                    order.swap(index, draw.below(index as u64 + 1) as usize);
                }
                let mut handles: Vec<(usize, _)> = Vec::new();
                for tensor in order {
                    if draw.below(8) == 0 {
                        std::thread::sleep(std::time::Duration::from_micros(draw.below(300)));
                    }
                    let length = 1 + 97 * tensor + usize::from(step == 20 && tensor == 3);
                    let buffer: Vec<i64> = (0..length)
                        .map(|index| value(context.rank(), tensor, index))
                        .collect();
                    let name = format!("t{tensor}");
                    handles.push((
                        tensor,
                        context
                            .allreduce(&name, buffer, ReduceOp::Sum)
                            .expect("submitted"),
                    ));
                }
                for (tensor, handle) in handles {
                    for (index, got) in handle.wait().expect("reduced").into_iter().enumerate() {
                        let want: i64 = (0..context.size())
                            .map(|rank| value(rank, tensor, index))
                            .sum();
                        assert_eq!(got, want, "step {step}, tensor {tensor}");
                    }
                }
            }
        },
    );
}

#[test]
fn eight_ranks_end_with_the_same_bits_whatever_the_fusion() {
    job(
        "submission::eight_ranks_end_with_the_same_bits_whatever_the_fusion",
        8,
        || {
            let context = context();
            let numbers = |tensor: usize| -> Vec<f32> {
                let mut draw = Draw(7 + (context.rank() * 100 + tensor) as u64);
                (0..5_000)
                    .map(|_| (draw.next() as f32 / 1e12).sin())
                    .collect()
            };
            // Fused: all at once. Alone: one after another.
            let handles: Vec<_> = (0..10)
                .map(|tensor| {
                    context
                        .allreduce(&format!("f{tensor}"), numbers(tensor), ReduceOp::Average)
                        .expect("in")
                })
                .collect();
            for (tensor, handle) in handles.into_iter().enumerate() {
                let fused = handle.wait().expect("reduced");
                let alone = context
                    .allreduce("alone", numbers(tensor), ReduceOp::Average)
                    .expect("in")
                    .wait()
                    .expect("out");
                let bits = |numbers: &[f32]| {
                    numbers
                        .iter()
                        .map(|number| number.to_bits())
                        .collect::<Vec<u32>>()
                };
                assert_eq!(bits(&fused), bits(&alone));
                // Also equal on every rank: the largest and smallest bit patterns are equal.
                let hash = bits(&fused).iter().fold(0i64, |hash, &bits| {
                    hash.wrapping_mul(31).wrapping_add(i64::from(bits))
                });
                let high = context
                    .allreduce("high", vec![hash], ReduceOp::Max)
                    .expect("in")
                    .wait()
                    .expect("out");
                let low = context
                    .allreduce("low", vec![hash], ReduceOp::Min)
                    .expect("in")
                    .wait()
                    .expect("out");
                assert_eq!(high, low);
            }
        },
    );
}

#[test]
fn broadcast_barrier_scale_factors_and_borrowed_slices() {
    job(
        "submission::broadcast_barrier_scale_factors_and_borrowed_slices",
        3,
        || {
            let context = context();
            let rank = context.rank();
            for root in 0..context.size() {
                let mine = vec![rank as f64; 200_000];
                let got = context
                    .broadcast(&format!("b{root}"), mine, root)
                    .expect("in")
                    .wait()
                    .expect("out");
                assert!(got.iter().all(|&number| number == root as f64));
            }
            context.barrier().expect("all come");
            let scaled = Reduce::from(ReduceOp::Sum)
                .prescale(0.5)
                .postscale(4.0)
                .shape(&[2, 2]);
            let got = context
                .allreduce("scaled", vec![1.0f32, 2.0, 3.0, 4.0], scaled)
                .expect("in")
                .wait()
                .expect("out");
            assert_eq!(got, [6.0, 12.0, 18.0, 24.0]);
            let (mut a, mut b) = ([rank as f32; 3], [rank as i64]);
            context
                .scope(|scope| {
                    let first = scope.allreduce("a", &mut a, ReduceOp::Sum)?;
                    drop(scope.allreduce("b", &mut b, ReduceOp::Max)?); // the scope waits for it
                    first.wait()
                })
                .expect("out");
            assert_eq!((a, b), ([3.0; 3], [2]));
        },
    );
}

#[test]
fn handles_can_be_polled_awaited_and_dropped() {
    job(
        "submission::handles_can_be_polled_awaited_and_dropped",
        2,
        || {
            let context = context();
            let awaited = async {
                let first = context
                    .allreduce("x", vec![1i32; 10], ReduceOp::Sum)
                    .expect("in");
                let second = context
                    .allreduce("y", vec![2i32; 10], ReduceOp::Sum)
                    .expect("in");
                (first.await.expect("out"), second.await.expect("out"))
            };
            let (x, y) = block_on(awaited);
            assert_eq!((x, y), (vec![2; 10], vec![4; 10]));
            for _ in 0..50 {
                drop(
                    context
                        .allreduce("dropped", vec![1.0f32; 10_000], ReduceOp::Sum)
                        .expect("in"),
                );
                let handle = context
                    .allreduce("kept", vec![1.0f32], ReduceOp::Sum)
                    .expect("in");
                while !handle.is_done() {
                    std::thread::yield_now();
                }
                assert_eq!(handle.wait().expect("out"), [2.0]);
                context.barrier().expect("all come"); // the dropped one is complete as well
            }
        },
    );
}

/// Minimal executor: parks the thread until it is woken.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut future = std::pin::pin!(future);
    loop {
        match future
            .as_mut()
            .poll(&mut std::task::Context::from_waker(&waker))
        {
            std::task::Poll::Ready(value) => return value,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn mismatches_name_both_ranks_and_values_and_the_job_goes_on() {
    job(
        "submission::mismatches_name_both_ranks_and_values_and_the_job_goes_on",
        3,
        || {
            let context = context();
            let odd = context.rank() == 2;
            let check = |error: Error, what: &str, values: [&str; 2]| {
                let text = error.to_string();
                assert!(error.is_mismatch(), "{text}");
                for part in [what, "rank 2", values[0], values[1]] {
                    assert!(text.contains(part), "{part:?} in {text:?}");
                }
            };
            for round in 0..3 {
                // Twice the same, so that in later rounds the correct one is cached.
                let sum = |length: usize| {
                    context
                        .allreduce("t", vec![1.0f32; length], ReduceOp::Sum)
                        .expect("in")
                        .wait()
                };
                assert_eq!(sum(4).expect("agrees")[0], 3.0, "round {round}");
                let failed = sum(if odd { 5 } else { 4 }).expect_err("shapes differ");
                assert_eq!(
                    failed.buffer.len(),
                    if odd { 5 } else { 4 },
                    "the buffer comes back"
                );
                check(failed.error, "shapes", ["[4]", "[5]"]);

                let op = if odd { ReduceOp::Max } else { ReduceOp::Sum };
                let failed = context
                    .allreduce("t", vec![1.0f32; 4], op)
                    .expect("in")
                    .wait()
                    .expect_err("ops differ");
                check(failed.error, "reduction", ["sum", "max"]);

                let scale = Reduce::from(ReduceOp::Sum).prescale(if odd { 2.0 } else { 1.0 });
                let failed = context
                    .allreduce("t", vec![1.0f32; 4], scale)
                    .expect("in")
                    .wait()
                    .expect_err("scales differ");
                check(failed.error, "factors", ["prescale 1", "prescale 2"]);

                let error = if odd {
                    context
                        .allreduce("t", vec![1.0f64; 4], ReduceOp::Sum)
                        .expect("in")
                        .wait()
                        .expect_err("types")
                        .error
                } else {
                    context
                        .allreduce("t", vec![1.0f32; 4], ReduceOp::Sum)
                        .expect("in")
                        .wait()
                        .expect_err("types")
                        .error
                };
                check(error, "data types", ["float32", "float64"]);

                let root = usize::from(odd);
                let failed = context
                    .broadcast("b", vec![1i64], root)
                    .expect("in")
                    .wait()
                    .expect_err("roots differ");
                check(failed.error, "root", ["has 0", "has 1"]);

                let error = if odd {
                    context
                        .broadcast("k", vec![1.0f32], 0)
                        .expect("in")
                        .wait()
                        .expect_err("operations differ")
                        .error
                } else {
                    context
                        .allreduce("k", vec![1.0f32], ReduceOp::Sum)
                        .expect("in")
                        .wait()
                        .expect_err("operations")
                        .error
                };
                check(error, "operations", ["ALLREDUCE", "BROADCAST"]);
            }
        },
    );
}

#[test]
fn input_that_is_wrong_on_one_rank_is_refused_at_once() {
    job(
        "submission::input_that_is_wrong_on_one_rank_is_refused_at_once",
        2,
        || {
            let context = context();
            let first = context
                .allreduce("twice", vec![1.0f32], ReduceOp::Sum)
                .expect("in");
            if context.rank() == 0 {
                // The other rank has not submitted `early` yet: it is still in flight here.
                let early = context
                    .allreduce("early", vec![1.0f32; 2], ReduceOp::Sum)
                    .expect("in");
                let failed = context
                    .allreduce("early", vec![7.0f32; 2], ReduceOp::Sum)
                    .expect_err("in flight");
                assert!(
                    matches!(
                        failed.error,
                        Error::Argument(ArgumentError::DuplicateName { rank: 0, .. })
                    ),
                    "{}",
                    failed.error
                );
                assert_eq!(failed.buffer, [7.0; 2]);
                context.barrier().expect("all come");
                assert_eq!(early.wait().expect("out"), [2.0; 2]);
            } else {
                context.barrier().expect("all come");
                context
                    .allreduce("early", vec![1.0f32; 2], ReduceOp::Sum)
                    .expect("in")
                    .wait()
                    .expect("out");
            }
            assert_eq!(first.wait().expect("out"), [2.0]);
            let failed = context
                .broadcast("b", vec![1.0f32], 2)
                .expect_err("no such root");
            assert_eq!(
                failed.error.to_string(),
                "invalid root rank 2 for tensor b: ranks are 0..2"
            );
            let shaped = Reduce::from(ReduceOp::Sum).shape(&[3, 2]);
            let failed = context
                .allreduce("s", vec![1.0f32; 5], shaped)
                .expect_err("shape does not fit");
            assert!(
                matches!(
                    failed.error,
                    Error::Argument(ArgumentError::ShapeMismatch {
                        expected: 6,
                        found: 5,
                        ..
                    })
                ),
                "{}",
                failed.error
            );
        },
    );
}
