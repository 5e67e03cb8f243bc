//! Number formats of the pages, re-exported under a short name.

pub(crate) use ronde_job::units::*;
