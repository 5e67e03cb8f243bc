//! Whom a rank tells: in a set of *m*, the members 1, 2, 4, … places after it. What one member knows, all know after
//! ⌈log₂ *m*⌉ messages in a row, and each has sent that many (dissemination; Hensgen, Finkel and Manber, "Two algorithms
//! for barrier synchronization", 1988).

/// The places after `place` in a circle of `size`, each once, that it tells.
pub(super) fn after(place: usize, size: usize) -> impl Iterator<Item = usize> {
    distances(size).map(move |distance| (place + distance) % size)
}

/// Likewise those that tell it.
pub(super) fn before(place: usize, size: usize) -> impl Iterator<Item = usize> {
    distances(size).map(move |distance| (place + size - distance) % size)
}

/// 1, 2, 4, … below `size`.
pub(crate) fn distances(size: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |distance| Some(2 * distance))
        .take_while(move |distance| *distance < size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_tells_is_told_of() {
        for size in 1..40 {
            for place in 0..size {
                for told in after(place, size) {
                    assert_ne!(told, place);
                    assert!(before(told, size).any(|teller| teller == place));
                }
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
    fn losing_one_rank_cuts_nobody_off() {
        for size in 3..40 {
            let mut known = vec![false; size];
            known[1] = true;
            for _ in 0..size {
                let before = known.clone();
                for place in (1..size).filter(|place| before[*place]) {
                    after(place, size)
                        .filter(|told| *told != 0)
                        .for_each(|told| known[told] = true);
                }
            }
            assert!(known[1..].iter().all(|known| *known), "{size}");
        }
    }
}
