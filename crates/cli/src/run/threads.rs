//! Thread limit of each rank: sets `OMP_NUM_THREADS`, so that the ranks of this machine share its
//! cores.
//!
//! Libraries with OpenMP (among them PyTorch) and OpenBLAS start as many threads in each process as
//! the machine has cores. With several ranks, threads then wait for cores instead of computing. A
//! value that the user has set is never changed.

/// Environment variable that OpenMP and OpenBLAS read.
pub(super) const VARIABLE: &str = "OMP_NUM_THREADS";

/// Number of cores that this process may use, by its CPU affinity and its control group's quota.
pub(super) fn cores() -> Option<usize> {
    std::thread::available_parallelism().ok().map(usize::from)
}

/// Thread limit of each of `ranks` ranks, and a message for the user. `are_here` tells whether all
/// of them are on this machine, of which they may use `cores` cores, if known.
pub(super) fn limit(
    are_here: bool,
    ranks: usize,
    cores: Option<usize>,
) -> (Option<usize>, Option<String>) {
    if !are_here {
        let note = format!(
            "{VARIABLE} is not set, so each rank may start as many threads as its host has cores; \
             set it to the cores of a host divided by its ranks, or pass --no-thread-limit"
        );
        return (None, Some(note));
    }
    let each = cores.map(|cores| (cores / ranks.max(1)).max(1));
    let note = cores.zip(each).map(|(cores, each)| {
        format!(
            "{VARIABLE}={each} for each rank (cores: {cores}, ranks: {ranks}); set it to choose \
             another number, or pass --no-thread-limit"
        )
    });
    (each, note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_the_cores_and_each_has_one_at_least() {
        for (cores, ranks, each) in [(2, 1, 2), (2, 3, 1), (64, 8, 8), (64, 7, 9), (1, 1, 1)] {
            let (limit, note) = limit(true, ranks, Some(cores));
            assert_eq!(limit, Some(each), "{cores} {ranks}");
            let start = format!("OMP_NUM_THREADS={each} for each rank");
            assert!(note.unwrap().starts_with(&start));
        }
        assert_eq!(limit(true, 2, None), (None, None));
        let (elsewhere, note) = limit(false, 2, Some(2));
        assert!(elsewhere.is_none() && note.unwrap().contains("not set"));
    }
}
