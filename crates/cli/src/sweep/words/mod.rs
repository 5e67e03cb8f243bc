//! A sweep's finding in words: the same ones for the terminal, for Markdown and for pictures.

mod answer;
mod evidence;
mod naming;
mod numbers;
mod paste;

pub(super) use answer::answer;
pub(super) use evidence::{NO_KNOB, effect, effort, incomplete, knobs_tell, noise};
pub(super) use naming::{Naming, knob, on};
pub(super) use numbers::{change, duration, level, percent, signed};
pub(super) use paste::{environment, flags, paste};
