//! Checks before an allocation whether the shared region fits the memory available to this process.
//!
//! Without the check the result would be the out-of-memory killer or the signal `SIGXFSZ`, and
//! neither reports how much memory was missing. The check reads the memory cgroups from this
//! process's up to the root (version 1 or 2, inactive page cache counted as free), `MemAvailable`,
//! and the limits on address space and file size.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use super::error::RendezvousError;

/// Memory that one limit leaves available.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Budget {
    available_bytes: u64,
    limit: String,
    advice: &'static str,
}

/// Returns an error if `rank` cannot create `needed_bytes` of shared memory.
///
/// # Errors
/// [`RendezvousError::Memory`] with the tightest limit.
pub(super) fn check_creation(rank: usize, needed_bytes: usize) -> Result<(), RendezvousError> {
    let root = Path::new("/");
    let mut budgets = cgroup_budgets(root);
    budgets.extend(machine_budget(root));
    budgets.extend(
        getrlimit(Resource::Fsize)
            .current
            .map(|available_bytes| Budget {
                available_bytes,
                limit: "the limit on file size (ulimit -f)".to_owned(),
                advice: "raise it: ulimit -f unlimited",
            }),
    );
    check(rank, needed_bytes, budgets)?;
    check_mapping(rank, needed_bytes)
}

/// Returns an error if this process cannot map `needed_bytes`.
///
/// # Errors
/// [`RendezvousError::Memory`].
pub(super) fn check_mapping(rank: usize, needed_bytes: usize) -> Result<(), RendezvousError> {
    let budget = address_space_budget(Path::new("/"), getrlimit(Resource::As).current);
    check(rank, needed_bytes, budget)
}

fn check(
    rank: usize,
    needed_bytes: usize,
    budgets: impl IntoIterator<Item = Budget>,
) -> Result<(), RendezvousError> {
    let needed_bytes = needed_bytes as u64;
    match budgets
        .into_iter()
        .min_by_key(|budget| budget.available_bytes)
    {
        Some(budget) if budget.available_bytes < needed_bytes => Err(RendezvousError::Memory {
            rank,
            needed_bytes,
            available_bytes: budget.available_bytes,
            limit: budget.limit,
            advice: budget.advice.to_owned(),
        }),
        _ => Ok(()),
    }
}

fn machine_budget(root: &Path) -> Option<Budget> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let kibibytes = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(Budget {
        available_bytes: kibibytes
            .trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<u64>()
            .ok()?
            << 10,
        limit: "the machine (MemAvailable)".to_owned(),
        advice: "free memory, or start fewer ranks on this host",
    })
}

fn address_space_budget(root: &Path, limit_bytes: Option<u64>) -> Option<Budget> {
    let text = fs::read_to_string(root.join("proc/self/statm")).ok()?;
    let pages: u64 = text.split_whitespace().next()?.parse().ok()?;
    let taken_bytes = pages * rustix::param::page_size() as u64;
    Some(Budget {
        available_bytes: limit_bytes?.saturating_sub(taken_bytes),
        limit: "the limit on address space (ulimit -v)".to_owned(),
        advice: "raise it: ulimit -v unlimited",
    })
}

/// File names of a memory cgroup, which differ between the two versions.
struct Files {
    limit: &'static str,
    usage: &'static str,
    /// Lines of `memory.stat` with what the kernel frees before it refuses memory: pages of files,
    /// and caches.
    reclaimable: &'static [&'static str],
}

const FILES_V1: Files = Files {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    reclaimable: &["total_inactive_file ", "total_active_file "],
};
const FILES_V2: Files = Files {
    limit: "memory.max",
    usage: "memory.current",
    reclaimable: &["inactive_file ", "active_file ", "slab_reclaimable "],
};

/// Memory that each memory cgroup leaves available, from this process's own up to the one mounted.
fn cgroup_budgets(root: &Path) -> Vec<Budget> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let (groups, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
    let mut budgets = Vec::new();
    for group in groups.lines() {
        // hierarchy:controllers:path; see cgroups(7)
        let mut fields = group.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            continue;
        };
        let files = match controllers {
            "" => FILES_V2,
            _ if controllers.split(',').any(|name| name == "memory") => FILES_V1,
            _ => continue,
        };
        let Some(mount) = mounts
            .lines()
            .find_map(|line| Mount::parse(line, controllers.is_empty()))
        else {
            continue;
        };
        let top = root.join(mount.point.trim_start_matches('/'));
        let inside = Path::new(path)
            .strip_prefix(mount.root)
            .unwrap_or(Path::new(""));
        let own: PathBuf = top.join(inside.strip_prefix("/").unwrap_or(inside));
        for directory in own
            .ancestors()
            .take_while(|directory| directory.starts_with(&top))
        {
            budgets.extend(cgroup_budget(directory, &files));
        }
    }
    budgets
}

