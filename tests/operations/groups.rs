//! Groups between real processes: tensors that are submitted together are executed together.

#![allow(unsafe_code)] // submits the test's own buffers

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::support::{Folder, job, job_separately, job_with};
use ronde::{ArgumentError, Context, Error, Operation, RawOutput, RawTensor, ReduceOp};

fn context() -> Context {
    Context::from_env().expect("the job starts")
}

/// Returns from rank 0's timeline, for each tensor, the starts and ends of its operations
/// (microseconds).
fn movements(timeline: &Path) -> BTreeMap<String, Vec<(u64, u64)>> {
    let text = std::fs::read_to_string(timeline).expect("written");
    let events: Vec<serde_json::Value> = serde_json::from_str(&text).expect("JSON");
    let mut names = BTreeMap::new();
    let mut open: BTreeMap<u64, Vec<(String, u64)>> = BTreeMap::new();
    let mut movements: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
    for event in &events {
        let tensor = event["pid"].as_u64().unwrap_or(0);
        let (ts, name) = (
            event["ts"].as_u64().unwrap_or(0),
            event["name"].as_str().unwrap_or(""),
        );
        match event["ph"].as_str() {
            Some("M") if name == "process_name" => {
                names.insert(
                    tensor,
                    event["args"]["name"].as_str().unwrap_or("").to_owned(),
                );
            }
            Some("B") => open.entry(tensor).or_default().push((name.to_owned(), ts)),
            Some("E") => {
                let (activity, began) = open
                    .get_mut(&tensor)
                    .and_then(Vec::pop)
                    .expect("begun before");
                if ["SHM_", "MPI_", "TCP_"]
                    .iter()
                    .any(|prefix| activity.starts_with(prefix))
                {
                    movements
                        .entry(names[&tensor].clone())
                        .or_default()
                        .push((began, ts));
                }
            }
            _ => {}
        }
    }
    movements
}

/// Number of executions of a tensor in the jobs below.
const STEPS: usize = 4;

fn zeros(tensors: usize, elements: usize) -> Vec<Vec<f32>> {
    vec![vec![0.0; elements]; tensors]
}

/// Groups that are larger than any threshold in use, among tensors without a group.
fn groups_among_others() {
    let context = context();
    let rank = context.rank();
    for step in 0..STEPS {
        // Every rank in an order of its own.
        let single = |tensor: usize| {
            let buffer = vec![tensor as f32; 1_000];
            context
                .allreduce(&format!("single{tensor}"), buffer, ReduceOp::Sum)
                .expect("in")
        };
        let group = |name: &str| {
            let buffers = (0..5)
                .map(|tensor| vec![(tensor + rank) as f32; 1_000])
                .collect();
            context
                .grouped_allreduce(name, buffers, ReduceOp::Sum)
                .expect("in")
        };
        let early = (rank == 0).then(|| (single(0), single(1)));
        let (first, second) = if (rank + step).is_multiple_of(2) {
            let first = group("first");
            (first, group("second"))
        } else {
            let second = group("second");
            (group("first"), second)
        };
        let (a, b) = early.unwrap_or_else(|| (single(0), single(1)));
        // One rank contributes other rows each time: that tensor is negotiated again, the other
        // members are in the cache.
        let rows = [2, 3, 1 + rank * step];
        let rows: Vec<_> = rows
            .map(|rows| vec![rank as i64; rows])
            .into_iter()
            .collect();
        let shapes: Vec<[usize; 1]> = rows.iter().map(|rows| [rows.len()]).collect();
        let gathered = rows
            .into_iter()
            .zip(&shapes)
            .map(|(rows, shape)| (rows, &shape[..]))
            .collect();
        let gathered = context.grouped_allgather("gathered", gathered).expect("in");
        for sums in [first.wait().expect("out"), second.wait().expect("out")] {
            for (tensor, sum) in sums.into_iter().enumerate() {
                assert_eq!(sum, vec![(2 * tensor + 1) as f32; 1_000]);
            }
        }
        assert_eq!(
            (a.wait().expect("out")[0], b.wait().expect("out")[999]),
            (0.0, 2.0)
        );
        let gathered = gathered.wait().expect("out");
        for (result, ranks) in gathered.iter().zip([[2, 2], [3, 3], [1, 1 + step]]) {
            assert_eq!(
                result.tensor,
                [vec![0i64; ranks[0]], vec![1; ranks[1]]].concat(),
                "step {step}"
            );
        }
    }
}

