//! Timelines and traces of real jobs: every rank's file against the trace-event format, one clock
//! for all of them, process sets, both formats at once, and the files of a process that forks or is
//! killed.

mod file;
mod full_disk;

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{Folder, PATIENCE, job_with, start};
use file::Timeline;
use ronde::{Context, ReduceOp};
use serde_json::Value;

const STEPS: usize = 12;

/// Creates a context with a process set of all ranks but the last.
fn context(size: usize) -> Context {
    let set: Vec<usize> = (0..size - 1).collect();
    let builder = Context::builder().process_sets([set]);
    builder.build().expect("the job starts")
}

/// Runs steps with every kind of operation, among all ranks and in a process set.
fn train(context: &Context, steps: usize) {
    let sets = context.process_sets();
    let size = context.size();
    for step in 0..steps {
        let ones = || vec![1.0f32; 3 * size];
        let sums: Vec<_> = (0..4)
            .map(|layer| context.allreduce(&format!("layer{layer}"), ones(), ReduceOp::Sum))
            .collect();
        for sum in sums {
            assert_eq!(
                sum.expect("in").wait().expect("out"),
                vec![size as f32; 3 * size]
            );
        }
        for set in sets.iter().filter(|set| set.id() != 0 && set.included()) {
            let sum = set.allreduce("layer0", ones(), ReduceOp::Sum).expect("in");
            assert_eq!(sum.wait().expect("out")[0], set.size() as f32);
        }
        if step == 0 {
            let rows = [3 * size];
            context
                .broadcast("weights", ones(), 0)
                .expect("in")
                .wait()
                .expect("out");
            context
                .allgather("rows", ones(), &rows)
                .expect("in")
                .wait()
                .expect("out");
            context
                .alltoall("tokens", ones(), &rows, &[])
                .expect("in")
                .wait()
                .expect("out");
            context
                .reducescatter("share", ones(), ReduceOp::Sum)
                .expect("in")
                .wait()
                .expect("out");
            context.barrier().expect("all come");
        }
    }
}

#[test]
fn every_rank_tells_the_same_on_one_clock() {
    let test = "recording::every_rank_tells_the_same_on_one_clock";
    let folder = Folder::new();
    let path = folder.file("t.json");
    let env = [
        ("HOROVOD_TIMELINE", path.to_str().expect("text")),
        ("HOROVOD_TIMELINE_MARK_CYCLES", "1"),
        ("RONDE_TIMELINE_ALL_RANKS", "1"),
    ];
    let outcomes = job_with(test, 3, &env, || {
        let context = context(3);
        train(&context, STEPS);
        println!("done");
    });
    assert_eq!(outcomes.len(), 3);
    let files =
        ["t.json", "t.rank1.json", "t.rank2.json"].map(|name| Timeline::read(&folder.file(name)));
    for (rank, file) in files.iter().enumerate() {
        let ronde = &file.ronde;
        assert_eq!(
            [&ronde["rank"], &ronde["size"], &ronde["version"]],
            [rank, 3, 1].map(|n| n)
        );
        assert_eq!(
            (&ronde["backend"], &ronde["offset_ns"]),
            (&"local".into(), &0.into())
        );
        assert!(
            file.instants
                .iter()
                .filter(|name| *name == "CYCLE_START")
                .count()
                >= STEPS
        );
        for layer in ["layer0", "layer1", "layer2", "layer3"] {
            assert_eq!(file.bars(layer, "NEGOTIATE_ALLREDUCE").count(), STEPS);
            for bar in file.bars(layer, "ALLREDUCE") {
                assert_eq!(bar.args["dtype"], "float32", "{bar:?}");
                assert_eq!(bar.args["shape"], "[9]", "{bar:?}");
                assert_eq!(
                    bar.inner
                        .iter()
                        .filter(|name| *name == "SHM_ALLREDUCE")
                        .count(),
                    1,
                    "{bar:?}"
                );
            }
            assert_eq!(file.bars(layer, "ALLREDUCE").count(), STEPS);
        }
        // The broadcast has an output on all ranks but its root.
        let weights = file.bars("weights", "BROADCAST").next().expect("once");
        assert_eq!(weights.args.is_object(), rank != 0, "{weights:?}");
        for (tensor, name) in [
            ("rows", "ALLGATHER"),
            ("tokens", "ALLTOALL"),
            ("share", "REDUCESCATTER"),
        ] {
            assert_eq!(file.bars(tensor, name).count(), 1);
        }
        // The set's tensors have bars of their own, on its members.
        let of_set = file
            .tensors
            .keys()
            .filter(|name| name.ends_with(" [set 1]"));
        let of_set: Vec<&String> = of_set.collect();
        assert_eq!(
            of_set,
            if rank < 2 {
                vec!["layer0 [set 1]"]
            } else {
                vec![]
            }
        );
    }
    // Rank 0's file has the time at which each rank was ready, the others' files only their own:
    // these must be the same.
    let zero_us = files[0].zero_us();
    for rank in [1, 2] {
        let file = &files[rank];
        let own = file.bars("layer1", "NEGOTIATE_ALLREDUCE");
        for (bar, own) in files[0].bars("layer1", "NEGOTIATE_ALLREDUCE").zip(own) {
            assert_eq!(bar.ticks.len(), 3, "{bar:?}");
            assert_eq!(own.ticks.len(), 1, "{own:?}");
            let name = rank.to_string();
            let tick = bar
                .ticks
                .iter()
                .find(|tick| tick.0 == name)
                .expect("all ranks tick");
            let (there, here) = (
                zero_us + tick.1 as i64,
                file.zero_us() + own.ticks[0].1 as i64,
            );
            // Ticks that would be before the end of the previous bar are moved to that end, in
            // either file; otherwise whole microseconds.
            let moved = tick.1 == bar.began || own.ticks[0].1 == own.began;
            assert!(
                (there - here).abs() <= 2 || moved,
                "{there} and {here}: {bar:?} {own:?}"
            );
        }
    }
}

