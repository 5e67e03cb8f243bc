//! Any hosts: MPI.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::{Failure, Opened, failure};
use crate::collective::Collective;
use crate::collective::local::LocalCollective;
use crate::collective::mpi::{HierarchicalCollective, Host, Lane, Map, MpiCollective};
use crate::error::Error;
use crate::identity::Hosts;
use crate::knobs::Knobs;
use crate::mpi::{self, Hall, Pulse};
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
        let by_host = ByHost::of(&hall.leaders, &meeting.members, rank);
        let hosts = by_host.hosts();
        let flat = MpiCollective::new(hall, met, rank, size);
        let collective: Box<dyn Collective> = match hosts.why_flat() {
            Some(_) => Box::new(flat),
            None => Box::new(by_host.open(hall, meeting, knobs, flat)?),
        };
        Ok(Opened {
            transport: Box::new(MpiTransport::new(hall, met, rank, &meeting.members, is_world)),
            collective,
            watch: Arc::clone(&hall.pulse) as Arc<dyn Watch>,
            hosts,
        })
    }
}

/// The members of a set, host by host.
struct ByHost {
    /// Set ranks, ascending; the hosts in the order of their first ones.
    hosts: Vec<Vec<usize>>,
    /// This rank's.
    own: usize,
    /// This rank's place there.
    place: usize,
}

impl ByHost {
    /// As rank `rank` of the set of these job ranks, of which `leaders` says who share a host.
    fn of(leaders: &[usize], members: &[usize], rank: usize) -> Self {
        let leader = |rank: usize| leaders[members[rank]];
        let mut hosts: Vec<Vec<usize>> = Vec::new();
        for rank in 0..members.len() {
            match hosts.iter_mut().find(|host| leader(host[0]) == leader(rank)) {
                Some(host) => host.push(rank),
                None => hosts.push(vec![rank]),
            }
        }
        let place_in = |host: &Vec<usize>| host.binary_search(&rank).ok();
        let own = hosts
            .iter()
            .position(|host| place_in(host).is_some())
            .expect("a member has a host");
        let place = place_in(&hosts[own]).expect("just found");
        Self { hosts, own, place }
    }

    fn hosts(&self) -> Hosts {
        Hosts::of(self.hosts.iter().map(Vec::len))
    }

    /// What goes host by host as soon as that is asked for: the shared memory of this host's ranks (about 2 MiB each) and
    /// the communicators of the lanes are there from the beginning, so that the way may change at any cycle.
    fn open(
        self,
        hall: &Arc<Hall>,
        meeting: &Meeting,
        knobs: &Knobs,
        flat: MpiCollective,
    ) -> Result<HierarchicalCollective, Failure> {
        let here = of_set(meeting, &self.hosts[self.own], &format!("host{}", self.own));
        let (rank, size) = (here.rank, here.members.len());
        let patience = super::local::patience(knobs, 2 * size);
        let opened = LocalTransport::open(&here, 0, LocalCollective::required_bytes(size), patience)
            .map_err(failure)?;
        let watch = Arc::new(HostWatch {
            host: opened.watch,
            pulse: Arc::clone(&hall.pulse),
        });
        let host = Host {
            collective: LocalCollective::new(opened.data, rank, size, patience.spin, watch),
            _transport: opened.transport,
            rank,
            size,
        };
        let lanes = self.hosts().least;
        let lane = match self.place < lanes {
            true => Some(self.lane(hall, meeting)?),
            false => None,
        };
        let map = Map {
            hosts: self.hosts,
            own: self.own,
            lanes,
        };
        Ok(HierarchicalCollective::new(flat, map, host, lane))
    }

    /// The ranks of this rank's lane, as the set orders them, and the host of each.
    fn in_lane(&self) -> (Vec<usize>, Vec<usize>) {
        let hosts = self.hosts.iter().enumerate();
        let mut ranks: Vec<(usize, usize)> = hosts.map(|(host, ranks)| (ranks[self.place], host)).collect();
        ranks.sort_unstable();
        ranks.into_iter().unzip()
    }

    /// This rank's lane.
    fn lane(&self, hall: &Arc<Hall>, meeting: &Meeting) -> Result<Lane, Failure> {
        let (ranks, hosts) = self.in_lane();
        let meeting = of_set(meeting, &ranks, &format!("lane{}", self.place));
        let met = mpi::meet_set(hall, &meeting).map_err(failure)?;
        Ok(Lane {
            collective: MpiCollective::new(hall, met, meeting.rank, ranks.len()),
            hosts,
        })
    }
}

/// The meeting of some ranks of the set that meets, this one among them, called `name`.
fn of_set(meeting: &Meeting, ranks: &[usize], name: &str) -> Meeting {
    Meeting {
        job_key: format!("{}/{name}", meeting.job_key),
        rank: ranks.binary_search(&meeting.rank).unwrap_or(usize::MAX),
        members: ranks.iter().map(|&rank| meeting.members[rank]).collect(),
        ..meeting.clone()
    }
}

/// Watches over the ranks of a host that work on what they share with other hosts: one of them may die, or find that a rank
/// elsewhere has.
struct HostWatch {
    host: Arc<dyn Watch>,
    pulse: Arc<Pulse>,
}

impl Watch for HostWatch {
    fn check(&self, on: usize, waited: Duration) -> Result<(), Error> {
        self.pulse.check()?;
        self.host.check(on, waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_ordered_by_ranks_and_not_by_hosts() {
        // Hosts a, b, b, a, a: the second ranks of a and b are 3 and 2.
        let leaders = [0, 1, 1, 0, 0];
        let of = |rank| ByHost::of(&leaders, &[0, 1, 2, 3, 4], rank);
        assert_eq!(of(3).hosts, [vec![0, 3, 4], vec![1, 2]]);
        assert_eq!((of(3).own, of(3).place, of(2).own, of(2).place), (0, 1, 1, 1));
        assert_eq!(of(0).in_lane(), (vec![0, 1], vec![0, 1]));
        assert_eq!(of(3).in_lane(), (vec![2, 3], vec![1, 0]));
        assert_eq!(of(0).hosts(), Hosts::of([3, 2]));
        // Of a set of job ranks 1, 3 and 4 the first is on the host that comes first.
        let set = ByHost::of(&leaders, &[1, 3, 4], 2);
        assert_eq!((&set.hosts[..], set.own), (&[vec![0], vec![1, 2]][..], 1));
    }
}
