//! Memory check of a benchmark: the buffers of all ranks have to fit into this machine's memory.

use super::load::LoadError;
use crate::present::units::bytes;
use ronde_lab::bench::Workload;

/// Copies of the gradients on each rank: the gradients and the target of the memcpy baseline.
pub(super) const COPIES_WITH_BASELINE: u64 = 2;

/// Copies of the gradients in host memory if the tensors are on a GPU: the data that is uploaded
/// and downloaded.
pub(super) const COPIES_ON_GPU: u64 = 1;

/// The machine has too little memory.
#[derive(Debug, thiserror::Error)]
#[error(
    "{workload} needs {} on {ranks} ranks{}, but only {} are available; take fewer ranks or a smaller model",
    bytes(*needed_bytes), baseline(*copies), bytes(*available_bytes)
)]
pub(crate) struct MemoryError {
    workload: String,
    ranks: usize,
    copies: u64,
    needed_bytes: u64,
    available_bytes: u64,
}

fn baseline(copies: u64) -> &'static str {
    match copies {
        COPIES_WITH_BASELINE => " (gradients and a copy for the memcpy baseline)",
        _ => "",
    }
}

/// Checks that `copies` of the gradients fit into memory for each of `ranks`, if the machine
/// reports its available memory.
///
/// # Errors
/// [`LoadError::Memory`].
pub(crate) fn check(workload: &Workload, ranks: usize, copies: u64) -> Result<(), LoadError> {
    Ok(compare(workload, ranks, copies, available_bytes())?)
}

/// `MemAvailable` of `/proc/meminfo`, in bytes; `None` if it cannot be read.
fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kibibytes * 1024)
}

fn compare(
    workload: &Workload,
    ranks: usize,
    copies: u64,
    available: Option<u64>,
) -> Result<(), MemoryError> {
    let needed_bytes = (workload.bytes() as u64)
        .saturating_mul(copies)
        .saturating_mul(ranks as u64);
    match available {
        Some(available_bytes) if needed_bytes > available_bytes => Err(MemoryError {
            workload: workload.name.clone(),
            ranks,
            copies,
            needed_bytes,
            available_bytes,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ronde_lab::bench::models;

    #[test]
    fn memory_is_checked_for_all_ranks_and_copies() {
        let workload = models::workload("many-small").unwrap(); // 1,024,000 bytes
        let needed = 2 * 2 * 1_024_000;
        compare(&workload, 2, 2, Some(needed)).unwrap();
        compare(&workload, 2, 2, None).unwrap();
        compare(&workload, 2, 1, Some(needed / 2)).unwrap();
        let message = compare(&workload, 2, 2, Some(needed - 1))
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("many-small needs 3.91 MiB on 2 ranks (gradients and a copy"),
            "{message}"
        );
        let message = compare(&workload, 2, 1, Some(0)).unwrap_err().to_string();
        assert!(
            message.contains("needs 1.95 MiB on 2 ranks, but"),
            "{message}"
        );
    }

    #[test]
    fn this_machine_says_how_much_memory_it_has() {
        assert!(available_bytes().unwrap() > 1 << 20);
    }
}
