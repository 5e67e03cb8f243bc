//! Sends and receives of a simulated communicator: between two ranks, the first send matches the
//! first receive.

use std::collections::{HashMap, VecDeque};

use super::Call;
use super::world::Hardware;

/// Messages in flight between the ranks of a communicator.
#[derive(Default)]
pub(super) struct Post {
    sent: HashMap<(usize, usize), VecDeque<Parcel>>,
    wanted: HashMap<(usize, usize), VecDeque<Wish>>,
    /// Number of unfinished sends and receives of each call.
    left: HashMap<u64, usize>,
}

struct Parcel {
    call: u64,
    bytes: Vec<u8>,
}

struct Wish {
    call: u64,
    to: u64,
    bytes: usize,
}

impl Post {
    pub(super) fn is_done(&self, call: u64) -> bool {
        self.left.get(&call) == Some(&0)
    }

    /// The stream of rank `rank` has reached these sends and receives, which are one group.
    pub(super) fn arrive(
        &mut self,
        hardware: &mut [Hardware],
        devices: &[usize],
        rank: usize,
        call: u64,
        calls: &[Call],
    ) -> Result<(), String> {
        let mut reads = Vec::new();
        let mut writes = Vec::new();
        self.left.insert(call, calls.len());
        for own in calls {
            match *own {
                Call::Send { from, count, peer } if peer < devices.len() && count > 0 => {
                    let bytes = hardware[devices[rank]].memory.read(from, count)?.to_vec();
                    reads.push((from, from + count as u64));
                    self.sent
                        .entry((rank, peer))
                        .or_default()
                        .push_back(Parcel { call, bytes });
                }
                Call::Receive { to, count, peer } if peer < devices.len() && count > 0 => {
                    writes.push((to, to + count as u64));
                    let wish = Wish {
                        call,
                        to,
                        bytes: count,
                    };
                    self.wanted.entry((peer, rank)).or_default().push_back(wish);
                }
                _ => return Err(format!("not among sends and receives: {own:x?}")),
            }
        }
        let meets = |read: &(u64, u64)| {
            writes
                .iter()
                .any(|write: &(u64, u64)| read.0 < write.1 && write.0 < read.1)
        };
        if reads.iter().any(meets) {
            return Err(format!("what is sent is received into: {calls:x?}"));
        }
        self.deliver(hardware, devices)
    }

    fn deliver(&mut self, hardware: &mut [Hardware], devices: &[usize]) -> Result<(), String> {
        for (&(from, to), parcels) in &mut self.sent {
            let Some(wishes) = self.wanted.get_mut(&(from, to)) else {
                continue;
            };
            while let (Some(parcel), Some(wish)) = (parcels.front(), wishes.front()) {
                if parcel.bytes.len() != wish.bytes {
                    return Err(format!(
                        "{} bytes from {from}, and {to} wants {}",
                        parcel.bytes.len(),
                        wish.bytes
                    ));
                }
                hardware[devices[to]].memory.write(wish.to, &parcel.bytes)?;
                for call in [parcel.call, wish.call] {
                    *self.left.entry(call).or_insert(1) -= 1;
                }
                parcels.pop_front();
                wishes.pop_front();
            }
        }
        Ok(())
    }

    /// Rank `rank` has left.
    pub(super) fn withdraw(&mut self, rank: usize) {
        self.sent.retain(|(from, _), _| *from != rank);
        self.wanted.retain(|(_, to), _| *to != rank);
    }
}
