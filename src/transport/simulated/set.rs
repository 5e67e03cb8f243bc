//! Simulated process set: state that its members share, and their waits for each other.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::doorbell::Bell;
use super::network::{Costs, Network};
use super::world::{Lives, World};
use crate::error::{Error, PeerError};
use crate::sync::lock;
use crate::transport::block::{Prefix, each_bit};
use crate::transport::rounds::{self, Exchanged};
use crate::transport::{Combine, Contribution, RankBlock};

/// Members of a [`World`] that exchange blocks and bytes. Its ranks are `0..size`; errors name job
/// ranks.
pub(crate) struct SimulatedSet {
    pub(super) world: Arc<World>,
    /// Job rank of each set rank.
    members: Vec<usize>,
    pub(super) state: Mutex<SetState>,
    /// State that the members' devices share.
    devices: OnceLock<Arc<Self>>,
    /// Job rank whose control messages are modified, if any.
    hostile: OnceLock<usize>,
    /// Modification of the hostile rank's partial states, if it is the first of its host.
    hostile_states: OnceLock<HostileStates>,
    /// Time of a collective in host memory: latency, ns, and ns per byte.
    message: OnceLock<(u64, f64)>,
}

/// Modifications of partial states, which depend on the seed, the cycle and the state alone: every
/// rank simulates the same messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostileStates {
    pub(crate) seed: u64,
    /// One of this many cycles has modified states.
    pub(crate) one_in: u32,
}

impl HostileStates {
    fn modify(self, cycle: u64, message: &mut Vec<u8>) {
        let mut random = SmallRng::seed_from_u64(self.seed ^ cycle.rotate_left(32));
        if !random.random_ratio(1, self.one_in) {
            return;
        }
        match random.random_range(0..12) {
            0 => message.truncate(random.random_range(0..message.len())),
            1 => message.push(random.random()),
            _ => {
                let words = message.len() / 8;
                let at = 8 * random.random_range(0..words);
                let word = match random.random_range(0..4) {
                    0 => random.random(),
                    1 => random.random_range(0..9),
                    2 => u64::MAX,
                    _ => 1 << random.random_range(0..64),
                };
                let bytes = u64::to_le_bytes(word);
                message[at..at + 8].copy_from_slice(&bytes);
            }
        }
    }
}

#[derive(Default)]
pub(super) struct SetState {
    pub(super) seats: Vec<Seat>,
    /// Highest cycle that any member has requested.
    pub(super) rung: u64,
    /// Reason why the set has ended: the first member's reason counts for all, as in shared memory.
    poison: Option<Error>,
}

/// State of one member that the others read.
#[derive(Default)]
pub(super) struct Seat {
    pub(super) bell: Bell,
    left: bool,
    /// Last cycle for which it has published a block.
    pub(super) published: u64,
    blocks: [Frozen; 2],
    /// Shared calls: number made, number read, label and bytes of the last one.
    calls: u64,
    calls_read: u64,
    label: String,
    contribution: Vec<u8>,
}

/// Block of a member for one cycle.
#[derive(Default)]
struct Frozen {
    prefix: Prefix,
    words: Vec<u64>,
    attached: Vec<u64>,
    details: Vec<u64>,
}

impl Frozen {
    fn new(cycle: u64, block: &Contribution<'_>) -> Self {
        Self {
            prefix: Prefix::new(cycle, block),
            words: block.head.iter().chain(block.bits).copied().collect(),
            attached: block.attached.to_vec(),
            details: block.details.to_vec(),
        }
    }
}

impl RankBlock for Frozen {
    fn read_words(&self, to: &mut [u64]) {
        to.copy_from_slice(&self.words);
    }

    fn read_attached(&self, to: &mut [u64]) {
        to.copy_from_slice(&self.attached);
    }

    fn read_details(&self, bits: &[u64], to: &mut [u64]) {
        each_bit(bits, |index| to[index] = self.details[index]);
    }
}

impl SimulatedSet {
    /// Makes the set of the job ranks `members`, in this order.
    pub(crate) fn new(world: &Arc<World>, members: &[usize]) -> Arc<Self> {
        let seats = members.iter().map(|_| Seat::default()).collect();
        Arc::new(Self {
            world: Arc::clone(world),
            members: members.to_vec(),
            state: Mutex::new(SetState {
                seats,
                ..SetState::default()
            }),
            devices: OnceLock::new(),
            hostile: OnceLock::new(),
            hostile_states: OnceLock::new(),
            message: OnceLock::new(),
        })
    }

