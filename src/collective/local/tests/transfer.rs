//! Tests of broadcast, allgather and alltoall against outputs computed in the test.

use super::super::layout::chunk_bytes;
use super::super::transfer::LONG_BYTES;
use super::*;

/// Returns `bytes` bytes that depend on sender, tensor and position.
fn contribution(rank: usize, tensor: usize, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at * 7 + at / 251 + rank * 31 + tensor * 113) as u8)
        .collect()
}

/// Runs an allgather with `bytes[t * size + rank]` bytes from each rank and checks every output;
/// `absent` ranks contribute nothing.
fn check_allgather(
    collectives: &mut [LocalCollective],
    bytes: &[usize],
    absent: &[usize],
    in_place: bool,
) {
    let size = collectives.len();
    let tensors = bytes.len() / size;
    let inputs: Vec<Vec<Vec<u8>>> = (0..size)
        .map(|rank| {
            let input = |t: usize| contribution(rank, t, bytes[t * size + rank]);
            (0..tensors).map(input).collect()
        })
        .collect();
    let expected: Vec<Vec<u8>> = (0..tensors)
        .map(|t| inputs.iter().flat_map(|inputs| inputs[t].clone()).collect())
        .collect();
    on_threads(collectives, |rank, collective| {
        if absent.contains(&rank) {
            let spans = vec![Span::absent(0); tensors];
            collective.allgather(&spans, bytes).expect("no rank leaves");
            return;
        }
        let places: Vec<OutputLayout> = (0..tensors)
            .map(|t| OutputLayout {
                output_bytes: expected[t].len(),
                input_within: in_place.then(|| bytes[t * size..][..rank].iter().sum()),
            })
            .collect();
        let outputs = run_placed(&inputs[rank], &places, |spans| {
            collective.allgather(spans, bytes).expect("no rank leaves");
        });
        assert!(
            outputs == expected,
            "rank {rank} of {size}, {bytes:?}, {in_place}"
        );
    });
}

/// Runs an alltoall with `bytes[(t * size + from) * size + to]` bytes and checks every output;
/// `absent` ranks keep nothing.
fn check_alltoall(collectives: &mut [LocalCollective], bytes: &[usize], absent: &[usize]) {
    let size = collectives.len();
    let tensors = bytes.len() / (size * size);
    let row = |t: usize, from: usize| &bytes[(t * size + from) * size..][..size];
    let inputs: Vec<Vec<Vec<u8>>> = (0..size)
        .map(|from| {
            let input = |t: usize| contribution(from, t, row(t, from).iter().sum());
            (0..tensors).map(input).collect()
        })
        .collect();
    on_threads(collectives, |rank, collective| {
        if absent.contains(&rank) {
            let spans = vec![Span::absent(0); tensors];
            collective.alltoall(&spans, bytes).expect("no rank leaves");
            return;
        }
        let expected: Vec<Vec<u8>> = (0..tensors)
            .map(|t| {
                let part = |from: usize| {
                    let before: usize = row(t, from)[..rank].iter().sum();
                    inputs[from][t][before..][..row(t, from)[rank]].to_vec()
                };
                (0..size).flat_map(part).collect()
            })
            .collect();
        let place = |expected: &Vec<u8>| OutputLayout {
            output_bytes: expected.len(),
            input_within: None,
        };
        let places: Vec<OutputLayout> = expected.iter().map(place).collect();
        let outputs = run_placed(&inputs[rank], &places, |spans| {
            collective.alltoall(spans, bytes).expect("no rank leaves");
        });
        assert!(outputs == expected, "rank {rank} of {size}, {bytes:?}");
    });
}

#[test]
fn spans_of_an_allgather_land_in_rank_order() {
    for size in [1, 2, 3, 5, 8] {
        let mut collectives = patient_ranks(size);
        for equal in [0, 1, 4099] {
            check_allgather(&mut collectives, &vec![equal; size], &[], false);
        }
        // Three tensors at once, a different length for each rank, some empty; also in place.
        let uneven: Vec<usize> = (0..3 * size).map(|entry| entry * entry % 7 * 37).collect();
        check_allgather(&mut collectives, &uneven, &[], false);
        check_allgather(&mut collectives, &uneven, &[], true);
    }
}

