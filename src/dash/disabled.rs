//! Live page for builds without the feature `dash`: opening it fails with an error that names the
//! feature.

use super::{ADDRESS, Job};
use crate::autotune::Purpose;
use crate::command::TimelineCommand;
use crate::error::{Error, SettingsError};
use crate::identity::Hosts;
use crate::knobs::Knobs;
use crate::observer::{Agreed, CycleEnd};
use crate::telemetry::StepEnd;

/// There is no recorder.
pub(crate) enum Recorder {}

/// Refuses to open a page.
pub(super) fn open(_knobs: &Knobs, address: &str, _job: &Job<'_>) -> Result<Recorder, Error> {
    Err(Error::Settings(SettingsError::Listen {
        what: "the live page",
        address: address.to_owned(),
        variable: ADDRESS,
        reason: "this build has no live page; build it with the feature `dash`".to_owned(),
    }))
}

impl Recorder {
    pub(crate) fn connected(&mut self, _hosts: Hosts) {
        match *self {}
    }

    pub(crate) fn agreed(&mut self, _agreed: &Agreed) {
        match *self {}
    }

    pub(crate) fn executed(&mut self, _bytes: u64, _is_on_device: bool) {
        match *self {}
    }

    pub(crate) fn step_ended(&mut self, _end: &StepEnd) {
        match *self {}
    }

    pub(crate) fn timeline_command(&mut self, _: &TimelineCommand, _: &Result<(), Error>) {
        match *self {}
    }

    pub(crate) fn cycle_ended(&mut self, _cycle: &CycleEnd, _purpose: Purpose) {
        match *self {}
    }

    pub(crate) fn stalled(&mut self, _text: &str) {
        match *self {}
    }

    pub(crate) fn ended(&mut self, _error: &Error) {
        match *self {}
    }
}
