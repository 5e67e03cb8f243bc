//! Queue of rank 0's orders: they wait for the next cycle, which sends them to every rank.

use std::sync::Arc;

use super::Ticket;
use crate::error::Error;
use crate::negotiation::Order;

/// An order and who waits for it.
pub(crate) struct Ordered {
    pub(crate) order: Order,
    pub(crate) ticket: Arc<Ticket>,
}

impl Drop for Ordered {
    /// Whatever happens to it, its caller gets an answer.
    fn drop(&mut self) {
        if !self.ticket.is_done() {
            self.ticket.complete(Err(Error::ShutDown));
        }
    }
}
