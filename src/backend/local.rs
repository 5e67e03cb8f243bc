//! Backend for ranks on one host: shared memory for control and data.

use std::sync::Arc;
use std::time::Duration;

use super::Opened;
use crate::collective::local::LocalCollective;
use crate::error::{Failure, failure};
use crate::identity::Hosts;
use crate::knobs::Knobs;
use crate::rendezvous::{Patience, RendezvousConfig};
use crate::transport::local::LocalTransport;

/// Time of spinning before a thread sleeps, if every rank of the host has a core. It is about the
/// cost of waking a thread, so the sum of both is at most about twice the better choice.
const SPIN: Duration = Duration::from_micros(100);

pub(super) fn open(
    config: &RendezvousConfig,
    cache_words: usize,
    knobs: &Knobs,
) -> Result<Opened, Failure> {
    let (rank, size) = (config.rank, config.members.len());
    let data_bytes = LocalCollective::required_bytes(size);
    let patience = |cores| patience(knobs, size, cores);
    let opened =
        LocalTransport::open(config, cache_words, data_bytes, patience).map_err(failure)?;
    let collective = LocalCollective::new(
        opened.data,
        rank,
        size,
        opened.spin,
        Arc::clone(&opened.watch),
    );
    Ok(Opened {
        transport: Box::new(opened.transport),
        collective: Box::new(collective),
        watch: opened.watch,
        hosts: Hosts::one(size),
    })
}

/// Waiting times of a process set. The ranks of this host keep `threads` threads busy at once, on
/// `cores` cores; `None`: on those of this rank.
pub(super) fn patience(knobs: &Knobs, threads: usize, cores: Option<usize>) -> Patience {
    let own = || std::thread::available_parallelism().map_or(1, usize::from);
    let cores = cores.unwrap_or_else(own);
    Patience {
        spin: if cores >= threads {
            SPIN
        } else {
            Duration::ZERO
        },
        warn_after: knobs.stall_warning(),
        give_up_after: knobs.stall_shutdown(),
    }
}
