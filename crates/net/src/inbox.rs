//! Inbox of a mesh: matches arriving messages with receives, by channel, sender and tag.
//!
//! A message that arrives before its receive is kept. Its sender may have sent at most
//! [`WINDOW_BYTES`] of a channel that no receive has taken, so the memory is bounded.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use crate::error::NetError;
use crate::inbound::Place;
use crate::memory::{Memory, Slice};
use crate::pending::Op;

/// Largest number of bytes of one channel that a rank sends to another beyond those that receives
/// have taken: more than a collective operation has in flight, so that it is not delayed.
pub(crate) const WINDOW_BYTES: u64 = 16 << 20;

/// Part of the window that a message uses beside its bytes, bytes.
pub(crate) const MESSAGE_COST: u64 = 64;

/// A receive that waits for its message.
pub(crate) struct Receive {
    /// The sender; `None`: any rank.
    pub(crate) from: Option<usize>,
    pub(crate) tag: u32,
    pub(crate) slice: Slice,
    pub(crate) op: Rc<Op>,
}

impl Receive {
    fn fits(&self, from: usize, tag: u32) -> bool {
        self.from.is_none_or(|rank| rank == from) && self.tag == tag && !self.op.is_abandoned()
    }

    /// Checks that a message of `total` bytes is what is expected.
    fn check(&self, total: usize) -> Result<(), String> {
        if total == self.slice.bytes() {
            return Ok(());
        }
        Err(format!(
            "a message of {total} bytes, where one of {} is expected",
            self.slice.bytes()
        ))
    }
}

/// A message that has arrived, in part or as a whole, before its receive.
struct Early {
    from: usize,
    tag: u32,
    total: usize,
    bytes: Vec<u8>,
}

/// Destination of a message that is arriving.
enum Target {
    Receive(Receive),
    /// The early message of that sender that is not complete.
    Early,
}

#[derive(Default)]
struct Channel {
    receives: VecDeque<Receive>,
    early: VecDeque<Early>,
    /// By sender.
    arriving: HashMap<usize, Target>,
}

/// Receives and kept messages of all channels.
#[derive(Default)]
pub(crate) struct Inbox {
    channels: HashMap<u64, Channel>,
}

/// Part of the window that has become free: the sender, and how much.
pub(crate) type Taken = Option<(usize, u64)>;

impl Inbox {
    /// Adds a receive on `channel`; it may be complete at once.
    ///
    /// # Errors
    /// The sender of a message that does not fit the receive, and why.
    pub(crate) fn post(
        &mut self,
        channel: u64,
        receive: Receive,
    ) -> Result<Taken, (usize, String)> {
        let channel = self.channels.entry(channel).or_default();
        let found = channel
            .early
            .iter()
            .position(|early| receive.fits(early.from, early.tag));
        let Some(early) = found.and_then(|index| channel.early.remove(index)) else {
            channel
                .receives
                .retain(|waiting| !waiting.op.is_abandoned());
            channel.receives.push_back(receive);
            return Ok(None);
        };
        let Early {
            from, total, bytes, ..
        } = early;
        receive.check(total).map_err(|problem| (from, problem))?;
        receive.slice.fill(&bytes);
        if bytes.len() == total {
            receive.op.done();
        } else {
            channel.arriving.insert(from, Target::Receive(receive));
        }
        Ok(Some((from, bytes.len() as u64 + MESSAGE_COST)))
    }

    /// Whether a whole message from rank `from` waits for its receive.
    pub(crate) fn has(&self, channel: u64, from: usize, tag: u32) -> bool {
        let is_it = |early: &Early| {
            (early.from, early.tag) == (from, tag) && early.bytes.len() == early.total
        };
        let channel = self.channels.get(&channel);
        channel.is_some_and(|channel| channel.early.iter().any(is_it))
    }

    /// Takes in `bytes` of a message from rank `from`.
    ///
    /// # Errors
    /// A message that does not fit its receive.
    pub(crate) fn arrive(
        &mut self,
        from: usize,
        place: Place,
        bytes: &[u8],
    ) -> Result<u64, String> {
        let (channel, cost) = self.begin(from, place)?;
        match &channel.arriving[&from] {
            Target::Receive(receive) => {
                let end = place.offset + bytes.len();
                receive.slice.part(place.offset..end).fill(bytes);
            }
            Target::Early => {
                let is_open =
                    |early: &&mut Early| early.from == from && early.bytes.len() < early.total;
                // An empty message has nothing to add.
                if let Some(early) = channel.early.iter_mut().rfind(is_open) {
                    early.bytes.extend_from_slice(bytes);
                }
            }
        }
        Ok(cost + channel.filled(from, place, bytes.len()))
    }

