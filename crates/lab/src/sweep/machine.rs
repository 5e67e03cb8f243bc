//! The machine that a sweep is measured on: what its step times hold for.

use std::fs;

use serde::{Deserialize, Serialize};

/// What tells machines apart, as far as step times go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name.
    pub host: String,
    /// The CPU's model, as the kernel has it.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Release of the kernel.
    pub kernel: String,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let system = rustix::system::uname();
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let cpu = field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| text(system.machine()));
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

    /// Name and value of each of its properties.
    pub fn facts(&self) -> [(&'static str, String); 5] {
        [
            ("host", self.host.clone()),
            ("CPU", self.cpu.clone()),
            ("cores", self.cores.to_string()),
            ("memory", format!("{} MiB", self.memory_mib)),
            ("kernel", self.kernel.clone()),
        ]
    }

    /// In what `other` differs: `cores: 2 then, 4 now`, this being the machine of then.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let pairs = self.facts().into_iter().zip(other.facts());
        pairs
            .filter(|((_, then), (_, now))| then != now)
            .map(|((name, then), (_, now))| format!("{name}: {then} then, {now} now"))
            .collect()
    }
}

/// The value of the first line `name : value`.
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
    fn this_machine_is_known() {
        let here = Machine::here();
        assert!(here.cores > 0 && here.memory_mib > 0, "{here:?}");
        assert!(!here.cpu.is_empty() && !here.kernel.is_empty(), "{here:?}");
        assert!(here.differences(&Machine::here()).is_empty());
    }

    #[test]
    fn differences_are_named() {
        let here = Machine::here();
        let other = Machine {
            cores: here.cores + 1,
            host: "elsewhere".to_owned(),
            ..here.clone()
        };
        let expected = [
            format!("host: {} then, elsewhere now", here.host),
            format!("cores: {} then, {} now", here.cores, here.cores + 1),
        ];
        assert_eq!(here.differences(&other), expected);
    }

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "model\t\t: 79\nmodel name\t: A CPU @ 2.10GHz\nmodel name\t: B\n";
        assert_eq!(field(text, "model name").as_deref(), Some("A CPU @ 2.10GHz"));
        assert_eq!(field(text, "name"), None);
    }
}
