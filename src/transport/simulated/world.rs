//! Scheduler of the simulation: runs one of many threads at a time, with a seed and a simulated
//! clock.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::clock::Skew;
use crate::clock::{Clock, Nanos};
use crate::sync::lock;

/// Longest simulated duration of a world. Engines with pending work check their peers four times a
/// second without end, so a tensor that will never complete runs into this limit and is not a
/// deadlock.
const LIFE_MAX: Duration = Duration::from_secs(20 * 60);

/// Longest delay of a message between hosts; delays are uniformly distributed.
const DELAY_NS_MAX: u64 = 100_000;

/// Condition that an agent waits for. It receives the state of the ranks, and must not read state
/// under locks that block.
type Condition = Box<dyn Fn(&Lives) -> bool + Send>;

/// Payload that unwinds an agent's stack to end it. `resume_unwind` runs no panic hook, so nothing
/// is printed.
struct Vanished;

thread_local! {
    /// Agent that this thread runs.
    static AGENT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// State that all simulated threads share: the running agent, the time, the state of the ranks.
pub(crate) struct World {
    state: Mutex<State>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct State {
    random: SmallRng,
    /// Offset and drift of the ranks' clocks.
    skews: Vec<Skew>,
    /// Longest delay of a message; zero in a world that is not spread.
    delay_ns_max: u64,
    now: Nanos,
    /// Agent that runs; `None` before the start and after the end.
    running: Option<usize>,
    agents: Vec<Agent>,
    lives: Lives,
    /// Reason why the world ends before its agents have finished.
    failure: Option<Failure>,
}

struct Agent {
    rank: usize,
    name: String,
    /// Signalled when the agent may run.
    turn: Arc<Condvar>,
    gone: bool,
    waiting: Option<Waiting>,
}

struct Waiting {
    what: &'static str,
    deadline: Option<Nanos>,
    condition: Condition,
}

enum Failure {
    /// Panic of the first agent that panicked.
    Panic(Box<dyn Any + Send>),
    Stuck(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Alive,
    /// To be ended when one of its agents next enters the world.
    Doomed,
    Dead,
}

/// State of each rank: alive or dead.
pub(crate) struct Lives(Vec<Life>);

impl Lives {
    /// Whether `rank`'s process has ended, as its peers see it.
    pub(crate) fn is_dead(&self, rank: usize) -> bool {
        self.0[rank] == Life::Dead
    }
}

impl World {
    /// Makes a world of `ranks` ranks from `seed`, without agents. All ranks read its clock.
    pub(crate) fn new(ranks: usize, seed: u64) -> Arc<Self> {
        let skews = vec![Skew::default(); ranks];
        Self::with(SmallRng::seed_from_u64(seed), skews, 0)
    }

    /// Makes a world that is spread over hosts: each rank has its own clock, and messages have
    /// delays.
    pub(crate) fn spread(ranks: usize, seed: u64) -> Arc<Self> {
        let mut random = SmallRng::seed_from_u64(seed);
        let skews = (0..ranks).map(|_| Skew::draw(&mut random)).collect();
        Self::with(random, skews, DELAY_NS_MAX)
    }

    fn with(random: SmallRng, skews: Vec<Skew>, delay_ns_max: u64) -> Arc<Self> {
        let ranks = skews.len();
        Arc::new(Self {
            state: Mutex::new(State {
                random,
                skews,
                delay_ns_max,
                now: Nanos(1),
                running: None,
                agents: Vec::new(),
                lives: Lives(vec![Life::Alive; ranks]),
                failure: None,
            }),
            threads: Mutex::default(),
        })
    }

    /// Adds an agent to `rank`, which runs `life`. Called before [`run`](Self::run), or by an
    /// agent.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        rank: usize,
        name: String,
        life: impl FnOnce() + Send + 'static,
    ) {
        let agent = {
            let mut state = lock(&self.state);
            state.agents.push(Agent {
                rank,
                name: name.clone(),
                turn: Arc::default(),
                gone: false,
                waiting: None,
            });
            state.agents.len() - 1
        };
        let world = Arc::clone(self);
        let live = move || {
            AGENT.set(Some(agent));
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let state = world.await_turn(lock(&world.state), agent);
                drop(world.go_on(state, agent));
                life();
            }));
            world.depart(agent, outcome.err());
        };
        let thread = std::thread::Builder::new().name(format!("rank {rank}: {name}"));
        let thread = thread.spawn(live).expect("a test may have some threads");
        lock(&self.threads).push(thread);
    }

    /// Runs the agents and returns when all have ended.
    ///
    /// # Panics
    /// With the panic of the first agent that panicked, or if no agent can continue; the message
    /// then has the condition that each agent waits for.
    pub(crate) fn run(&self) {
        pass_on(&mut lock(&self.state));
        loop {
            // Without the lock of the list: agents may spawn others.
            let thread = lock(&self.threads).pop();
            let Some(thread) = thread else { break };
            thread.join().expect("an agent's panics are caught");
        }
        match lock(&self.state).failure.take() {
            Some(Failure::Panic(panic)) => resume_unwind(panic),
            Some(Failure::Stuck(report)) => panic!("{report}"),
            None => {}
        }
    }

    /// Ends `rank` as SIGKILL does: each of its agents ends at its next wait, or in its present
    /// one.
    pub(crate) fn kill(&self, rank: usize) {
        lock(&self.state).lives.0[rank] = Life::Doomed;
    }

    /// Calls `look` with the state of the ranks.
    pub(super) fn lives<T>(&self, look: impl FnOnce(&Lives) -> T) -> T {
        look(&lock(&self.state).lives)
    }

    /// Draws a number below `bound` from the world's seed.
    pub(crate) fn draw(&self, bound: u64) -> u64 {
        lock(&self.state).random.random_range(0..bound)
    }

    /// Makes the calling agent wait until `condition` holds (returns true), or until `deadline`
    /// (returns false). Other agents may run in any case: every wait is an interleaving point.
    pub(crate) fn wait(
        &self,
        what: &'static str,
        deadline: Option<Nanos>,
        condition: impl Fn(&Lives) -> bool + Send + 'static,
    ) -> bool {
        let agent = AGENT.get().expect("only agents of a world wait in it");
        let mut state = self.go_on(lock(&self.state), agent);
        state.agents[agent].waiting = Some(Waiting {
            what,
            deadline,
            condition: Box::new(condition),
        });
        pass_on(&mut state);
        let state = self.await_turn(state, agent);
        let mut state = self.go_on(state, agent);
        let waited = state.agents[agent].waiting.take();
        waited.is_none_or(|waited| (waited.condition)(&state.lives))
    }

    /// Whether the caller is an agent that may wait: not the thread that runs the world, nor an
    /// agent that vanishes.
    pub(crate) fn is_inside(&self) -> bool {
        AGENT.get().is_some() && !std::thread::panicking()
    }

    /// Waits until `time`.
    pub(crate) fn sleep_until(&self, time: Nanos) {
        self.wait("for a time to come", Some(time), |_| false);
    }

    /// Number of ranks.
    pub(crate) fn ranks(&self) -> usize {
        lock(&self.state).skews.len()
    }

    /// Whether each rank has its own clock.
    pub(crate) fn is_spread(&self) -> bool {
        lock(&self.state).delay_ns_max > 0
    }

    /// Offset and drift of `rank`'s clock.
    pub(super) fn skew(&self, rank: usize) -> Skew {
        lock(&self.state).skews[rank]
    }

    /// Returns the present time, without advancing it.
    pub(crate) fn present(&self) -> Nanos {
        lock(&self.state).now
    }

    /// Delays the calling agent by the time of its message.
    pub(super) fn travel(&self) {
        let bound = lock(&self.state).delay_ns_max;
        if bound > 0 {
            let delay = Duration::from_nanos(self.draw(bound));
            self.sleep_until(self.present() + delay);
        }
    }

    /// Lets other agents run at random points. The caller must hold no lock that others block on.
    pub(super) fn interrupt(&self) {
        if self.draw(4) == 0 {
            self.wait("for its turn", None, |_| true);
        }
    }

    fn await_turn<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        agent: usize,
    ) -> MutexGuard<'a, State> {
        let turn = Arc::clone(&state.agents[agent].turn);
        while state.running != Some(agent) {
            state = turn.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Ends the calling agent if its rank is to end, or if the world has failed.
    fn go_on<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        agent: usize,
    ) -> MutexGuard<'a, State> {
        let rank = state.agents[agent].rank;
        if state.lives.0[rank] != Life::Alive {
            state.lives.0[rank] = Life::Dead;
        } else if state.failure.is_none() {
            return state;
        }
        drop(state);
        resume_unwind(Box::new(Vanished));
    }

    fn depart(&self, agent: usize, panic: Option<Box<dyn Any + Send>>) {
        let mut state = lock(&self.state);
        state.agents[agent].gone = true;
        let waiting = state.agents[agent].waiting.take();
        if let Some(panic) = panic.filter(|panic| !panic.is::<Vanished>()) {
            state.failure.get_or_insert(Failure::Panic(panic));
        }
        pass_on(&mut state);
        drop(state);
        // It may own what waits when it is dropped. A rank that is gone vanishes there once more.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(waiting)));
    }
}

