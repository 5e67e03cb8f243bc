//! A simulated transport: ranks as threads of one process, of which only one runs at a time.
//!
//! Problem: the cycle blocks in straight-line code (wait for all blocks, wait for rank 0's answer), which reads
//! well and must be tested under every order of events, reproducibly. So a [`World`] holds a baton. A rank that
//! has to wait gives it back and says what for; the world passes it on to a rank drawn by the seed among those
//! that can go on. When nobody can, simulated time jumps to the next deadline; when there is none, the ranks are
//! deadlocked, and all of them get that as an error. One seed, one run: the same interleaving every time.
//!
//! Faults: [`World::kill`] makes a rank vanish at its next call, as SIGKILL would; delays come from the programs,
//! which drive the cycle until a time of theirs.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{Agreement, Block, Doorbell, Nap, Role, Transport};
use crate::clock::{Clock, Nanos};
use crate::error::Error;
use crate::queue::lock;

/// Everything the simulated ranks share.
pub(crate) struct World {
    state: Mutex<State>,
    /// One for each rank: signalled when it gets the baton.
    turns: Vec<Condvar>,
}

struct State {
    random: SmallRng,
    now: Nanos,
    /// Whose turn it is; `None` before all ranks have arrived.
    running: Option<usize>,
    /// Counts changes of anything a rank may wait for.
    changes: u64,
    ranks: Vec<RankState>,
    deadlocked: bool,
    rung: u64,
}

#[derive(Clone)]
struct RankState {
    arrived: bool,
    life: Life,
    /// While waiting: how many changes it had seen, and until when it sleeps at most.
    waiting: Option<(u64, Option<Nanos>)>,
    published: u64,
    blocks: [Block; 2],
    eager: u64,
    wakes: u32,
    /// What the simulated collective has of this rank: calls made, calls read, and the contribution.
    calls: u64,
    calls_read: u64,
    contribution: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Alive,
    /// To vanish at its next call.
    Doomed,
    Dead,
    Left,
}

impl World {
    /// A world for `size` ranks, drawn from `seed`.
    pub(crate) fn new(size: usize, seed: u64) -> Arc<Self> {
        let rank = RankState {
            arrived: false,
            life: Life::Alive,
            waiting: None,
            published: 0,
            blocks: [Block::default(), Block::default()],
            eager: 0,
            wakes: 0,
            calls: 0,
            calls_read: 0,
            contribution: Vec::new(),
        };
        let state = State {
            random: SmallRng::seed_from_u64(seed),
            now: Nanos(1),
            running: None,
            changes: 0,
            ranks: vec![rank; size],
            deadlocked: false,
            rung: 0,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            turns: (0..size).map(|_| Condvar::new()).collect(),
        })
    }

    /// Starts rank `rank`'s life: returns when it gets the baton for the first time.
    pub(crate) fn arrive(&self, rank: usize) {
        let mut state = lock(&self.state);
        state.ranks[rank].arrived = true;
        if state.ranks.iter().all(|rank| rank.arrived) {
            self.pass_on(&mut state);
        }
        drop(self.await_turn(state, rank));
    }

    /// Ends rank `rank`'s life, in whatever way it came to that.
    pub(crate) fn depart(&self, rank: usize) {
        let mut state = lock(&self.state);
        if state.ranks[rank].life == Life::Alive {
            state.ranks[rank].life = Life::Left;
        }
        state.changes += 1;
        self.pass_on(&mut state);
    }

    /// Lets `rank` die at its next call.
    pub(crate) fn kill(&self, rank: usize) {
        lock(&self.state).ranks[rank].life = Life::Doomed;
    }

    /// A number below `bound`, from the world's seed.
    pub(crate) fn draw(&self, bound: u64) -> u64 {
        lock(&self.state).random.random_range(0..bound)
    }

    fn alive(state: &State, rank: usize) -> Result<(), Error> {
        match state.ranks[rank].life {
            Life::Alive => Ok(()),
            Life::Left => Err(Error::PeerLeft { rank }),
            Life::Doomed | Life::Dead => Err(Error::PeerLost {
                rank,
                pid: rank as u32,
            }),
        }
    }

    /// Waits until `ready` answers; `None` when `deadline` passes before.
    fn wait<T>(
        &self,
        rank: usize,
        deadline: Option<Nanos>,
        mut ready: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let mut state = lock(&self.state);
        let mut first = true;
        loop {
            if state.ranks[rank].life == Life::Doomed {
                state.ranks[rank].life = Life::Dead;
                state.changes += 1;
            }
            Self::alive(&state, rank)?;
            if state.deadlocked {
                return Err(Error::Internal {
                    rank,
                    message: "the simulated ranks are deadlocked".into(),
                });
            }
            // The first look comes after the others had a chance: an interleaving point at every wait.
            if !first && let Some(value) = ready(&mut state) {
                return Ok(Some(value));
            }
            if !first && deadline.is_some_and(|deadline| state.now >= deadline) {
                return Ok(None);
            }
            let seen = if first {
                state.changes.wrapping_sub(1)
            } else {
                state.changes
            };
            state.ranks[rank].waiting = Some((seen, deadline));
            first = false;
            self.pass_on(&mut state);
            state = self.await_turn(state, rank);
            state.ranks[rank].waiting = None;
        }
    }

    fn await_turn<'a>(&'a self, mut state: MutexGuard<'a, State>, rank: usize) -> MutexGuard<'a, State> {
        while state.running != Some(rank) {
            state = self.turns[rank]
                .wait(state)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        state
    }

    /// Hands the baton to a rank that can go on; moves time, or declares a deadlock, if there is none.
    fn pass_on(&self, state: &mut State) {
        loop {
            let runs = |rank: &RankState| matches!(rank.life, Life::Alive | Life::Doomed);
            let can_go_on = |rank: &RankState| match rank.waiting {
                None => true,
                Some((seen, deadline)) => {
                    seen != state.changes
                        || deadline.is_some_and(|deadline| state.now >= deadline)
                        || state.deadlocked
                }
            };
            let candidates: Vec<usize> = (0..state.ranks.len())
                .filter(|&rank| runs(&state.ranks[rank]) && can_go_on(&state.ranks[rank]))
                .collect();
            if !candidates.is_empty() {
                let next = candidates[state.random.random_range(0..candidates.len())];
                state.running = Some(next);
                self.turns[next].notify_one();
                return;
            }
            let deadlines = state
                .ranks
                .iter()
                .filter(|rank| runs(rank))
                .filter_map(|rank| rank.waiting?.1);
            match deadlines.min() {
                Some(deadline) => state.now = deadline,
                None if state.ranks.iter().any(runs) => state.deadlocked = true,
                None => return, // everybody is gone
            }
        }
    }
}

