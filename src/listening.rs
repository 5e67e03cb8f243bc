//! Start of a listener whose port another process of the host may still have.

use std::time::{Duration, Instant};

use crate::knobs::Knobs;

/// Time in which another process of the host releases the port after a reset of an elastic job.
const RELEASE: Duration = Duration::from_secs(5);
/// Interval between two attempts.
const RETRY: Duration = Duration::from_millis(50);

/// Starts a listener with `start`; after a reset of an elastic job again and again for 5 s, while
/// the error is that its port is in use. The process that had it may be about to end.
///
/// # Errors
/// That of the last attempt.
pub(crate) fn listening<T, E>(
    knobs: &Knobs,
    is_in_use: impl Fn(&E) -> bool,
    mut start: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let patience = match knobs.resets {
        0 => Duration::ZERO,
        _ => RELEASE,
    };
    let until = Instant::now() + patience;
    loop {
        match start() {
            Err(error) if is_in_use(&error) && Instant::now() < until => {
                std::thread::sleep(RETRY);
            }
            outcome => return outcome,
        }
    }
}
