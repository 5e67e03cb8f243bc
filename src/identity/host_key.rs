//! Host key: equal on ranks that share a host, its memory and its abstract sockets.

use super::Lookup;
use std::os::unix::fs::MetadataExt;

/// Properties that distinguish hosts: cloned machines have the same name, containers have the same
/// boot, and abstract sockets are visible only within a network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFacts {
    /// Name of the host.
    pub host_name: String,
    /// Identifier of the running boot.
    pub boot_id: String,
    /// Inode of the network namespace.
    pub netns_inode: u64,
}

impl HostFacts {
    /// Reads the properties from the kernel. Those that it does not provide (in some sandboxes)
    /// stay empty: the host's name then decides.
    pub fn read() -> HostFacts {
        let boot_id =
            std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        HostFacts {
            host_name: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            boot_id: boot_id.trim().to_owned(),
            netns_inode: std::fs::metadata("/proc/self/ns/net")
                .map_or(0, |namespace| namespace.ino()),
        }
    }
}

/// Returns the key of the host: `RONDE_HOST_ID`, or else host name, boot and network namespace.
pub fn host_key(lookup: Lookup, facts: &HostFacts) -> String {
    let given = lookup("RONDE_HOST_ID").filter(|id| !id.is_empty());
    given.unwrap_or_else(|| {
        format!(
            "{}/{}/{}",
            facts.host_name, facts.boot_id, facts.netns_inode
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_names_host_boot_and_namespace_unless_overridden() {
        let facts = HostFacts {
            host_name: "a".into(),
            boot_id: "b-1".into(),
            netns_inode: 42,
        };
        assert_eq!(host_key(&|_| None, &facts), "a/b-1/42");
        assert_eq!(
            host_key(
                &|name| (name == "RONDE_HOST_ID").then(|| "x".into()),
                &facts
            ),
            "x"
        );
    }

    #[test]
    fn the_kernel_reports_the_same_facts_twice() {
        let facts = HostFacts::read();
        assert_eq!(facts, HostFacts::read());
        assert!(!facts.host_name.is_empty());
    }
}