/// Selects the next agent; advances time if none can continue, or fails the world.
fn pass_on(state: &mut State) {
    loop {
        let candidates: Vec<usize> = (0..state.agents.len())
            .filter(|&agent| state.can_go_on(&state.agents[agent]))
            .collect();
        if !candidates.is_empty() {
            let next = candidates[state.random.random_range(0..candidates.len())];
            state.running = Some(next);
            state.agents[next].turn.notify_one();
            return;
        }
        state.running = None;
        let mut left = state.agents.iter().filter(|agent| !agent.gone).peekable();
        if left.peek().is_none() {
            return;
        }
        match left
            .filter_map(|agent| agent.waiting.as_ref()?.deadline)
            .min()
        {
            Some(deadline) if deadline < Nanos(0) + LIFE_MAX => state.now = deadline,
            Some(_) => state.fail("the simulated ranks wait for ever"),
            None => state.fail("the simulated ranks are deadlocked"),
        }
    }
}

impl State {
    fn can_go_on(&self, agent: &Agent) -> bool {
        let ends = self.failure.is_some() || self.lives.0[agent.rank] != Life::Alive;
        let ready = |waiting: &Waiting| {
            waiting
                .deadline
                .is_some_and(|deadline| self.now >= deadline)
                || (waiting.condition)(&self.lives)
        };
        !agent.gone && (ends || agent.waiting.as_ref().is_none_or(ready))
    }

