//! Job key: the name by which the ranks of one job, and no other processes, find each other.
//!
//! Most launchers give their jobs names. If there is none, the nearest launcher among the process's
//! ancestors identifies the job, by its pid and start time (pids are reused).
//!
//! Ronde's own launcher draws a random key, so that no other user of the machine can know it before
//! the job has started. Every user of the host can compute the other keys: another user can occupy
//! the socket names derived from them, and the job's start then fails with an error that names that
//! user's process. To prevent that, set `RONDE_JOB_ID` to a random value on all ranks.

use super::digest::digest;
use super::{Lookup, slurm};

/// Longest key, in bytes: with the prefix, a uid and a counter it must fit the 107 bytes of a
/// socket's name.
const KEY_BYTES_MAX: usize = 64;

/// Largest number of ancestors examined; with more, the parent identifies the job.
const ANCESTORS_MAX: usize = 64;

/// Names of launchers as the kernel reports them (cut after 15 bytes).
const LAUNCHERS: &[&str] = &[
    "mpirun",
    "mpiexec",
    "mpiexec.hydra",
    "orterun",
    "prterun",
    "prted",
    "orted",
    "hydra_pmi_proxy",
    "mpispawn",
    "palsd",
    "slurmstepd",
    "torchrun",
];

/// Properties of a process that the search for the launcher needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Name of the program, at most 15 bytes.
    pub name: String,
    /// Pid of the parent; 0 if the parent is in another pid namespace.
    pub parent: u32,
    /// Start time, in clock ticks since boot.
    pub start_ticks: u64,
}

/// Processes that run on this host.
pub trait Processes {
    /// Returns the pid of this process.
    fn own(&self) -> u32;
    /// Looks up a process; `None` if there is no process `pid`, or if it may not be read.
    fn find(&self, pid: u32) -> Option<Process>;
}

/// The kernel's process table, `/proc`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessTable;

impl Processes for ProcessTable {
    fn own(&self) -> u32 {
        std::process::id()
    }

    fn find(&self, pid: u32) -> Option<Process> {
        parse_stat(&String::from_utf8_lossy(
            &std::fs::read(format!("/proc/{pid}/stat")).ok()?,
        ))
    }
}

/// Returns the key of the job: `RONDE_JOB_ID`, or else the PMIx namespace, PALS's application, or
/// Slurm's job and step, with torchrun's run and port, or the address of torch's rank 0, of which
/// there may be several in a step; or else the nearest launcher among the ancestors, or the parent.
/// At most 64 bytes; a longer key is replaced by its hash (the first 128 bits of SHA-256).
///
/// Ranks started by hand from different shells have different parents and need `RONDE_JOB_ID`.
pub fn job_key(lookup: Lookup, processes: &impl Processes) -> String {
    let key = named(lookup, processes).unwrap_or_else(|| ancestor(processes));
    if key.len() <= KEY_BYTES_MAX {
        key
    } else {
        digest(key.as_bytes())
    }
}

/// Returns the key of the launchers that name their jobs.
fn named(lookup: Lookup, processes: &impl Processes) -> Option<String> {
    let lookup = |name: &str| lookup(name).filter(|value| !value.is_empty());
    if let Some(id) = lookup("RONDE_JOB_ID") {
        return Some(id);
    }
    let step = || {
        let job = lookup("SLURM_JOB_ID").or_else(|| lookup("SLURM_JOBID"))?;
        let step = lookup("SLURM_STEP_ID").or_else(|| lookup("SLURM_STEPID"))?;
        slurm::inside_step(&lookup).then(|| format!("slurm-{job}.{step}"))
    };
    let outer = lookup("PMIX_NAMESPACE")
        .map(|namespace| format!("pmix-{namespace}"))
        .or_else(|| Some(format!("pals-{}", lookup("PALS_APID")?)))
        .or_else(step);
    // A step may be a shell, or belong to a launcher's daemon: several jobs can be in it.
    let hydra =
        (outer.is_some() && lookup("MPI_LOCALNRANKS").is_some()).then(|| ancestor(processes));
    let parts: Vec<String> = [outer, hydra, of_torch(&lookup)]
        .into_iter()
        .flatten()
        .collect();
    (!parts.is_empty()).then(|| parts.join("/"))
}

