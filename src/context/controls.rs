//! Controls of a job for the live page.

use std::sync::Arc;

use super::settings::objection;
use crate::autotune::Progress;
use crate::command::{Command, TimelineCommand};
use crate::dash::Controls;
use crate::knobs::Knobs;
use crate::queue::{TensorQueue, Ticket};
use crate::settings::PartialSettings;
use crate::timeline::Timeline;

/// Controls of rank 0.
pub(super) struct JobControls {
    pub(super) queue: Arc<TensorQueue>,
    pub(super) knobs: Knobs,
    pub(super) progress: Arc<Progress>,
    pub(super) timeline: Arc<Timeline>,
    /// Reason why operations are never hierarchical, if there is one.
    pub(super) why_flat: Option<&'static str>,
}

impl JobControls {
    fn command(&self, command: Command) -> Result<Arc<Ticket>, String> {
        let requested = self.queue.command(command);
        requested.map_err(|error| error.to_string())
    }
}

impl Controls for JobControls {
    fn set(&self, change: PartialSettings) -> Result<Arc<Ticket>, String> {
        match objection(&change, &self.knobs, &self.progress, self.why_flat) {
            Some(reason) => Err(reason),
            None => self.command(Command::Settings(change)),
        }
    }

    fn stop_tuning(&self) -> Result<(), String> {
        if !self.knobs.autotune {
            return Err("the tuner is off".to_owned());
        }
        if self.progress.is_stopped() {
            return Err("tuning was stopped before".to_owned());
        }
        self.progress.stop();
        Ok(())
    }

    fn timeline(&self, command: TimelineCommand) -> Result<Arc<Ticket>, String> {
        if command == TimelineCommand::Stop && !self.timeline.is_recording() {
            return Err("no timeline is recorded".to_owned());
        }
        self.command(Command::Timeline(command))
    }
}
