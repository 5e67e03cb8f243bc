//! Messages that operations send and receive, and the end of all of them on an error.

use std::rc::Rc;

use super::Core;
use crate::control::Control;
use crate::error::{Loss, NetError};
use crate::inbox::Receive;
use crate::memory::{Memory, Slice};
use crate::pending::Op;

impl Core {
    pub(super) fn send(&mut self, to: usize, channel: u64, tag: u32, slice: Slice, op: &Rc<Op>) {
        op.open();
        if let Some(error) = self.error_with(to) {
            op.fail(&error);
            return;
        }
        let index = self.by_rank[&to];
        let link = self.links[index].as_mut().expect("it is open");
        link.outbound.push(channel, tag, slice, Rc::clone(op));
        if self.unsent.last() != Some(&index) {
            self.unsent.push(index);
        }
    }

    /// See [`Mesh::flush`].
    pub(super) fn flush(&mut self) {
        let mut unsent = std::mem::take(&mut self.unsent);
        unsent.drain(..).for_each(|index| self.write(index));
        self.unsent = unsent;
    }

    pub(super) fn receive(&mut self, channel: u64, receive: Receive) {
        receive.op.open();
        let error = match receive.from {
            // Messages that a rank sent before it left can still be received.
            Some(from) if !self.inbox.has(channel, from, receive.tag) => self.error_with(from),
            _ => self.verdict.clone(),
        };
        let op = Rc::clone(&receive.op);
        if let Some(error) = error {
            op.fail(&error);
            return;
        }
        let from = receive.from;
        match self.inbox.post(channel, receive) {
            Ok(None) => {
                if let Some(from) = from {
                    self.awaited = self.by_rank.get(&from).copied();
                }
            }
            Ok(Some((from, taken))) => {
                if let Some(link) = self.link_to(from) {
                    let outcome = link.take(channel, taken);
                    let index = self.by_rank[&from];
                    match outcome {
                        Ok(()) => self.write(index),
                        Err(end) => self.end(index, end),
                    }
                }
            }
            Err((from, problem)) => {
                let error = self.invalid(from, problem);
                op.fail(&error);
                self.give_up(from, error);
            }
        }
    }

    /// See [`Comm::detach`](crate::Comm::detach).
    pub(super) fn detach(&mut self, memory: &Rc<dyn Memory>) {
        self.inbox.detach(memory);
        for link in self.links.iter_mut().flatten() {
            link.outbound.detach(memory);
        }
    }

    /// Why no message can be exchanged with `rank`, if so.
    fn error_with(&self, rank: usize) -> Option<NetError> {
        if let Some(error) = &self.verdict {
            return Some(error.clone());
        }
        if self.left.contains(&rank) {
            return Some(NetError::Left {
                rank,
                host: self.host(rank),
            });
        }
        let is_connected = self.by_rank.contains_key(&rank);
        assert!(is_connected, "rank {rank} was not connected");
        None
    }

    pub(crate) fn invalid(&self, rank: usize, problem: String) -> NetError {
        NetError::InvalidData {
            rank,
            host: self.host(rank),
            problem,
        }
    }

    /// Ends the mesh with `error`.
    pub(crate) fn fail_all(&mut self, error: NetError) {
        let error = self.verdict.get_or_insert(error).clone();
        self.inbox.fail(None, &error);
        for link in self.links.iter_mut().flatten() {
            link.outbound.fail(&error);
        }
    }

    /// Ends the mesh because `rank` is lost, and tells the others.
    pub(super) fn lose(&mut self, rank: usize, loss: Loss) {
        let host = self.host(rank);
        self.give_up(rank, NetError::Lost { rank, host, loss });
    }

    /// Ends the mesh with `error`, whose cause is `rank`, and tells the others.
    pub(crate) fn give_up(&mut self, rank: usize, error: NetError) {
        if self.verdict.is_some() {
            return;
        }
        let reason = match &error {
            // The first rank's reason, whatever the number of ranks in between.
            NetError::Lost {
                loss: Loss::Reported { reason, .. },
                ..
            } => reason.clone(),
            NetError::Lost { loss, .. } => loss.to_string(),
            error => error.to_string(),
        };
        self.fail_all(error);
        self.tell_all(&Control::Gone {
            rank: u32::try_from(rank).expect("ranks are few"),
            reason,
        });
    }
}