impl Clock for World {
    /// Moves on by a little at each look, as real time does.
    fn now(&self) -> Nanos {
        let mut state = lock(&self.state);
        state.now.0 += 100;
        state.now
    }
}

/// One rank's transport in a [`World`].
pub(crate) struct SimTransport {
    world: Arc<World>,
    rank: usize,
    size: usize,
}

impl SimTransport {
    /// Rank `rank`'s transport.
    pub(crate) fn new(world: &Arc<World>, rank: usize) -> Self {
        Self {
            world: Arc::clone(world),
            rank,
            size: world.turns.len(),
        }
    }

    /// Waits until every living rank fulfils `has`; an error if one that does not is gone.
    fn wait_for_all(&self, has: impl Fn(&RankState) -> bool) -> Result<(), Error> {
        let all = |state: &mut State| {
            (0..self.size).try_for_each(|peer| {
                if has(&state.ranks[peer]) {
                    Ok(())
                } else {
                    World::alive(state, peer).and(Err(Error::ShutDown))
                }
            })
        };
        let outcome = self.world.wait(self.rank, None, |state| match all(state) {
            Err(Error::ShutDown) => None, // alive, but not there yet
            outcome => Some(outcome),
        })?;
        outcome.unwrap_or(Err(Error::ShutDown))
    }

    /// Collective `call`: brings this rank's bytes in, waits for all, lets `combine` read them in rank order.
    pub(crate) fn share<T>(&self, bytes: Vec<u8>, combine: impl FnOnce(&[&[u8]]) -> T) -> Result<T, Error> {
        let call = {
            let mut state = lock(&self.world.state);
            let me = &mut state.ranks[self.rank];
            me.calls += 1;
            me.contribution = bytes;
            let call = me.calls;
            state.changes += 1;
            call
        };
        self.wait_for_all(|peer| peer.calls >= call)?;
        let combined = {
            let mut state = lock(&self.world.state);
            let contributions: Vec<&[u8]> = state.ranks.iter().map(|rank| &rank.contribution[..]).collect();
            let combined = combine(&contributions);
            state.ranks[self.rank].calls_read = call;
            state.changes += 1;
            combined
        };
        self.wait_for_all(|peer| peer.calls_read >= call)?;
        Ok(combined)
    }
}

