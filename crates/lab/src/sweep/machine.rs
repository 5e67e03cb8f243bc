//! Description of the machine on which a sweep is measured; its step times hold only there.

use rustix::system::{sysinfo, uname};
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
        let (system, memory) = (uname(), sysinfo());
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let mut fields = cpus.lines().filter_map(|line| line.split_once(':'));
        let model = fields.find(|(name, _)| name.trim() == "model name");
        let model = model.map(|(_, model)| model.trim().to_owned());
        Self {
            host: text(system.nodename()),
            cpu: model.unwrap_or_else(|| text(system.machine())),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: memory.totalram.saturating_mul(memory.mem_unit.into()) >> 20,
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

    /// Lists the properties in which `other`, the later machine, differs: `cores: 2 then, 4 now`.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let pairs = self.facts().into_iter().zip(other.facts());
        let changed = pairs.filter(|(then, now)| then != now);
        let words = |((name, then), (_, now))| format!("{name}: {then} then, {now} now");
        changed.map(words).collect()
    }
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
        let mut other = here.clone();
        (other.host, other.cores) = ("elsewhere".to_owned(), here.cores + 1);
        let expected = [
            format!("host: {} then, elsewhere now", here.host),
            format!("cores: {} then, {} now", here.cores, other.cores),
        ];
        assert_eq!(here.differences(&other), expected);
    }
}