    /// Makes the job rank `rank` hostile: that its calls differ from the others' is its error, not
    /// a defect of the runtime.
    pub(crate) fn set_hostile(&self, rank: usize) {
        for set in [self, self.devices()] {
            set.hostile.get_or_init(|| rank);
        }
    }

    /// Modifies some partial states that the [hostile](Self::set_hostile) rank sends.
    pub(crate) fn set_hostile_states(&self, states: HostileStates) {
        self.hostile_states.get_or_init(|| states);
    }

    /// Makes every collective in host memory take `latency_ns` and `ns_per_byte`.
    pub(crate) fn set_message(&self, latency_ns: u64, ns_per_byte: f64) {
        self.message.get_or_init(|| (latency_ns, ns_per_byte));
    }

    /// Delays the calling agent by the time of a collective of `bytes`.
    pub(crate) fn transfer(&self, bytes: usize) {
        if let Some((latency_ns, ns_per_byte)) = self.message.get() {
            let took_ns = latency_ns + (ns_per_byte * bytes as f64) as u64;
            self.world
                .sleep_until(self.world.present() + Duration::from_nanos(took_ns));
        }
    }

    /// Returns the set of the devices of these members.
    pub(crate) fn devices(&self) -> &Arc<Self> {
        self.devices
            .get_or_init(|| Self::new(&self.world, &self.members))
    }

    /// World of the set.
    pub(crate) fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// Job ranks of the set, by set rank.
    pub(crate) fn members(&self) -> &[usize] {
        &self.members
    }

    /// Combines the blocks of `cycle`, including that of `rank`.
    pub(super) fn exchange(
        self: &Arc<Self>,
        rank: usize,
        cycle: u64,
        block: &Contribution<'_>,
        combine: &mut dyn Combine,
    ) -> Result<(), Error> {
        self.world.travel();
        {
            let seat = &mut lock(&self.state).seats[rank];
            assert_eq!(seat.published + 1, cycle, "cycles follow one another");
            seat.blocks[cycle as usize % 2] = Frozen::new(cycle, block);
            seat.published = cycle;
        }
        self.wait_for_all("for the others' blocks", move |seat| {
            seat.published >= cycle
        })?;
        let own = Prefix::new(cycle, block);
        if !self.world.is_spread() {
            return self.add_blocks(0..self.members.len(), own, block, combine);
        }
        let hosts = self.hosts();
        let mut states = Vec::new();
        for ranks in &hosts {
            self.add_blocks(ranks.iter().copied(), own, block, combine)?;
            states.push(Exchanged::new(combine.partial(), own));
        }
        let host = hosts.iter().position(|ranks| ranks.contains(&rank));
        let host = host.expect("every rank has a host");
        let mut network = Network::new(hosts.len(), Costs::default());
        if let (Some(hostile), Some(states)) = (self.hostile.get(), self.hostile_states.get()) {
            let is_hostile = |ranks: &Vec<usize>| self.members[ranks[0]] == *hostile;
            if let Some(host) = hosts.iter().position(is_hostile) {
                let states = *states;
                network.set_hostile(host, Box::new(move |message| states.modify(cycle, message)));
            }
        }
        let mut state = network
            .exchange(states)
            .swap_remove(host)
            .map_err(|invalid| self.invalid(hosts[invalid.host][0], invalid.problem))?;
        let mut words = Vec::new();
        rounds::read(&state.message(), own, &mut words)
            .and_then(|()| combine.adopt(&words, rank, block))
            .map_err(|problem| self.invalid(hosts[host][0], problem))
    }

    /// Adds the blocks of `ranks`; `own` is the prefix of this rank's `block`.
    fn add_blocks(
        &self,
        ranks: impl Iterator<Item = usize>,
        own: Prefix,
        block: &Contribution<'_>,
        combine: &mut dyn Combine,
    ) -> Result<(), Error> {
        let state = lock(&self.state);
        combine.start(block.fact_words());
        for rank in ranks {
            let peer = &state.seats[rank];
            assert!(
                peer.published <= own.cycle() + 1,
                "no rank can be two cycles ahead"
            );
            let block_of_peer = &peer.blocks[own.cycle() as usize % 2];
            let checked = block_of_peer.prefix.check(own);
            checked
                .and_then(|()| combine.add(rank, block_of_peer))
                .map_err(|problem| self.invalid(rank, problem))?;
        }
        Ok(())
    }

    /// Set ranks by host, in a world that is spread: job ranks are on three hosts in turn.
    fn hosts(&self) -> Vec<Vec<usize>> {
        let mut hosts = vec![Vec::new(); 3];
        for (rank, job_rank) in self.members.iter().enumerate() {
            hosts[job_rank % 3].push(rank);
        }
        hosts.retain(|ranks| !ranks.is_empty());
        hosts
    }

