//! A simulated process set: what its members have in common memory, and how they wait for one another there.

use std::sync::{Arc, Mutex, OnceLock};

use super::doorbell::Bell;
use super::world::{Lives, World};
use crate::error::{Error, PeerError};
use crate::sync::lock;
use crate::transport::block::{Prefix, each_bit};
use crate::transport::{Combine, Contribution, RankBlock};

/// Members of a [`World`] that exchange blocks and bytes. Its ranks are `0..size`; errors name the job's.
pub(crate) struct SimulatedSet {
    pub(super) world: Arc<World>,
    /// Job rank of each set rank.
    members: Vec<usize>,
    pub(super) state: Mutex<SetState>,
    /// What the members' devices have in common.
    devices: OnceLock<Arc<Self>>,
}

#[derive(Default)]
pub(super) struct SetState {
    pub(super) seats: Vec<Seat>,
    /// The highest cycle that any member asked for.
    pub(super) rung: u64,
    /// Why the set is at its end: the first member's reason counts for all, as on shared memory.
    poison: Option<Error>,
}

/// What one member shows the others.
#[derive(Default)]
pub(super) struct Seat {
    pub(super) bell: Bell,
    left: bool,
    /// The last cycle for which it has brought a block.
    pub(super) published: u64,
    blocks: [Frozen; 2],
    /// Shared calls: made, read, and what the last was and brought.
    calls: u64,
    calls_read: u64,
    label: String,
    contribution: Vec<u8>,
}

/// A member's block of one cycle.
#[derive(Default)]
struct Frozen {
    prefix: Prefix,
    words: Vec<u64>,
    details: Vec<u64>,
}

impl Frozen {
    fn new(cycle: u64, block: &Contribution<'_>) -> Self {
        Self {
            prefix: Prefix::new(cycle, block),
            words: block.head.iter().chain(block.bits).copied().collect(),
            details: block.details.to_vec(),
        }
    }
}

impl RankBlock for Frozen {
    fn read_words(&self, to: &mut [u64]) {
        to.copy_from_slice(&self.words);
    }

    fn read_details(&self, bits: &[u64], to: &mut [u64]) {
        each_bit(bits, |index| to[index] = self.details[index]);
    }
}

impl SimulatedSet {
    /// The set of the job ranks `members`, in this order.
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
        })
    }

    /// The set that the devices of these members form among themselves.
    pub(crate) fn devices(&self) -> &Arc<Self> {
        self.devices.get_or_init(|| Self::new(&self.world, &self.members))
    }

    /// The world that it is in.
    pub(crate) fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// The job ranks of the set, by set rank.
    pub(crate) fn members(&self) -> &[usize] {
        &self.members
    }

    /// Combines the blocks of `cycle`, `rank`'s among them.
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
        self.wait_for_all("for the others' blocks", move |seat| seat.published >= cycle)?;
        let state = lock(&self.state);
        combine.start(block.words());
        for (peer, &member) in state.seats.iter().zip(&self.members) {
            assert!(peer.published <= cycle + 1, "no rank can be two cycles ahead");
            let block_of_peer = &peer.blocks[cycle as usize % 2];
            let checked = block_of_peer.prefix.check(Prefix::new(cycle, block));
            checked
                .and_then(|()| combine.add(block_of_peer))
                .map_err(|problem| PeerError::InvalidData {
                    rank: member,
                    problem,
                })?;
        }
        Ok(())
    }

    /// Brings `rank`'s bytes in, waits for all, lets `combine` read them in rank order. All members call in the same
    /// order with the same `label`.
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
            for seat in &state.seats {
                assert_eq!(
                    seat.label, label,
                    "the members of {:?} call differently",
                    self.members
                );
            }
            let contributions: Vec<&[u8]> = state.seats.iter().map(|seat| &seat.contribution[..]).collect();
            let combined = combine(&contributions);
            state.seats[rank].calls_read = call;
            combined
        };
        self.wait_for_all("for the others to have read", move |seat| seat.calls_read >= call)?;
        Ok(combined)
    }

    /// Waits until every member fulfils `has`; an error if one that does not is gone.
    fn wait_for_all(
        self: &Arc<Self>,
        what: &'static str,
        has: impl Fn(&Seat) -> bool + Send + Clone + 'static,
    ) -> Result<(), Error> {
        let (set, condition) = (Arc::clone(self), has.clone());
        self.world
            .wait(what, None, move |lives| set.outcome(lives, &condition).is_some());
        self.world
            .lives(|lives| self.outcome(lives, &has))
            .expect("known, or the wait would last")
    }

    /// Whether all members fulfil `has`, or one never will; `None` while neither is known.
    fn outcome(&self, lives: &Lives, has: &impl Fn(&Seat) -> bool) -> Option<Result<(), Error>> {
        let mut state = lock(&self.state);
        if state.seats.iter().all(has) {
            return Some(Ok(()));
        }
        let lagging = |seat: &Seat| !has(seat);
        self.look_for_gone(lives, &mut state, lagging).err().map(Err)
    }

    /// Fails if a member is dead, the set poisoned, or one of those who are `missed` has left.
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

    /// Fails if any member is gone.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.world
            .lives(|lives| self.look_for_gone(lives, &mut lock(&self.state), |_| true))
    }

    /// `rank` leaves, in order or because of an error; one that stands for another rank's is passed on as that.
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
