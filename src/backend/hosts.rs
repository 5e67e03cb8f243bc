//! Backend for ranks on any hosts: MPI or TCP among hosts, shared memory within a host.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::Opened;
use crate::collective::Collective;
use crate::collective::hosts::{HierarchicalCollective, HostsCollective, IntraNode, Lane, Map};
use crate::collective::local::LocalCollective;
use crate::error::{Failure, failure};
use crate::hosts::tcp::TcpSettings;
use crate::hosts::{self, Communicators, HostsJob};
use crate::identity::{Hosts, environment};
use crate::knobs::Knobs;
use crate::mpi;
use crate::rendezvous::{Alarm, RendezvousConfig};
use crate::shm::Watch;
use crate::transport::hosts::{HostLayout, HostsTransport};
use crate::transport::local::{LocalTransport, Opened as Shared};

/// Connection of the hosts, of one context.
pub(crate) struct BetweenHosts {
    carrier: Carrier,
    /// State of the job, set by the first rendezvous.
    job: OnceLock<Arc<HostsJob>>,
}

/// Library that moves bytes between hosts.
enum Carrier {
    Mpi(&'static mpi::Mpi),
    Tcp(TcpSettings),
}

impl BetweenHosts {
    /// Loads MPI's library.
    ///
    /// # Errors
    /// There is none that fits.
    pub(super) fn over_mpi(knobs: &Knobs) -> Result<Self, Failure> {
        mpi::load(knobs)
            .map(Carrier::Mpi)
            .map(Self::new)
            .map_err(failure)
    }

    /// Reads the settings of a job over TCP.
    ///
    /// # Errors
    /// A setting that is missing or invalid.
    pub(super) fn over_tcp(knobs: &Knobs) -> Result<Self, Failure> {
        let settings = TcpSettings::find(knobs, &environment);
        settings.map(Carrier::Tcp).map(Self::new).map_err(failure)
    }

    fn new(carrier: Carrier) -> Self {
        Self {
            carrier,
            job: OnceLock::new(),
        }
    }

    /// Returns the name of the backend, as `RONDE_BACKEND` takes it.
    pub(super) fn name(&self) -> &'static str {
        match self.carrier {
            Carrier::Mpi(_) => "mpi",
            Carrier::Tcp(_) => "tcp",
        }
    }

    pub(super) fn open(&self, config: &RendezvousConfig, knobs: &Knobs) -> Result<Opened, Failure> {
        let (rank, size) = (config.rank, config.members.len());
        let is_world = self.job.get().is_none();
        let (job, communicators) = match self.job.get() {
            None => {
                // Each rank has two threads that may be busy at once, the cycle's and the engine's.
                let patience = |ranks_here| super::local::patience(knobs, 2 * ranks_here, None);
                let (job, communicators) = match &self.carrier {
                    Carrier::Mpi(library) => hosts::mpi::connect_job(library, config, patience)?,
                    Carrier::Tcp(settings) => hosts::tcp::connect_job(settings, config, patience)?,
                };
                (self.job.get_or_init(|| Arc::new(job)), communicators)
            }
            Some(job) => {
                let communicators = hosts::connect_set(job, config).map_err(failure)?;
                (job, communicators)
            }
        };
        let host_map = HostMap::of(&job.leaders, &config.members, rank);
        let spread = host_map.hosts();
        let flat = HostsCollective::new(job, communicators, rank, size);
        let (here, data) = match host_map.connect_intra_node(job, config, knobs)? {
            Some(Shared {
                transport,
                data,
                watch,
                spin,
            }) => (Some(transport), Some((data, watch, spin))),
            None => (None, None),
        };
        let lane = host_map.connect_inter_node(job, config, communicators)?;
        let places = HostLayout {
            hosts: host_map.hosts.clone(),
            own: host_map.own,
            here,
            leaders: lane
                .filter(|_| host_map.place == 0)
                .map(|lane| lane.control),
        };
        let collective: Box<dyn Collective> = match data {
            // The hierarchical collective is created at the start, even if it is off: the settings
            // may change at any cycle.
            Some((data, watch, spin)) if spread.why_flat().is_none() => {
                let (rank, size) = (host_map.place, host_map.hosts[host_map.own].len());
                let intra_node = IntraNode {
                    collective: LocalCollective::new(data, rank, size, spin, watch),
                    rank,
                    size,
                };
                let lane = lane.map(|communicators| host_map.lane(job, communicators));
                let map = Map {
                    hosts: host_map.hosts,
                    own: host_map.own,
                    lanes: spread.least,
                };
                Box::new(HierarchicalCollective::new(flat, map, intra_node, lane))
            }
            _ => Box::new(flat),
        };
        let transport =
            HostsTransport::new(job, communicators, rank, &config.members, is_world, places);
        Ok(Opened {
            transport: Box::new(transport),
            collective,
            watch: Arc::clone(&job.heartbeat) as Arc<dyn Watch>,
            hosts: spread,
        })
    }
}

/// Members of a process set, grouped by host.
struct HostMap {
    /// Set ranks of each host, ascending; hosts in the order of their first ranks.
    hosts: Vec<Vec<usize>>,
    /// Index of this rank's host.
    own: usize,
    /// Index of this rank among the ranks of its host.
    place: usize,
}