#[test]
fn a_group_travels_at_once_whatever_the_threshold() {
    let test = "groups::a_group_travels_at_once_whatever_the_threshold";
    let folder = Folder::new();
    for (number, variable, value) in [
        (0, "HOROVOD_FUSION_THRESHOLD", "0"),
        (1, "HOROVOD_FUSION_THRESHOLD", "6000"), // one and a half single tensors
        (2, "HOROVOD_FUSION_THRESHOLD", "67108864"),
        (3, "HOROVOD_DISABLE_GROUP_FUSION", "1"),
    ] {
        let timeline = folder.file(&format!("{number}.json"));
        let env = [
            (variable, value),
            ("HOROVOD_TIMELINE", timeline.to_str().expect("text")),
        ];
        job_with(test, 2, &env, groups_among_others);
        let movements = movements(&timeline);
        let at = |name: &str| -> BTreeSet<(u64, u64)> {
            let times = movements
                .get(name)
                .unwrap_or_else(|| panic!("{name} in {movements:?}"));
            assert_eq!(times.len(), STEPS, "{name}");
            times.iter().copied().collect()
        };
        for (group, size) in [("first", 5), ("second", 5), ("gathered", 3)] {
            for member in 2..=size {
                let (one, other) = (
                    at(&format!("{group}_1of{size}")),
                    at(&format!("{group}_{member}of{size}")),
                );
                assert_eq!(one, other, "{group}, {variable}={value}");
            }
        }
        // Beyond the threshold a group shares no batch, and without a threshold no tensor does.
        if number != 2 {
            let apart = [
                at("first_1of5"),
                at("second_1of5"),
                at("single0"),
                at("single1"),
            ];
            let times: BTreeSet<_> = apart.iter().flatten().collect();
            assert_eq!(times.len(), 4 * STEPS, "{variable}={value}: {apart:?}");
        }
    }
}

#[test]
fn groups_of_none_of_one_and_of_several_types() {
    job(
        "groups::groups_of_none_of_one_and_of_several_types",
        3,
        || {
            let context = context();
            for round in 0..3 {
                let none = context
                    .grouped_allreduce("none", zeros(0, 1), ReduceOp::Sum)
                    .expect("in");
                assert!(none.is_done());
                assert_eq!(none.wait().expect("out"), zeros(0, 0));
                let one = context
                    .grouped_broadcast("one", vec![vec![context.rank() as i32]], 2)
                    .expect("in");
                assert_eq!(one.wait().expect("out"), [vec![2]]);

                let (mut floats, mut bytes, mut sums) =
                    (vec![1.5f32; 70], vec![round as u8; 3], vec![1i64, 2]);
                let sum = Operation::Allreduce {
                    op: ReduceOp::Sum,
                    prescale: 1.0,
                    postscale: 1.0,
                };
                let broadcast = Operation::Broadcast { root: 1 };
                macro_rules! part {
                    ($name:expr, $dtype:ident, $buffer:expr, $shape:expr) => {{
                        let address = $buffer.as_mut_ptr().cast::<u8>();
                        RawTensor {
                            name: $name,
                            dtype: ronde::Dtype::$dtype,
                            wire_dtype: None,
                            shape: $shape,
                            device: ronde::Device::Cpu,
                            input: address,
                            output: RawOutput::Into {
                                address,
                                bytes: size_of_val(&$buffer[..]),
                            },
                        }
                    }};
                }
                let parts = [
                    (sum, part!("m.floats", F32, floats, &[7, 10])),
                    (broadcast, part!("m.bytes", U8, bytes, &[3])),
                    (sum, part!("m.sums", I64, sums, &[2])),
                ];
                // SAFETY: the vectors outlive the waits, are as long as their shapes say, and are
                // not accessed meanwhile.
                let handles = unsafe { context.submit_group("mixed", &parts) }.expect("in");
                assert_eq!(handles.len(), 3);
                for handle in handles {
                    handle.wait().expect("out");
                }
                assert_eq!(
                    (floats, bytes, sums),
                    (vec![4.5; 70], vec![round as u8; 3], vec![3, 6])
                );
            }
        },
    );
}

