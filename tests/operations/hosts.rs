//! Jobs on several hosts that change between flat and hierarchical operations while they run.
//! `mpirun` starts them if `TEST_RONDE_MPIRUN` names it; with `RONDE_BACKEND=tcp` the test does;
//! otherwise they are skipped. If all ranks are on this machine, they simulate hosts.

#![allow(unsafe_code)] // sets environment variables

use crate::support::{Draw, Folder, has_hosts, is_over_tcp, job, job_with};
use ronde::internal::identity::Identity;
use ronde::settings::PartialSettings;
use ronde::{Context, ReduceOp};

/// Rounds; rank 0 changes the settings in each.
const ROUNDS: usize = 24;
/// Elements of the longest tensor: several chunks in each lane.
const LONG: usize = 2_000_003;

/// Returns the context of a rank, whose host is the one of its letter if the launcher starts all
/// ranks on one host.
fn context(hosts: &str, sets: &[&[usize]]) -> Context {
    let identity = Identity::from_env().expect("the launcher says who this is");
    if identity.local_size == identity.size {
        let host = &hosts[identity.rank..=identity.rank];
        // SAFETY: only this rank's test thread accesses the environment.
        unsafe { std::env::set_var("RONDE_HOST_ID", format!("made-up-{host}")) };
    }
    if std::env::var_os("RONDE_BACKEND").is_none_or(|backend| backend != "tcp") {
        // SAFETY: as above.
        unsafe { std::env::set_var("RONDE_BACKEND", "mpi") };
    }
    let sets = sets.iter().map(|ranks| ranks.to_vec());
    let builder = Context::builder().process_sets(sets);
    builder.build().expect("the job starts")
}

/// Returns the settings of round `round`: the switches alternate, and sometimes another setting
/// changes with them.
fn change(round: usize) -> PartialSettings {
    PartialSettings {
        fusion_threshold_bytes: round.is_multiple_of(5).then_some((round as u64) << 18),
        hierarchical_allreduce: Some(round % 2 == 1),
        hierarchical_allgather: Some(round / 2 % 2 == 1),
        ..PartialSettings::default()
    }
}

/// Returns element `index` of a tensor of rank `rank`: integers, so that sums are exact in any
/// order.
fn whole(rank: usize, round: usize, index: usize) -> f32 {
    ((rank + 1) * (index % 1000) + round) as f32
}

/// Returns the rows of `rank`'s contribution to an allgather: some ranks have none, and some far
/// more than others.
fn rows(rank: usize, round: usize, tensor: usize) -> usize {
    match (rank + round + tensor) % 4 {
        0 => 0,
        1 => 1 + 100 * tensor,
        2 => 70_001,
        _ => 300 * (rank + 1),
    }
}

fn row(rank: usize, round: usize, tensor: usize) -> impl Iterator<Item = i32> {
    let first = (rank << 20 | round << 8 | tensor) as i32;
    (0..3 * rows(rank, round, tensor)).map(move |index| first ^ (index as i32).wrapping_mul(7))
}

/// Draws a number in (-1, 1).
fn fraction(draw: &mut Draw) -> f64 {
    draw.below(2_000_001) as f64 / 1e6 - 1.0
}