#[test]
fn both_formats_at_once_on_every_rank() {
    let test = "recording::both_formats_at_once_on_every_rank";
    let folder = Folder::new();
    let (timeline, trace) = (folder.file("t.json.gz"), folder.file("new/tr"));
    let env = [
        ("HOROVOD_TIMELINE", timeline.to_str().expect("text")),
        ("RONDE_TIMELINE_STEPS", "2..4"),
        ("BYTEPS_TRACE_ON", "1"),
        ("BYTEPS_TRACE_START_STEP", "3"),
        ("BYTEPS_TRACE_END_STEP", "7"),
        ("BYTEPS_TRACE_DIR", trace.to_str().expect("text")),
    ];
    let outcomes = job_with(test, 2, &env, || {
        train(&context(2), STEPS);
        println!("done");
    });
    if outcomes.is_empty() {
        return;
    }
    let mut text = String::new();
    let file = std::fs::File::open(&timeline).expect("written");
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .expect("finished");
    let horovods = Timeline::parse(&text);
    let names: Vec<&String> = horovods.tensors.keys().collect();
    // Tensors that were executed once are in step 1.
    assert_eq!(
        names,
        ["layer0", "layer0 [set 1]", "layer1", "layer2", "layer3"]
    );
    assert_eq!(horovods.bars("layer0", "ALLREDUCE").count(), 3);
    for (rank, tensors) in [("0", 5), ("1", 4)] {
        let path = trace.join(rank).join("comm.json");
        let text = std::fs::read_to_string(path).expect("written");
        let whole: Value = serde_json::from_str(&text).expect("JSON");
        let rows = whole["traceEvents"].as_array().expect("rows");
        assert_eq!(
            rows.len(),
            tensors * 5 * 4,
            "for each step a total and 3 stages"
        );
        let keys: BTreeSet<&str> = rows.iter().filter_map(|row| row["tid"].as_str()).collect();
        assert_eq!(keys.len(), 1 + tensors, "{keys:?}");
        let micros = |row: &Value| {
            (
                row["ts"].as_u64().expect("ts"),
                row["dur"].as_u64().expect("dur"),
            )
        };
        let of = |tid: &str, end: &str| {
            let name = format!("Comm.layer1{end}");
            let rows = rows.iter().filter(move |row| row["name"] == name);
            assert!(
                rows.clone()
                    .all(|row| (row["tid"] == "total") == (tid == "total"))
            );
            rows.map(micros).collect::<Vec<_>>()
        };
        let totals = of("total", "");
        let stages = [".COORDINATE_REDUCE", ".REDUCE", ".BROADCAST"].map(|stage| of("key", stage));
        for (step, (began, lasted)) in totals.into_iter().enumerate() {
            // The stages cover the whole synchronization, one after another.
            let mut at = began;
            for stage in &stages {
                let (from, took) = stage[step];
                assert!(from.abs_diff(at) <= 1, "{from} behind {at}");
                at = from + took;
            }
            assert!(at.abs_diff(began + lasted) <= 1);
        }
    }
}

#[test]
#[allow(unsafe_code)] // forks
fn a_forked_child_leaves_the_files_to_its_parent() {
    let test = "recording::a_forked_child_leaves_the_files_to_its_parent";
    let folder = Folder::new();
    let (timeline, trace) = (folder.file("t.json"), folder.file("tr"));
    let env = [
        ("HOROVOD_TIMELINE", timeline.to_str().expect("text")),
        ("BYTEPS_TRACE_ON", "1"),
        ("BYTEPS_TRACE_START_STEP", "1"),
        ("BYTEPS_TRACE_DIR", trace.to_str().expect("text")),
    ];
    let outcomes = job_with(test, 2, &env, || {
        let context = context(2);
        train(&context, 3);
        // SAFETY: the child drops the context, which does nothing in a child, and ends with
        // `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            drop(context);
            // SAFETY: ends the process at once, without the parent's exit handlers.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: waits for the child just forked; `status` is a valid location for its status.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child ended by itself");
        train(&context, 3);
        println!("done");
    });
    if outcomes.is_empty() {
        return;
    }
    let whole = Timeline::read(&timeline);
    assert_eq!(whole.bars("layer2", "ALLREDUCE").count(), 6);
    assert!(trace.join("0/comm.json").exists() && trace.join("1/comm.json").exists());
}

