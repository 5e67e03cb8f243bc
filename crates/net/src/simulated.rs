//! Simulated network: messages among ranks of one thread, for tests. A seed decides the order in
//! which messages of different ranks and channels arrive, and in which pieces; a rank can be lost
//! at any time.
//!
//! Matching of messages with receives is that of a [mesh](crate::Mesh), and so are the operations
//! of the communicators.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use crate::comm::{Carrier, Comm};
use crate::error::{Loss, NetError};
use crate::inbound::Place;
use crate::inbox::{Inbox, Receive};
use crate::memory::{Memory, Slice};
use crate::pending::Op;

/// Simulated network; see the module.
pub struct Network {
    state: RefCell<State>,
}

struct State {
    random: u64,
    inboxes: Vec<Inbox>,
    /// Messages on their way, by sender, receiver and channel.
    flights: BTreeMap<(usize, usize, u64), VecDeque<Flight>>,
    verdict: Option<NetError>,
}

/// A message on its way.
struct Flight {
    tag: u32,
    slice: Slice,
    delivered: usize,
    op: Rc<Op>,
}

/// One rank's access to the network.
struct End {
    network: Rc<Network>,
    rank: usize,
}

impl Network {
    /// Creates a network of `ranks` ranks. The same seed gives the same order.
    pub fn new(ranks: usize, seed: u64) -> Rc<Self> {
        let state = State {
            random: seed,
            inboxes: (0..ranks).map(|_| Inbox::default()).collect(),
            flights: BTreeMap::new(),
            verdict: None,
        };
        Rc::new(Self {
            state: RefCell::new(state),
        })
    }

    /// Returns the communicator of rank `rank` on a channel of all ranks.
    pub fn comm(self: &Rc<Self>, rank: usize, channel: u64) -> Comm {
        let members: Vec<usize> = (0..self.state.borrow().inboxes.len()).collect();
        let network = Rc::clone(self);
        Comm::over(Rc::new(End { network, rank }), channel, &members, rank)
    }

    /// Draws a number below `bound`, which is not 0.
    pub fn draw(&self, bound: usize) -> usize {
        self.state.borrow_mut().draw(bound)
    }

    /// Delivers a piece of a message that is on its way; returns whether there was one.
    pub fn deliver(&self) -> bool {
        self.state.borrow_mut().deliver()
    }

    /// Loses rank `rank`: all operations that have not completed fail.
    pub fn lose(&self, rank: usize) {
        self.state.borrow_mut().fail(NetError::Lost {
            rank,
            host: format!("host{rank}"),
            loss: Loss::Closed,
        });
    }
}

impl State {
    /// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
    fn draw(&mut self, bound: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }

    fn deliver(&mut self) -> bool {
        if self.flights.is_empty() {
            return false;
        }
        let index = self.draw(self.flights.len());
        let key = *self.flights.keys().nth(index).expect("below the number");
        let (from, to, channel) = key;
        let queue = self.flights.get_mut(&key).expect("just seen");
        let mut flight = queue.pop_front().expect("no queue is empty");
        if queue.is_empty() {
            self.flights.remove(&key);
        }
        let total = flight.slice.bytes();
        let rest = total - flight.delivered;
        let count = match self.draw(2) {
            0 => rest,
            _ => rest.min(1 + self.draw(rest.max(1))),
        };
        let place = Place {
            channel,
            tag: flight.tag,
            total,
            offset: flight.delivered,
        };
        let mut piece = Vec::with_capacity(count);
        let end = flight.delivered + count;
        let slice = flight.slice.part(flight.delivered..end);
        slice.append_to(&mut piece);
        if let Err(problem) = self.inboxes[to].arrive(from, place, &piece) {
            self.fail(NetError::InvalidData {
                rank: from,
                host: format!("host{from}"),
                problem,
            });
            return true;
        }
        flight.delivered += count;
        match flight.delivered == total {
            true => flight.op.done(),
            false => self.flights.entry(key).or_default().push_front(flight),
        }
        true
    }

    fn fail(&mut self, error: NetError) {
        let error = self.verdict.get_or_insert(error).clone();
        for inbox in &mut self.inboxes {
            inbox.fail(None, &error);
        }
        let flights = std::mem::take(&mut self.flights);
        let lost = flights.values().flatten();
        lost.for_each(|flight| flight.op.fail(&error));
    }
}

impl Carrier for End {
    fn send(&self, to: usize, channel: u64, tag: u32, slice: Slice, op: &Rc<Op>) {
        let mut state = self.network.state.borrow_mut();
        op.open();
        if let Some(error) = &state.verdict {
            return op.fail(error);
        }
        let queue = state.flights.entry((self.rank, to, channel)).or_default();
        queue.push_back(Flight {
            tag,
            slice,
            delivered: 0,
            op: Rc::clone(op),
        });
    }

    fn receive(&self, channel: u64, receive: Receive) {
        let mut state = self.network.state.borrow_mut();
        receive.op.open();
        if let Some(error) = &state.verdict {
            return receive.op.fail(error);
        }
        if let Err((rank, problem)) = state.inboxes[self.rank].post(channel, receive) {
            state.fail(NetError::InvalidData {
                rank,
                host: format!("host{rank}"),
                problem,
            });
        }
    }

    fn detach(&self, memory: &Rc<dyn Memory>) {
        let mut state = self.network.state.borrow_mut();
        let State {
            inboxes, flights, ..
        } = &mut *state;
        inboxes.iter_mut().for_each(|inbox| inbox.detach(memory));
        let flights = flights.values_mut().flatten();
        flights.for_each(|flight| flight.slice.detach(memory));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_in_the_order_that_the_seed_gives() {
        let orders = |seed| {
            let network = Network::new(3, seed);
            let comms: Vec<Comm> = (0..3).map(|rank| network.comm(rank, 7)).collect();
            let sends: Vec<_> = [1, 2]
                .map(|from: usize| comms[from].send(vec![from as u8; 9], 0, 1))
                .into();
            let mut order = Vec::new();
            for _ in 0..2 {
                let mut receive = comms[0].receive(vec![0; 9], None, 1);
                let memory = loop {
                    if let Some(memory) = receive.test().unwrap() {
                        break memory;
                    }
                    assert!(network.deliver());
                };
                assert_eq!(memory, [memory[0]; 9]);
                order.push(memory[0]);
            }
            sends
                .into_iter()
                .for_each(|mut send| assert!(send.test().unwrap().is_some()));
            order
        };
        assert_eq!(orders(3), orders(3));
        let all: std::collections::BTreeSet<_> = (0..50).map(orders).collect();
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn a_lost_rank_ends_all_operations() {
        let network = Network::new(2, 1);
        let comm = network.comm(0, 0);
        let mut begun = comm.receive(vec![0], Some(1), 1);
        assert_eq!(begun.test(), Ok(None));
        network.lose(1);
        let error = begun.test().unwrap_err().to_string();
        assert!(error.starts_with("rank 1 on host1 is lost"), "{error}");
        assert!(comm.send(vec![0], 1, 1).test().is_err());
        assert!(!network.deliver());
    }
}