fn rounds(context: &Context) {
    let (rank, size) = (context.rank(), context.size());
    let all = 0..size;
    for round in 0..ROUNDS {
        let lengths = [1, 5, 4_099, if round % 6 == 3 { LONG } else { 300_007 }];
        // The other ranks have submitted these when rank 0 is still about to change the settings.
        let switch = || {
            let settings = context.set_settings(change(round)).expect("rank 0 may");
            assert_eq!(settings.hierarchical_allreduce, round % 2 == 1);
            assert_eq!(settings.hierarchical_allgather, round / 2 % 2 == 1);
        };
        if rank == 0 && round % 3 == 0 {
            switch();
        }
        let submit = |tensor: usize, length: usize| {
            let buffer: Vec<f32> = (0..length).map(|index| whole(rank, round, index)).collect();
            context
                .allreduce(&format!("sum{tensor}"), buffer, ReduceOp::Sum)
                .expect("in")
        };
        let sums: Vec<_> = lengths
            .into_iter()
            .enumerate()
            .map(|(tensor, length)| submit(tensor, length))
            .collect();
        let gathered = [0, 1, 2].map(|tensor| {
            if rank == 0 && round % 3 == 1 && tensor == 1 {
                switch(); // between submissions
            }
            let buffer: Vec<i32> = row(rank, round, tensor).collect();
            let shape = [rows(rank, round, tensor), 3];
            context
                .allgather(&format!("rows{tensor}"), buffer, &shape)
                .expect("in")
        });
        let average = |value: i64| {
            context
                .allreduce("average", vec![value; 900], ReduceOp::Average)
                .expect("in")
        };
        let average = average(rank as i64 + 7 * round as i64);
        if rank == 0 && round % 3 == 2 {
            switch();
        }
        for (tensor, sum) in sums.into_iter().enumerate() {
            let sum = sum.wait().expect("out");
            for (index, &got) in sum.iter().enumerate() {
                let want: f32 = all.clone().map(|rank| whole(rank, round, index)).sum();
                assert_eq!(got, want, "round {round}, tensor {tensor}, element {index}");
            }
        }
        for (tensor, handle) in gathered.into_iter().enumerate() {
            let gathered = handle.wait().expect("out");
            let want: Vec<i32> = all
                .clone()
                .flat_map(|rank| row(rank, round, tensor))
                .collect();
            assert_eq!(gathered.shape, [want.len() / 3, 3]);
            assert!(gathered.tensor == want, "round {round}, tensor {tensor}");
        }
        let sum: i64 = all.clone().map(|rank| rank as i64 + 7 * round as i64).sum();
        assert_eq!(
            average.wait().expect("out"),
            vec![sum / size as i64; 900],
            "round {round}"
        );
        rounded(context, round);
    }
    left(context);
}

/// Sums that are rounded: the same bits on all ranks, and close to the exact sum, flat or
/// hierarchical.
fn rounded(context: &Context, round: usize) {
    const LENGTH: usize = 50_000;
    let (rank, size) = (context.rank(), context.size());
    let numbers = |rank: usize| {
        let mut draw = Draw((round * 64 + rank + 1) as u64);
        (0..LENGTH)
            .map(|_| fraction(&mut draw) as f32)
            .collect::<Vec<f32>>()
    };
    let handle = context
        .allreduce("rounded", numbers(rank), ReduceOp::Sum)
        .expect("in");
    let sum = handle.wait().expect("out");
    let inputs: Vec<Vec<f32>> = (0..size).map(numbers).collect();
    for (index, &got) in sum.iter().enumerate() {
        let exact: f64 = inputs.iter().map(|input| f64::from(input[index])).sum();
        // Each addition has an error of half a unit in the last place of at most `size`.
        let bound = size as f64 * size as f64 * f64::from(f32::EPSILON);
        assert!((f64::from(got) - exact).abs() <= bound, "{got} for {exact}");
    }
    let bits: Vec<u32> = sum.iter().map(|value| value.to_bits()).collect();
    let handle = context.allgather("bits", sum, &[LENGTH]).expect("in");
    let all = handle.wait().expect("out").tensor;
    for others in all.chunks(LENGTH) {
        assert!(
            others
                .iter()
                .map(|value| value.to_bits())
                .eq(bits.iter().copied())
        );
    }
}

/// Ranks leave one after another, the highest first; their hosts still carry the other ranks'
/// gathered data.
fn left(context: &Context) {
    let (rank, size) = (context.rank(), context.size());
    if rank == 0 {
        let change = PartialSettings {
            hierarchical_allreduce: Some(true),
            hierarchical_allgather: Some(true),
            ..PartialSettings::default()
        };
        context.set_settings(change).expect("rank 0 may");
    }
    for active in (1..=size).rev() {
        if rank >= active {
            break;
        }
        let own: Vec<i32> = row(rank, active, 2).collect();
        let shape = [rows(rank, active, 2), 3];
        let gathered = context
            .allgather("left", own, &shape)
            .expect("in")
            .wait()
            .expect("out");
        let want: Vec<i32> = (0..active).flat_map(|rank| row(rank, active, 2)).collect();
        assert!(gathered.tensor == want, "{active} ranks are left");
        let sum = context
            .allreduce("left sum", vec![1_i64; 70_000], ReduceOp::Sum)
            .expect("in")
            .wait()
            .expect("out");
        assert_eq!(sum, vec![active as i64; 70_000]);
    }
    context.join().expect("all join");
}

