//! Tasks of an engine over TCP, which its own thread and waiting callers share.
//!
//! One thread at a time drives: it has the [`Tasks`], polls the tasks, and sends and receives. A
//! caller that waits for an operation drives until the operation has ended, which saves two thread
//! switches for each message; further callers sleep meanwhile, and take over when it stops. The
//! engine's own thread drives while no caller waits. It sleeps until the operating system reports
//! that something can be sent or received, and does not hold the tasks meanwhile.
//!
//! A caller that has stopped driving is likely to start again soon. So it does not wake the
//! engine's thread, which looks itself after [`REST`] whether callers still drive. A command
//! without a waiting caller wakes it in any case.

#![allow(unsafe_code)] // moves reference counts between threads

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use ronde_net::{Readiness, Waker};

use super::tasks::Tasks;
use crate::sync::lock;

/// How long the engine's thread leaves the tasks alone after callers have driven: a message that
/// no caller waits for may be read that much later.
const REST: Duration = Duration::from_micros(500);

/// A caller spins so many times as long as for shared memory: a thread on another core takes long
/// to wake, and while one rank sleeps, the others wait longer and would sleep too.
const SPINS: u32 = 3;

/// How long it does so while one caller drives, which wakes it at the end of a long turn.
const RELIEVED_MAX: Duration = Duration::from_millis(500);

/// Tasks on their way from one thread to another.
struct Portable(Box<Tasks>);

// SAFETY: `Tasks` contains reference counts and cells that are not synchronized: those of its world
// and of the futures. All owners of such a count are inside of the same value: `Work`, which makes
// a task, is `Send` and so captures none of them, and what a task answers is `Send` too. So they
// move to the other thread together, and the mutex around this value orders the accesses. MPI's
// part of a world, which belongs to one thread, is never shared: see `Shared::new`.
unsafe impl Send for Portable {}

/// State of the engine's thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Background {
    /// It drives, or waits for the operating system; the waker ends that.
    Awake,
    /// It leaves the tasks to callers for a moment.
    Resting,
    /// It waits until the caller that drives stops.
    Relieved,
}

struct State {
    /// `None` while a thread drives, and after the end.
    tasks: Option<Portable>,
    /// The thread that drives.
    thread: Option<ThreadId>,
    has_ended: bool,
    /// How often callers have taken the tasks.
    drives: u64,
    background: Background,
    /// The engine's thread is to look at once.
    is_called: bool,
}

/// Access of the engine's thread and of callers to the tasks.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Callers that sleep, because another thread drives.
    sleepers: AtomicUsize,
    /// Something that a task reads has changed since a caller that drives last looked.
    is_hinted: AtomicBool,
    /// A caller that drives waits for the operating system, or is about to.
    is_asleep: AtomicBool,
    /// For them: the tasks are free, or one has ended.
    news: Condvar,
    /// For the engine's thread.
    call: Condvar,
    waker: Waker,
    readiness: Readiness,
}

impl Shared {
    /// # Panics
    /// If they are not tasks over TCP.
    pub(super) fn new(tasks: Tasks) -> Self {
        let mesh = tasks.world().as_mesh().expect("only a mesh is shared");
        let (waker, readiness) = (mesh.waker(), mesh.readiness());
        Self {
            state: Mutex::new(State {
                tasks: Some(Portable(Box::new(tasks))),
                thread: None,
                has_ended: false,
                drives: 0,
                background: Background::Awake,
                is_called: false,
            }),
            sleepers: AtomicUsize::new(0),
            is_hinted: AtomicBool::new(false),
            is_asleep: AtomicBool::new(false),
            news: Condvar::new(),
            call: Condvar::new(),
            waker,
            readiness,
        }
    }

    /// Reports a command that no caller is about to drive for.
    pub(super) fn command(&self) {
        let mut state = lock(&self.state);
        state.is_called = true;
        if state.tasks.is_some() && state.background != Background::Awake {
            self.call.notify_one();
        } else {
            drop(state);
            self.waker.wake();
        }
    }

    /// Reports a command that may wait until the engine's thread has rested.
    pub(super) fn hint(&self) {
        self.is_hinted.store(true, Ordering::Release);
        // Pairs with the fence in `sleep`: either this thread sees the sleeper, or that one the hint.
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed)
            || lock(&self.state).background != Background::Resting
        {
            self.waker.wake();
        }
    }

    /// Whether the calling thread drives.
    pub(super) fn is_driven_here(&self) -> bool {
        lock(&self.state).thread == Some(std::thread::current().id())
    }

    /// Returns when `is_there` holds, or after `patience`: drives meanwhile, if no other thread
    /// does. A wait for the operating system begins after spinning for `spin`.
    pub(super) fn wait(&self, is_there: &dyn Fn() -> bool, spin: Duration, patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut state = lock(&self.state);
        loop {
            if is_there() {
                return;
            }
            if let Some(tasks) = state.tasks.take() {
                state.drives += 1;
                let mut turn = self.begin(state, tasks);
                turn.drive(is_there, spin, deadline);
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || state.has_ended {
                return;
            }
            // The thread that drives has not seen the latest command, if it sleeps.
            self.waker.wake();
            self.sleepers.fetch_add(1, Ordering::Relaxed);
            // Pairs with the fence in `step`: either that thread sees the sleeper, or this one sees
            // what it has completed.
            fence(Ordering::SeqCst);
            if !is_there() {
                state = wait_timeout(&self.news, state, left);
            }
            self.sleepers.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn begin<'a>(&'a self, mut state: MutexGuard<'a, State>, tasks: Portable) -> Turn<'a> {
        state.thread = Some(std::thread::current().id());
        Turn {
            shared: self,
            tasks: Some(tasks),
        }
    }

    /// Loop of the engine's thread, until the engine ends.
    pub(super) fn live(&self) {
        let mut seen = 0;
        loop {
            let mut state = lock(&self.state);
            if state.has_ended {
                return;
            }
            let is_called = std::mem::take(&mut state.is_called);
            let have_driven = std::mem::replace(&mut seen, state.drives) != state.drives;
            if have_driven && !is_called {
                self.pause(state, Background::Resting, REST);
            } else if let Some(tasks) = state.tasks.take() {
                let mut turn = self.begin(state, tasks);
                if turn.catch_up() {
                    return turn.end();
                }
                let patience = turn.patience();
                drop(turn);
                let state = lock(&self.state);
                if state.drives == seen && !state.is_called {
                    drop(state);
                    self.readiness.wait(patience);
                }
            } else {
                self.pause(state, Background::Relieved, RELIEVED_MAX);
            }
        }
    }

    /// Has the engine's thread sleep until it is called, or for `patience`.
    fn pause(&self, mut state: MutexGuard<'_, State>, why: Background, patience: Duration) {
        state.background = why;
        state = wait_timeout(&self.call, state, patience);
        state.background = Background::Awake;
    }
}

fn wait_timeout<'a>(
    condvar: &Condvar,
    state: MutexGuard<'a, State>,
    timeout: Duration,
) -> MutexGuard<'a, State> {
    let waited = condvar.wait_timeout(state, timeout);
    waited.unwrap_or_else(PoisonError::into_inner).0
}

