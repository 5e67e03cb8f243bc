//! One rank of the kill campaign (`scripts/bench-reliability`): works until a fault hits it or an
//! operation fails.
//!
//! All data for the driver are written to `FOLDER/rank.N.log`, one JSON object a line, each by one
//! system call so that a killed rank leaves whole lines: `t` is CLOCK_MONOTONIC in seconds, which
//! all processes of a host share.
//!
//! | event | meaning |
//! | --- | --- |
//! | `start` | the program runs |
//! | `met` | the context has been created |
//! | `steps` | number of steps so far, every twentieth of a second |
//! | `fault` | this rank is about to be hit by its fault |
//! | `error` | an operation failed: the stage and the text of the error |
//! | `later` | the error of an operation that was submitted after that |
//! | `wrong` | a result is wrong |
//! | `left` | the context has been dropped |
//!
//! Exit code: 0 after all its steps, 1 for a fault that exits, 3 after an error, 4 after a wrong
//! result.

#![allow(unsafe_code)] // sets the handler of a signal

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ronde::{Context, Error, Failed, ProcessSet, ReduceOp};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::json;

const EXIT_FAULT: i32 = 1;
const EXIT_ERROR: i32 = 3;
const EXIT_WRONG: i32 = 4;

/// Pause between two `steps` events.
const STEPS_INTERVAL: Duration = Duration::from_millis(50);

type Failure = Box<dyn std::error::Error>;

/// Options of the command line, one `--name value` for each field.
#[derive(Clone, Debug)]
struct Options {
    /// Folder of the logs, and of the timelines that the program starts.
    folder: PathBuf,
    phase: Phase,
    /// Number of steps after which the rank leaves; 0: never.
    steps: u64,
    /// Number of tensors of a step and of their elements.
    tensors: usize,
    elements: usize,
    /// Pause after each step.
    pause: Duration,
    /// Seed of choices that are equal on all ranks.
    seed: u64,
    victim: usize,
    fault: Fault,
    /// Event at which the fault's delay starts.
    after: Point,
    delay: Duration,
    /// Rank that is late at the rendezvous, and its delay.
    late_rank: usize,
    late: Duration,
    /// Rank that is late in every step, and its delay: the others then wait with their tensors
    /// submitted.
    slow_rank: usize,
    slow: Duration,
    /// Longest time that a rank waits before it leaves.
    linger: Duration,
    /// Whether ranks other than the victim ignore SIGTERM, so that a launcher does not end them
    /// before they report an error.
    ignore_term: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Allreduces, allgathers, broadcasts and alltoalls until the end; also for autotune and
    /// recorded timelines.
    Steady,
    /// Rank 0 also starts and stops the timeline.
    Timeline,
    /// Process sets are also added, used and removed.
    ProcessSets,
}

/// Fault that this program inflicts on itself; `None` if the driver sends the signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    Signal(Signal),
    /// `exit(1)` from another thread than the one that submits operations.
    Exit,
    /// The program ends with code 1 during its work and drops the context, as Python does after
    /// `sys.exit(1)`.
    Quit,
}

/// Event at which the delay of the fault starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Start,
    Met,
    LastStep,
}

