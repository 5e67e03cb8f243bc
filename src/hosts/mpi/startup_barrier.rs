//! Startup barrier: every rank reports to rank 0 before the first collective call, so that rank 0
//! can name the missing ranks. MPI's collective calls do not tell which rank is missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::hosts::comm::{Comm, CommError, Pending};
use crate::hosts::engine::turn;

/// Collects the reports of all ranks before the first collective call. Only rank 0 knows which
/// ranks have arrived.
#[derive(Clone, Debug)]
pub(super) struct StartupBarrier {
    /// By job rank; on rank 0 alone.
    arrived: Option<Arc<[AtomicBool]>>,
}

impl StartupBarrier {
    /// The barrier of rank `rank` of `size`, before it begins.
    pub(super) fn new(rank: usize, size: usize) -> Self {
        Self {
            arrived: (rank == 0)
                .then(|| (0..size).map(|other| AtomicBool::new(other == 0)).collect()),
        }
    }

    /// Reports to rank 0 over `all`, or receives all reports; no other message uses `tag` there.
    ///
    /// # Errors
    /// MPI's.
    pub(super) async fn wait(&self, all: &Comm, tag: u16) -> Result<(), CommError> {
        let Some(arrived) = &self.arrived else {
            return all.send(vec![1], 0, tag)?.await.map(drop);
        };
        let awaited =
            (1..all.size()).map(|rank| Ok((rank, all.receive(vec![0], Some(rank), tag)?)));
        let mut awaited: Vec<(usize, Pending<Vec<u8>>)> =
            awaited.collect::<Result<_, CommError>>()?;
        while !awaited.is_empty() {
            let mut at = 0;
            while at < awaited.len() {
                if awaited[at].1.test()?.is_some() {
                    let (rank, _) = awaited.swap_remove(at);
                    arrived[rank].store(true, Ordering::Release);
                } else {
                    at += 1;
                }
            }
            turn().await;
        }
        Ok(())
    }

    /// The ranks that have not arrived, as far as this rank knows.
    pub(super) fn missing(&self) -> Vec<usize> {
        let arrived = self.arrived.as_deref().unwrap_or_default();
        let ranks = arrived.iter().enumerate();
        ranks
            .filter(|(_, arrived)| !arrived.load(Ordering::Acquire))
            .map(|(rank, _)| rank)
            .collect()
    }
}
