//! Rank numbers of one host's ranks, and their place among all hosts of the job.

/// Place of a rank in its job, as in the `HOROVOD_*` variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) local_rank: usize,
    pub(super) local_size: usize,
    /// Number of this host among the hosts that have this local rank, and their number.
    pub(super) cross_rank: usize,
    pub(super) cross_size: usize,
}

impl Place {
    /// Variables of the rank's identity.
    pub(super) fn variables(&self) -> [(&'static str, usize); 6] {
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

/// Places of the ranks of host number `host`; ranks fill the hosts in order, `ranks_per_host` each.
pub(super) fn of_host(ranks_per_host: &[usize], host: usize) -> Vec<Place> {
    let first: usize = ranks_per_host[..host].iter().sum();
    let local_size = ranks_per_host[host];
    let having = |hosts: &[usize], local_rank| {
        let has = |ranks: &&usize| **ranks > local_rank;
        hosts.iter().filter(has).count()
    };
    let place = |local_rank| Place {
        rank: first + local_rank,
        size: ranks_per_host.iter().sum(),
        local_rank,
        local_size,
        cross_rank: having(&ranks_per_host[..host], local_rank),
        cross_size: having(ranks_per_host, local_rank),
    };
    (0..local_size).map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_fill_hosts_in_order_and_cross_ranks_count_hosts_with_the_local_rank() {
        let of = |host| {
            let numbers = |place: &Place| place.variables().map(|(_, value)| value);
            let places = of_host(&[2, 1, 2], host);
            places.iter().map(numbers).collect::<Vec<_>>()
        };
        assert_eq!(of(0), [[0, 5, 0, 2, 0, 3], [1, 5, 1, 2, 0, 2]]);
        assert_eq!(of(1), [[2, 5, 0, 1, 1, 3]]);
        assert_eq!(of(2), [[3, 5, 0, 2, 2, 3], [4, 5, 1, 2, 1, 2]]);
    }
}
