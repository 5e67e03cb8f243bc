//! Neighbours of a rank: the ranks 1, 2, 4, … places before and after it.
//!
//! Each rank tells those after it that it lives. A message that every rank forwards reaches all
//! after ⌈log₂ n⌉ steps (Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization",
//! 1988).

use std::collections::BTreeSet;

/// Ranks of `0..size` that `rank` sends heartbeats to.
pub fn after(rank: usize, size: usize) -> impl Iterator<Item = usize> {
    distances(size).map(move |distance| (rank + distance) % size)
}

/// Ranks whose heartbeats `rank` receives.
pub fn before(rank: usize, size: usize) -> impl Iterator<Item = usize> {
    distances(size).map(move |distance| (rank + size - distance) % size)
}

/// Both, and rank 0, without this rank: a rank is connected to these from the start.
pub(crate) fn of(rank: usize, size: usize) -> BTreeSet<usize> {
    let mut ranks: BTreeSet<usize> = after(rank, size).chain(before(rank, size)).collect();
    match rank {
        0 => ranks.extend(1..size),
        _ => ranks.extend([0]),
    }
    ranks.remove(&rank);
    ranks
}

/// Distances to them: 1, 2, 4, … below `size`.
pub fn distances(size: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |distance| Some(2 * distance))
        .take_while(move |distance| *distance < size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_mutual_and_few() {
        for size in 1..70 {
            for rank in 0..size {
                let own = of(rank, size);
                assert!(!own.contains(&rank));
                assert!(own.iter().all(|other| of(*other, size).contains(&rank)));
                assert!(after(rank, size).all(|other| before(other, size).any(|r| r == rank)));
                assert!(rank == 0 || own.len() <= 2 * 7 + 1, "{size} {rank}");
            }
        }
    }

    #[test]
    fn all_know_after_as_many_rounds_as_there_are_neighbours() {
        for size in 1..40 {
            let mut known = vec![false; size];
            known[size / 2] = true;
            for _ in distances(size) {
                let before = known.clone();
                for place in (0..size).filter(|place| before[*place]) {
                    after(place, size).for_each(|told| known[told] = true);
                }
            }
            assert!(known.iter().all(|known| *known), "{size}");
        }
    }

    #[test]
    fn losing_one_rank_cuts_no_other_off() {
        for size in 3..40 {
            let mut known = vec![false; size];
            known[1] = true;
            for _ in 0..size {
                let before = known.clone();
                for place in (1..size).filter(|place| before[*place]) {
                    let others = after(place, size).filter(|told| *told != 0);
                    others.for_each(|told| known[told] = true);
                }
            }
            assert!(known[1..].iter().all(|known| *known), "{size}");
        }
    }
}
