//! Signal handling during the work: on Ctrl-C, unfinished output files are removed. A long command
//! handles signals itself ([`Interrupt`]): the first one ends it with a report, a second one ends
//! the process at once.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// Files to remove. A file that has been renamed to its final name no longer exists under this
/// path.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Whether an [`Interrupt`] handles signals.
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

/// Signals cannot be watched.
#[derive(Debug, thiserror::Error)]
#[error("cannot watch for signals: {0}")]
pub struct WatchError(#[from] io::Error);

/// Number of the received signal, shared with the signal handlers.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicUsize>);

impl Interrupt {
    /// Registers handlers for SIGINT, SIGTERM and SIGHUP, except for those that this process was
    /// started to ignore. From now on, unfinished files are not removed on a signal.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn watch() -> Result<Self, WatchError> {
        let interrupt = Self::default();
        ELSEWHERE.store(true, Ordering::Relaxed);
        for signal in end_signals() {
            let again = Arc::new(AtomicBool::new(false));
            // Handlers run in this order: at the first signal, `again` is not set yet.
            flag::register_conditional_default(signal, Arc::clone(&again))?;
            flag::register(signal, again)?;
            flag::register_usize(signal, Arc::clone(&interrupt.0), signal as usize)?;
        }
        Ok(interrupt)
    }

    /// Number of the received signal, if there was one.
    pub fn signal(&self) -> Option<u8> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(signal as u8), // a small number
        }
    }
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
