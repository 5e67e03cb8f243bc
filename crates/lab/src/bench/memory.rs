//! Memory check of a benchmark: the buffers of all ranks have to fit into this machine's memory.

use super::Workload;
use ronde_job::units::bytes;

/// Copies of the gradients on each rank: the gradients and the target of the memcpy baseline.
pub const COPIES_WITH_BASELINE: u64 = 2;

/// Copies of the gradients in host memory if the tensors are on a GPU: the data that is uploaded
/// and downloaded.
pub const COPIES_ON_GPU: u64 = 1;

/// The machine has too little memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{workload} needs {} on {ranks} ranks{}, but only {} are available; take fewer ranks or a smaller model",
    bytes(*needed_bytes), baseline(*copies), bytes(*available_bytes)
)]
pub struct MemoryError {
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
/// [`MemoryError`].
pub fn check(workload: &Workload, ranks: usize, copies: u64) -> Result<(), MemoryError> {
    compare(workload, ranks, copies, available_bytes())
}

/// `MemAvailable` of `/proc/meminfo`, in bytes; `None` if it cannot be read.
fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
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
    use crate::bench::models;

    #[test]
    fn memory_is_checked_for_all_ranks_and_copies() {
        let workload = models::workload("many-small").unwrap(); // 1,024,000 bytes
        let needed = 2 * 2 * 1_024_000;
        let of = |copies, available| {
            let outcome = compare(&workload, 2, copies, available);
            outcome.map_err(|error| error.to_string())
        };
        assert_eq!((of(2, Some(needed)), of(2, None)), (Ok(()), Ok(())));
        let text = of(2, Some(needed - 1)).unwrap_err();
        let start = "many-small needs 3.91 MiB on 2 ranks (gradients and a copy";
        assert!(text.starts_with(start), "{text}");
        let text = of(1, Some(0)).unwrap_err();
        assert!(text.contains("needs 1.95 MiB on 2 ranks, but"), "{text}");
        assert!(available_bytes().unwrap() > 1 << 20);
    }
}
