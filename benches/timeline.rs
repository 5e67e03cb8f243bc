//! Benchmark of the timeline: nanoseconds for each event in the cycle, CPU time of the writer, and
//! nanoseconds for each tensor that the period finder processes.
//!
//! The workload is the steps of a model with 161 tensors in 4 batches on 2 ranks, with three
//! activities in each bar: 12 events for each tensor in the file, at the given pace (20 ms a step).
//! It runs with Horovod's format, with BytePS's beside it, with Horovod's compressed, and without a
//! recording. `--small` runs a few steps (used by tests); `--steps N`, `--pace-ms N`, `--tensors
//! N`. The last line of each prints the contents of the files.

use std::hint::black_box;
use std::time::{Duration, Instant};

use ronde::internal::clock::{Clock, MonotonicClock, Nanos};
use ronde::internal::collective::Phases;
use ronde::internal::timeline::{
    Activity, BatchRecord, BytepsOptions, Item, Member, Options as Recording, PeriodFinder,
    TensorId, Timeline, Track,
};
use ronde::knobs::StepRange;
use ronde::tensor::Dtype;
use ronde_job::OpKind;

type Failure = Box<dyn std::error::Error>;

/// Options of the command line.
#[derive(Clone, Copy, Debug)]
struct Options {
    steps: usize,
    pace_ms: u64,
    tensors: usize,
}