#[test]
fn a_refused_member_fails_alone() {
    job("groups::a_refused_member_fails_alone", 3, || {
        let context = context();
        let rank = context.rank();
        for round in 0..4 {
            let odd = usize::from(rank == 2 && round % 2 == 1);
            let buffers = vec![vec![1i32; 4], vec![1; 4 + odd], vec![1; 6]];
            let handles = context
                .grouped_allreduce("g", buffers, ReduceOp::Sum)
                .expect("in")
                .into_handles();
            for (member, handle) in handles.into_iter().enumerate() {
                match handle.wait() {
                    Ok(sum) => assert_eq!((sum[0], member == 1 && round % 2 == 1), (3, false)),
                    Err(failed) => {
                        assert_eq!((member, round % 2), (1, 1), "{}", failed.error);
                        assert!(failed.error.is_mismatch(), "{}", failed.error);
                    }
                }
            }
        }
        // Ranks with different groups get a mismatch.
        let name = if rank == 0 { "one" } else { "other" };
        let group = [(0, "x"), (1, "y")].map(|(at, tensor)| {
            let shape: &'static [usize] = &[1];
            let sum = Operation::Allreduce {
                op: ReduceOp::Sum,
                prescale: 1.0,
                postscale: 1.0,
            };
            (at, tensor, shape, sum)
        });
        let mut memory = [1.0f64; 2];
        let parts = group.map(|(at, name, shape, sum)| {
            let address = memory[at..].as_mut_ptr().cast::<u8>();
            let (output, dtype) = (RawOutput::Into { address, bytes: 8 }, ronde::Dtype::F64);
            (
                sum,
                RawTensor {
                    name,
                    dtype,
                    wire_dtype: None,
                    shape,
                    device: ronde::Device::Cpu,
                    input: address,
                    output,
                },
            )
        });
        // SAFETY: the two numbers outlive the waits, and are not accessed meanwhile.
        let handles = unsafe { context.submit_group(name, &parts) }.expect("in");
        for handle in handles {
            let error = handle.wait().expect_err("other groups");
            assert!(error.to_string().contains("mismatched groups"), "{error}");
        }
        assert_eq!(memory, [1.0; 2]);
        // All or none: if one name is in flight, its whole group is refused.
        if rank == 0 {
            let alone = context
                .allreduce("h_2of2", vec![1i32], ReduceOp::Sum)
                .expect("in");
            let failed = context
                .grouped_allreduce("h", vec![vec![1i32]; 2], ReduceOp::Sum)
                .expect_err("in flight");
            assert!(
                matches!(
                    failed.error,
                    Error::Argument(ArgumentError::DuplicateName { .. })
                ),
                "{}",
                failed.error
            );
            assert_eq!(failed.buffer, vec![vec![1]; 2]);
            assert_eq!(alone.wait().expect("out"), [3]);
        } else {
            let handle = context
                .allreduce("h_2of2", vec![1i32], ReduceOp::Sum)
                .expect("in");
            assert_eq!(handle.wait().expect("out"), [3]);
        }
        let sums = context
            .grouped_allreduce("h", vec![vec![1i32]; 2], ReduceOp::Sum)
            .expect("in");
        assert_eq!(sums.wait().expect("out"), vec![vec![3]; 2]);
    });
}

