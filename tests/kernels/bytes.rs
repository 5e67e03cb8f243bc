//! Tests of the kernels `ronde_copy` and `ronde_fill`.

#![allow(unsafe_code)] // calls the compiled kernels

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use crate::compiled::{ENTRIES, Entry, chunk, launch};
use crate::memory::Memory;

/// Copies ranges of these lengths between these offsets (modulo 64) in one launch.
fn copy(stretches: &[(usize, usize, usize)], seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut pairs: Vec<(Memory, Memory)> = stretches
        .iter()
        .map(|&(bytes, from, to)| {
            let mut source = vec![0; bytes];
            random.fill_bytes(&mut source);
            (
                Memory::holding(&source, from),
                Memory::holding(&vec![0; bytes], to),
            )
        })
        .collect();
    let entries: Vec<Entry> = pairs
        .iter_mut()
        .zip(stretches)
        .map(|((source, target), &(bytes, ..))| Entry {
            from: source.address(),
            to: target.address(),
            elements: bytes as u32,
        })
        .collect();
    // SAFETY: every entry has memory of its size. Factor and divisor do not affect bytes.
    unsafe { launch("ronde_copy", &entries, (0.5, 3), chunk(1), seed) };
    for ((source, target), stretch) in pairs.iter().zip(stretches) {
        assert!(source.bytes() == target.bytes(), "{stretch:?}");
    }
}

#[test]
fn copies_between_all_alignments() {
    for from in 0..17 {
        for to in 0..17 {
            copy(&[(1000 + from + 3 * to, from, to)], 1);
        }
    }
}

#[test]
fn copies_every_small_number_of_bytes() {
    let stretches: Vec<_> = (1..=ENTRIES)
        .map(|bytes| (bytes, 0, 16 * (bytes % 4)))
        .collect();
    copy(&stretches, 2);
}

#[test]
fn copies_chunks_and_their_neighbours() {
    let chunk = chunk(1) as usize;
    for bytes in [chunk - 1, chunk, chunk + 1, 2 * chunk, 3 * chunk + 17] {
        copy(&[(bytes, 0, 0)], 3);
        copy(&[(bytes, 8, 0), (5, 1, 2), (bytes, 3, 32)], 4);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn copies_any_batch(
        stretches in prop::collection::vec((1_usize..3000, 0_usize..64, 0_usize..64), 1..=ENTRIES),
        seed: u64,
    ) {
        copy(&stretches, seed);
    }
}

#[test]
fn fills_with_a_pattern() {
    let mut random = StdRng::seed_from_u64(5);
    for count in [1, 2, ENTRIES] {
        let patterns: Vec<u64> = (0..count).map(|_| random.random()).collect();
        let mut targets: Vec<Memory> = patterns
            .iter()
            .map(|_| {
                let words = *[1, 2, 3, 100, 4096, 4097, 9000]
                    .get(random.random_range(0..7))
                    .unwrap();
                Memory::holding(&vec![0; 8 * words], 16 * random.random_range(0..4))
            })
            .collect();
        let entries: Vec<Entry> = patterns
            .iter()
            .zip(&mut targets)
            .map(|(&from, target)| Entry {
                from,
                to: target.address(),
                elements: target.bytes().len() as u32,
            })
            .collect();
        // SAFETY: every target has its size and is a multiple of 16.
        unsafe { launch("ronde_fill", &entries, (1.0, 1), chunk(1), 6) };
        for (pattern, target) in patterns.iter().zip(&targets) {
            assert!(
                target
                    .bytes()
                    .chunks(8)
                    .all(|word| word == pattern.to_le_bytes())
            );
        }
    }
}