/// Sets on one host, on several, and of one rank, with all hierarchical operations on.
fn sets(context: &Context) {
    let rank = context.rank();
    if rank == 0 {
        let change = PartialSettings {
            hierarchical_allreduce: Some(true),
            hierarchical_allgather: Some(true),
            ..PartialSettings::default()
        };
        let settings = context.set_settings(change).expect("rank 0 may");
        assert!(settings.hierarchical_allreduce && settings.hierarchical_allgather);
    }
    for round in 0..10 {
        for set in context.process_sets().iter().filter(|set| set.included()) {
            let name = format!("sum {}", set.id());
            let sum = set
                .allreduce(&name, vec![rank as i64 + 1; 100_000], ReduceOp::Sum)
                .expect("in");
            let own: Vec<i32> = row(rank, round, 1).collect();
            let shape = [rows(rank, round, 1), 3];
            let gathered = set
                .allgather(&format!("rows {}", set.id()), own, &shape)
                .expect("in");
            let members = set.ranks().iter().copied();
            let want: i64 = members.clone().map(|rank| rank as i64 + 1).sum();
            assert_eq!(sum.wait().expect("out"), vec![want; 100_000]);
            let want: Vec<i32> = members.flat_map(|rank| row(rank, round, 1)).collect();
            assert!(
                gathered.wait().expect("out").tensor == want,
                "set {:?}",
                set.ranks()
            );
        }
    }
}

/// Whether the ranks are on one host, and its hosts are those of [`context`].
fn are_made_up() -> bool {
    std::env::var_os("RONDE_HOST_ID").is_some()
}

/// Runs `body` on one rank for each letter of `hosts`, which names the rank's host, with these
/// process sets.
fn on_hosts(test: &str, hosts: &str, sets: &[&[usize]], body: impl FnOnce(&Context)) {
    if has_hosts() {
        job(test, hosts.len(), || body(&context(hosts, sets)));
    }
}

#[test]
fn two_hosts_by_turns() {
    on_hosts("hosts::two_hosts_by_turns", "abab", &[], |context| {
        assert!(context.is_homogeneous() || !are_made_up());
        rounds(context);
    });
}

#[test]
fn three_hosts_of_two_one_and_one() {
    on_hosts(
        "hosts::three_hosts_of_two_one_and_one",
        "aabc",
        &[],
        |context| {
            assert!(!context.is_homogeneous() || !are_made_up());
            rounds(context);
        },
    );
}

#[test]
fn hosts_whose_lanes_cross() {
    // The second ranks of the hosts are in another order than the first ones.
    on_hosts("hosts::hosts_whose_lanes_cross", "abbaa", &[], rounds);
}

#[test]
fn process_sets_are_hierarchical_where_they_can() {
    let made: [&[usize]; 4] = [&[0, 1], &[0, 2, 3], &[1, 3], &[2]];
    on_hosts(
        "hosts::process_sets_are_hierarchical_where_they_can",
        "aabb",
        &made,
        sets,
    );
}

/// A flat allgather among this many hosts sends a window of a hierarchical one in several rounds.
#[test]
fn many_hosts_gather_several_windows_at_a_time() {
    on_hosts(
        "hosts::many_hosts_gather_several_windows_at_a_time",
        "aabcdefghijklm",
        &[],
        |context| {
            const ROWS: usize = 200_000; // of 4 bytes: four windows of 256 KiB
            let element = |rank: usize, round: usize, index: usize| {
                ((rank << 24) ^ (round << 20)) as i32 ^ index as i32
            };
            if context.rank() == 0 {
                let change = PartialSettings {
                    hierarchical_allgather: Some(true),
                    ..PartialSettings::default()
                };
                context.set_settings(change).expect("rank 0 may");
            }
            for round in 0..4 {
                let own: Vec<i32> = (0..ROWS)
                    .map(|index| element(context.rank(), round, index))
                    .collect();
                let gathered = context.allgather("rows", own, &[ROWS]).expect("in");
                let gathered = gathered.wait().expect("out").tensor;
                for (rank, rows) in gathered.chunks_exact(ROWS).enumerate() {
                    let is_right =
                        |(index, found): (usize, &i32)| *found == element(rank, round, index);
                    assert!(rows.iter().enumerate().all(is_right), "of rank {rank}");
                }
            }
        },
    );
}