    /// Memory for the next bytes of a message from rank `from`, if its receive waits. The caller
    /// reports what it has written there to [`wrote`](Self::wrote).
    ///
    /// # Errors
    /// As for [`arrive`](Self::arrive).
    pub(crate) fn memory(
        &mut self,
        from: usize,
        place: Place,
    ) -> Result<(Option<Slice>, u64), String> {
        let (channel, cost) = self.begin(from, place)?;
        Ok(match &channel.arriving[&from] {
            Target::Receive(receive) => {
                let rest = place.offset..receive.slice.bytes();
                (Some(receive.slice.part(rest)), cost)
            }
            Target::Early => (None, cost),
        })
    }

    /// `count` bytes have been written to the [`memory`](Self::memory) for `place`; returns how
    /// many of the window they free.
    pub(crate) fn wrote(&mut self, from: usize, place: Place, count: usize) -> u64 {
        let channel = self.channels.get_mut(&place.channel);
        channel.expect("it has memory").filled(from, place, count)
    }

    /// Finds the target of a message whose first bytes arrive; returns the channel, and how much of
    /// the window the message frees by that.
    fn begin(&mut self, from: usize, place: Place) -> Result<(&mut Channel, u64), String> {
        let channel = self.channels.entry(place.channel).or_default();
        let mut cost = 0;
        if !channel.arriving.contains_key(&from) {
            let fits = |receive: &Receive| receive.fits(from, place.tag);
            let waiting = channel.receives.iter().position(fits);
            if let Some(index) = waiting {
                // If it does not fit, the receive stays, to fail with the mesh.
                channel.receives[index].check(place.total)?;
            }
            let target = match waiting.and_then(|index| channel.receives.remove(index)) {
                Some(receive) => {
                    cost = MESSAGE_COST;
                    Target::Receive(receive)
                }
                None => {
                    channel.early.push_back(Early {
                        from,
                        tag: place.tag,
                        total: place.total,
                        bytes: Vec::new(),
                    });
                    Target::Early
                }
            };
            channel.arriving.insert(from, target);
        }
        Ok((channel, cost))
    }

    /// Writes no more to `memory`: what its receives still get is lost.
    pub(crate) fn detach(&mut self, memory: &Rc<dyn Memory>) {
        for channel in self.channels.values_mut() {
            for receive in &mut channel.receives {
                receive.slice.discard(memory);
            }
            for target in channel.arriving.values_mut() {
                if let Target::Receive(receive) = target {
                    receive.slice.discard(memory);
                }
            }
        }
    }

    /// Fails the receives from `rank`, or all, with `error`.
    pub(crate) fn fail(&mut self, rank: Option<usize>, error: &NetError) {
        for channel in self.channels.values_mut() {
            let concerns = |from: Option<usize>| rank.is_none() || from == rank;
            channel.receives.retain(|receive| {
                let fails = concerns(receive.from);
                if fails {
                    receive.op.fail(error);
                }
                !fails
            });
            channel.arriving.retain(|from, target| {
                let fails = concerns(Some(*from));
                if let (true, Target::Receive(receive)) = (fails, &*target) {
                    receive.op.fail(error);
                }
                !fails
            });
        }
    }
}

