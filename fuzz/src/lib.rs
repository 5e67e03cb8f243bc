//! Fuzz targets, by name; each of the programs in `fuzz_targets/` runs one.

mod targets;

/// Runs the target called `name` on `data`.
///
/// # Panics
/// If a reader violates a guarantee, which the fuzzer looks for; or if there is no such target.
pub fn run(name: &str, data: &[u8]) {
    let target = targets::ALL.iter().find(|(target, _)| *target == name);
    let (_, run) = target.expect("a target of that name");
    run(data);
}
