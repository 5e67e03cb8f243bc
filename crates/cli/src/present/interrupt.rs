//! Ctrl-C during the work: the unfinished files are taken away.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use crate::ignored_signals;

/// What is to be removed; by the time that it is, a file that got its real name is no longer there.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Whether signals are somebody else's business.
static ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// From now on signals neither take files away nor end the process: the caller sees to them.
pub(crate) fn leave_to_caller() {
    ELSEWHERE.store(true, Ordering::Relaxed);
}

/// Makes a file with `create`, to be removed should SIGINT, SIGTERM or SIGHUP end this process.
///
/// # Errors
/// What `create` says.
pub(super) fn removed_with<T>(
    create: impl FnOnce() -> io::Result<T>,
    path: impl FnOnce(&T) -> &Path,
) -> io::Result<T> {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(watch);
    // Under the lock: there is no moment at which a file is there that is not known here.
    let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    let file = create()?;
    unfinished.push(path(&file).to_owned());
    Ok(file)
}

/// Without a thread for it, the files stay: no reason not to do the work.
fn watch() {
    let ignored = ignored_signals();
    let wanted = [SIGINT, SIGTERM, SIGHUP]
        .into_iter()
        .filter(|signal| ignored >> (signal - 1) & 1 == 0);
    let Ok(mut signals) = Signals::new(wanted) else {
        return;
    };
    let handle = signals.handle();
    let watching = std::thread::Builder::new().name("ronde-signals".into());
    let watching = watching.spawn(move || {
        for signal in &mut signals {
            if ELSEWHERE.load(Ordering::Relaxed) {
                continue;
            }
            // Held to the end, so that no further file is made.
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
