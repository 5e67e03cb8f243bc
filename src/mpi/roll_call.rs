//! Who has come so far. Calls that all ranks must make do not tell who is missing; so every rank first reports to rank 0,
//! which can then name those that do not come.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::calls::{Comm, MpiError};
use super::engine::turn;
use super::pending::Pending;

/// See the module. The ranks other than 0 know of nobody.
#[derive(Clone, Debug)]
pub(super) struct RollCall {
    /// By job rank; on rank 0 alone.
    came: Option<Arc<[AtomicBool]>>,
}

impl RollCall {
    /// That of rank `rank` of `size`, before it begins.
    pub(super) fn new(rank: usize, size: usize) -> Self {
        Self {
            came: (rank == 0).then(|| (0..size).map(|other| AtomicBool::new(other == 0)).collect()),
        }
    }

    /// Reports to rank 0 over `all`, or hears all reports; `tag` is of no other message there.
    ///
    /// # Errors
    /// MPI's.
    pub(super) async fn hold(&self, all: &Comm, tag: u16) -> Result<(), MpiError> {
        let Some(came) = &self.came else {
            return all.send(vec![1], 0, tag)?.await.map(drop);
        };
        let awaited = (1..all.size()).map(|rank| Ok((rank, all.receive(vec![0], Some(rank), tag)?)));
        let mut awaited: Vec<(usize, Pending<Vec<u8>>)> = awaited.collect::<Result<_, MpiError>>()?;
        while !awaited.is_empty() {
            let mut at = 0;
            while at < awaited.len() {
                if awaited[at].1.test()?.is_some() {
                    let (rank, _) = awaited.swap_remove(at);
                    came[rank].store(true, Ordering::Release);
                } else {
                    at += 1;
                }
            }
            turn().await;
        }
        Ok(())
    }

    /// The ranks that have not come, as far as this one knows.
    pub(super) fn missing(&self) -> Vec<usize> {
        let came = self.came.as_deref().unwrap_or_default();
        let ranks = came.iter().enumerate();
        ranks
            .filter(|(_, came)| !came.load(Ordering::Acquire))
            .map(|(rank, _)| rank)
            .collect()
    }
}
