//! Layout of the fusion buffer: tensors lie one after another, each at a multiple of 16 bytes, for
//! the sake of wide loads.

/// What a tensor's place is a multiple of.
const ALIGNMENT: usize = 16;

/// Room for so many bytes.
pub(crate) const fn room(bytes: usize) -> usize {
    bytes.next_multiple_of(ALIGNMENT)
}

/// Where each of these many bytes begins, if they lie one after another, each with [`room`]; and at
/// last the end of all.
pub(crate) fn places(bytes: impl IntoIterator<Item = usize>) -> Vec<usize> {
    let mut at = 0;
    let mut places = vec![0];
    for bytes in bytes {
        at += room(bytes);
        places.push(at);
    }
    places
}