/// Returns the key of torchrun, or of a launcher that sets its variables.
fn of_torch(lookup: Lookup) -> Option<String> {
    // The run id is "none" unless the user gives one; the port distinguishes such runs. Ray's
    // workers have no run id, and those of all its jobs have the same parent.
    let (port, run) = (lookup("MASTER_PORT")?, lookup("TORCHELASTIC_RUN_ID"));
    match (run, lookup("RANK")) {
        (Some(run), _) => Some(format!("torchrun-{run}.{port}")),
        (None, Some(_)) => Some(format!("torch-{}.{port}", lookup("MASTER_ADDR")?)),
        (None, None) => None,
    }
}

/// Returns the key of the nearest ancestor that is a launcher, or of the parent.
fn ancestor(processes: &impl Processes) -> String {
    let key = |pid: u32, process: &Process| format!("pid-{pid}.{}", process.start_ticks);
    let parent = processes.find(processes.own()).map_or(0, |own| own.parent);
    let mut pid = parent;
    for _ in 0..ANCESTORS_MAX {
        match processes.find(pid) {
            Some(process) if LAUNCHERS.contains(&process.name.as_str()) => {
                return key(pid, &process);
            }
            Some(process) if process.parent > 1 => pid = process.parent,
            _ => break,
        }
    }
    processes
        .find(parent)
        .map_or_else(|| format!("pid-{parent}"), |process| key(parent, &process))
}

/// Parses a line of `/proc/<pid>/stat` (proc_pid_stat(5)): `pid (name) state ppid …`, with the
/// start time as field 22. The name may contain spaces and parentheses, so it ends at the last
/// closing one.
fn parse_stat(stat: &str) -> Option<Process> {
    let (head, tail) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let mut fields = tail.split_ascii_whitespace().skip(1);
    let parent = fields.next()?.parse().ok()?;
    let start_ticks = fields.nth(17)?.parse().ok()?;
    Some(Process {
        name: name.to_owned(),
        parent,
        start_ticks,
    })
}

