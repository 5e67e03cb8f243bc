//! Locks a mutex of the runtime, also after a panic; values that the contexts of a process share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, poisoned or not: the data of each lock is valid between any two statements, and a
/// panic of the cycle is reported separately.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the value of this process if `is_same` accepts it. Otherwise the value is released,
/// because the next one may need its port, and replaced by that of `make`.
///
/// # Errors
/// That of `make`; there is then no value.
pub(crate) fn shared_or<T, E>(
    current: &Mutex<Option<Arc<T>>>,
    is_same: impl FnOnce(&T) -> bool,
    make: impl FnOnce() -> Result<T, E>,
) -> Result<Arc<T>, E> {
    let mut current = lock(current);
    if let Some(value) = current.as_ref().filter(|value| is_same(value)) {
        return Ok(Arc::clone(value));
    }
    *current = None;
    Ok(Arc::clone(current.insert(Arc::new(make()?))))
}
