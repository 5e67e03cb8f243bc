//! Layout of a process set over hosts: the ranks of each host, and this rank's shared memory and
//! communicator of leaders.

use crate::hosts::CommId;
use crate::transport::FRAME_BYTES_MAX;
use crate::transport::local::LocalTransport;

/// The members of a set, grouped by host, and this rank's position.
pub(crate) struct HostLayout {
    /// Set ranks, ascending; the hosts in the order of their first ones.
    pub(crate) hosts: Vec<Vec<usize>>,
    /// Which of them is this rank's.
    pub(crate) own: usize,
    /// Shared memory with the others of this host, if there are any.
    pub(crate) here: Option<LocalTransport>,
    /// The hosts' first ranks, in the order of the hosts: on these ranks, if there are several
    /// hosts.
    pub(crate) leaders: Option<CommId>,
}

impl HostLayout {
    /// How many ranks each host has.
    pub(super) fn sizes(&self) -> impl Iterator<Item = usize> + use<'_> {
        self.hosts.iter().map(Vec::len)
    }
}

/// Frames of several ranks in one: their lengths, eight bytes each, and then themselves.
pub(super) fn pack(frames: &[Vec<u8>]) -> Vec<u8> {
    let lengths = frames
        .iter()
        .flat_map(|frame| (frame.len() as u64).to_le_bytes());
    lengths.chain(frames.iter().flatten().copied()).collect()
}

/// Largest number of bytes of the packed frames of a host with `count` ranks.
pub(super) fn packed_bytes_max(count: usize) -> usize {
    count * (8 + FRAME_BYTES_MAX)
}

/// The `count` frames in `packed`; `None` if that is not what it is.
pub(super) fn unpack(packed: &[u8], count: usize) -> Option<Vec<Vec<u8>>> {
    let (lengths, mut rest) = packed.split_at_checked(8 * count)?;
    let mut frames = Vec::with_capacity(count);
    for length in lengths.chunks_exact(8).map(length_of) {
        let (frame, others) = rest.split_at_checked(length)?;
        frames.push(frame.to_vec());
        rest = others;
    }
    rest.is_empty().then_some(frames)
}

/// Eight bytes as a length.
pub(super) fn length_of(bytes: &[u8]) -> usize {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes")) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_out_again_and_nothing_else_does() {
        let frames = vec![b"one".to_vec(), Vec::new(), b"three".to_vec()];
        let packed = pack(&frames);
        assert_eq!(packed.len(), 3 * 8 + 8);
        assert_eq!(unpack(&packed, 3), Some(frames));
        assert_eq!(unpack(&packed[..packed.len() - 1], 3), None);
        assert_eq!(unpack(&packed, 2), None);
        assert_eq!(unpack(&[], 1), None);
        assert_eq!(unpack(&[], 0), Some(Vec::new()));
    }
}
