//! Queue of rank 0's commands: they wait for the next cycle, which sends them to every rank.

use std::sync::Arc;

use super::Ticket;
use crate::command::Command;
use crate::error::Error;

/// A command, with the ticket of its caller.
pub(crate) struct PendingCommand {
    pub(crate) command: Command,
    pub(crate) ticket: Arc<Ticket>,
}

impl Drop for PendingCommand {
    /// Completes the ticket in any case, so that the caller gets an answer.
    fn drop(&mut self) {
        if !self.ticket.is_done() {
            self.ticket.complete(Err(Error::ShutDown));
        }
    }
}