impl HostMap {
    /// Groups the set of the job ranks `members`, as seen by set rank `rank`. `leaders` maps each
    /// job rank to the first rank of its host.
    fn of(leaders: &[usize], members: &[usize], rank: usize) -> Self {
        let leader = |rank: usize| leaders[members[rank]];
        let mut hosts: Vec<Vec<usize>> = Vec::new();
        for rank in 0..members.len() {
            match hosts
                .iter_mut()
                .find(|host| leader(host[0]) == leader(rank))
            {
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

    /// Connects the ranks of this host: about 2 MiB each for tensors if operations may be
    /// hierarchical, and memory for control messages if the host has several ranks.
    fn connect_intra_node(
        &self,
        job: &HostsJob,
        config: &RendezvousConfig,
        knobs: &Knobs,
    ) -> Result<Option<Shared>, Failure> {
        let is_hierarchical = self.hosts().why_flat().is_none();
        let size = self.hosts[self.own].len();
        if size == 1 && !is_hierarchical {
            return Ok(None);
        }
        let mut here = of_set(config, &self.hosts[self.own], &format!("host{}", self.own));
        // A rank that does not come may be known to be lost.
        let (heartbeat, outer) = (Arc::clone(&job.heartbeat), config.alarm.clone());
        here.alarm = Some(Alarm(Arc::new(move || {
            heartbeat.check_with(outer.as_ref()).err()
        })));
        let patience = |cores| {
            let mut patience = super::local::patience(knobs, 2 * size, cores);
            if self.place > 0 {
                // This waits for the first rank of the host, which may wait for another host. The
                // heartbeat reports the rank that everyone waits for.
                patience.warn_after = Duration::ZERO;
                patience.give_up_after = None;
            }
            patience
        };
        let data_bytes = match is_hierarchical {
            true => LocalCollective::required_bytes(size),
            false => 0,
        };
        let shared = LocalTransport::open(&here, 0, data_bytes, patience).map_err(failure)?;
        Ok(Some(shared))
    }

    /// Set ranks of this rank's lane, ascending, and the host of each.
    fn in_lane(&self) -> (Vec<usize>, Vec<usize>) {
        let hosts = self.hosts.iter().enumerate();
        let mut ranks: Vec<(usize, usize)> = hosts
            .map(|(host, ranks)| (ranks[self.place], host))
            .collect();
        ranks.sort_unstable();
        ranks.into_iter().unzip()
    }

    /// Connects the ranks of this rank's lane, if it has one. The ranks of the first lane also
    /// exchange control messages for their hosts.
    fn connect_inter_node(
        &self,
        job: &Arc<HostsJob>,
        config: &RendezvousConfig,
        communicators: Communicators,
    ) -> Result<Option<Communicators>, Failure> {
        let spread = self.hosts();
        if spread.count == 1 || self.place >= spread.least {
            return Ok(None);
        }
        if spread.most == 1 {
            return Ok(Some(communicators));
        }
        let lane = of_set(config, &self.in_lane().0, &format!("lane{}", self.place));
        hosts::connect_set(job, &lane).map(Some).map_err(failure)
    }

    /// Returns this rank's lane with its communicators.
    fn lane(&self, job: &Arc<HostsJob>, communicators: Communicators) -> Lane {
        let (_, hosts) = self.in_lane();
        let rank = hosts
            .iter()
            .position(|&host| host == self.own)
            .expect("in its lane");
        Lane {
            collective: HostsCollective::new(job, communicators, rank, hosts.len()),
            hosts,
        }
    }
}

/// Rendezvous configuration `name` for `ranks`, some ranks of the set with this rank among them.
fn of_set(config: &RendezvousConfig, ranks: &[usize], name: &str) -> RendezvousConfig {
    RendezvousConfig {
        job_key: format!("{}/{name}", config.job_key),
        rank: ranks.binary_search(&config.rank).unwrap_or(usize::MAX),
        members: ranks.iter().map(|&rank| config.members[rank]).collect(),
        ..config.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_ordered_by_ranks_and_not_by_hosts() {
        // Hosts a, b, b, a, a: the second ranks of a and b are 3 and 2.
        let leaders = [0, 1, 1, 0, 0];
        let of = |rank| HostMap::of(&leaders, &[0, 1, 2, 3, 4], rank);
        assert_eq!(of(3).hosts, [vec![0, 3, 4], vec![1, 2]]);
        assert_eq!(
            (of(3).own, of(3).place, of(2).own, of(2).place),
            (0, 1, 1, 1)
        );
        assert_eq!(of(0).in_lane(), (vec![0, 1], vec![0, 1]));
        assert_eq!(of(3).in_lane(), (vec![2, 3], vec![1, 0]));
        assert_eq!(of(0).hosts(), Hosts::of([3, 2]));
        // In a set of job ranks 1, 3 and 4, the first rank determines the first host.
        let set = HostMap::of(&leaders, &[1, 3, 4], 2);
        assert_eq!((&set.hosts[..], set.own), (&[vec![0], vec![1, 2]][..], 1));
    }
}