fn options() -> Result<Options, Failure> {
    let mut options = Options {
        steps: 200,
        pace_ms: 20,
        tensors: 161,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .ok_or_else(|| format!("{argument} needs a value"))
        };
        match &*argument {
            "--small" => (options.steps, options.pace_ms) = (5, 1),
            "--steps" => options.steps = value()?.parse()?,
            "--pace-ms" => options.pace_ms = value()?.parse()?,
            "--tensors" => options.tensors = value()?.parse()?,
            // Cargo passes this to every benchmark.
            "--bench" => {}
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    Ok(options)
}

/// Events of one tensor in the file in each step.
const EVENTS: usize = 12;

/// Records one step.
fn record_step(track: &mut Track, tensors: &[TensorId], now: Nanos) {
    const SHAPE: [usize; 4] = [256, 64, 3, 3];
    const US: Duration = Duration::from_micros(1);
    let activity = |name, began, ended| Activity {
        name,
        began: now + began * US,
        ended: now + ended * US,
        measured: name == "SHM_ALLREDUCE",
    };
    let activities = [
        activity("MEMCPY_IN_FUSION_BUFFER", 3, 4),
        activity("SHM_ALLREDUCE", 4, 8),
        activity("MEMCPY_OUT_FUSION_BUFFER", 8, 9),
    ];
    let phases = Phases {
        copy_in_ns: 1_500,
        reduce_ns: 1_000,
        copy_out_ns: 1_250,
        wait_ns: 700,
        late_ns: 0,
        lead_in_ns: 1_000,
        tail_out_ns: 1_000,
    };
    for batch in tensors.chunks(tensors.len().div_ceil(4)) {
        track.begin_cycle(now);
        if !track.is_on() {
            continue;
        }
        for &tensor in batch {
            let ticks = [(0, now.as_micros()), (1, now.as_micros() + 1)];
            track.negotiated(tensor, OpKind::Allreduce, ticks.into_iter(), now + 2 * US);
        }
        let record = BatchRecord {
            op: OpKind::Allreduce,
            agreed: now + 2 * US,
            began: now + 2 * US,
            ended: now + 9 * US,
            activities: &activities,
            phases,
        };
        let members = batch.iter().map(|&tensor| Member {
            tensor,
            submitted: Some(now),
            output: Some((Dtype::F32, &SHAPE[..])),
        });
        track.executed(&record, members);
        track.end_cycle();
    }
}

/// Returns the CPU time of all threads of this process so far.
fn process_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the CPU time of this thread so far.
fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Formats that are recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Formats {
    Nothing,
    Horovod,
    Compressed,
    Both,
}

fn bench_timeline(options: Options, formats: Formats) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let recording = Recording {
        path: match formats {
            Formats::Nothing => None,
            Formats::Compressed => Some(path("timeline.json.gz")),
            Formats::Horovod | Formats::Both => Some(path("timeline.json")),
        },
        byteps: (formats == Formats::Both).then(|| BytepsOptions {
            folder: path("byteps"),
            steps: StepRange {
                first: 1,
                last: None,
            },
        }),
        ..Recording::default()
    };
    let timeline = Timeline::new(recording, &MonotonicClock)?;
    let mut track = timeline.track(None, 0);
    track.begin_cycle(MonotonicClock.now());
    let names = (0..options.tensors).map(|tensor| format!("layer{tensor}.weight"));
    let tensors: Vec<TensorId> = names.map(|name| track.tensor(&name)).collect();
    let (cpu_before, own_before) = (process_cpu(), thread_cpu());
    let mut steps_ns = Vec::with_capacity(options.steps);
    let made = EVENTS * tensors.len();
    let mut due = Instant::now();
    for _ in 0..options.steps {
        let now = MonotonicClock.now();
        let began = Instant::now();
        record_step(&mut track, &tensors, now);
        steps_ns.push(began.elapsed().as_nanos() as f64 / made as f64);
        due += Duration::from_millis(options.pace_ms);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    let own = thread_cpu() - own_before;
    let dropped = track.dropped_cycles();
    drop(track);
    timeline.finish();
    let writer = (process_cpu() - cpu_before).saturating_sub(own);
    steps_ns.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| steps_ns[((steps_ns.len() - 1) as f64 * share) as usize];
    println!(
        "{formats:?}: cycle's side, ns per event: p10 {:.2}, p50 {:.2}, p90 {:.2}, max {:.2} ({} steps of {made} events)",
        at(0.1),
        at(0.5),
        at(0.9),
        at(1.0),
        options.steps,
    );
    println!(
        "{formats:?}: writer's side: {:.1} ns of CPU per event, {:.3} ms per step",
        writer.as_nanos() as f64 / (made * options.steps) as f64,
        writer.as_secs_f64() * 1e3 / options.steps as f64
    );
    if matches!(formats, Formats::Horovod | Formats::Both) {
        let text = std::fs::read_to_string(path("timeline.json"))?;
        let found = serde_json::from_str::<Vec<serde::de::IgnoredAny>>(&text)?.len();
        println!(
            "{formats:?}: {found} events, {} bytes, {dropped} cycles dropped",
            text.len()
        );
    }
    if formats == Formats::Both {
        let trace = std::fs::read_to_string(path("byteps/0/comm.json"))?;
        let trace: serde_json::Value = serde_json::from_str(&trace)?;
        let rows = trace["traceEvents"].as_array().map_or(0, Vec::len);
        println!("{formats:?}: {rows} rows of BytePS's");
    }
    if formats == Formats::Compressed {
        let bytes = std::fs::metadata(path("timeline.json.gz"))?.len();
        println!("{formats:?}: {bytes} bytes, {dropped} cycles dropped");
    }
    Ok(())
}

fn bench_periods(options: Options) {
    let mut finder = PeriodFinder::new();
    let names: Vec<String> = (0..options.tensors)
        .map(|tensor| format!("layer{tensor}.weight"))
        .collect();
    let items: Vec<Item> = names
        .iter()
        .map(|name| Item::new(name, OpKind::Allreduce, Dtype::F32, 1024))
        .collect();
    let mut step = || {
        let began = Instant::now();
        let complete = items
            .iter()
            .filter(|&&item| finder.observe(black_box(item)).step_complete)
            .count();
        (
            began.elapsed().as_nanos() as f64 / items.len() as f64,
            complete,
        )
    };
    let searching = (0..4).map(|_| step().0).fold(0.0, f64::max);
    step();
    let (mut following, mut complete): (Vec<f64>, usize) = (Vec::new(), 0);
    for _ in 0..options.steps {
        let (ns, ended) = step();
        following.push(ns);
        complete += ended;
    }
    following.sort_unstable_by(f64::total_cmp);
    let began = Instant::now();
    for name in &names {
        black_box(Item::new(
            black_box(name),
            OpKind::Allreduce,
            Dtype::F32,
            1024,
        ));
    }
    let hashing = began.elapsed().as_nanos() as f64 / names.len() as f64;
    println!(
        "period finder, ns per tensor: searching (slowest step) {searching:.1}, following p50 {:.1}, hashing the name \
         {hashing:.1}; {complete} steps of {} seen",
        following[following.len() / 2],
        options.steps
    );
}

fn main() -> Result<(), Failure> {
    let options = options()?;
    for formats in [
        Formats::Horovod,
        Formats::Both,
        Formats::Compressed,
        Formats::Nothing,
    ] {
        bench_timeline(options, formats)?;
    }
    bench_periods(options);
    Ok(())
}
