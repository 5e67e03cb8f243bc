//! Settings of a running context: the values in force, and changes by the program.

use super::{Context, fork};
use crate::autotune::Progress;
use crate::command::Command;
use crate::error::{Error, SettingsError};
use crate::knobs::Knobs;
use crate::settings::{PartialSettings, Settings, Versioned};

impl Context {
    /// Returns the settings in force on this rank.
    pub fn settings(&self) -> Versioned<Settings> {
        self.job.settings.in_force()
    }

    /// Changes settings while the job runs, as the tuner does: from the same cycle on all ranks.
    /// Only rank 0 may call it. It returns the settings in force, when the change is in force on
    /// rank 0. For programs that measure one setting after another; use the tuner to find the best
    /// one.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ronde::{Context, ReduceOp, settings::PartialSettings};
    /// # let context = Context::builder().alone().build()?;
    /// let change = PartialSettings {
    ///     cycle_time: Some(Duration::from_millis(5)),
    ///     ..PartialSettings::default()
    /// };
    /// let settings = context.set_settings(change)?;
    /// assert_eq!(settings.cycle_time_ns, 5_000_000);
    /// assert_eq!(settings, context.settings());
    /// # Ok::<(), ronde::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`SettingsError::Refused`] on other ranks, while the tuner is on, for values that the knobs
    /// do not accept, and for hierarchical operations if there is one host or one rank per host. A
    /// rank that is lost or has left.
    pub fn set_settings(&self, change: PartialSettings) -> Result<Versioned<Settings>, Error> {
        if fork::forked() {
            return Err(Error::Forked);
        }
        let refused = |reason: String| Err(Error::Settings(SettingsError::Refused { reason }));
        if self.job.identity.rank != 0 {
            let rank = self.job.identity.rank;
            return refused(format!(
                "this is rank {rank}, and only rank 0 may change them"
            ));
        }
        let job = &self.job;
        if let Some(reason) = objection(&change, &job.knobs, &job.progress, job.why_flat()) {
            return refused(reason);
        }
        self.command(Command::Settings(change))?;
        Ok(self.settings())
    }

    /// Makes every rank apply `command` in the same cycle. Called on rank 0; returns when rank 0
    /// has applied it.
    pub(super) fn command(&self, command: Command) -> Result<(), Error> {
        let engine = self.world.engine()?;
        let ticket = engine.queue.command(command)?;
        engine.wait(&ticket, None);
        ticket.outcome().unwrap_or(Err(Error::ShutDown))
    }
}

/// Reason to refuse `change` in a job with these knobs, whose tuner reports its `progress`.
/// `why_flat` is the reason why operations are never hierarchical, if there is one.
pub(super) fn objection(
    change: &PartialSettings,
    knobs: &Knobs,
    progress: &Progress,
    why_flat: Option<&str>,
) -> Option<String> {
    if knobs.autotune && !progress.is_stopped() {
        return Some("the tuner sets them (HOROVOD_AUTOTUNE=1)".to_owned());
    }
    let problem = change.applied_to(&Settings::default()).problem();
    if problem.is_some() {
        return problem;
    }
    if change.fusion_threshold_bytes.is_some_and(|bytes| bytes > 0) && knobs.disable_group_fusion {
        return Some("HOROVOD_DISABLE_GROUP_FUSION=1 turns tensor fusion off".to_owned());
    }
    let hierarchical = [change.hierarchical_allreduce, change.hierarchical_allgather];
    if hierarchical.contains(&Some(true))
        && let Some(because) = why_flat
    {
        return Some(format!("no operation is hierarchical: {because}"));
    }
    if change.cache == Some(true) && knobs.cache_capacity == 0 {
        return Some(
            "the capacity of the response cache is 0 (HOROVOD_CACHE_CAPACITY=0)".to_owned(),
        );
    }
    None
}