fn cgroup_budget(directory: &Path, files: &Files) -> Option<Budget> {
    let number = |name: &str| {
        let text = fs::read_to_string(directory.join(name)).ok()?;
        text.trim().parse::<u64>().ok() // "max": without a limit
    };
    let limit_bytes = number(files.limit)?;
    let usage_bytes = number(files.usage)?;
    let stat = fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
    let bytes_of = |name: &&str| -> Option<u64> {
        let mut lines = stat.lines();
        lines.find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
    };
    let reclaimable_bytes: u64 = files.reclaimable.iter().filter_map(bytes_of).sum();
    Some(Budget {
        available_bytes: limit_bytes.saturating_sub(usage_bytes.saturating_sub(reclaimable_bytes)),
        limit: format!(
            "the memory cgroup ({})",
            directory.join(files.limit).display()
        ),
        advice: "raise it (docker run --memory, Slurm's --mem), or start fewer ranks on this host",
    })
}

/// Mount point of the memory cgroups, from a line of `proc_pid_mountinfo(5)`.
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str, version_2: bool) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let mut right = right.split(' ');
        let (kind, options) = (right.next()?, right.nth(1)?);
        let wanted = match version_2 {
            true => kind == "cgroup2",
            false => kind == "cgroup" && options.split(',').any(|option| option == "memory"),
        };
        wanted.then_some(Self {
            root: left.next()?,
            point: left.next()?,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn version_2_counts_every_ancestor_and_inactive_pages_as_free() {
        let root = machine(&[
            ("proc/self/cgroup", "0::/job/step\n"),
            (
                "proc/self/mountinfo",
                "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
            ),
            ("sys/fs/cgroup/job/step/memory.max", "max\n"),
            ("sys/fs/cgroup/job/step/memory.current", "10\n"),
            ("sys/fs/cgroup/job/memory.max", "1000\n"),
            ("sys/fs/cgroup/job/memory.current", "700\n"),
            (
                "sys/fs/cgroup/job/memory.stat",
                "anon 500\ninactive_file 150\n",
            ),
        ]);
        let budgets = cgroup_budgets(root.path());
        assert_eq!(budgets.len(), 1, "only one has a limit: {budgets:?}");
        assert_eq!(budgets[0].available_bytes, 1000 - (700 - 150));
        assert!(
            budgets[0].limit.contains("job/memory.max"),
            "{}",
            budgets[0].limit
        );
    }

    #[test]
    fn version_1_inside_a_container_strips_the_mounts_root() {
        let root = machine(&[
            ("proc/self/cgroup", "5:cpu:/docker/a\n4:memory:/docker/a\n"),
            (
                "proc/self/mountinfo",
                "35 31 0:32 /docker/a /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "4096\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n"),
        ]);
        let budgets = cgroup_budgets(root.path());
        assert_eq!(budgets.len(), 1);
        assert_eq!(budgets[0].available_bytes, 0);
    }

    #[test]
    fn the_tightest_limit_is_the_one_named() {
        let budget = |available_bytes, limit: &str| Budget {
            available_bytes,
            limit: limit.to_owned(),
            advice: "try",
        };
        let budgets = [budget(70, "loose"), budget(50, "tight")];
        assert_eq!(check(3, 50, budgets.clone()), Ok(()));
        assert_eq!(
            check(3, 51, budgets).unwrap_err().to_string(),
            "rank 3 needs 51 bytes of shared memory and tight leaves 50; try"
        );
    }

    #[test]
    fn address_space_is_what_the_limit_leaves() {
        let root = machine(&[
            ("proc/self/statm", "3 2 1 0 0 0 0\n"),
            ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:       8 kB\n"),
        ]);
        let page = rustix::param::page_size() as u64;
        let budget = address_space_budget(root.path(), Some(10 * page)).unwrap();
        assert_eq!(budget.available_bytes, 7 * page);
        assert_eq!(address_space_budget(root.path(), None), None);
        assert_eq!(machine_budget(root.path()).unwrap().available_bytes, 8192);
    }
}
