//! Check of the readers of a connection, for a fuzzer: whatever arrives is read the same way in one
//! piece and in many, and never causes a panic.

use crate::config::VERSION;
use crate::control::Control;
use crate::inbound::{Arrival, Inbound};
use crate::inbox::Inbox;

/// Reads `bytes` as the frames of rank 1, all at once and in pieces of `piece` bytes; returns what
/// was read.
///
/// # Panics
/// If what is read depends on the pieces, or more is kept than was sent.
pub fn frames(bytes: &[u8], piece: usize) -> Vec<String> {
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