#[test]
fn a_killed_job_leaves_what_can_be_read() {
    const TEST: &str = "recording::a_killed_job_leaves_what_can_be_read";
    let folder = Folder::new();
    let plain = folder.file("t.json");
    for name in ["t.json", "t.json.gz"] {
        let path = folder.file(name);
        let env = [("HOROVOD_TIMELINE", path.to_str().expect("text"))];
        let Some(mut job) = start(TEST, 2, &env, || {
            let context = context(2);
            for _ in 0..100 {
                train(&context, 1);
                std::thread::sleep(Duration::from_millis(5));
            }
            std::thread::sleep(2 * PATIENCE); // it is killed
        }) else {
            return;
        };
        // Until all is written: a kill during a write leaves half an event.
        let began = Instant::now();
        let length = || std::fs::metadata(&path).map_or(0, |file| file.len());
        let mut written = 0;
        while length() < 4_000 || length() > written {
            assert!(began.elapsed() < PATIENCE, "nothing is written");
            written = length();
            std::thread::sleep(Duration::from_secs(1));
        }
        job.ranks
            .iter_mut()
            .for_each(|rank| rank.kill().expect("alive"));
        job.finish();
        let mut bytes = std::fs::read(&path).expect("written");
        if path != plain {
            let mut text = Vec::new();
            let ended = flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut text);
            assert!(ended.is_err(), "it was killed");
            text.push(b']');
            bytes = text;
        }
        let text = String::from_utf8(bytes).expect("text");
        assert!(Timeline::parse(&text).bars("layer0", "ALLREDUCE").count() > 0);
    }
}

#[test]
fn started_and_stopped_timelines_record_the_same_cycles_on_all_ranks() {
    let test = "recording::started_and_stopped_timelines_record_the_same_cycles_on_all_ranks";
    let folder = Folder::new();
    let path = folder.file("t.json");
    let env = [
        ("HOROVOD_TIMELINE", "DYNAMIC"),
        ("RONDE_TIMELINE_ALL_RANKS", "1"),
        ("TEST_TIMELINE", path.to_str().expect("text")),
    ];
    let outcomes = job_with(test, 3, &env, || {
        let path = std::env::var_os("TEST_TIMELINE").expect("set by the parent");
        let (path, context) = (Path::new(&path), context(3));
        let train = |steps| {
            for _ in 0..steps {
                train(&context, 1);
                context.mark_step();
            }
        };
        train(4);
        // Rank 0's call has the effect; the others continue meanwhile.
        let missing = context.start_timeline("/no/such/folder/t.json", false);
        assert_eq!(missing.is_err(), context.rank() == 0, "{missing:?}");
        context.start_timeline(path, false).expect("started");
        train(5);
        context.mark_epoch();
        context.start_timeline(path, false).expect("goes on");
        train(5);
        context.stop_timeline().expect("stopped");
        if context.rank() == 0 {
            assert!(
                Timeline::read(path).bars("layer0", "ALLREDUCE").count() >= 9,
                "complete"
            );
        }
        train(4);
        println!("done");
    });
    if outcomes.is_empty() {
        return;
    }
    let files =
        ["t.json", "t.rank1.json", "t.rank2.json"].map(|name| Timeline::read(&folder.file(name)));
    let shapes = files.each_ref().map(|file| {
        let world = file.tensors.iter().filter(|(name, _)| !name.ends_with(']'));
        world
            .map(|(name, bars)| (name, bars.len()))
            .collect::<Vec<_>>()
    });
    assert_eq!(shapes[0], shapes[1]);
    assert_eq!(shapes[0], shapes[2]);
    for (rank, file) in files.iter().enumerate() {
        let marks = |mark: &str| file.instants.iter().filter(|name| *name == mark).count();
        assert_eq!(
            (file.bars("layer3", "ALLREDUCE").count(), marks("EPOCH")),
            (10, 1)
        );
        // The last step was marked before rank 0 stopped the timeline; the others may be one mark
        // behind at both commands.
        let range = if rank == 0 { 10..=10 } else { 9..=11 };
        assert!(
            range.contains(&marks("STEP")),
            "{} on rank {rank}",
            marks("STEP")
        );
    }
}

#[test]
fn a_window_that_the_job_never_reaches_is_told_once() {
    let test = "recording::a_window_that_the_job_never_reaches_is_told_once";
    let folder = Folder::new();
    let path = folder.file("t.json");
    let env = [
        ("HOROVOD_TIMELINE", path.to_str().expect("text")),
        ("RONDE_TIMELINE_STEPS", "100..110"),
        ("RONDE_TIMELINE_ALL_RANKS", "1"),
    ];
    let outcomes = job_with(test, 2, &env, || train(&context(2), STEPS));
    let told = outcomes
        .iter()
        .map(|outcome| outcome.output.matches("set RONDE_TIMELINE_STEPS").count());
    assert_eq!(told.collect::<Vec<_>>(), [1, 0]);
    for name in ["t.json", "t.rank1.json"] {
        assert!(Timeline::read(&folder.file(name)).instants.is_empty());
    }
}
