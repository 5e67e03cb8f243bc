//! Description of the machine on which a sweep is measured; its step times hold only there.

use std::fs;

use serde::{Deserialize, Serialize};

/// Properties of a machine that affect step times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Host name.
    pub host: String,
    /// CPU model, as the kernel reports it.
    pub cpu: String,
    /// Number of cores that this process may use.
    pub cores: usize,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Kernel release.
    pub kernel: String,
}

impl Machine {
    /// Returns the description of this machine.
    pub fn here() -> Self {
        let system = rustix::system::uname();
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpu =
            field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| text(system.machine()));
        let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let kibibytes: u64 = memory.trim_end_matches("kB").trim().parse().unwrap_or(0);
        Self {
            host: text(system.nodename()),
            cpu,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: kibibytes / 1024,
            kernel: text(system.release()),
        }
    }

    /// Returns the name and value of each property.
    pub fn facts(&self) -> [(&'static str, String); 5] {
        [
            ("host", self.host.clone()),
            ("CPU", self.cpu.clone()),
            ("cores", self.cores.to_string()),
            ("memory", format!("{} MiB", self.memory_mib)),
            ("kernel", self.kernel.clone()),
        ]
    }

    /// Lists the properties in which `other` differs, as `cores: 2 then, 4 now`; this machine is
    /// the earlier one.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let pairs = self.facts().into_iter().zip(other.facts());
        pairs
            .filter(|((_, then), (_, now))| then != now)
            .map(|((name, then), (_, now))| format!("{name}: {then} then, {now} now"))
            .collect()
    }
}

/// Returns the value of the first line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    let of_line = |line: &str| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    };
    text.lines().find_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_between_machines_are_named() {
        let here = Machine::here();
        assert!(here.cores > 0 && here.memory_mib > 0, "{here:?}");
        assert!(!here.cpu.is_empty() && !here.kernel.is_empty(), "{here:?}");
        assert!(here.differences(&Machine::here()).is_empty());
        let (host, cores) = ("elsewhere".to_owned(), here.cores + 1);
        let other = Machine {
            cores,
            host,
            ..here.clone()
        };
        let expected = [
            format!("host: {} then, elsewhere now", here.host),
            format!("cores: {} then, {cores} now", here.cores),
        ];
        assert_eq!(here.differences(&other), expected);
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "model\t\t: 79\nmodel name\t: A CPU @ 2.10GHz\nmodel name\t: B\n";
        assert_eq!(
            field(text, "model name").as_deref(),
            Some("A CPU @ 2.10GHz")
        );
        assert_eq!(field(text, "name"), None);
    }
}