/// A thread's turn to drive. The tasks are free again when it is dropped.
struct Turn<'a> {
    shared: &'a Shared,
    tasks: Option<Portable>,
}

impl Turn<'_> {
    fn tasks(&mut self) -> &mut Tasks {
        &mut self.tasks.as_mut().expect("it is there until the drop").0
    }

    /// Carries out commands, polls the tasks and sends what they have begun to send; returns
    /// whether anything happened.
    fn step(&mut self) -> bool {
        let tasks = self.tasks();
        let has_commands = tasks.take_commands();
        let has_ended = tasks.poll();
        tasks.flush();
        let has_moved = tasks.world().take_moved();
        if has_ended {
            fence(Ordering::SeqCst);
            if self.shared.sleepers.load(Ordering::Relaxed) > 0 {
                // Under the lock, so that no caller is between its look and its sleep.
                let _state = lock(&self.shared.state);
                self.shared.news.notify_all();
            }
        }
        has_commands || has_moved || has_ended
    }

    /// Drives for a caller; see [`Shared::wait`].
    fn drive(&mut self, is_there: &dyn Fn() -> bool, spin: Duration, deadline: Instant) {
        let (mut quiet_since, mut has_glanced) = (Instant::now(), false);
        loop {
            let mut has_moved = self.step();
            if is_there() || self.tasks().ends() {
                return;
            }
            // Tasks that wait for messages need no poll until some have come.
            loop {
                let now = Instant::now();
                if now >= deadline {
                    return;
                }
                let spins = has_moved || now.duration_since(quiet_since) < SPINS * spin;
                // By turns, because a glance leaves out all but one of the connections.
                has_glanced = has_moved && !has_glanced;
                has_moved |= match (has_glanced, spins) {
                    (true, _) => self.tasks().glance(),
                    (false, true) => self.tasks().turn(Duration::ZERO),
                    (false, false) => self.sleep(deadline - now),
                };
                if has_moved {
                    quiet_since = now;
                }
                let is_hinted = self.shared.is_hinted.swap(false, Ordering::Acquire);
                if has_moved || !spins || is_hinted || self.tasks().take_commands() {
                    break;
                }
            }
        }
    }

    /// Sends and receives after waiting for at most `timeout`, unless there is a hint.
    fn sleep(&mut self, timeout: Duration) -> bool {
        let shared = self.shared;
        shared.is_asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let is_hinted = shared.is_hinted.load(Ordering::Relaxed);
        let timeout = if is_hinted { Duration::ZERO } else { timeout };
        let has_moved = self.tasks().turn(timeout);
        shared.is_asleep.store(false, Ordering::Relaxed);
        has_moved
    }

    /// Drives until nothing happens any more without waiting; returns whether the engine is to end.
    fn catch_up(&mut self) -> bool {
        loop {
            let mut has_moved = self.step();
            if self.tasks().ends() {
                return true;
            }
            has_moved |= self.tasks().turn(Duration::ZERO);
            // A caller takes over.
            if !has_moved || self.shared.sleepers.load(Ordering::Relaxed) > 0 {
                return false;
            }
        }
    }

    /// How long the engine's thread may wait for the operating system.
    fn patience(&mut self) -> Duration {
        let world = self.tasks().world();
        world.as_mesh().expect("only a mesh is shared").patience()
    }

    /// Ends the engine.
    fn end(mut self) {
        let Portable(tasks) = self.tasks.take().expect("it is there until the drop");
        tasks.end();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut tasks = self.tasks.take();
        if std::thread::panicking() {
            // The tasks' waiters learn it from their answers.
            drop(tasks.take());
        }
        let mut state = lock(&self.shared.state);
        state.thread = None;
        state.has_ended |= tasks.is_none();
        let ends = tasks.as_ref().is_none_or(|Portable(tasks)| tasks.ends());
        // The operating system does not report again the bytes that a turn has left unread.
        if let Some(Portable(tasks)) = &tasks
            && tasks.has_more()
        {
            self.shared.waker.wake();
        }
        state.tasks = tasks;
        if ends || state.is_called || state.background == Background::Relieved {
            self.shared.call.notify_one();
        }
        if ends {
            state.is_called = true;
        }
        drop(state);
        if self.shared.sleepers.load(Ordering::Relaxed) > 0 {
            self.shared.news.notify_all();
        }
    }
}
