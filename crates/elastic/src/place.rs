//! Place of a rank: its numbers in the job, on its host, and among the hosts.

/// Place of a rank in its job, as in the `HOROVOD_*` variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number in the job.
    pub rank: usize,
    /// Number of ranks in the job.
    pub size: usize,
    /// Number on its host.
    pub local_rank: usize,
    /// Number of ranks on its host.
    pub local_size: usize,
    /// Number of this host among the hosts that have this local rank.
    pub cross_rank: usize,
    /// Number of hosts that have this local rank.
    pub cross_size: usize,
}

impl Place {
    /// Place of local rank `local_rank` of host number `host`; ranks fill the hosts in order,
    /// `ranks_per_host` each.
    pub fn new(ranks_per_host: &[usize], host: usize, local_rank: usize) -> Self {
        let having = |hosts: &[usize]| {
            let has = |ranks: &&usize| **ranks > local_rank;
            hosts.iter().filter(has).count()
        };
        let before = &ranks_per_host[..host];
        Self {
            rank: before.iter().sum::<usize>() + local_rank,
            size: ranks_per_host.iter().sum(),
            local_rank,
            local_size: ranks_per_host[host],
            cross_rank: having(before),
            cross_size: having(ranks_per_host),
        }
    }

    /// Places of the ranks of host number `host`.
    pub fn of_host(ranks_per_host: &[usize], host: usize) -> Vec<Self> {
        let place = |local_rank| Self::new(ranks_per_host, host, local_rank);
        (0..ranks_per_host[host]).map(place).collect()
    }

    /// Variables of the rank's identity.
    pub fn variables(&self) -> [(&'static str, usize); 6] {
        [
            ("HOROVOD_RANK", self.rank),
            ("HOROVOD_SIZE", self.size),
            ("HOROVOD_LOCAL_RANK", self.local_rank),
            ("HOROVOD_LOCAL_SIZE", self.local_size),
            ("HOROVOD_CROSS_RANK", self.cross_rank),
            ("HOROVOD_CROSS_SIZE", self.cross_size),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_fill_hosts_in_order_and_cross_ranks_count_hosts_with_the_local_rank() {
        let of = |host| {
            let numbers = |place: &Place| place.variables().map(|(_, value)| value);
            let places = Place::of_host(&[2, 1, 2], host);
            places.iter().map(numbers).collect::<Vec<_>>()
        };
        assert_eq!(of(0), [[0, 5, 0, 2, 0, 3], [1, 5, 1, 2, 0, 2]]);
        assert_eq!(of(1), [[2, 5, 0, 1, 1, 3]]);
        assert_eq!(of(2), [[3, 5, 0, 2, 2, 3], [4, 5, 1, 2, 1, 2]]);
    }
}