impl Transport for SimTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(&mut self, cycle: u64, block: &Block, agreed: &mut Agreement) -> Result<(), Error> {
        {
            let mut state = lock(&self.world.state);
            let me = &mut state.ranks[self.rank];
            assert_eq!(me.published + 1, cycle, "cycles follow one another");
            me.blocks[cycle as usize % 2] = block.clone();
            me.published = cycle;
            state.changes += 1;
        }
        self.wait_for_all(|peer| peer.published >= cycle)?;
        let state = lock(&self.world.state);
        agreed.begin(block.ready.len());
        for peer in &state.ranks {
            assert!(peer.published <= cycle + 1, "no rank can be two cycles ahead");
            assert_eq!(
                peer.blocks[cycle as usize % 2].ready.len(),
                block.ready.len(),
                "caches are equal"
            );
            agreed.add(&peer.blocks[cycle as usize % 2]);
        }
        Ok(())
    }

    fn gather(&mut self, frame: &[u8], frames: &mut Vec<Vec<u8>>) -> Result<(), Error> {
        let rank = self.rank;
        let all = self.share(frame.to_vec(), |frames| {
            if rank == 0 {
                frames.iter().map(|frame| frame.to_vec()).collect()
            } else {
                Vec::new()
            }
        })?;
        *frames = all;
        Ok(())
    }

    fn broadcast(&mut self, frame: &mut Vec<u8>) -> Result<(), Error> {
        *frame = self.share(frame.clone(), |frames| frames[0].to_vec())?;
        Ok(())
    }

    fn doorbell(&self) -> Arc<dyn Doorbell> {
        Arc::new(SimDoorbell {
            world: Arc::clone(&self.world),
            rank: self.rank,
        })
    }

    fn check_peers(&mut self) -> Result<(), Error> {
        let state = lock(&self.world.state);
        (0..self.size).try_for_each(|peer| World::alive(&state, peer))
    }

    fn leave(&mut self, _because: Option<&Error>) {
        let mut state = lock(&self.world.state);
        if state.ranks[self.rank].life == Life::Alive {
            state.ranks[self.rank].life = Life::Left;
        }
        state.changes += 1;
    }
}

struct SimDoorbell {
    world: Arc<World>,
    rank: usize,
}

impl SimDoorbell {
    fn wake_all(state: &mut State) {
        state.changes += 1;
        state
            .ranks
            .iter_mut()
            .for_each(|rank| rank.wakes = rank.wakes.wrapping_add(1));
    }
}

impl Doorbell for SimDoorbell {
    fn ring(&self, cycle: u64) {
        let mut state = lock(&self.world.state);
        if state.rung < cycle {
            state.rung = cycle;
            Self::wake_all(&mut state);
        }
    }

    fn rung(&self) -> u64 {
        lock(&self.world.state).rung
    }

    fn eager(&self, cycle: u64, _own: bool) {
        let mut state = lock(&self.world.state);
        let me = &mut state.ranks[self.rank];
        me.eager = me.eager.max(cycle);
        if state.ranks.iter().all(|rank| rank.eager >= cycle) {
            Self::wake_all(&mut state);
        }
    }

    fn all_eager(&self, cycle: u64) -> bool {
        lock(&self.world.state)
            .ranks
            .iter()
            .all(|rank| rank.eager >= cycle)
    }

    fn wakes(&self) -> u32 {
        lock(&self.world.state).ranks[self.rank].wakes
    }

    fn park(&self, _role: Role, seen: u32, nap: Nap) {
        let deadline = match nap {
            Nap::Pace(end) => Some(end),
            Nap::Idle(end) => end,
        };
        let rank = self.rank;
        // A rank that died meanwhile learns of it at its next exchange.
        let _ = self.world.wait(rank, deadline, |state| {
            (state.ranks[rank].wakes != seen).then_some(())
        });
    }

    fn wake_self(&self) {
        let mut state = lock(&self.world.state);
        let me = &mut state.ranks[self.rank];
        me.wakes = me.wakes.wrapping_add(1);
        state.changes += 1;
    }

    fn present(&self, _driver: bool) {}
}
