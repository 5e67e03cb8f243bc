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
    /// Its rank in the last generation; `None` for a new process, which has no state.
    pub(crate) rank: Option<usize>,
}

/// Gives each candidate its rank.
///
/// Ranks fill the hosts in order. Hosts with members of the last generation come first, in the
/// order of their ranks; within a host, a member whose rank is in the host's part keeps it. The
/// first member of the last generation, in that order, gets rank 0.
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
        for (local_rank, member) in within_host(members, first).into_iter().enumerate() {
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

/// Orders one host's members, which are sorted by their last ranks and get the ranks from `first`.
fn within_host(members: &[&Candidate<'_>], first: usize) -> Vec<MemberId> {
    let mut seats = vec![None; members.len()];
    let mut others = Vec::new();
    for (index, candidate) in members.iter().enumerate() {
        // Rank 0 has the state that the others copy: never a new process beside an old one.
        let kept = match candidate.rank {
            Some(_) if index == 0 && first == 0 => Some(0),
            Some(rank) => rank.checked_sub(first),
            None => None,
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

    /// Members in the order of their ranks, with the host of each.
    fn seated(candidates: &[(u64, &str, Option<usize>)]) -> Vec<(u64, usize)> {
        let candidates: Vec<_> = candidates
            .iter()
            .map(|&(member, host, rank)| Candidate {
                member: MemberId(member),
                host,
                rank,
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
            (1, "a", Some(0)),
            (3, "a", Some(2)),
            (4, "a", None),
            (5, "b", Some(3)),
        ];
        assert_eq!(seated(&now), [(1, 0), (4, 0), (3, 0), (5, 1)]);
    }

    #[test]
    fn ranks_keep_their_numbers_when_a_host_is_added_or_a_later_one_is_lost() {
        let added = [(1, "b", Some(0)), (2, "b", Some(1)), (9, "a", None)];
        assert_eq!(seated(&added), [(1, 0), (2, 0), (9, 1)]);
        let lost = [(1, "c", Some(0)), (2, "c", Some(1)), (3, "b", Some(2))];
        assert_eq!(seated(&lost), [(1, 0), (2, 0), (3, 1)]);
    }

    #[test]
    fn rank_0_is_never_a_new_process_beside_an_old_one() {
        let now = [
            (7, "a", None),
            (8, "a", None),
            (2, "a", Some(1)),
            (3, "b", Some(2)),
        ];
        assert_eq!(seated(&now), [(2, 0), (7, 0), (8, 0), (3, 1)]);
        let lost = [(7, "a", None), (3, "b", Some(2))];
        assert_eq!(seated(&lost), [(3, 0), (7, 1)]);
    }
}
