//! HTML pages; for tests, also their check.

#[cfg(test)]
mod check;

#[cfg(test)]
pub(crate) use check::check;
pub(crate) use ronde_present::html::*;
