//! Outbound half of a connection: messages wait here until the operating system accepts them.
//!
//! Messages of a channel leave in order. Frames of different channels take turns, and control
//! messages go before the next frame, so none waits long behind a large message. Short frames are
//! copied, to leave together in one system call.

use std::collections::VecDeque;
use std::io::Write;
use std::rc::Rc;

use crate::control::Control;
use crate::error::NetError;
use crate::frame::{FRAGMENT_BYTES_MAX, HEADER_BYTES, Header, Kind};
use crate::inbox::{MESSAGE_COST, WINDOW_BYTES};
use crate::memory::{Memory, Slice};
use crate::pending::Op;

/// A frame with at most so many bytes is copied behind those that wait already, as long as these
/// have no more than [`AHEAD_BYTES`]: a system call costs more than the copy.
const SHORT_BYTES: usize = 4 << 10;
const AHEAD_BYTES: usize = 64 << 10;

/// A message that waits to be sent.
struct Send {
    tag: u32,
    slice: Slice,
    /// Bytes in frames that have begun.
    framed: usize,
    op: Rc<Op>,
}

struct Channel {
    number: u64,
    queue: VecDeque<Send>,
    /// Part of the window that was used and that was freed, since the connection began.
    used: u64,
    freed: u64,
}

/// A data frame of the first message of a channel that is being written.
struct Frame {
    channel: usize,
    header: [u8; HEADER_BYTES],
    /// Bytes of the header and of the payload that are written.
    written: usize,
    /// Where the payload begins in the message, and its length.
    offset: usize,
    bytes: usize,
}

/// Outbound half of a connection.
#[derive(Default)]
pub(crate) struct Outbound {
    /// Control messages and short frames, which go before the next data frame, from `begin` on.
    ahead: Vec<u8>,
    begin: usize,
    channels: Vec<Channel>,
    /// The channel that has the next turn.
    turn: usize,
    /// Number of the next frame.
    sequence: u64,
    frame: Option<Frame>,
}

impl Outbound {
    /// Adds bytes of the authentication.
    pub(crate) fn push_raw(&mut self, bytes: &[u8]) {
        self.ahead.extend_from_slice(bytes);
    }

    pub(crate) fn push_control(&mut self, message: &Control) {
        let payload = message.encode();
        let header = Header {
            kind: Kind::Control,
            bytes: payload.len(),
            sequence: self.sequence,
        };
        self.sequence += 1;
        self.ahead.extend_from_slice(&header.encode());
        self.ahead.extend_from_slice(&payload);
    }

    /// Adds a message.
    pub(crate) fn push(&mut self, channel: u64, tag: u32, slice: Slice, op: Rc<Op>) {
        let index = self.channel(channel);
        self.channels[index].queue.push_back(Send {
            tag,
            slice,
            framed: 0,
            op,
        });
    }

    /// The receiver has taken `taken` of the window of `channel` since the connection began.
    ///
    /// # Errors
    /// More than was sent, or less than before; a channel on which nothing was sent.
    pub(crate) fn credit(&mut self, channel: u64, taken: u64) -> Result<(), String> {
        let mut channels = self.channels.iter_mut();
        let Some(channel) = channels.find(|it| it.number == channel) else {
            return Err(format!(
                "a credit for channel {channel}, on which nothing was sent"
            ));
        };
        if taken < channel.freed || taken > channel.used {
            return Err(format!(
                "a credit of {taken} for {} bytes that were sent, after one of {}",
                channel.used, channel.freed
            ));
        }
        channel.freed = taken;
        Ok(())
    }

    fn channel(&mut self, number: u64) -> usize {
        let found = self.channels.iter().position(|it| it.number == number);
        found.unwrap_or_else(|| {
            self.channels.push(Channel {
                number,
                queue: VecDeque::new(),
                used: 0,
                freed: 0,
            });
            self.channels.len() - 1
        })
    }

    /// Whether everything that may be sent is written.
    pub(crate) fn is_idle(&self) -> bool {
        self.begin == self.ahead.len()
            && self.frame.is_none()
            && self.channels.iter().all(|channel| channel.room().is_none())
    }

