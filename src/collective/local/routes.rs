//! Routes of broadcast, allgather and alltoall: the bytes that each rank sends to each other rank.
//!
//! Every rank sends one *stream* of bytes, and each other rank receives a range of it. In a
//! broadcast and an allgather, the stream consists of the rank's inputs, and every rank receives
//! all of it. In an alltoall, it consists of the parts for the other ranks one after another,
//! beginning with the next rank's: at each position of the streams all ranks send to different
//! ranks, and uneven parts cost no more time than the longest stream. Bytes that a rank sends to
//! itself are in no stream, or are not received from it.

use std::ops::Range;

use crate::tensor::Span;

/// Range of one tensor's input or output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leg {
    /// Position of the tensor in the batch.
    pub(super) tensor: usize,
    /// Start of the range, bytes.
    pub(super) offset: usize,
    /// Length of the range, bytes.
    pub(super) bytes: usize,
}

/// Operation that moves data; the tables are those of
/// [`Collective`](crate::collective::Collective).
#[derive(Clone, Copy, Debug)]
pub(super) enum Routes<'a> {
    /// One rank sends the same bytes to all.
    Broadcast {
        root: usize,
        size: usize,
        spans: &'a [Span],
    },
    /// Every rank sends the same bytes to all.
    Allgather { size: usize, bytes: &'a [usize] },
    /// Every rank sends different bytes to each rank.
    Alltoall { size: usize, bytes: &'a [usize] },
}

impl Routes<'_> {
    /// Indices of the tensors.
    fn tensors(&self) -> Range<usize> {
        0..match self {
            Self::Broadcast { spans, .. } => spans.len(),
            Self::Allgather { size, bytes } => bytes.len() / size,
            Self::Alltoall { size, bytes } => bytes.len() / (size * size),
        }
    }

    /// Returns the ranks whose parts make up `from`'s stream, in order; a single rank where all
    /// ranks receive the same bytes.
    fn recipients(&self, from: usize) -> impl Iterator<Item = usize> + use<> {
        let (size, distances) = match *self {
            Self::Broadcast { size, .. } | Self::Allgather { size, .. } => (size, 1..2),
            Self::Alltoall { size, .. } => (size, 1..size),
        };
        distances.map(move |distance| (from + distance) % size)
    }

    /// Bytes of tensor `tensor` that `from` sends to `to`.
    fn bytes(&self, tensor: usize, from: usize, to: usize) -> usize {
        match *self {
            Self::Broadcast { root, spans, .. } if from == root => spans[tensor].bytes(),
            Self::Broadcast { .. } => 0,
            Self::Allgather { size, bytes } => bytes[tensor * size + from],
            Self::Alltoall { size, bytes } => bytes[(tensor * size + from) * size + to],
        }
    }

    /// Offset of these bytes in `from`'s input.
    fn input_offset(&self, tensor: usize, from: usize, to: usize) -> usize {
        match self {
            Self::Broadcast { .. } | Self::Allgather { .. } => 0,
            Self::Alltoall { .. } => (0..to).map(|before| self.bytes(tensor, from, before)).sum(),
        }
    }

    /// Offset of these bytes in `to`'s output.
    fn output_offset(&self, tensor: usize, from: usize, to: usize) -> usize {
        (0..from).map(|before| self.bytes(tensor, before, to)).sum()
    }

    /// Bytes of all tensors that `from` sends to `to`.
    fn total_bytes(&self, from: usize, to: usize) -> usize {
        self.tensors()
            .map(|tensor| self.bytes(tensor, from, to))
            .sum()
    }

    /// Length of the stream that `from` sends.
    pub(super) fn stream_bytes(&self, from: usize) -> usize {
        self.recipients(from)
            .map(|to| self.total_bytes(from, to))
            .sum()
    }

    /// Returns the stream that `from` sends, as ranges of its inputs.
    pub(super) fn sent(&self, from: usize) -> impl Iterator<Item = Leg> {
        self.recipients(from).flat_map(move |to| {
            self.tensors().map(move |tensor| Leg {
                tensor,
                offset: self.input_offset(tensor, from, to),
                bytes: self.bytes(tensor, from, to),
            })
        })
    }

    /// Offset in `from`'s stream of the bytes that `to` receives.
    pub(super) fn start(&self, from: usize, to: usize) -> usize {
        match self {
            Self::Broadcast { .. } | Self::Allgather { .. } => 0,
            Self::Alltoall { .. } => self
                .recipients(from)
                .take_while(|before| *before != to)
                .map(|before| self.total_bytes(from, before))
                .sum(),
        }
    }

    /// Returns the bytes that `to` receives from `from`'s stream, in the order of the stream, as
    /// ranges of its outputs.
    pub(super) fn received(&self, from: usize, to: usize) -> impl Iterator<Item = Leg> {
        self.tensors().map(move |tensor| Leg {
            tensor,
            offset: self.output_offset(tensor, from, to),
            bytes: self.bytes(tensor, from, to),
        })
    }

    /// Returns the bytes that `rank` sends to itself, as ranges of its inputs and of its outputs.
    pub(super) fn kept(&self, rank: usize) -> impl Iterator<Item = (Leg, Leg)> {
        self.received(rank, rank).map(move |output| {
            let offset = self.input_offset(output.tensor, rank, rank);
            (Leg { offset, ..output }, output)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By rank and tensor: bytes, each identified by the rank and tensor that it came from and its
    /// position there.
    type Tensors = Vec<Vec<Vec<(usize, usize, usize)>>>;

    /// Returns lengths from 0 to 4, several of them 0.
    fn table(entries: usize) -> Vec<usize> {
        (0..entries).map(|entry| entry * entry % 11 % 5).collect()
    }

    /// Returns rank `rank`'s input of tensor `tensor`; every byte is unique.
    fn input(rank: usize, tensor: usize, bytes: usize) -> Vec<(usize, usize, usize)> {
        (0..bytes).map(|at| (rank, tensor, at)).collect()
    }

    /// Moves every rank's input along the routes; returns the outputs by rank and tensor.
    fn moved(routes: &Routes<'_>, size: usize, inputs: &Tensors) -> Tensors {
        let streams: Vec<Vec<_>> = (0..size)
            .map(|from| {
                let stretch =
                    |leg: Leg| inputs[from][leg.tensor][leg.offset..][..leg.bytes].to_vec();
                let stream: Vec<_> = routes.sent(from).flat_map(stretch).collect();
                assert_eq!(stream.len(), routes.stream_bytes(from));
                stream
            })
            .collect();
        let output = |to: usize, tensor: usize| {
            let mut placed = Vec::new();
            for (from, stream) in streams.iter().enumerate() {
                let mut at = routes.start(from, to);
                for leg in routes.received(from, to) {
                    if from != to && leg.tensor == tensor {
                        placed.push((leg.offset, stream[at..at + leg.bytes].to_vec()));
                    }
                    at += leg.bytes;
                }
            }
            for (source, target) in routes
                .kept(to)
                .filter(|(source, _)| source.tensor == tensor)
            {
                let kept = inputs[to][tensor][source.offset..][..source.bytes].to_vec();
                placed.push((target.offset, kept));
            }
            placed.retain(|(_, bytes)| !bytes.is_empty());
            placed.sort();
            let mut output = Vec::new();
            for (offset, bytes) in placed {
                assert_eq!(offset, output.len(), "no gap and no overlap");
                output.extend(bytes);
            }
            output
        };
        let outputs = |to| routes.tensors().map(|tensor| output(to, tensor)).collect();
        (0..size).map(outputs).collect()
    }

    #[test]
    fn every_byte_arrives_where_it_belongs() {
        for size in [1, 2, 3, 5] {
            for tensors in [0, 1, 3] {
                let bytes = table(tensors * size);
                let inputs: Tensors = (0..size)
                    .map(|rank| {
                        (0..tensors)
                            .map(|t| input(rank, t, bytes[t * size + rank]))
                            .collect()
                    })
                    .collect();
                let outputs = moved(
                    &Routes::Allgather {
                        size,
                        bytes: &bytes,
                    },
                    size,
                    &inputs,
                );
                for output in outputs {
                    let expected =
                        |t: usize| (0..size).flat_map(|from| inputs[from][t].clone()).collect();
                    assert_eq!(output, (0..tensors).map(expected).collect::<Vec<Vec<_>>>());
                }

                let bytes = table(tensors * size * size);
                let part = |t: usize, from: usize, to: usize| bytes[(t * size + from) * size + to];
                let inputs: Tensors = (0..size)
                    .map(|from| {
                        (0..tensors)
                            .map(|t| input(from, t, (0..size).map(|to| part(t, from, to)).sum()))
                            .collect()
                    })
                    .collect();
                let outputs = moved(
                    &Routes::Alltoall {
                        size,
                        bytes: &bytes,
                    },
                    size,
                    &inputs,
                );
                for (to, output) in outputs.into_iter().enumerate() {
                    let expected = |t: usize| {
                        (0..size)
                            .flat_map(|from| {
                                let before: usize = (0..to).map(|other| part(t, from, other)).sum();
                                inputs[from][t][before..][..part(t, from, to)].to_vec()
                            })
                            .collect()
                    };
                    assert_eq!(output, (0..tensors).map(expected).collect::<Vec<Vec<_>>>());
                }

                let spans: Vec<Span> = (0..tensors).map(Span::absent).collect();
                let inputs: Tensors = (0..size)
                    .map(|rank| (0..tensors).map(|t| input(rank, t, t)).collect())
                    .collect();
                for root in 0..size {
                    let routes = Routes::Broadcast {
                        root,
                        size,
                        spans: &spans,
                    };
                    let outputs = moved(&routes, size, &inputs);
                    assert!(outputs.iter().all(|output| *output == inputs[root]));
                }
            }
        }
    }

    #[test]
    fn an_alltoall_begins_with_the_next_rank_and_sends_nothing_to_itself() {
        let bytes = [9, 1, 2, 3, 9, 4, 5, 6, 9];
        let routes = Routes::Alltoall {
            size: 3,
            bytes: &bytes,
        };
        let legs: Vec<(usize, usize)> = routes.sent(1).map(|leg| (leg.offset, leg.bytes)).collect();
        assert_eq!(legs, [(12, 4), (0, 3)]); // to rank 2, then to rank 0
        assert_eq!((routes.start(1, 2), routes.start(1, 0)), (0, 4));
        assert_eq!(routes.stream_bytes(1), 7);
    }
}