/// Draws the key of a new job: 128 bits from the operating system's random number generator, as 32
/// hexadecimal digits.
///
/// # Errors
/// Errors of `getrandom(2)`.
pub fn random_job_key() -> Result<String, rustix::io::Errno> {
    use rustix::rand::{GetRandomFlags, getrandom};

    let mut bits = [0; 16];
    let mut filled = 0;
    while filled < bits.len() {
        match getrandom(&mut bits[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(format!("{:032x}", u128::from_ne_bytes(bits)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Process table of the tests; process 100 is the own process.
    struct Table(HashMap<u32, Process>);

    impl Table {
        fn new(rows: &[(u32, &str, u32)]) -> Table {
            let row = |&(pid, name, parent): &(u32, &str, u32)| {
                (
                    pid,
                    Process {
                        name: name.into(),
                        parent,
                        start_ticks: 1000 + u64::from(pid),
                    },
                )
            };
            Table(rows.iter().map(row).collect())
        }
    }

    impl Processes for Table {
        fn own(&self) -> u32 {
            100
        }

        fn find(&self, pid: u32) -> Option<Process> {
            self.0.get(&pid).cloned()
        }
    }

    fn key(environment: &[(&str, &str)], table: &[(u32, &str, u32)]) -> String {
        let environment: HashMap<&str, &str> = environment.iter().copied().collect();
        job_key(
            &|name| environment.get(name).map(|value| (*value).to_owned()),
            &Table::new(table),
        )
    }

    #[test]
    fn names_given_by_launchers_come_first() {
        let slurm = [("SLURM_JOB_ID", "17"), ("SLURM_STEP_ID", "3")];
        let torchrun = [("TORCHELASTIC_RUN_ID", "none"), ("MASTER_PORT", "29500")];
        assert_eq!(
            key(&[("RONDE_JOB_ID", "a1"), ("PMIX_NAMESPACE", "ns")], &[]),
            "a1"
        );
        assert_eq!(
            key(&[&[("PMIX_NAMESPACE", "ns")][..], &slurm].concat(), &[]),
            "pmix-ns"
        );
        assert_eq!(
            key(&[&slurm[..], &torchrun].concat(), &[]),
            "slurm-17.3/torchrun-none.29500",
            "several torchruns may be in a step"
        );
        let hydra = [&slurm[..], &[("MPI_LOCALNRANKS", "2")]].concat();
        let tree = [
            (100, "train", 50),
            (50, "hydra_pmi_proxy", 40),
            (40, "bash", 1),
        ];
        assert_eq!(key(&hydra, &tree), "slurm-17.3/pid-50.1050");
        assert_eq!(key(&slurm, &tree), "slurm-17.3");
        assert_eq!(key(&torchrun, &[]), "torchrun-none.29500");
        let ray = [
            ("RANK", "1"),
            ("MASTER_ADDR", "10.0.0.1"),
            ("MASTER_PORT", "40001"),
        ];
        assert_eq!(key(&ray, &[]), "torch-10.0.0.1.40001");
        assert_eq!(
            key(&ray[1..], &[(100, "train", 50), (50, "sh", 1)]),
            "pid-50.1050",
            "the address of another program's job"
        );
    }

    #[test]
    fn a_batch_script_is_not_a_step() {
        let batch = [("SLURM_JOB_ID", "17"), ("SLURM_STEP_ID", "4294967291")];
        assert_eq!(
            key(&batch, &[(100, "train", 50), (50, "bash", 1)]),
            "pid-50.1050"
        );
    }

    #[test]
    fn the_nearest_launcher_identifies_the_job() {
        let table = [
            (100, "train", 50),
            (50, "sh", 40),
            (40, "hydra_pmi_proxy", 30),
            (30, "mpiexec", 1),
        ];
        assert_eq!(key(&[], &table), "pid-40.1040");
    }

    #[test]
    fn without_a_launcher_the_parent_identifies_the_job() {
        assert_eq!(
            key(&[], &[(100, "train", 50), (50, "sh", 1)]),
            "pid-50.1050"
        );
        assert_eq!(key(&[], &[(100, "train", 0)]), "pid-0");
        assert_eq!(key(&[], &[]), "pid-0");
    }

    #[test]
    fn a_loop_in_the_table_ends() {
        assert_eq!(
            key(&[], &[(100, "a", 50), (50, "b", 60), (60, "c", 50)]),
            "pid-50.1050"
        );
    }

    #[test]
    fn long_names_are_hashed() {
        let long = "x".repeat(65);
        let key = key(&[("RONDE_JOB_ID", &long)], &[]);
        assert_eq!(key, digest(long.as_bytes()));
        assert_eq!(key.len(), 32);
    }

    #[test]
    fn new_keys_are_random() {
        let keys: std::collections::HashSet<String> =
            (0..100).map(|_| random_job_key().unwrap()).collect();
        assert_eq!(keys.len(), 100);
        assert!(
            keys.iter()
                .all(|key| key.len() == 32 && key.bytes().all(|digit| digit.is_ascii_hexdigit()))
        );
    }

    #[test]
    fn names_with_parentheses_are_read() {
        let stat = "7 (a) b (c)) S 5 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 12345 0 0";
        assert_eq!(
            parse_stat(stat),
            Some(Process {
                name: "a) b (c)".into(),
                parent: 5,
                start_ticks: 12345
            })
        );
        assert_eq!(parse_stat("7 (a"), None);
    }

    #[test]
    fn the_kernels_table_contains_this_process() {
        let own = ProcessTable.find(std::process::id()).unwrap();
        assert_eq!(own.parent, std::os::unix::process::parent_id());
        assert!(own.start_ticks > 0);
    }
}
