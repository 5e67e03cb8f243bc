//! What the timeline costs: nanoseconds for each event on the cycle's side, CPU time on the writer's, and
//! nanoseconds for each tensor that the period finder watches.
//!
//! The workload is the steps of a model with 161 tensors in 4 batches on 2 ranks, one activity in each bar: 8 events
//! for each tensor in the file, at the given pace (20 ms a step). `--small` runs a few steps (it is what tests run);
//! `--steps N`, `--pace-ms N`, `--tensors N`. The last line says how much there is in the file.

use std::hint::black_box;
use std::time::{Duration, Instant};

use ronde::clock::{Clock, MonotonicClock, Nanos};
use ronde::negotiation::OpKind;
use ronde::tensor::Dtype;
use ronde::timeline::{Activity, BatchRecord, Item, Member, PeriodFinder, Recorder, TensorId};

type Failure = Box<dyn std::error::Error>;

/// What the command line says.
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
            // What cargo passes to every bench.
            "--bench" => {}
            other => return Err(format!("unknown option {other}").into()),
        }
    }
    Ok(options)
}

/// Records one step; returns the number of events that it makes in the file.
fn record_step(recorder: &mut Recorder, tensors: &[TensorId], now: Nanos) -> usize {
    const SHAPE: [usize; 4] = [256, 64, 3, 3];
    const US: Duration = Duration::from_micros(1);
    let activities = [Activity {
        name: "SHM_ALLREDUCE",
        began: now + 3 * US,
        ended: now + 8 * US,
    }];
    for batch in tensors.chunks(tensors.len().div_ceil(4)) {
        recorder.begin_cycle(now);
        for &tensor in batch {
            let ticks = [(0, now), (1, now + US)];
            recorder.negotiated(tensor, OpKind::Allreduce, now, ticks.into_iter(), now + 2 * US);
        }
        let record = BatchRecord {
            op: OpKind::Allreduce,
            began: now + 2 * US,
            ended: now + 9 * US,
            activities: &activities,
        };
        let output = Some((Dtype::F32, &SHAPE[..]));
        recorder.executed(&record, batch.iter().map(|&tensor| Member { tensor, output }));
        recorder.end_cycle();
    }
    8 * tensors.len()
}

/// CPU time of this process so far, all threads.
fn process_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// CPU time of this thread so far.
fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn bench_recorder(options: Options) -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("timeline.json");
    let mut recorder = Recorder::create(&path, false, MonotonicClock.now())?;
    let names = (0..options.tensors).map(|tensor| format!("layer{tensor}.weight"));
    let tensors: Vec<TensorId> = names.map(|name| recorder.tensor(&name)).collect();
    let (cpu_before, own_before) = (process_cpu(), thread_cpu());
    let mut steps_ns = Vec::with_capacity(options.steps);
    let mut events = 0;
    let mut due = Instant::now();
    for _ in 0..options.steps {
        let now = MonotonicClock.now();
        let began = Instant::now();
        let made = record_step(&mut recorder, &tensors, now);
        steps_ns.push(began.elapsed().as_nanos() as f64 / made as f64);
        events += made;
        due += Duration::from_millis(options.pace_ms);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }
    let own = thread_cpu() - own_before;
    let dropped = recorder.dropped_cycles();
    recorder.finish();
    let writer = (process_cpu() - cpu_before).saturating_sub(own);
    steps_ns.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| steps_ns[((steps_ns.len() - 1) as f64 * share) as usize];
    println!(
        "cycle's side, ns per event: p10 {:.1}, p50 {:.1}, p90 {:.1}, max {:.1} ({} steps of {} events)",
        at(0.1),
        at(0.5),
        at(0.9),
        at(1.0),
        options.steps,
        8 * options.tensors,
    );
    println!(
        "writer's side: {:.1} ns of CPU per event, {:.3} ms per step",
        writer.as_nanos() as f64 / events as f64,
        writer.as_secs_f64() * 1e3 / options.steps as f64
    );
    let text = std::fs::read_to_string(&path)?;
    let found = serde_json::from_str::<Vec<serde::de::IgnoredAny>>(&text)?.len();
    println!(
        "file: {found} events, {} bytes, {dropped} cycles dropped",
        text.len()
    );
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
        (began.elapsed().as_nanos() as f64 / items.len() as f64, complete)
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
        black_box(Item::new(black_box(name), OpKind::Allreduce, Dtype::F32, 1024));
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
    bench_recorder(options)?;
    bench_periods(options);
    Ok(())
}
