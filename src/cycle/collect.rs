//! Collection: takes submissions from the tensor queue and looks them up in the response cache.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Cycle;
use crate::clock::Nanos;
use crate::command::Command;
use crate::error::Error;
use crate::negotiation::{OpKind, Params, Request};
use crate::queue::Submission;

impl Cycle {
    /// Takes submissions and looks them up in the cache.
    pub(super) fn collect(&mut self, now: Nanos) -> Result<(), Error> {
        self.number += 1;
        self.began = now;
        self.paced_from = Some(now);
        self.observer.cycle_began(now);
        let mut incoming = std::mem::take(&mut self.incoming);
        let step = self.queue.collect(
            &mut incoming,
            &mut self.commands,
            &mut self.step_times,
            self.number + 1,
        );
        if step.is_new {
            let threshold_bytes = self.settings.fusion_threshold_bytes;
            self.holding
                .step_submitted(&self.step_times, threshold_bytes);
        }
        self.between_steps = step.between_steps;
        for pending in &self.commands {
            if let Command::Settings(change) = &pending.command {
                self.source.change(|settings| change.applied_to(settings));
            }
        }
        // Last: earlier operations of these names have completed, or are throttled.
        let reported = self.report_ended();
        self.launches.throttle.sift(&mut incoming);
        self.clocks.refresh();
        for submission in incoming.drain(..) {
            self.joined |= submission.params.kind == OpKind::Join;
            let ready_us = self.clocks.to_reference_us(submission.at);
            self.block.latest_us = self.block.latest_us.max(ready_us);
            let cached = if self.settings.cache {
                self.find_cached(&submission)
            } else {
                None // the request evicts the tensor, if a slot still holds it
            };
            match cached {
                Some(slot) => {
                    self.block.set(slot as usize, ready_us);
                    self.hits[slot as usize] = Some(submission);
                    self.hits_held += 1;
                }
                None => self.ask(submission),
            }
        }
        self.incoming = incoming;
        reported.map(drop) // after an error, the end of the cycle answers the submissions
    }

    /// Returns the cache slot that holds exactly this submission.
    fn find_cached(&self, submission: &Submission) -> Option<u32> {
        let holds = |slot: &u32| {
            self.cache.get(*slot).is_some_and(|entry| {
                same(&entry.name, &submission.tensor.name)
                    && same(&entry.params, &submission.params)
            })
        };
        let hint = submission.tensor.slot.load(Ordering::Relaxed);
        let slot = Some(hint)
            .filter(holds)
            .or_else(|| self.cache.slot(&submission.tensor.name).filter(holds))?;
        submission.tensor.slot.store(slot, Ordering::Relaxed);
        Some(slot)
    }

    /// Marks the tensor to be requested on the next slow path.
    pub(super) fn ask(&mut self, submission: Submission) {
        let name = Arc::clone(&submission.tensor.name);
        self.unsent.push(Request {
            name: Arc::clone(&name),
            params: Params::clone(&submission.params),
            ready_us: submission.at.as_micros(), // on this rank's clock until the request is sent
        });
        self.misses.insert(name, submission);
    }
}

/// Whether both names are equal; usually they are the same object.
fn same<T: PartialEq + ?Sized>(one: &Arc<T>, other: &Arc<T>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}
