//! Texts of a sweep's finding, the same for the terminal, Markdown and pictures.

mod conclusion;
mod evidence;
mod naming;
mod paste;

pub(super) use crate::present::units::{change as signed, duration, percent, setting as knob};
pub(super) use conclusion::{change, conclusion, level};
pub(super) use evidence::{effect, effort, incomplete, knobs_tell, noise};
pub(super) use naming::{Naming, on, ranks};
pub(super) use paste::{environment, flags, paste};