    fn fail(&mut self, headline: &str) {
        let waits = self.agents.iter().filter_map(|agent| {
            let what = agent.waiting.as_ref()?.what;
            Some(format!(
                "\n  rank {}: {} waits {what}",
                agent.rank, agent.name
            ))
        });
        let report = format!("{headline}:{}", waits.collect::<String>());
        self.failure = Some(Failure::Stuck(report));
    }
}

impl Clock for World {
    /// Advances a little at each call, as real time does.
    fn now(&self) -> Nanos {
        let mut state = lock(&self.state);
        state.now.0 += 100;
        state.now
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

    use super::*;

    fn panic_of(world: &World) -> String {
        let panic = catch_unwind(AssertUnwindSafe(|| world.run())).expect_err("the world fails");
        let text = panic.downcast_ref::<String>().cloned();
        text.unwrap_or_else(|| {
            panic
                .downcast_ref::<&str>()
                .copied()
                .unwrap_or_default()
                .to_owned()
        })
    }

    #[test]
    fn a_wait_that_never_ends_is_reported() {
        let world = World::new(2, 3);
        for rank in 0..2 {
            let me = Arc::clone(&world);
            world.spawn(rank, "its program".into(), move || {
                me.wait("for Godot", None, |_| false);
            });
        }
        let expected = "the simulated ranks are deadlocked:\n  rank 0: its program waits for Godot\n  \
                        rank 1: its program waits for Godot";
        assert_eq!(panic_of(&world), expected);
    }

    #[test]
    fn an_agent_that_polls_for_ever_is_stopped() {
        let world = World::new(1, 3);
        let me = Arc::clone(&world);
        world.spawn(0, "its program".into(), move || {
            loop {
                me.sleep_until(me.now() + Duration::from_secs(60));
            }
        });
        assert!(panic_of(&world).starts_with("the simulated ranks wait for ever:"));
    }

    #[test]
    fn an_agents_panic_ends_the_world_with_it() {
        let world = World::new(2, 3);
        let me = Arc::clone(&world);
        world.spawn(0, "its program".into(), move || {
            me.wait("for Godot", None, |_| false);
        });
        world.spawn(1, "its program".into(), || {
            resume_unwind(Box::new("enough".to_owned()))
        });
        assert_eq!(panic_of(&world), "enough");
    }

    #[test]
    fn a_killed_rank_ends_with_all_its_agents_and_no_others() {
        let world = World::new(2, 3);
        let survived = Arc::new(AtomicUsize::new(0));
        for (rank, agent) in [(0, "a"), (0, "b"), (1, "a")] {
            let (me, survived) = (Arc::clone(&world), Arc::clone(&survived));
            world.spawn(rank, agent.into(), move || {
                me.sleep_until(Nanos(1_000));
                me.kill(0);
                me.wait("for rank 0 to die", Some(Nanos(2_000)), |lives| {
                    lives.is_dead(0)
                });
                survived.fetch_add(10 + rank, Relaxed);
            });
        }
        world.run();
        assert_eq!(survived.load(Relaxed), 11);
    }

    #[test]
    fn an_agent_can_spawn_another_and_wait_for_it() {
        let world = World::new(1, 3);
        let done = Arc::new(AtomicBool::new(false));
        let me = Arc::clone(&world);
        world.spawn(0, "parent".into(), move || {
            let child_done = Arc::clone(&done);
            me.spawn(0, "child".into(), move || child_done.store(true, Relaxed));
            let seen = Arc::clone(&done);
            assert!(me.wait("for its child", None, move |_| seen.load(Relaxed)));
        });
        world.run();
    }
}
