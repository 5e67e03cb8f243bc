//! The heartbeat's task on the engine's thread: exchanges the messages with the neighbours.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ronde_net::neighbours;

use super::message::{Envelope, How, MESSAGE_BYTES, Message};
use super::{Heartbeat, TAG};
use crate::hosts::comm::{Comm, CommError, Pending};
use crate::hosts::engine::turn;
use crate::hosts::mpi::finalize::Inbox;
use crate::hosts::world::World;
use crate::sync::lock;

/// Interval of the heartbeats of one rank.
const BEAT_INTERVAL: Duration = Duration::from_secs(1);
/// A rank without a heartbeat for so long is lost.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(5);

/// The engine's side of a heartbeat.
pub(super) struct Beats {
    comm: Comm,
    inbox: Pending<Vec<u8>>,
    sends: Vec<Pending<Vec<u8>>>,
    /// Ranks that send heartbeats to this rank, and the times of their last messages.
    senders: Vec<(usize, Instant)>,
    next_beat: Instant,
    /// When this rank last looked.
    looked: Instant,
}

impl Beats {
    pub(super) fn new(heartbeat: &Heartbeat, comm: Comm) -> Result<Self, CommError> {
        let now = Instant::now();
        Ok(Self {
            inbox: comm.receive(vec![0; MESSAGE_BYTES], None, TAG)?,
            comm,
            sends: Vec::new(),
            senders: neighbours::before(heartbeat.rank, heartbeat.size)
                .map(|rank| (rank, now))
                .collect(),
            next_beat: now,
            looked: now,
        })
    }

    /// Runs until this rank has left and all of its messages are sent.
    pub(super) async fn live(
        mut self,
        heartbeat: &Heartbeat,
        world: &World,
    ) -> Result<(), CommError> {
        loop {
            self.hear(heartbeat)?;
            self.beat(heartbeat)?;
            self.tell(heartbeat)?;
            if heartbeat.over.load(Ordering::Acquire)
                && self.sends.is_empty()
                && lock(&heartbeat.outbox).is_empty()
            {
                return world.leave(Inbox {
                    comm: self.comm,
                    tag: TAG,
                    receive: self.inbox,
                });
            }
            turn().await;
        }
    }

    fn hear(&mut self, heartbeat: &Heartbeat) -> Result<(), CommError> {
        while let Some(memory) = self.inbox.test()? {
            let envelope = Envelope::decode(&memory, heartbeat.size);
            self.inbox = self.comm.receive(memory, None, TAG)?;
            let Some(envelope) = envelope else {
                tracing::warn!(
                    "a heartbeat message of another rank is invalid and has been ignored"
                );
                continue;
            };
            if let Some((_, heard)) = self
                .senders
                .iter_mut()
                .find(|(rank, _)| *rank == envelope.from)
            {
                *heard = Instant::now();
            }
            heartbeat.hear(envelope);
        }
        Ok(())
    }

    /// Sends a heartbeat when it is due, and looks for ranks that are silent.
    fn beat(&mut self, heartbeat: &Heartbeat) -> Result<(), CommError> {
        let now = Instant::now();
        if now.duration_since(self.looked) > BEAT_INTERVAL {
            // It was this rank that slept: stopped, suspended or starved. The messages of the others
            // since then are still to be read.
            self.senders.iter_mut().for_each(|(_, heard)| *heard = now);
        }
        self.looked = now;
        if now < self.next_beat {
            return Ok(());
        }
        self.next_beat = now + BEAT_INTERVAL;
        let entered = heartbeat.entered.load(Ordering::Acquire);
        heartbeat.tell_all(&Message::Beat { entered });
        if heartbeat.engine.reports_peers() {
            return Ok(()); // a rank that still connects sends nothing here
        }
        let silent = self.senders.iter().find(|(rank, heard)| {
            now.duration_since(*heard) > SILENCE_MAX && !heartbeat.has_left(*rank)
        });
        if let Some((rank, heard)) = silent {
            let seconds = now.duration_since(*heard).as_secs();
            heartbeat.hear(Envelope {
                from: heartbeat.rank,
                message: Message::Ended {
                    rank: *rank,
                    how: How::Silent { seconds },
                },
            });
        }
        Ok(())
    }

    fn tell(&mut self, heartbeat: &Heartbeat) -> Result<(), CommError> {
        let mut at = 0;
        while at < self.sends.len() {
            match self.sends[at].test() {
                Ok(None) => at += 1,
                Ok(Some(_)) => drop(self.sends.swap_remove(at)),
                // That rank needs no more messages.
                Err(error) if error.is_left() => drop(self.sends.swap_remove(at)),
                Err(error) => return Err(error),
            }
        }
        loop {
            let Some((message, targets)) = lock(&heartbeat.outbox).pop_front() else {
                return Ok(());
            };
            let envelope = Envelope {
                from: heartbeat.rank,
                message,
            };
            for target in targets {
                self.sends
                    .push(self.comm.send(envelope.encode(), target, TAG)?);
            }
        }
    }
}
