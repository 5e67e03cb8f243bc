//! Signal handling during the work: removes unfinished output files on Ctrl-C.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Files to remove. A file that has been renamed to its final name no longer exists under this
/// path.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Whether the caller handles signals.
static ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// Signals that end this process, without those that it was started to ignore (with `nohup`, a job
/// outlives the terminal).
pub fn end_signals() -> impl Iterator<Item = i32> {
    // Signal n is bit n - 1 (proc_pid_status(5)).
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let ignored = ignored.unwrap_or(0);
    let signals = [SIGINT, SIGTERM, SIGHUP].into_iter();
    signals.filter(move |signal| ignored >> (signal - 1) & 1 == 0)
}

/// Leaves signals to the caller: from now on this module neither removes files nor ends the process
/// on a signal.
pub fn leave_to_caller() {
    ELSEWHERE.store(true, Ordering::Relaxed);
}

/// Creates a file with `create`, which is removed if SIGINT, SIGTERM or SIGHUP ends this process.
///
/// # Errors
/// The error of `create`.
pub(super) fn removed_with<T>(
    create: impl FnOnce() -> io::Result<T>,
    path: impl FnOnce(&T) -> &Path,
) -> io::Result<T> {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(watch);
    // The lock is held while the file is created, so that no signal finds a file that is not
    // listed.
    let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    let file = create()?;
    unfinished.push(path(&file).to_owned());
    Ok(file)
}

/// Starts the thread that handles signals. Without it, unfinished files are not removed, which is
/// no reason to fail.
fn watch() {
    let Ok(mut signals) = Signals::new(end_signals()) else {
        return;
    };
    let handle = signals.handle();
    let watching = std::thread::Builder::new().name("ronde-signals".into());
    let watching = watching.spawn(move || {
        for signal in &mut signals {
            if ELSEWHERE.load(Ordering::Relaxed) {
                continue;
            }
            // Held until the process ends, so that no further file is created.
            let unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
            for path in unfinished.iter() {
                let _ = std::fs::remove_file(path);
            }
            let _ = emulate_default_handler(signal);
        }
    });
    if watching.is_err() {
        handle.close();
    }
}