    /// Writes until nothing is left, or `stream` accepts no more; returns whether it wrote.
    ///
    /// # Errors
    /// Those of `stream`, except that it would block.
    pub(crate) fn write(&mut self, stream: &mut impl Write) -> std::io::Result<bool> {
        let mut has_written = false;
        loop {
            let outcome = if let Some(frame) = &mut self.frame {
                let send = &self.channels[frame.channel].queue[0];
                let header = &frame.header[frame.written.min(HEADER_BYTES)..];
                let begin = frame.offset + frame.written.saturating_sub(HEADER_BYTES);
                let rest = send.slice.part(begin..frame.offset + frame.bytes);
                rest.write_to(stream, header)
            } else {
                self.collect_short();
                if self.begin < self.ahead.len() {
                    stream.write(&self.ahead[self.begin..])
                } else if let Some((channel, bytes)) = self.next_frame() {
                    self.frame = Some(self.begin_frame(channel, bytes));
                    continue;
                } else {
                    return Ok(has_written);
                }
            };
            let count = match outcome {
                Ok(0) => return Err(std::io::ErrorKind::WriteZero.into()),
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    return Ok(has_written);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            has_written = true;
            self.wrote(count);
        }
    }

    fn wrote(&mut self, count: usize) {
        let Some(frame) = &mut self.frame else {
            self.begin += count;
            if self.begin == self.ahead.len() {
                self.ahead.clear();
                self.begin = 0;
            }
            return;
        };
        frame.written += count;
        if frame.written == HEADER_BYTES + frame.bytes
            && let Some(frame) = self.frame.take()
        {
            self.end_frame(&frame);
        }
    }

    /// Channel and length of the next frame, if a channel may send.
    fn next_frame(&self) -> Option<(usize, usize)> {
        let count = self.channels.len();
        let mut order = (0..count).map(|step| (self.turn + step) % count);
        order.find_map(|index| {
            let channel = &self.channels[index];
            let room = channel.room()?;
            let send = &channel.queue[0];
            let left = send.slice.bytes() - send.framed;
            Some((index, left.min(FRAGMENT_BYTES_MAX).min(room)))
        })
    }

    /// Begins a frame of `bytes` bytes of the channel at `index`, which may send them.
    fn begin_frame(&mut self, index: usize, bytes: usize) -> Frame {
        self.turn = (index + 1) % self.channels.len();
        let channel = &mut self.channels[index];
        let send = &mut channel.queue[0];
        let first = if send.framed == 0 { MESSAGE_COST } else { 0 };
        channel.used += first + bytes as u64;
        let header = Header {
            kind: Kind::Data {
                channel: channel.number,
                tag: send.tag,
                total: send.slice.bytes() as u64,
            },
            bytes,
            sequence: self.sequence,
        };
        self.sequence += 1;
        let offset = send.framed;
        send.framed += bytes;
        Frame {
            channel: index,
            header: header.encode(),
            written: 0,
            offset,
            bytes,
        }
    }

    /// Copies the next frames behind the bytes that go ahead, as long as they are short.
    fn collect_short(&mut self) {
        while self.ahead.len() - self.begin <= AHEAD_BYTES
            && let Some((channel, bytes)) = self.next_frame()
            && bytes <= SHORT_BYTES
        {
            let frame = self.begin_frame(channel, bytes);
            self.ahead.extend_from_slice(&frame.header);
            let slice = &self.channels[channel].queue[0].slice;
            let payload = slice.part(frame.offset..frame.offset + bytes);
            payload.append_to(&mut self.ahead);
            self.end_frame(&frame);
        }
    }

    /// Ends the message of `frame`, if that is its last one.
    fn end_frame(&mut self, frame: &Frame) {
        let queue = &mut self.channels[frame.channel].queue;
        if frame.offset + frame.bytes == queue[0].slice.bytes() {
            queue.pop_front().expect("just seen").op.done();
        }
    }

    /// Reads no more from `memory`: messages go on with copies.
    pub(crate) fn detach(&mut self, memory: &Rc<dyn Memory>) {
        let queues = self.channels.iter_mut().map(|channel| &mut channel.queue);
        queues.flatten().for_each(|send| send.slice.detach(memory));
    }

    /// Fails all messages with `error`. A message whose frame has begun is still sent, so that
    /// control messages can follow.
    pub(crate) fn fail(&mut self, error: &NetError) {
        let writing = self.frame.as_ref().map(|frame| frame.channel);
        for (index, channel) in self.channels.iter_mut().enumerate() {
            channel.queue.iter().for_each(|send| send.op.fail(error));
            channel.queue.truncate(usize::from(writing == Some(index)));
        }
    }
}

impl Channel {
    /// Largest number of bytes of the next frame, if the window admits one.
    fn room(&self) -> Option<usize> {
        let send = self.queue.front()?;
        let free = WINDOW_BYTES - (self.used - self.freed);
        let cost = if send.framed == 0 { MESSAGE_COST } else { 0 };
        let is_empty = send.slice.bytes() == 0;
        match free.checked_sub(cost) {
            Some(0) if !is_empty => None,
            room => room.map(|room| room as usize),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;
    use crate::inbound::{Arrival, Inbound};
    use crate::pending::Pending;

    fn slice(bytes: usize, value: u8) -> Slice {
        Slice::whole(vec![value; bytes])
    }

    /// Accepts so many bytes per call, and as many in all.
    struct Socket {
        per_call: usize,
        room: usize,
        bytes: Vec<u8>,
    }

    impl Write for Socket {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let count = bytes.len().min(self.per_call).min(self.room);
            if count == 0 {
                return Err(std::io::ErrorKind::WouldBlock.into());
            }
            self.bytes.extend_from_slice(&bytes[..count]);
            self.room -= count;
            Ok(count)
        }

        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> std::io::Result<usize> {
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
            self.write(&all)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn socket(per_call: usize, room: usize) -> Socket {
        Socket {
            per_call,
            room,
            bytes: Vec::new(),
        }
    }

    /// Channels of the frames, in order; control messages are `None`.
    fn channels(bytes: &[u8]) -> Vec<Option<u64>> {
        let mut order = Vec::new();
        let mut on = |arrival: Arrival<'_>| {
            let channel = match arrival {
                Arrival::Data(place, _) => Some(place.channel),
                Arrival::Control(_) => None,
            };
            order.push(channel);
            Ok(())
        };
        Inbound::default().feed(bytes, &mut on).unwrap();
        order
    }

    #[test]
    fn what_is_written_in_pieces_is_read_as_a_whole() {
        for per_call in [1, 7, 31, 33, 1 << 20] {
            let mut outbound = Outbound::default();
            let op = Rc::<Op>::default();
            for (tag, bytes) in [(1, 100), (2, 0), (3, 5)] {
                op.open();
                outbound.push(0, tag, slice(bytes, tag as u8), Rc::clone(&op));
            }
            let mut socket = socket(per_call, 150);
            assert!(outbound.write(&mut socket).unwrap());
            assert!(!outbound.is_idle());
            socket.room = usize::MAX;
            outbound.write(&mut socket).unwrap();
            assert!(outbound.is_idle());
            assert_eq!(Pending::new(op, || 9).test(), Ok(Some(9)));
            let mut messages = vec![Vec::new(); 4];
            Inbound::default()
                .feed(&socket.bytes, &mut |arrival| {
                    if let Arrival::Data(place, bytes) = arrival {
                        messages[place.tag as usize].extend_from_slice(bytes);
                    }
                    Ok(())
                })
                .unwrap();
            assert_eq!(messages, [vec![], vec![1; 100], vec![], vec![3; 5]]);
        }
    }

    #[test]
    fn short_frames_and_control_leave_together() {
        let mut outbound = Outbound::default();
        let op = Rc::<Op>::default();
        for (channel, bytes) in [(4, 100), (5, SHORT_BYTES), (4, SHORT_BYTES + 1), (6, 3)] {
            op.open();
            outbound.push(channel, 0, slice(bytes, 1), Rc::clone(&op));
        }
        outbound.push_control(&Control::Beat);
        let ahead = outbound.ahead.len();
        let mut socket = socket(usize::MAX, ahead + 3 * HEADER_BYTES + SHORT_BYTES + 103);
        outbound.write(&mut socket).unwrap();
        let together = [None, Some(4), Some(5), Some(6)];
        assert_eq!(channels(&socket.bytes), together);
        assert_eq!(Pending::new(Rc::clone(&op), || ()).test(), Ok(None));
        socket.room = usize::MAX;
        outbound.write(&mut socket).unwrap();
        assert_eq!(
            channels(&socket.bytes),
            [&together[..], &[Some(4)]].concat()
        );
        assert_eq!(Pending::new(op, || ()).test(), Ok(Some(())));
    }

    #[test]
    fn channels_take_turns_and_control_goes_before_them() {
        let mut outbound = Outbound::default();
        let op = Rc::<Op>::default();
        for channel in [4, 5] {
            op.open();
            outbound.push(channel, 0, slice(3 * FRAGMENT_BYTES_MAX, 1), Rc::clone(&op));
        }
        let mut socket = socket(usize::MAX, HEADER_BYTES);
        outbound.write(&mut socket).unwrap();
        outbound.push_control(&Control::Beat);
        socket.room = usize::MAX;
        outbound.write(&mut socket).unwrap();
        let [a, b] = [Some(4), Some(5)];
        assert_eq!(channels(&socket.bytes), [a, None, b, a, b, a, b]);
    }

    #[test]
    fn no_more_than_the_window_is_sent_ahead_of_the_receiver() {
        let mut outbound = Outbound::default();
        let op = Rc::<Op>::default();
        op.open();
        let bytes = WINDOW_BYTES as usize + 10;
        outbound.push(0, 0, slice(bytes, 1), Rc::clone(&op));
        op.open();
        outbound.push(9, 0, slice(8, 1), Rc::clone(&op));
        let mut socket = socket(usize::MAX, usize::MAX);
        outbound.write(&mut socket).unwrap();
        assert!(outbound.is_idle(), "the rest waits for the receiver");
        let payload = |socket: &Socket| {
            let mut count = [0; 10];
            Inbound::default()
                .feed(&socket.bytes, &mut |arrival| {
                    if let Arrival::Data(place, bytes) = arrival {
                        count[place.channel as usize] += bytes.len();
                    }
                    Ok(())
                })
                .unwrap();
            (count[0], count[9])
        };
        let before = (WINDOW_BYTES - MESSAGE_COST) as usize;
        assert_eq!(payload(&socket), (before, 8));
        assert!(outbound.credit(0, WINDOW_BYTES + 1).is_err());
        assert!(outbound.credit(7, 0).is_err(), "nothing was sent there");
        outbound.credit(0, 100).unwrap();
        assert!(outbound.credit(0, 99).is_err());
        outbound.write(&mut socket).unwrap();
        assert_eq!(payload(&socket), (bytes, 8));
        assert_eq!(Pending::new(op, || ()).test(), Ok(Some(())));
    }
}
