//! Environment of the numbers: commit, compiler and processor.

use std::process::Command;

/// Formats the environment as a line of a report.
pub(crate) fn text() -> String {
    let output = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_string())
    };
    let commit =
        output("git", &["describe", "--always", "--dirty"]).unwrap_or("unknown commit".into());
    let compiler = output("rustc", &["--version"]).unwrap_or("unknown compiler".into());
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, name)| name);
    let cores = std::thread::available_parallelism().map_or(0, |count| count.get());
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("?").to_string();
    format!("Commit {commit}; {compiler}; {cores} cores, {cpu}, load {load}.\n\n")
}
