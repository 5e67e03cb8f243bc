//! Any hosts: MPI.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::{Failure, MpiTraffic, Opened, failure};
use crate::collective::Collective;
use crate::collective::local::LocalCollective;
use crate::collective::mpi::{HierarchicalCollective, Host, MpiCollective};
use crate::error::Error;
use crate::knobs::Knobs;
use crate::mpi::{self, Hall, Met};
use crate::shm::Watch;
use crate::transport::local::{LocalTransport, Meeting, Opened as LocalOpened};
use crate::transport::mpi::{MpiTransport, Places};

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

    /// See [`super::Backend::traffic`].
    pub(super) fn traffic(&self) -> MpiTraffic {
        mpi::traffic()
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
        let hosts = Hosts::of(hall, meeting);
        let Opening { here, lane } = hosts.open(hall, meeting, met, knobs)?;
        let lanes = hosts.lanes();
        let leaders = lane.as_ref().filter(|_| hosts.place == 0).map(|lane| lane.met.control);
        let (transport, data) = match here {
            Some(here) => (Some(here.transport), Some((here.data, here.watch))),
            None => (None, None),
        };
        let collective: Box<dyn Collective> = match data {
            Some((data, watch)) if knobs.hierarchical_allreduce && hosts.hosts.len() > 1 => {
                let (rank, size) = (hosts.place, hosts.hosts[hosts.own].len());
                let spin = super::local::patience(knobs, 2 * size).spin;
                let host = Host {
                    collective: LocalCollective::new(data, rank, size, spin, watch),
                    rank,
                    size,
                    lanes,
                };
                let lane = lane.map(|lane| MpiCollective::new(hall, lane.met, lane.rank, lane.size));
                Box::new(HierarchicalCollective::new(flat, host, lane))
            }
            _ => Box::new(flat),
        };
        let set_rank = |job_rank: &usize| meeting.members.binary_search(job_rank).expect("a member");
        let places = Places {
            hosts: hosts
                .hosts
                .iter()
                .map(|host| host.iter().map(set_rank).collect())
                .collect(),
            own: hosts.own,
            here: transport,
            leaders,
        };
        Ok(Opened {
            transport: Box::new(MpiTransport::new(
                hall,
                met,
                rank,
                &meeting.members,
                is_world,
                places,
            )),
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

    /// Ranks of the least host: so many lanes lead from host to host.
    fn lanes(&self) -> usize {
        self.hosts.iter().map(Vec::len).min().unwrap_or(1)
    }

    /// Meets those of this host, and the ranks in the same place of the others, if all of them have one.
    fn open(&self, hall: &Arc<Hall>, meeting: &Meeting, met: Met, knobs: &Knobs) -> Result<Opening, Failure> {
        let of_ranks = |ranks: Vec<usize>, name: String| Meeting {
            job_key: format!("{}/{name}", meeting.job_key),
            rank: ranks
                .binary_search(&meeting.members[meeting.rank])
                .unwrap_or(usize::MAX),
            members: ranks.into(),
            ..meeting.clone()
        };
        let size = self.hosts[self.own].len();
        let several = self.hosts.len() > 1;
        let here = match size {
            1 => None,
            _ => {
                let here = of_ranks(self.hosts[self.own].clone(), format!("host{}", self.own));
                let mut patience = super::local::patience(knobs, 2 * size);
                if self.place > 0 {
                    // It waits for the first of its host, who may wait for somebody elsewhere: the pulse knows for whom.
                    patience.warn_after = Duration::ZERO;
                    patience.give_up_after = None;
                }
                let data_bytes = if several { LocalCollective::required_bytes(size) } else { 0 };
                Some(LocalTransport::open(&here, 0, data_bytes, patience).map_err(failure)?)
            }
        };
        let lane = if several && self.hosts.iter().all(|host| host.len() == 1) {
            Some(Lane {
                met,
                rank: meeting.rank,
                size: meeting.members.len(),
            })
        } else if several && self.place < self.lanes() {
            let mut lane: Vec<usize> = self.hosts.iter().map(|host| host[self.place]).collect();
            lane.sort_unstable();
            let lane = of_ranks(lane, format!("lane{}", self.place));
            Some(Lane {
                met: mpi::meet_set(hall, &lane).map_err(failure)?,
                rank: lane.rank,
                size: lane.members.len(),
            })
        } else {
            None
        };
        Ok(Opening { here, lane })
    }
}

/// Who shares something with this rank.
struct Opening {
    /// The ranks of its host, if there are others.
    here: Option<LocalOpened>,
    /// Those in the same place of all hosts, if there are several hosts.
    lane: Option<Lane>,
}

/// Ranks in the same place of all hosts; in the first place, those who speak for their hosts.
struct Lane {
    met: Met,
    /// This rank among them, and their number.
    rank: usize,
    size: usize,
}