    fn invalid(&self, rank: usize, problem: String) -> Error {
        Error::Peer(PeerError::InvalidData {
            rank: self.members[rank],
            problem,
        })
    }

    /// Shares `rank`'s bytes, waits for all members, and calls `combine` with their bytes in rank
    /// order. All members call it in the same order with the same `label`.
    pub(crate) fn share<T>(
        self: &Arc<Self>,
        rank: usize,
        bytes: Vec<u8>,
        label: &str,
        combine: impl FnOnce(&[&[u8]]) -> T,
    ) -> Result<T, Error> {
        self.world.travel();
        let call = {
            let seat = &mut lock(&self.state).seats[rank];
            seat.calls += 1;
            seat.contribution = bytes;
            label.clone_into(&mut seat.label);
            seat.calls
        };
        self.wait_for_all("for the others' bytes", move |seat| seat.calls >= call)?;
        self.world.travel();
        let combined = {
            let mut state = lock(&self.state);
            let differs = state.seats.iter().any(|seat| seat.label != label);
            if let (true, Some(hostile)) = (differs, self.hostile.get()) {
                return Err(PeerError::InvalidData {
                    rank: *hostile,
                    problem: "another collective operation".to_owned(),
                }
                .into());
            }
            assert!(
                !differs,
                "the members of {:?} call differently",
                self.members
            );
            let contributions: Vec<&[u8]> = state
                .seats
                .iter()
                .map(|seat| &seat.contribution[..])
                .collect();
            let combined = combine(&contributions);
            state.seats[rank].calls_read = call;
            combined
        };
        self.wait_for_all("for the others to have read", move |seat| {
            seat.calls_read >= call
        })?;
        Ok(combined)
    }

    /// Waits until every member fulfils `has`; returns an error if a member that does not is dead
    /// or has left.
    fn wait_for_all(
        self: &Arc<Self>,
        what: &'static str,
        has: impl Fn(&Seat) -> bool + Send + Clone + 'static,
    ) -> Result<(), Error> {
        let (set, condition) = (Arc::clone(self), has.clone());
        self.world.wait(what, None, move |lives| {
            set.outcome(lives, &condition).is_some()
        });
        self.world
            .lives(|lives| self.outcome(lives, &has))
            .expect("known, or the wait would last")
    }

    /// Returns whether all members fulfil `has`, or one never will; `None` while neither is known.
    fn outcome(&self, lives: &Lives, has: &impl Fn(&Seat) -> bool) -> Option<Result<(), Error>> {
        let mut state = lock(&self.state);
        if state.seats.iter().all(has) {
            return Some(Ok(()));
        }
        let lagging = |seat: &Seat| !has(seat);
        self.look_for_gone(lives, &mut state, lagging)
            .err()
            .map(Err)
    }

    /// Returns an error if a member is dead, the set has ended, or one of the `missed` members has
    /// left.
    fn look_for_gone(
        &self,
        lives: &Lives,
        state: &mut SetState,
        missed: impl Fn(&Seat) -> bool,
    ) -> Result<(), Error> {
        let members = || self.members.iter().copied().zip(&state.seats);
        let dead = members().find(|&(rank, seat)| lives.is_dead(rank) && !seat.left);
        let dead = dead.map(|(rank, _)| {
            Error::Peer(PeerError::Lost {
                rank,
                pid: rank as u32,
            })
        });
        let left = members().find(|&(_, seat)| seat.left && missed(seat));
        let left = left.map(|(rank, _)| Error::Peer(PeerError::Left { rank }));
        if state.poison.is_none() {
            state.poison = dead;
        }
        state.poison.clone().or(left).map_or(Ok(()), Err)
    }

    /// Returns an error if any member is dead or has left.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.world
            .lives(|lives| self.look_for_gone(lives, &mut lock(&self.state), |_| true))
    }

    /// Leaves as `rank`, in order or because of an error; an error about another rank is passed on
    /// as that rank's.
    pub(crate) fn leave(&self, rank: usize, because: Option<&Error>) {
        let member = self.members[rank];
        if self.world.lives(|lives| lives.is_dead(member)) {
            return;
        }
        let mut state = lock(&self.state);
        state.seats[rank].left = true;
        let Some(error) = because else { return };
        if state.poison.is_none() {
            state.poison = Some(match error {
                Error::Peer(PeerError::Left { .. } | PeerError::Lost { .. }) => error.clone(),
                _ => Error::Peer(PeerError::Failed {
                    rank: member,
                    reason: error.to_string(),
                }),
            });
        }
        state.alarm(rank);
    }
}