/// Resident memory of this process, bytes.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.expect("a number of kB")
        .parse::<usize>()
        .expect("a number")
        << 10
}

#[test]
fn a_chain_of_hosts_uses_its_buffers_again() {
    const MIB: usize = 1 << 20;
    on_hosts(
        "hosts::a_chain_of_hosts_uses_its_buffers_again",
        "aabb",
        &[],
        |context| {
            let mut tensor = vec![1.0_f32; 16 * MIB / size_of::<f32>()];
            let mut reduce = |times: usize| {
                for _ in 0..times {
                    let done = context.scope(|scope| {
                        scope
                            .allreduce("average", &mut tensor, ReduceOp::Average)?
                            .wait()
                    });
                    done.expect("out");
                }
            };
            reduce(3);
            let before = resident_bytes();
            reduce(12);
            let more = resident_bytes().saturating_sub(before);
            assert!(more < 48 * MIB, "{} MiB more", more / MIB);
        },
    );
}

#[test]
fn hierarchical_operations_use_their_buffers_again() {
    const MIB: usize = 1 << 20;
    on_hosts(
        "hosts::hierarchical_operations_use_their_buffers_again",
        "aabb",
        &[],
        |context| {
            if context.rank() == 0 {
                let change = PartialSettings {
                    hierarchical_allreduce: Some(true),
                    hierarchical_allgather: Some(true),
                    ..PartialSettings::default()
                };
                context.set_settings(change).expect("rank 0 may");
            }
            let run = |times: usize| {
                for _ in 0..times {
                    let own = vec![1.0_f32; 4 * MIB / size_of::<f32>()];
                    let sum = context.allreduce("sum", own.clone(), ReduceOp::Sum);
                    let rows = context.allgather("rows", own, &[MIB]);
                    sum.expect("in").wait().expect("out");
                    rows.expect("in").wait().expect("out");
                }
            };
            run(10);
            let before = resident_bytes();
            run(30);
            let more = resident_bytes().saturating_sub(before);
            assert!(more < 64 * MIB, "{} MiB more", more / MIB);
        },
    );
}

#[test]
fn the_timeline_names_the_stages_as_horovod_does() {
    if !has_hosts() {
        return;
    }
    let folder = Folder::new();
    let path = folder.file("t.json");
    let env = [("HOROVOD_TIMELINE", path.to_str().expect("text"))];
    job_with(
        "hosts::the_timeline_names_the_stages_as_horovod_does",
        4,
        &env,
        || {
            let context = context("abab", &[]);
            for round in 0..4 {
                if context.rank() == 0 {
                    context.set_settings(change(round)).expect("rank 0 may");
                }
                let sum = context.allreduce("sum", vec![1.0_f32; 700_000], ReduceOp::Sum);
                sum.expect("in").wait().expect("out");
                let rows = context.allgather("rows", vec![1_i32; 700_000], &[700_000]);
                rows.expect("in").wait().expect("out");
            }
        },
    );
    let text = std::fs::read_to_string(&path).expect("rank 0 has written it");
    let over_tcp = is_over_tcp(&[]);
    let count = |name: &str| {
        let name = match over_tcp {
            true => name.replace("MPI_", "TCP_"),
            false => name.to_owned(),
        };
        text.matches(&format!("\"B\", \"name\": \"{name}\""))
            .count()
    };
    // Of four rounds the second and the fourth reduce hierarchically, the third and the fourth
    // gather hierarchically.
    let of_allreduce = ["SHM_REDUCESCATTER", "MPI_ALLREDUCE", "SHM_ALLGATHER"].map(count);
    assert_eq!(of_allreduce, [2, 4, 2]);
    let of_allgather = [
        "MPI_ALLGATHER",
        "MEMCPY_IN_SHARED_BUFFER",
        "MPI_CROSS_ALLGATHER",
    ]
    .map(count);
    assert_eq!(of_allgather, [2, 2, 2]);
    assert!(text.contains("\"hierarchical_allreduce\": true"));
}
