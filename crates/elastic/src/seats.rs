//! Ranks of a generation: members are seated host by host, and keep their numbers where that is
//! possible.

use crate::{MemberId, Seat};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Process that takes part in the next generation.
#[derive(Clone, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) member: MemberId,
    pub(crate) host: &'a str,
    /// Its rank in the last generation; `None` for a process that has no state.
    pub(crate) rank: Option<usize>,
    /// Its number among the ranks of its host in the last generation of which it was a member.
    pub(crate) local_rank: Option<usize>,
}

/// Gives each candidate its rank.
///
/// Ranks fill the hosts in order. Hosts with members of the last generation come first, in the
/// order of their ranks. Within a host, members keep their local ranks where that is possible: a
/// process has chosen its GPU by its local rank, and the first one of a host serves the metrics.
/// Rank 0 is a member that has the state of the training.
pub(crate) fn seats(generation: u64, candidates: &[Candidate<'_>]) -> Vec<(MemberId, Seat)> {
    let mut hosts: BTreeMap<&str, Vec<&Candidate<'_>>> = BTreeMap::new();
    for candidate in candidates {
        hosts.entry(candidate.host).or_default().push(candidate);
    }
    let mut hosts: Vec<Vec<&Candidate<'_>>> = hosts.into_values().collect();
    for members in &mut hosts {
        members.sort_by_key(|candidate| (order(candidate), candidate.member));
    }
    // New hosts after the others, in the order in which their processes were started.
    hosts.sort_by_key(|members| (order(members[0]), members[0].member));
    let ranks_per_host: Arc<[usize]> = hosts.iter().map(Vec::len).collect();
    let mut seats = Vec::new();
    let mut first = 0;
    for (host, members) in hosts.iter().enumerate() {
        for (local_rank, member) in within_host(members, host == 0).into_iter().enumerate() {
            let seat = Seat {
                generation,
                rank: first + local_rank,
                host,
                local_rank,
                ranks_per_host: Arc::clone(&ranks_per_host),
            };
            seats.push((member, seat));
        }
        first += members.len();
    }
    seats
}

fn order(candidate: &Candidate<'_>) -> usize {
    candidate.rank.unwrap_or(usize::MAX)
}

/// Orders the members of a host, which are sorted by their last ranks; on the first host, the first
/// one has the state that the others copy.
fn within_host(members: &[&Candidate<'_>], is_first: bool) -> Vec<MemberId> {
    let mut seats = vec![None; members.len()];
    let mut others = Vec::new();
    let mut with_state = members.iter().filter(|candidate| candidate.rank.is_some());
    let is_0_free = !with_state.any(|candidate| candidate.local_rank == Some(0));
    for (index, candidate) in members.iter().enumerate() {
        let kept = match is_first && is_0_free && index == 0 {
            true => Some(0),
            false => candidate.local_rank,
        };
        match kept.and_then(|local_rank| seats.get_mut(local_rank)) {
            Some(seat @ None) => *seat = Some(candidate.member),
            _ => others.push(candidate.member),
        }
    }
    let mut others = others.into_iter();
    let seated = seats.into_iter().map(|seat| seat.or_else(|| others.next()));
    seated.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Last rank and local rank of a candidate.
    type Last = Option<(usize, usize)>;

    /// Members in the order of their ranks, with the host of each.
    fn seated(candidates: &[(u64, &str, Last)]) -> Vec<(u64, usize)> {
        let candidates: Vec<_> = candidates
            .iter()
            .map(|&(member, host, last)| Candidate {
                member: MemberId(member),
                host,
                rank: last.map(|(rank, _)| rank),
                local_rank: last.map(|(_, local_rank)| local_rank),
            })
            .collect();
        let mut seats = seats(1, &candidates);
        seats.sort_by_key(|(_, seat)| seat.rank);
        let ranks: Vec<usize> = seats.iter().map(|(_, seat)| seat.rank).collect();
        assert_eq!(ranks, (0..candidates.len()).collect::<Vec<_>>());
        seats
            .iter()
            .map(|(member, seat)| (member.0, seat.host))
            .collect()
    }

    #[test]
    fn new_members_fill_the_hosts_in_the_order_of_their_start() {
        let first = [(1, "b", None), (2, "b", None), (3, "a", None)];
        assert_eq!(seated(&first), [(1, 0), (2, 0), (3, 1)]);
    }

    #[test]
    fn a_replacement_takes_the_free_rank() {
        let now = [
            (1, "a", Some((0, 0))),
            (3, "a", Some((2, 2))),
            (4, "a", None),
            (5, "b", Some((3, 0))),
        ];
        assert_eq!(seated(&now), [(1, 0), (4, 0), (3, 0), (5, 1)]);
    }

    #[test]
    fn ranks_keep_their_numbers_when_a_host_is_added_or_a_later_one_is_lost() {
        let added = [
            (1, "b", Some((0, 0))),
            (2, "b", Some((1, 1))),
            (9, "a", None),
        ];
        assert_eq!(seated(&added), [(1, 0), (2, 0), (9, 1)]);
        let lost = [
            (1, "c", Some((0, 0))),
            (2, "c", Some((1, 1))),
            (3, "b", Some((2, 0))),
        ];
        assert_eq!(seated(&lost), [(1, 0), (2, 0), (3, 1)]);
    }

    #[test]
    fn local_ranks_stay_when_an_earlier_host_has_fewer_ranks() {
        let now = [
            (1, "a", Some((0, 0))),
            (3, "b", Some((2, 0))),
            (4, "b", Some((3, 1))),
            (5, "b", Some((4, 2))),
        ];
        assert_eq!(seated(&now), [(1, 0), (3, 1), (4, 1), (5, 1)]);
        // The first one of a host has ended: the last one takes its place.
        let ended = [
            (1, "a", Some((0, 0))),
            (4, "b", Some((3, 1))),
            (5, "b", Some((4, 2))),
        ];
        assert_eq!(seated(&ended), [(1, 0), (5, 1), (4, 1)]);
    }

    #[test]
    fn rank_0_is_never_a_new_process_beside_an_old_one() {
        let now = [
            (7, "a", None),
            (8, "a", None),
            (2, "a", Some((1, 1))),
            (3, "b", Some((2, 0))),
        ];
        assert_eq!(seated(&now), [(2, 0), (7, 0), (8, 0), (3, 1)]);
        let lost = [(7, "a", None), (3, "b", Some((2, 0)))];
        assert_eq!(seated(&lost), [(3, 0), (7, 1)]);
    }
}
