//! Connections whose bytes another rank has changed, or are random.

use std::rc::Rc;

use proptest::prelude::*;

use crate::control::Control;
use crate::fuzz::frames;
use crate::memory::Slice;
use crate::outbound::Outbound;
use crate::pending::Op;

/// Bytes that a rank writes to send messages of these lengths on three channels, with control
/// messages between them.
fn stream(lengths: &[usize]) -> Vec<u8> {
    let mut outbound = Outbound::default();
    let mut bytes = Vec::new();
    for (number, length) in lengths.iter().enumerate() {
        let slice = Slice::whole(vec![number as u8; *length]);
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
