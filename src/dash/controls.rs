//! Controls of a running job, as the page uses them.

use std::sync::Arc;

use crate::command::TimelineCommand;
use crate::queue::Ticket;
use crate::settings::PartialSettings;

/// Actions on a running job. A function only requests its action, which is done when the ticket is.
/// An error is the reason of a refusal.
#[cfg_attr(not(feature = "dash"), allow(dead_code, reason = "for the live page"))]
pub(crate) trait Controls: Send + Sync {
    /// Changes settings on all ranks.
    ///
    /// # Errors
    /// Values that the job does not accept.
    fn set(&self, change: PartialSettings) -> Result<Arc<Ticket>, String>;

    /// Ends tuning; the settings in force stay.
    ///
    /// # Errors
    /// The tuner is off or has been stopped.
    fn stop_tuning(&self) -> Result<(), String>;

    /// Starts or stops a timeline on the ranks that record.
    ///
    /// # Errors
    /// The job has ended, or there is no timeline to stop.
    fn timeline(&self, command: TimelineCommand) -> Result<Arc<Ticket>, String>;
}
