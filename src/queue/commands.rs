//! Queue of rank 0's commands: they wait for the next cycle, which sends them to every rank.

use std::sync::Arc;

use super::Ticket;
use crate::command::Command;
use crate::error::Error;

/// A command and who waits for it.
pub(crate) struct PendingCommand {
    pub(crate) command: Command,
    pub(crate) ticket: Arc<Ticket>,
}

impl Drop for PendingCommand {
    /// Whatever happens to it, its caller gets an answer.
    fn drop(&mut self) {
        if !self.ticket.is_done() {
            self.ticket.complete(Err(Error::ShutDown));
        }
    }
}
