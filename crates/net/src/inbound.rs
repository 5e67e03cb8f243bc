//! Inbound half of an authenticated connection: splits its bytes into frames and checks them.

use std::collections::HashMap;

use crate::frame::{HEADER_BYTES, Header, Kind};

/// Most channels of one connection with a message that is not complete.
const OPEN_MAX: usize = 1 << 12;

/// Place of bytes in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) channel: u64,
    pub(crate) tag: u32,
    /// Length of the message.
    pub(crate) total: usize,
    /// Where the bytes begin in it.
    pub(crate) offset: usize,
}

/// Content of a frame that has arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival<'a> {
    /// Bytes of a message. The first ones have offset 0, and so has the whole of an empty message.
    Data(Place, &'a [u8]),
    /// A control message.
    Control(&'a [u8]),
}

/// Inbound half of a connection.
pub(crate) struct Inbound {
    /// Number of the next frame.
    sequence: u64,
    header: [u8; HEADER_BYTES],
    header_filled: usize,
    frame: Option<Frame>,
    /// The control message that is arriving.
    control: Vec<u8>,
    /// Messages with frames to come, by channel.
    open: HashMap<u64, Open>,
}

struct Frame {
    kind: Kind,
    remaining: usize,
}

struct Open {
    tag: u32,
    total: usize,
    received: usize,
}

impl Default for Inbound {
    fn default() -> Self {
        Self {
            sequence: 0,
            header: [0; HEADER_BYTES],
            header_filled: 0,
            frame: None,
            control: Vec::new(),
            open: HashMap::new(),
        }
    }
}

impl Inbound {
    /// Takes in the next bytes of the connection and hands their contents to `on`.
    ///
    /// # Errors
    /// Bytes that no rank sends, and errors of `on`. The connection cannot be used any more then.
    pub(crate) fn feed(
        &mut self,
        mut bytes: &[u8],
        on: &mut dyn FnMut(Arrival<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        while !bytes.is_empty() {
            match &mut self.frame {
                None => {
                    let count = bytes.len().min(HEADER_BYTES - self.header_filled);
                    let (head, rest) = bytes.split_at(count);
                    self.header[self.header_filled..][..count].copy_from_slice(head);
                    self.header_filled += count;
                    bytes = rest;
                    if self.header_filled == HEADER_BYTES {
                        self.begin(on)?;
                    }
                }
                Some(frame) => {
                    let count = bytes.len().min(frame.remaining);
                    let (payload, rest) = bytes.split_at(count);
                    bytes = rest;
                    match frame.kind {
                        Kind::Control => {
                            frame.remaining -= count;
                            self.control.extend_from_slice(payload);
                            if frame.remaining == 0 {
                                self.frame = None;
                                on(Arrival::Control(&self.control))?;
                                self.control.clear();
                            }
                        }
                        Kind::Data { .. } => {
                            let (place, _) = self.place().expect("a data frame has begun");
                            self.advance(count);
                            on(Arrival::Data(place, payload))?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Bytes until the end of the header or of the frame that is arriving.
    pub(crate) fn missing(&self) -> usize {
        match &self.frame {
            None => HEADER_BYTES - self.header_filled,
            Some(frame) => frame.remaining,
        }
    }

    /// Place of the next byte if it belongs to a data frame, and the bytes left of that frame: a
    /// caller may read up to so many from the connection itself, and [`advance`](Self::advance).
    pub(crate) fn place(&self) -> Option<(Place, usize)> {
        let frame = self.frame.as_ref()?;
        let Kind::Data { channel, .. } = frame.kind else {
            return None;
        };
        let open = &self.open[&channel];
        let place = Place {
            channel,
            tag: open.tag,
            total: open.total,
            offset: open.received,
        };
        Some((place, frame.remaining))
    }

    /// Counts `count` bytes of the data frame that has begun.
    pub(crate) fn advance(&mut self, count: usize) {
        let Some(Frame {
            kind: Kind::Data { channel, .. },
            remaining,
        }) = &mut self.frame
        else {
            unreachable!("only within a data frame");
        };
        let channel = *channel;
        *remaining -= count;
        if *remaining == 0 {
            self.frame = None;
        }
        let open = self.open.get_mut(&channel).expect("opened by its frame");
        open.received += count;
        if open.received == open.total {
            self.open.remove(&channel);
        }
    }

    /// Begins the frame whose header is complete.
    fn begin(
        &mut self,
        on: &mut dyn FnMut(Arrival<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let header = Header::decode(&self.header, self.sequence)?;
        self.header_filled = 0;
        self.sequence += 1;
        match header.kind {
            Kind::Control if header.bytes == 0 => return Err("an empty control message".into()),
            Kind::Control => {}
            Kind::Data {
                channel,
                tag,
                total,
            } => {
                let total = usize::try_from(total).map_err(|_| "a message that is too long")?;
                if !self.open_message(channel, tag, total, header.bytes)? {
                    let place = Place {
                        channel,
                        tag,
                        total,
                        offset: 0,
                    };
                    return on(Arrival::Data(place, &[]));
                }
            }
        }
        self.frame = Some(Frame {
            kind: header.kind,
            remaining: header.bytes,
        });
        Ok(())
    }

    /// Checks a data frame of `bytes` bytes against the open message of its channel; without one, a
    /// message begins. Returns whether bytes follow: an empty message is complete at once.
    fn open_message(
        &mut self,
        channel: u64,
        tag: u32,
        total: usize,
        bytes: usize,
    ) -> Result<bool, String> {
        match self.open.get(&channel) {
            None if total == 0 => return Ok(false),
            None if self.open.len() >= OPEN_MAX => {
                return Err(format!("messages on more than {OPEN_MAX} channels at once"));
            }
            None => {
                let received = 0;
                self.open.insert(
                    channel,
                    Open {
                        tag,
                        total,
                        received,
                    },
                );
            }
            Some(open) if (open.tag, open.total) != (tag, total) => {
                return Err(format!(
                    "a frame of message {tag} of {total} bytes within message {} of {} bytes",
                    open.tag, open.total
                ));
            }
            Some(open) if open.received + bytes > open.total => {
                return Err(format!("more than the {} bytes of a message", open.total));
            }
            Some(_) => {}
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Frames of messages on two channels, alternating, and a control message at the end.
    fn stream(lengths: &[usize]) -> (Vec<u8>, Vec<(u32, Vec<u8>)>) {
        let mut bytes = Vec::new();
        let mut sequence = 0;
        let mut push = |kind, payload: &[u8]| {
            let header = Header {
                kind,
                bytes: payload.len(),
                sequence,
            };
            sequence += 1;
            bytes.extend_from_slice(&header.encode());
            bytes.extend_from_slice(payload);
        };
        let messages: Vec<(u32, Vec<u8>)> = lengths
            .iter()
            .enumerate()
            .map(|(index, length)| (index as u32, vec![index as u8; *length]))
            .collect();
        for pair in messages.chunks(2) {
            let mut at = 0;
            while pair
                .iter()
                .any(|(_, message)| at == 0 || at < message.len())
            {
                for (channel, (tag, message)) in pair.iter().enumerate() {
                    if at == 0 || at < message.len() {
                        let kind = Kind::Data {
                            channel: channel as u64,
                            tag: *tag,
                            total: message.len() as u64,
                        };
                        push(kind, &message[at..message.len().min(at + 5)]);
                    }
                }
                at += 5;
            }
        }
        push(Kind::Control, b"end");
        (bytes, messages)
    }

    proptest! {
        #[test]
        fn messages_arrive_whatever_the_cuts(
            lengths in prop::collection::vec(0usize..23, 0..6),
            cut in 1usize..60,
        ) {
            let (bytes, messages) = stream(&lengths);
            let mut arrived = vec![Vec::new(); messages.len()];
            let mut ended = 0;
            let mut inbound = Inbound::default();
            for piece in bytes.chunks(cut) {
                inbound.feed(piece, &mut |arrival| {
                    match arrival {
                        Arrival::Data(place, payload) => {
                            let message = &mut arrived[place.tag as usize];
                            assert_eq!(place.offset, message.len());
                            message.extend_from_slice(payload);
                            assert!(message.len() <= place.total);
                        }
                        Arrival::Control(message) => {
                            assert_eq!(message, b"end");
                            ended += 1;
                        }
                    }
                    Ok(())
                }).unwrap();
            }
            prop_assert_eq!(ended, 1);
            for (tag, message) in messages {
                prop_assert_eq!(&arrived[tag as usize], &message);
            }
        }

        #[test]
        fn a_changed_byte_of_a_header_is_an_error_or_changes_what_arrives(
            at in 0usize..HEADER_BYTES,
            flip in 1u8..,
        ) {
            let (mut bytes, _) = stream(&[7, 9]);
            let read = |bytes: &[u8]| {
                let mut arrivals = Vec::new();
                let outcome = Inbound::default().feed(bytes, &mut |arrival| {
                    arrivals.push(format!("{arrival:?}"));
                    Ok(())
                });
                (outcome, arrivals)
            };
            let before = read(&bytes);
            bytes[at] ^= flip;
            prop_assert_ne!(read(&bytes), before);
        }
    }

    #[test]
    fn a_frame_within_another_message_is_refused() {
        let frame = |tag, total, sequence| {
            let kind = Kind::Data {
                channel: 0,
                tag,
                total,
            };
            let header = Header {
                kind,
                bytes: 6,
                sequence,
            };
            [&header.encode()[..], &[0; 6]].concat()
        };
        let mut inbound = Inbound::default();
        let mut ignore = |_: Arrival<'_>| Ok(());
        inbound.feed(&frame(1, 10, 0), &mut ignore).unwrap();
        let error = inbound.feed(&frame(2, 10, 1), &mut ignore).unwrap_err();
        assert_eq!(
            error,
            "a frame of message 2 of 10 bytes within message 1 of 10 bytes"
        );
        let mut inbound = Inbound::default();
        inbound.feed(&frame(1, 10, 0), &mut ignore).unwrap();
        let error = inbound.feed(&frame(1, 10, 1), &mut ignore).unwrap_err();
        assert_eq!(error, "more than the 10 bytes of a message");
    }
}
