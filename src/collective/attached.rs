//! Attached inputs: allreduces so small that their inputs travel with the ranks' blocks.
//!
//! When the ranks have agreed, each of them has the inputs of all, and combines them by itself. The
//! bits are those of a flat allreduce: the same kernels combine the inputs in rank order.

#![allow(unsafe_code)] // reads inputs and writes outputs of the caller

use std::ptr;

use ronde_job::ATTACHED_ALLREDUCE;
use smallvec::SmallVec;

use super::kernels::{Level, Reducer};
use super::{Reduction, Stages};
use crate::tensor::Span;

/// Names on the timeline.
pub(crate) static STAGES: Stages = Stages::streamed(ATTACHED_ALLREDUCE);

/// Copies the input of `span` to `words`, from byte `at` on. Returns the byte after it; `None` if
/// the words have no room for it.
pub(crate) fn write(span: &Span, words: &mut [u64], at: usize) -> Option<usize> {
    let end = at.checked_add(span.bytes())?;
    if end > size_of_val(words) {
        return None;
    }
    let place = words.as_mut_ptr().cast::<u8>();
    // SAFETY: the input is readable (`Span::new`); its place is inside the words, which only this
    // function accesses now.
    unsafe { ptr::copy_nonoverlapping(span.input(), place.add(at), span.bytes()) };
    Some(end)
}

/// Combines the inputs of `size` ranks to the output of `span`. `words` has equally many of each
/// rank, in rank order; the inputs begin at byte `at` of each.
///
/// # Panics
/// If the words of a rank do not contain the input.
pub(crate) fn allreduce(words: &[u64], size: usize, at: usize, span: &Span, reduction: &Reduction) {
    let of_rank = words.len() / size;
    assert!(
        at + span.bytes() <= 8 * of_rank,
        "an input beyond its words"
    );
    if span.bytes() == 0 || span.keeps_nothing() {
        return;
    }
    let sources: SmallVec<[*const u8; 16]> = words
        .chunks_exact(of_rank)
        // SAFETY: inside the rank's words, as just seen.
        .map(|words| unsafe { words.as_ptr().cast::<u8>().add(at) })
        .collect();
    let reducer = Reducer::new(Level::detect(), reduction, size);
    // SAFETY: the sources are as long as the span, a whole number of elements; the output is as
    // long and writable (`Span::new`), and is no part of the words.
    unsafe { reducer.combine(&sources, span.output(), ptr::null_mut(), span.bytes()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::kernels::reference;
    use crate::tensor::{Dtype, ReduceOp};

    fn span(input: &[u8], output: &mut [u8]) -> Span {
        // SAFETY: both outlive the span, and are used by it alone.
        unsafe { Span::new(input.as_ptr(), output.as_mut_ptr(), input.len()) }
    }

    #[test]
    fn inputs_lie_one_after_another_and_are_combined_in_rank_order() {
        let reduction = Reduction {
            dtype: Dtype::F16,
            op: ReduceOp::Average,
            prescale: 0.5,
            postscale: 1.0,
        };
        // Three ranks with tensors of 3 and 5 halves each: 16 bytes, two words.
        let inputs: Vec<[Vec<u8>; 2]> = (0..3u8)
            .map(|rank| [6, 10].map(|bytes| (0..bytes).map(|at| 40 + 7 * rank + at).collect()))
            .collect();
        let mut outputs = [vec![0; 6], vec![0; 10]];
        let mut words = vec![0; 6];
        for (tensors, words) in inputs.iter().zip(words.chunks_exact_mut(2)) {
            let mut at = 0;
            for (input, output) in tensors.iter().zip(&mut outputs) {
                at = write(&span(input, output), words, at).unwrap();
            }
            assert_eq!(at, 16);
            let more = span(&tensors[0], &mut outputs[0]);
            assert_eq!(write(&more, words, at), None);
        }
        for (tensor, at) in [(0, 0), (1, 6)] {
            let output = &mut outputs[tensor];
            let span = span(&inputs[0][tensor], output);
            allreduce(&words, 3, at, &span, &reduction);
            let of_ranks: Vec<_> = inputs
                .iter()
                .map(|tensors| tensors[tensor].clone())
                .collect();
            assert_eq!(*output, reference::reduce(&of_ranks, &reduction));
        }
    }
}