#[test]
fn spans_of_an_alltoall_land_in_rank_order() {
    for size in [1, 2, 3, 5, 8] {
        let mut collectives = patient_ranks(size);
        for equal in [0, 1, 509] {
            check_alltoall(&mut collectives, &vec![equal; size * size], &[]);
        }
        let uneven: Vec<usize> = (0..3 * size * size)
            .map(|entry| entry * entry % 7 * 37)
            .collect();
        check_alltoall(&mut collectives, &uneven, &[]);
    }
}

#[test]
fn streams_around_the_chunks_edges() {
    let chunk = chunk_bytes(2);
    for size in [1, 2, 3] {
        let mut collectives = patient_ranks(size);
        for bytes in [chunk - 1, chunk, chunk + 1, 2 * chunk + 3] {
            check_allgather(&mut collectives, &vec![bytes; size], &[], false);
            check_alltoall(&mut collectives, &vec![bytes; size * size], &[]);
        }
        // One long stream and short and empty ones, over tensors that end inside chunks.
        let mut skewed = vec![0; 4 * size];
        (skewed[0], skewed[size], skewed[3 * size]) = (chunk - 100, 300, 2 * chunk + 17);
        skewed[size - 1] = 12;
        check_allgather(&mut collectives, &skewed, &[], true);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_splits(
        size in 1..=6_usize,
        tensors in 0..4_usize,
        lengths in prop::collection::vec(prop_oneof![2 => Just(0), 4 => 0..300_usize, 1 => 0..200_000_usize], 144),
        in_place: bool,
    ) {
        let mut collectives = patient_ranks(size);
        check_allgather(&mut collectives, &lengths[..tensors * size], &[], in_place);
        check_alltoall(&mut collectives, &lengths[..tensors * size * size], &[]);
    }

    #[test]
    fn broadcast_gives_everyone_the_roots_bytes(split in any_split(), size in 1..=5_usize, root: prop::sample::Index) {
        let root = root.index(size);
        let elements: usize = split.elements.iter().sum();
        let mut collectives = patient_ranks(size);
        let results = on_threads(&mut collectives, |rank, collective| {
            let input = contribution(rank, 0, elements);
            split_run(&input, 1, &split, |spans| {
                collective.broadcast(spans, root).expect("no rank leaves");
            })
        });
        let expected = contribution(root, 0, elements);
        prop_assert!(results.iter().all(|result| *result == expected));
    }
}

/// One rank sends all: outputs are long on ranks that send nothing long. Lengths and starts are not
/// multiples of a cache line.
#[test]
fn long_streams_go_past_the_caches() {
    let mut collectives = patient_ranks(2);
    check_allgather(&mut collectives, &[LONG_BYTES + 5, 3], &[], false);
    check_alltoall(&mut collectives, &[1, LONG_BYTES + 5, 3, 2], &[]);
    check_allgather(&mut collectives, &[7, 3], &[], false);
}

#[test]
fn absent_ranks_give_and_keep_nothing() {
    let chunk = chunk_bytes(3);
    let mut collectives = patient_ranks(3);
    for (first, last) in [(5, 3), (chunk + 5, 70_000)] {
        check_allgather(
            &mut collectives,
            &[first, 0, last, last, 0, first],
            &[1],
            false,
        );
        // Rank 1 sends nothing; bytes sent to it are dropped.
        let bytes = [first, 100_000, last, 0, 0, 0, last, 9, first];
        check_alltoall(&mut collectives, &bytes, &[1]);
        let results = on_threads(&mut collectives, |rank, collective| {
            if rank == 1 {
                collective
                    .broadcast(&[Span::absent(first)], 2)
                    .expect("no rank leaves");
                return contribution(2, 0, first);
            }
            let input = contribution(rank, 0, first);
            split_run(&input, 1, &Split::one(first), |spans| {
                collective.broadcast(spans, 2).expect("no rank leaves");
            })
        });
        assert!(
            results
                .iter()
                .all(|result| *result == contribution(2, 0, first))
        );
    }
}

/// An alltoall with uneven parts takes as many chunks as its longest stream, not as many as if each
/// pair of ranks had a share of each chunk.
#[test]
fn skewed_splits_take_no_more_chunks_than_the_longest_stream() {
    let mut collectives = patient_ranks(4);
    let mut bytes = [7; 16];
    bytes[1] = 3 * chunk_bytes(4); // all but 21 of what rank 0 sends
    check_alltoall(&mut collectives, &bytes, &[]);
    assert!(collectives.iter().all(|collective| collective.next == 4));
}
