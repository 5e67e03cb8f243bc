//! Cores on which the ranks of a host run.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};

/// Returns the number of cores on which at least one of the processes `pids` may run; `None` if the
/// kernel does not tell. Launchers often bind each rank to cores of its own.
pub(super) fn of(pids: impl Iterator<Item = u32>) -> Option<usize> {
    let own = sched_getaffinity(None).ok()?;
    let mut all = own;
    for pid in pids {
        let pid = Pid::from_raw(pid.try_into().ok()?)?;
        let allowed = sched_getaffinity(Some(pid)).ok()?;
        for core in (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)) {
            all.set(core);
        }
    }
    let count = |set: &CpuSet| set.count() as usize;
    // A container may have less time than cores; its limit is that of all of its processes.
    let usable = std::thread::available_parallelism().ok()?.get();
    let limit = if usable < count(&own) {
        usable
    } else {
        usize::MAX
    };
    Some(count(&all).min(limit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::sched_setaffinity;

    #[test]
    fn processes_that_are_bound_to_cores_of_their_own_have_the_cores_of_all() {
        let all = sched_getaffinity(None).unwrap();
        let usable = std::thread::available_parallelism().unwrap().get();
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|core| all.is_set(*core))
            .collect();
        let mut processes: Vec<_> = (cores.iter().take(2))
            .map(|core| {
                let process = std::process::Command::new("sleep")
                    .arg("60")
                    .spawn()
                    .unwrap();
                let mut one = CpuSet::new();
                one.set(*core);
                let pid = Pid::from_raw(process.id() as i32);
                sched_setaffinity(pid, &one).unwrap();
                process
            })
            .collect();
        let mut one = CpuSet::new();
        one.set(cores[0]);
        let pids = || processes.iter().map(std::process::Child::id);
        let found = std::thread::scope(|scope| {
            let bound = scope.spawn(|| {
                sched_setaffinity(None, &one).unwrap();
                (of(std::iter::empty()), of(pids()), of([0].into_iter()))
            });
            bound.join().unwrap()
        });
        for process in &mut processes {
            process.kill().unwrap();
            process.wait().unwrap();
        }
        assert_eq!(found, (Some(1), Some(usable.min(2).min(cores.len())), None));
    }
}