fn options() -> Result<Options, Failure> {
    let mut options = Options {
        folder: PathBuf::from("."),
        phase: Phase::Steady,
        steps: 0,
        tensors: 3,
        elements: 1000,
        pause: Duration::ZERO,
        seed: 1,
        victim: usize::MAX,
        fault: Fault::None,
        after: Point::Met,
        delay: Duration::ZERO,
        late_rank: usize::MAX,
        late: Duration::ZERO,
        slow_rank: usize::MAX,
        slow: Duration::ZERO,
        linger: Duration::ZERO,
        ignore_term: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or(format!("{name} needs a value"))?;
        let micros = || value.parse().map(Duration::from_micros);
        let unknown = || format!("{name} cannot be {value}");
        match name.as_str() {
            "--folder" => options.folder = value.into(),
            "--phase" => {
                options.phase = match value.as_str() {
                    "steady" => Phase::Steady,
                    "timeline" => Phase::Timeline,
                    "process-sets" => Phase::ProcessSets,
                    _ => return Err(unknown().into()),
                }
            }
            "--steps" => options.steps = value.parse()?,
            "--tensors" => options.tensors = value.parse()?,
            "--elements" => options.elements = value.parse()?,
            "--pause-us" => options.pause = micros()?,
            "--seed" => options.seed = value.parse()?,
            "--victim" => options.victim = value.parse()?,
            "--fault" => {
                options.fault = match value.as_str() {
                    "none" => Fault::None,
                    "kill" => Fault::Signal(Signal::KILL),
                    "term" => Fault::Signal(Signal::TERM),
                    "abort" => Fault::Signal(Signal::ABORT),
                    "stop" => Fault::Signal(Signal::STOP),
                    "exit" => Fault::Exit,
                    "quit" => Fault::Quit,
                    _ => return Err(unknown().into()),
                }
            }
            "--after" => {
                options.after = match value.as_str() {
                    "start" => Point::Start,
                    "met" => Point::Met,
                    "last-step" => Point::LastStep,
                    _ => return Err(unknown().into()),
                }
            }
            "--delay-us" => options.delay = micros()?,
            "--late-rank" => options.late_rank = value.parse()?,
            "--late-us" => options.late = micros()?,
            "--slow-rank" => options.slow_rank = value.parse()?,
            "--slow-us" => options.slow = micros()?,
            "--linger-us" => options.linger = micros()?,
            "--ignore-term" => options.ignore_term = value == "1",
            _ => {
                return Err(
                    format!("unknown argument {name}; see scripts/bench-reliability").into(),
                );
            }
        }
    }
    Ok(options)
}

/// Log of the rank, shared with the thread of its fault.
#[derive(Clone)]
struct Log(Arc<File>);

impl Log {
    fn new(folder: &Path, rank: usize) -> Result<Self, Failure> {
        let path = folder.join(format!("rank.{rank}.log"));
        let file = File::options().append(true).create(true).open(path)?;
        Ok(Self(Arc::new(file)))
    }

    fn event(&self, mut fields: serde_json::Value) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        fields["t"] = json!(now.tv_sec as f64 + now.tv_nsec as f64 / 1e9);
        // One call for one line. The driver notices a log that cannot be written.
        let _ = (&*self.0).write_all(format!("{fields}\n").as_bytes());
    }
}

/// Fault of this rank, if it is the victim.
struct Trigger {
    log: Log,
    fault: Fault,
    after: Point,
    delay: Duration,
    quit: Arc<AtomicBool>,
}

impl Trigger {
    /// Starts the fault's delay if this is its event.
    fn reach(&self, point: Point) -> Result<(), Failure> {
        if self.fault == Fault::None || self.after != point {
            return Ok(());
        }
        let (log, fault, delay, quit) = (
            self.log.clone(),
            self.fault,
            self.delay,
            Arc::clone(&self.quit),
        );
        std::thread::Builder::new()
            .name("fault".into())
            .spawn(move || {
                std::thread::sleep(delay);
                match fault {
                    Fault::None => {}
                    Fault::Quit => quit.store(true, Ordering::Release), // it logs the fault itself
                    Fault::Exit => {
                        log.event(json!({"event": "fault"}));
                        std::process::exit(EXIT_FAULT);
                    }
                    Fault::Signal(signal) => {
                        log.event(json!({"event": "fault"}));
                        if let Err(error) = kill_process(getpid(), signal) {
                            log.event(
                                json!({"event": "wrong", "text": format!("no signal: {error}")}),
                            );
                        }
                    }
                }
            })?;
        Ok(())
    }

    fn quits(&self) -> bool {
        self.quit.load(Ordering::Acquire)
    }
}

/// Outcome of a rank's work.
enum End {
    Finished,
    Quit,
    Failed(&'static str, Error),
    Wrong(String),
}

impl End {
    fn failed(stage: &'static str) -> impl Fn(Error) -> End {
        move |error| End::Failed(stage, error)
    }