impl Channel {
    /// Ends the message if it is complete; returns how much of the window `count` bytes free.
    fn filled(&mut self, from: usize, place: Place, count: usize) -> u64 {
        let is_whole = place.offset + count == place.total;
        let is_received = matches!(self.arriving[&from], Target::Receive(_));
        if is_whole && let Some(Target::Receive(receive)) = self.arriving.remove(&from) {
            receive.op.done();
        }
        if is_received { count as u64 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn receive(from: Option<usize>, tag: u32, bytes: usize) -> (Receive, Rc<Op>) {
        let op = Rc::<Op>::default();
        op.open();
        let receive = Receive {
            from,
            tag,
            slice: Slice::whole(vec![0; bytes]),
            op: Rc::clone(&op),
        };
        (receive, op)
    }

    fn bytes(slice: &Slice) -> Vec<u8> {
        let mut bytes = Vec::new();
        slice.append_to(&mut bytes);
        bytes
    }

    fn place(tag: u32, total: usize, offset: usize) -> Place {
        Place {
            channel: 3,
            tag,
            total,
            offset,
        }
    }

    /// Whether the operation is complete, by way of the interface that callers have.
    fn is_complete(op: &Rc<Op>) -> bool {
        let mut pending = crate::pending::Pending::new(Rc::clone(op), || ());
        pending.test() == Ok(Some(()))
    }

    #[test]
    fn a_message_reaches_the_first_receive_of_its_sender_and_tag() {
        let mut inbox = Inbox::default();
        let (other, other_op) = receive(Some(2), 7, 4);
        let (any, any_op) = receive(None, 7, 4);
        let slice = any.slice.clone();
        assert_eq!(inbox.post(3, other), Ok(None));
        assert_eq!(inbox.post(3, any), Ok(None));
        let taken = inbox.arrive(1, place(7, 4, 0), b"ab").unwrap();
        assert_eq!(taken, 2 + MESSAGE_COST);
        assert!(!is_complete(&any_op));
        let (memory, cost) = inbox.memory(1, place(7, 4, 2)).unwrap();
        let memory = memory.unwrap();
        assert_eq!((memory.bytes(), cost), (2, 0));
        memory.fill(b"cd");
        assert_eq!(inbox.wrote(1, place(7, 4, 2), 2), 2);
        assert_eq!(bytes(&slice), b"abcd");
        assert!(is_complete(&any_op) && !is_complete(&other_op));
    }

    #[test]
    fn an_early_message_waits_for_its_receive_even_in_part() {
        let mut inbox = Inbox::default();
        assert_eq!(inbox.arrive(1, place(8, 2, 0), b"xy"), Ok(0));
        assert_eq!(inbox.arrive(1, place(7, 4, 0), b"ab"), Ok(0));
        assert_eq!(inbox.arrive(2, place(7, 0, 0), b""), Ok(0));
        let (late, op) = receive(Some(1), 7, 4);
        let slice = late.slice.clone();
        assert_eq!(inbox.post(3, late), Ok(Some((1, 2 + MESSAGE_COST))));
        assert!(!is_complete(&op));
        assert_eq!(inbox.arrive(1, place(7, 4, 2), b"cd"), Ok(2));
        assert!(is_complete(&op));
        assert_eq!(bytes(&slice), b"abcd");
        let (whole, op) = receive(Some(1), 8, 2);
        assert_eq!(inbox.post(3, whole), Ok(Some((1, 2 + MESSAGE_COST))));
        assert!(is_complete(&op));
        let (empty, op) = receive(Some(2), 7, 0);
        assert_eq!(inbox.post(3, empty), Ok(Some((2, MESSAGE_COST))));
        assert!(is_complete(&op));
    }

    #[test]
    fn a_message_of_another_length_is_refused() {
        let mut inbox = Inbox::default();
        let (short, _op) = receive(Some(1), 7, 3);
        inbox.post(3, short).unwrap();
        let error = inbox.arrive(1, place(7, 4, 0), b"ab").unwrap_err();
        assert_eq!(error, "a message of 4 bytes, where one of 3 is expected");
        inbox.arrive(1, place(9, 4, 0), b"ab").unwrap();
        let (long, _op) = receive(Some(1), 9, 5);
        assert_eq!(inbox.post(3, long).unwrap_err().0, 1);
    }

    #[test]
    fn an_abandoned_receive_takes_no_message() {
        let mut inbox = Inbox::default();
        let (first, op) = receive(Some(1), 7, 1);
        inbox.post(3, first).unwrap();
        drop(crate::pending::Pending::new(op, || ()));
        let (second, op) = receive(Some(1), 7, 1);
        inbox.post(3, second).unwrap();
        inbox.arrive(1, place(7, 1, 0), b"a").unwrap();
        assert!(is_complete(&op));
    }

    #[test]
    fn detached_memory_is_written_no_more() {
        let mut inbox = Inbox::default();
        let memory: Rc<dyn Memory> = Rc::new(RefCell::new(vec![0; 9]));
        for (tag, range) in [(7, 0..4), (8, 4..8)] {
            let (mut waiting, _op) = receive(Some(1), tag, 4);
            waiting.slice = Slice::new(Rc::clone(&memory), range);
            inbox.post(3, waiting).unwrap();
        }
        inbox.arrive(1, place(7, 4, 0), b"ab").unwrap();
        inbox.detach(&memory);
        assert_eq!(Rc::strong_count(&memory), 1);
        inbox.arrive(1, place(7, 4, 2), b"cd").unwrap();
        inbox.arrive(1, place(8, 4, 0), b"efgh").unwrap();
        assert_eq!(bytes(&Slice::new(memory, 0..9)), b"ab\0\0\0\0\0\0\0");
    }

    #[test]
    fn receives_fail_with_their_sender() {
        let mut inbox = Inbox::default();
        let (lost, lost_op) = receive(Some(1), 7, 2);
        let (other, other_op) = receive(Some(2), 7, 1);
        inbox.post(3, lost).unwrap();
        inbox.post(3, other).unwrap();
        inbox.arrive(1, place(7, 2, 0), b"a").unwrap();
        let error = NetError::Left {
            rank: 1,
            host: "b".into(),
        };
        inbox.fail(Some(1), &error);
        let test = |op: &Rc<Op>| crate::pending::Pending::new(Rc::clone(op), || ()).test();
        assert_eq!(test(&lost_op), Err(error));
        inbox.arrive(2, place(7, 1, 0), b"a").unwrap();
        assert_eq!(test(&other_op), Ok(Some(())));
    }
}
