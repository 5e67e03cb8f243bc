//! Numbers for people, under the name that pages use.

pub(crate) use ronde_job::units::*;