    fn failed_with<B>(stage: &'static str) -> impl Fn(Failed<B>) -> End {
        move |failed| End::Failed(stage, failed.error)
    }
}

/// Generator of the same numbers on all ranks (splitmix64).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

fn main() -> Result<(), Failure> {
    let options = options()?;
    let rank: usize = std::env::var("HOROVOD_RANK")?.parse()?;
    let log = Log::new(&options.folder, rank)?;
    let is_victim = rank == options.victim;
    if options.ignore_term && !is_victim {
        // SAFETY: no other thread runs yet, and an ignored signal runs no handler.
        unsafe { libc::signal(libc::SIGTERM, libc::SIG_IGN) };
    }
    log.event(
        json!({"event": "start", "pid": std::process::id(), "job": std::env::var("RONDE_JOB_ID").ok()}),
    );
    let trigger = Trigger {
        log: log.clone(),
        fault: if is_victim {
            options.fault
        } else {
            Fault::None
        },
        after: options.after,
        delay: options.delay,
        quit: Arc::default(),
    };
    trigger.reach(Point::Start)?;
    if rank == options.late_rank {
        std::thread::sleep(options.late);
    }
    let context = match Context::from_env() {
        Ok(context) => context,
        Err(error) => {
            log.event(json!({"event": "error", "stage": "start", "text": error.to_string()}));
            std::process::exit(EXIT_ERROR);
        }
    };
    log.event(json!({"event": "met"}));
    trigger.reach(Point::Met)?;

    let code = match work(&context, &options, &log, &trigger)? {
        End::Finished => {
            let linger = Draw(options.seed ^ rank as u64).below(options.linger.as_micros() as u64);
            std::thread::sleep(Duration::from_micros(linger));
            0
        }
        End::Quit => {
            log.event(json!({"event": "fault"}));
            EXIT_FAULT
        }
        End::Failed(stage, error) => {
            log.event(json!({"event": "error", "stage": stage, "text": error.to_string()}));
            let later = context.allreduce("later", vec![1.0f32], ReduceOp::Sum);
            let later = later
                .map_err(|failed| failed.error)
                .and_then(|handle| handle.wait().map_err(|failed| failed.error));
            let text = later.map_or_else(|error| error.to_string(), |_| "none".to_owned());
            log.event(json!({"event": "later", "text": text}));
            EXIT_ERROR
        }
        End::Wrong(text) => {
            log.event(json!({"event": "wrong", "text": text}));
            EXIT_WRONG
        }
    };
    context.shutdown();
    log.event(json!({"event": "left"}));
    std::process::exit(code);
}

/// Runs steps until all are done, the rank quits, or one fails.
fn work(
    context: &Context,
    options: &Options,
    log: &Log,
    trigger: &Trigger,
) -> Result<End, Failure> {
    let mut draw = Draw(options.seed);
    let mut told = Instant::now();
    let mut step = 0;
    loop {
        if options.steps == step + 1 {
            trigger.reach(Point::LastStep)?;
        }
        if context.rank() == options.slow_rank {
            std::thread::sleep(options.slow);
        }
        let outcome = match options.phase {
            Phase::Steady => Ok(()),
            Phase::Timeline => switch_timeline(context, options, step),
            Phase::ProcessSets => change_sets(context, &mut draw),
        };
        if let Err(end) = outcome.and_then(|()| work_once(context, options, step)) {
            return Ok(end);
        }
        step += 1;
        if told.elapsed() >= STEPS_INTERVAL {
            log.event(json!({"event": "steps", "steps": step}));
            told = Instant::now();
        }
        if trigger.quits() {
            return Ok(End::Quit);
        }
        if options.steps == step {
            return Ok(End::Finished);
        }
        std::thread::sleep(options.pause);
    }
}

/// Runs one step: some allreduces at once, then one operation of another kind.
fn work_once(context: &Context, options: &Options, step: u64) -> Result<(), End> {
    let (rank, size) = (context.rank(), context.size());
    reduce(
        context,
        context,
        options.tensors,
        options.elements,
        "gradient",
        "allreduce",
    )?;
    match step % 4 {
        0 => {
            let own = vec![rank as i32; rank + 1];
            let gathered = context.allgather("rows", own, &[rank + 1]);
            let gathered = gathered.map_err(End::failed_with("allgather"))?;
            let gathered = gathered.wait().map_err(End::failed_with("allgather"))?;
            let expected: Vec<i32> = (0..size)
                .flat_map(|rank| vec![rank as i32; rank + 1])
                .collect();
            same("allgather", &gathered.tensor, &expected)
        }
        1 => {
            let root = (step as usize / 4) % size;
            let sent = context.broadcast("weights", vec![rank as i32; 100], root);
            let sent = sent.map_err(End::failed_with("broadcast"))?;
            let sent = sent.wait().map_err(End::failed_with("broadcast"))?;
            same("broadcast", &sent, &[root as i32; 100])
        }
        2 => {
            let sent = context.alltoall("tokens", vec![rank as i32; size], &[size], &[]);
            let sent = sent.map_err(End::failed_with("alltoall"))?;
            let sent = sent.wait().map_err(End::failed_with("alltoall"))?;
            same(
                "alltoall",
                &sent.tensor,
                &(0..size as i32).collect::<Vec<_>>(),
            )
        }
        _ => context.barrier().map_err(End::failed("barrier")),
    }
}

/// Sums `tensors` tensors over `set`; each rank contributes its rank plus 1.
fn reduce(
    context: &Context,
    set: &ProcessSet,
    tensors: usize,
    elements: usize,
    name: &str,
    stage: &'static str,
) -> Result<(), End> {
    let own = (context.rank() + 1) as f32;
    let expected = set.ranks().iter().map(|rank| rank + 1).sum::<usize>() as f32;
    let submitted: Result<Vec<_>, _> = (0..tensors)
        .map(|tensor| {
            set.allreduce(
                &format!("{name}.{tensor}"),
                vec![own; elements],
                ReduceOp::Sum,
            )
        })
        .collect();
    for handle in submitted.map_err(End::failed_with(stage))? {
        let sum = handle.wait().map_err(End::failed_with(stage))?;
        if let Some(index) = sum.iter().position(|value| *value != expected) {
            let found = sum[index];
            return Err(End::Wrong(format!(
                "{stage}: element {index} is {found}, not {expected}"
            )));
        }
    }
    Ok(())
}

fn same(stage: &str, found: &[i32], expected: &[i32]) -> Result<(), End> {
    match found == expected {
        true => Ok(()),
        false => Err(End::Wrong(format!("{stage}: {found:?}, not {expected:?}"))),
    }
}

/// On rank 0, starts a timeline every ten steps, and stops it after five.
fn switch_timeline(context: &Context, options: &Options, step: u64) -> Result<(), End> {
    if step.is_multiple_of(10) {
        let path = options.folder.join(format!("out/t{}.json", step / 10 % 3));
        context
            .start_timeline(path, step.is_multiple_of(20))
            .map_err(End::failed("start_timeline"))?;
    } else if step % 10 == 5 {
        context
            .stop_timeline()
            .map_err(End::failed("stop_timeline"))?;
    }
    Ok(())
}

/// Adds a process set of random ranks, uses it and removes it.
fn change_sets(context: &Context, draw: &mut Draw) -> Result<(), End> {
    let size = context.size();
    let mut members: Vec<usize> = (0..size).filter(|_| draw.below(2) == 1).collect();
    if members.is_empty() || members.len() == size {
        members = vec![draw.below(size as u64) as usize];
    }
    let set = context
        .add_process_set(&members)
        .map_err(End::failed("add_process_set"))?;
    if set.included() {
        reduce(context, &set, 2, 500, "part", "allreduce in a process set")?;
    }
    context
        .remove_process_set(&set)
        .map_err(End::failed("remove_process_set"))
}
