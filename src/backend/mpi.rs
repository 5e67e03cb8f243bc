//! Any hosts: MPI.

use std::sync::{Arc, OnceLock};

use super::{Failure, Opened, failure};
use crate::collective::Collective;
use crate::collective::local::LocalCollective;
use crate::collective::mpi::{HierarchicalCollective, Host, MpiCollective};
use crate::error::Error;
use crate::knobs::Knobs;
use crate::mpi::{self, Hall};
use crate::shm::Watch;
use crate::transport::local::{LocalTransport, Meeting};
use crate::transport::mpi::MpiTransport;

/// A context's MPI.
pub(crate) struct Mpi {
    /// Where its ranks have met, once they have.
    hall: OnceLock<Arc<Hall>>,
}

impl Mpi {
    pub(super) fn new() -> Result<Self, Error> {
        Ok(Self {
            hall: OnceLock::new(),
        })
    }

    pub(super) fn open(
        &self,
        meeting: &Meeting,
        _cache_words: usize,
        knobs: &Knobs,
    ) -> Result<Opened, Failure> {
        let (rank, size) = (meeting.rank, meeting.members.len());
        let is_world = self.hall.get().is_none();
        let (hall, met) = match self.hall.get() {
            None => {
                // A rank here is two threads that may be busy at once: its own and MPI's.
                let (hall, met) = mpi::meet_job(meeting, |ranks_here| {
                    super::local::patience(knobs, 2 * ranks_here)
                })?;
                (self.hall.get_or_init(|| Arc::new(hall)), met)
            }
            Some(hall) => {
                let met = mpi::meet_set(hall, meeting).map_err(failure)?;
                (hall, met)
            }
        };
        let flat = MpiCollective::new(hall, met, rank, size);
        let collective: Box<dyn Collective> = match knobs.hierarchical_allreduce {
            true => match Hosts::of(hall, meeting).open(hall, meeting, knobs)? {
                Some((host, lane)) => Box::new(HierarchicalCollective::new(flat, host, lane)),
                None => Box::new(flat),
            },
            false => Box::new(flat),
        };
        Ok(Opened {
            transport: Box::new(MpiTransport::new(hall, met, rank, &meeting.members, is_world)),
            collective,
            watch: Arc::clone(&hall.pulse) as Arc<dyn Watch>,
        })
    }
}

/// The members of a set, host by host.
struct Hosts {
    /// Job ranks, ascending; the hosts in the order of their first ones.
    hosts: Vec<Vec<usize>>,
    /// This rank's.
    own: usize,
    /// This rank's place there.
    place: usize,
}

impl Hosts {
    fn of(hall: &Hall, meeting: &Meeting) -> Self {
        let mut hosts: Vec<Vec<usize>> = Vec::new();
        for &member in meeting.members.iter() {
            let leader = hall.leaders[member];
            match hosts.iter_mut().find(|host| hall.leaders[host[0]] == leader) {
                Some(host) => host.push(member),
                None => hosts.push(vec![member]),
            }
        }
        let job_rank = meeting.members[meeting.rank];
        let place_in = |host: &Vec<usize>| host.binary_search(&job_rank).ok();
        let own = hosts
            .iter()
            .position(|host| place_in(host).is_some())
            .expect("a member has a host");
        let place = place_in(&hosts[own]).expect("just found");
        Self { hosts, own, place }
    }

    /// What a hierarchical collective needs; none where there is one host, or a rank to each.
    fn open(
        &self,
        hall: &Arc<Hall>,
        meeting: &Meeting,
        knobs: &Knobs,
    ) -> Result<Option<(Host, Option<MpiCollective>)>, Failure> {
        let sizes = self.hosts.iter().map(Vec::len);
        let (lanes, most) = (sizes.clone().min().unwrap_or(1), sizes.max().unwrap_or(1));
        if self.hosts.len() == 1 || most == 1 {
            return Ok(None);
        }
        let of_ranks = |ranks: Vec<usize>, name: String| Meeting {
            job_key: format!("{}/{name}", meeting.job_key),
            rank: ranks
                .binary_search(&meeting.members[meeting.rank])
                .unwrap_or(usize::MAX),
            members: ranks.into(),
            ..meeting.clone()
        };
        let here = of_ranks(self.hosts[self.own].clone(), format!("host{}", self.own));
        let (rank, size) = (here.rank, here.members.len());
        let patience = super::local::patience(knobs, 2 * size);
        let opened = LocalTransport::open(&here, 0, LocalCollective::required_bytes(size), patience)
            .map_err(failure)?;
        let host = Host {
            collective: LocalCollective::new(opened.data, rank, size, patience.spin, opened.watch),
            _transport: opened.transport,
            rank,
            size,
            lanes,
        };
        if self.place >= lanes {
            return Ok(Some((host, None)));
        }
        let mut lane: Vec<usize> = self.hosts.iter().map(|host| host[self.place]).collect();
        lane.sort_unstable();
        let lane = of_ranks(lane, format!("lane{}", self.place));
        let met = mpi::meet_set(hall, &lane).map_err(failure)?;
        let lane = MpiCollective::new(hall, met, lane.rank, lane.members.len());
        Ok(Some((host, Some(lane))))
    }
}
