//! Connections whose bytes another rank has changed: whatever arrives is read the same way in one
//! piece and in many, and never causes a panic.

use std::cell::RefCell;
use std::rc::Rc;

use proptest::prelude::*;

use crate::config::VERSION;
use crate::control::Control;
use crate::inbound::{Arrival, Inbound};
use crate::inbox::Inbox;
use crate::outbound::Outbound;
use crate::pending::{Op, Slice};

/// Reads `bytes` as the frames of rank 1, all at once and in pieces of `piece` bytes; returns what
/// was read.
///
/// # Panics
/// If what is read depends on the pieces, or more is kept than was sent.
fn frames(bytes: &[u8], piece: usize) -> Vec<String> {
    let whole = read(bytes, bytes.len().max(1));
    let pieces = read(bytes, piece.max(1));
    assert_eq!(whole, pieces, "the frames depend on the pieces");
    whole
}

fn read(bytes: &[u8], piece: usize) -> Vec<String> {
    let (mut inbound, mut inbox) = (Inbound::default(), Inbox::default());
    let mut arrivals = Vec::new();
    let mut data = 0;
    for bytes in bytes.chunks(piece) {
        let outcome = inbound.feed(bytes, &mut |arrival| {
            match arrival {
                Arrival::Control(message) => {
                    arrivals.push(format!("{:?}", Control::decode(message, VERSION)));
                }
                Arrival::Data(place, bytes) => {
                    assert!(place.offset + bytes.len() <= place.total);
                    assert_eq!(inbox.arrive(1, place, bytes)?, 0, "no receive waits");
                    data += bytes.len();
                    if place.offset + bytes.len() == place.total {
                        arrivals.push(format!("{} {} {}", place.channel, place.tag, place.total));
                        assert!(inbox.has(place.channel, 1, place.tag));
                    }
                }
            }
            Ok(())
        });
        if let Err(problem) = outcome {
            arrivals.push(problem);
            break;
        }
    }
    assert!(data <= bytes.len(), "more data than bytes");
    arrivals
}

/// Bytes that a rank writes to send messages of these lengths on three channels, with control
/// messages between them.
fn stream(lengths: &[usize]) -> Vec<u8> {
    let mut outbound = Outbound::default();
    let mut bytes = Vec::new();
    for (number, length) in lengths.iter().enumerate() {
        let slice = Slice {
            buffer: Rc::new(RefCell::new(vec![number as u8; *length])),
            range: 0..*length,
        };
        let op = Rc::<Op>::default();
        op.open();
        outbound.push(number as u64 % 3, number as u32, slice, op);
        let control = match number % 3 {
            0 => Control::Beat,
            1 => Control::Credit {
                channel: 1,
                taken: 9,
            },
            _ => Control::Hello(crate::control::hello(number as u32, 64)),
        };
        outbound.push_control(&control);
        outbound.write(&mut bytes).expect("memory can be written");
    }
    bytes
}

proptest! {
    #[test]
    fn changed_bytes_are_read_the_same_way_whatever_the_pieces(
        lengths in prop::collection::vec(0usize..200, 1..12),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        piece in 1usize..90,
    ) {
        let mut bytes = stream(&lengths);
        let unchanged = frames(&bytes, piece);
        prop_assert_eq!(unchanged.len(), 2 * lengths.len());
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        frames(&bytes, piece);
    }

    #[test]
    fn random_bytes_are_read_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        piece in 1usize..90,
    ) {
        frames(&bytes, piece);
    }
}
