//! Layout of the fusion buffer: tensors lie one after another, each at a multiple of 16 bytes, so
//! that kernels can use wide loads.

/// Alignment of a tensor's position.
const ALIGNMENT: usize = 16;

/// Returns the room that this many bytes take.
pub(crate) const fn room(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

/// Returns the offsets of consecutive parts of these sizes, each with [`room`], and finally the end
/// of all.
pub(crate) fn places(bytes: impl IntoIterator<Item = usize>) -> Vec<usize> {
    let mut at = 0;
    let mut places = vec![0];
    for bytes in bytes {
        at += room(bytes);
        places.push(at);
    }
    places
}