/// Two groups of one name with different members are in flight at once; they are not confused.
#[test]
fn groups_of_one_name_are_told_apart_by_their_members() {
    let test = "groups::groups_of_one_name_are_told_apart_by_their_members";
    let folder = Folder::new();
    let timeline = folder.file("timeline.json");
    let env = [
        ("HOROVOD_TIMELINE", timeline.to_str().expect("text")),
        ("HOROVOD_FUSION_THRESHOLD", "0"),
    ];
    job_with(test, 2, &env, || {
        let context = context();
        let rank = context.rank();
        let rows = |step: usize| [[1usize], [1 + rank * step]];
        for step in 0..STEPS {
            // In both, one member is cached and the other one is negotiated again: they are ready a
            // cycle apart.
            let shapes = rows(step);
            let twice = |count: usize| {
                let tensors = (0..count).map(|tensor| {
                    let shape = &shapes[usize::from(tensor + 1 == count)];
                    (vec![1i32; shape[0]], &shape[..])
                });
                context
                    .grouped_allgather("g", tensors.collect())
                    .expect("in")
            };
            let (two, three) = (twice(2), twice(3));
            assert_eq!(two.wait().expect("out")[1].tensor.len(), 2 + step);
            assert_eq!(three.wait().expect("out")[2].tensor.len(), 2 + step);
        }
    });
    let movements = movements(&timeline);
    assert_eq!(movements["g_1of2"], movements["g_2of2"]);
    assert_eq!(movements["g_1of3"], movements["g_2of3"]);
    assert_eq!(movements["g_1of3"], movements["g_3of3"]);
}

/// Runs steps of more tensors than the cache has slots.
fn large_steps(tensors: usize, steps: usize) {
    let context = context();
    let rank = context.rank();
    for step in 0..steps {
        let buffers: Vec<Vec<i64>> = (0..tensors)
            .map(|tensor| vec![(tensor * step + rank) as i64; 3])
            .collect();
        let sums = if step % 2 == rank {
            std::thread::sleep(std::time::Duration::from_millis(2)); // cycles of the others run before this rank is ready
            context.grouped_allreduce("large", buffers, ReduceOp::Sum)
        } else {
            context.grouped_allreduce("large", buffers, ReduceOp::Sum)
        };
        for (tensor, sum) in sums
            .expect("in")
            .wait()
            .expect("out")
            .into_iter()
            .enumerate()
        {
            assert_eq!(
                sum,
                [(2 * tensor * step + 1) as i64; 3],
                "step {step}, tensor {tensor}"
            );
        }
    }
}

#[test]
fn a_group_larger_than_the_cache_travels_whole() {
    let test = "groups::a_group_larger_than_the_cache_travels_whole";
    let folder = Folder::new();
    let timeline = folder.file("timeline.json");
    let env = [
        ("HOROVOD_CACHE_CAPACITY", "64"),
        ("RONDE_CACHE_CAPACITY_MAX", "64"),
        ("HOROVOD_TIMELINE", timeline.to_str().expect("text")),
        ("HOROVOD_LOG_LEVEL", "info"),
    ];
    let outcomes = job_with(test, 2, &env, || large_steps(100, 10));
    let movements = movements(&timeline);
    for member in 2..=100 {
        assert_eq!(
            movements["large_1of100"],
            movements[&format!("large_{member}of100")]
        );
    }
    assert!(
        !outcomes[0].output.contains("response cache"),
        "{}",
        outcomes[0].output
    );
}

#[test]
fn a_cache_that_is_too_small_for_a_step_grows_in_a_few_steps_and_says_so_in_a_few_lines() {
    let test = "groups::a_cache_that_is_too_small_for_a_step_grows_in_a_few_steps_and_says_so_in_a_few_lines";
    let env = [
        ("HOROVOD_CACHE_CAPACITY", "64"),
        ("HOROVOD_LOG_LEVEL", "info"),
    ];
    let outcomes = job_separately(test, 2, &env, || large_steps(500, 12));
    let [first, second] = &*outcomes else { return };
    let text = &first.output;
    for capacity in [128, 256, 512] {
        let line = format!("now holds {capacity} tensors");
        assert_eq!(text.matches(&line).count(), 1, "{line} in {text}");
    }
    assert_eq!(text.matches("response cache").count(), 3, "{text}");
    assert!(
        !second.output.contains("response cache"),
        "{}",
        second.output
    );
}
