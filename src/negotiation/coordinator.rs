//! Coordinator, on the lowest rank of a process set: collects requests until every rank has
//! requested a tensor, compares them, and keeps track of joined ranks.
//!
//! The coordinator does not wait for a rank that has joined. That rank still takes part in
//! operations that it requested before it joined; it is *absent* from all others. When all ranks
//! have joined, the join is answered and no rank counts as joined any more.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use smallvec::SmallVec;

use super::IN_FLIGHT_MAX;
use super::cache::ResponseCache;
use super::request::{OpKind, Params, Request, RequestList};
use super::response::{Agreed, Refusal, Response, ResponseList, rows_fit_memory};
use crate::error::{Error, PeerError};

/// Tensor that some ranks have requested.
#[derive(Clone, Debug)]
struct Row {
    /// Position in the order of first requests.
    number: u64,
    first_rank: usize,
    params: Params,
    refusal: Option<Refusal>,
    /// For each rank, the time (microseconds) at which it submitted the tensor, if it has.
    ready_us: Vec<Option<u64>>,
    asked: usize,
    /// Ranks that have requested it, and the rows of each, where they may differ. Their memory grows
    /// with the requests, not with the square of the number of ranks.
    brought: Vec<(usize, SmallVec<[u64; 4]>)>,
}

/// Time at which each rank had a tensor ready, for the timeline and the stall inspector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    /// Name of the tensor.
    pub name: Arc<str>,
    /// The operation, from the first rank's request.
    pub kind: OpKind,
    /// For each rank, microseconds on rank 0's clock, if it has requested the tensor.
    pub ready_us: Vec<Option<u64>>,
}

/// Outstanding requests and joined ranks of a process set.
#[derive(Debug)]
pub(crate) struct Coordinator {
    /// Job ranks in set order: errors name these.
    members: Arc<[usize]>,
    rows: HashMap<Arc<str>, Row>,
    numbered: u64,
    /// For each rank of the set, whether it has joined.
    joined: Vec<bool>,
    joined_count: usize,
}

impl Coordinator {
    /// Makes a coordinator for the process set of these job ranks.
    pub(crate) fn new(members: Arc<[usize]>) -> Self {
        Self {
            joined: vec![false; members.len()],
            members,
            rows: HashMap::new(),
            numbered: 0,
            joined_count: 0,
        }
    }

    /// Adds the requests of every rank, in rank order, and returns responses for the tensors that
    /// are complete, and the ranks that have joined. `is_held` tells whether some rank has the
    /// tensor of a cache slot ready: if the slot is evicted, that rank sends a request in the next
    /// cycle, and the coordinator waits for it even if the rank has joined. `ticks` receives the
    /// ready times of complete tensors, in the order of the responses.
    ///
    /// # Errors
    /// [`PeerError::InvalidData`] for requests that no rank of this build sends.
    pub(crate) fn answer(
        &mut self,
        lists: Vec<RequestList>,
        cache: &ResponseCache,
        is_held: impl Fn(u32) -> bool,
        ticks: &mut Vec<Ticks>,
    ) -> Result<ResponseList, Error> {
        let mut answer = ResponseList::default();
        let mut evicted: HashSet<u32> = HashSet::new();
        let mut asked_again: HashSet<Arc<str>> = HashSet::new();
        let had_all_joined = self.all_joined();
        for (rank, list) in lists.into_iter().enumerate() {
            self.check(rank, &list)?;
            for request in list.requests {
                if let Some(slot) = cache.slot(&request.name)
                    && evicted.insert(slot)
                {
                    answer.evict.push(slot);
                    asked_again.extend(is_held(slot).then(|| Arc::clone(&request.name)));
                }
                let kind = request.params.kind;
                let name = Arc::clone(&request.name);
                let complete = self.note(rank, request)?;
                if kind == OpKind::Join {
                    self.join(rank);
                    answer.joined.push(rank as u32);
                } else if complete {
                    self.respond(name, &mut answer, ticks);
                }
            }
        }
        if self.joined_count > 0 {
            self.sweep(&asked_again, &mut answer, ticks);
        }
        // A cycle later than the last rank has joined: cached tensors that only joined ranks have
        // ready were not common before.
        if had_all_joined && asked_again.is_empty() {
            let join = self
                .rows
                .iter()
                .find(|(_, row)| row.params.kind == OpKind::Join);
            if let Some(name) = join.map(|(name, _)| Arc::clone(name)) {
                self.respond(name, &mut answer, ticks);
            }
            self.joined.fill(false);
            self.joined_count = 0;
        }
        Ok(answer)
    }

    /// Checks the requests of set rank `rank`.
    fn check(&self, rank: usize, list: &RequestList) -> Result<(), Error> {
        let checked = list
            .requests
            .iter()
            .try_for_each(|request| request.check(&self.members));
        checked.map_err(|problem| self.invalid(rank, problem))?;
        // Each rank has at most so many tensors in flight, and its joins and barriers.
        let outstanding_max = self.size().saturating_mul(2 * IN_FLIGHT_MAX);
        if self.rows.len() + list.requests.len() > outstanding_max {
            return Err(self.invalid(
                rank,
                "more requests than a rank may have in flight".to_owned(),
            ));
        }
        Ok(())
    }

    fn invalid(&self, rank: usize, problem: String) -> Error {
        Error::Peer(PeerError::InvalidData {
            rank: self.members[rank],
            problem,
        })
    }

    /// Whether all ranks have joined, and their joins are not answered yet.
    pub(crate) fn all_joined(&self) -> bool {
        self.joined_count == self.size()
    }

    /// Tensors that some but not all ranks have requested, without joins: the name, the number of
    /// the request, and when each rank was ready.
    pub(crate) fn outstanding(&self) -> impl Iterator<Item = (&str, u64, &[Option<u64>])> {
        let tensors = self
            .rows
            .iter()
            .filter(|(_, row)| row.params.kind != OpKind::Join);
        tensors.map(|(name, row)| (&**name, row.number, &row.ready_us[..]))
    }

    /// Whether nothing is outstanding.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.rows.is_empty()
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    /// Adds one request; returns true if every rank has now requested the tensor.
    ///
    /// # Errors
    /// The rank has already requested the tensor and has no response yet.
    fn note(&mut self, rank: usize, request: Request) -> Result<bool, Error> {
        let size = self.size();
        let Request {
            name,
            params,
            ready_us,
        } = request;
        self.numbered += 1;
        let row = self.rows.entry(name).or_insert_with(|| Row {
            number: self.numbered,
            first_rank: rank,
            params: params.clone(),
            refusal: None,
            ready_us: vec![None; size],
            asked: 0,
            brought: Vec::new(),
        });
        if row.refusal.is_none() && row.params.difference(&params).is_some() {
            row.refusal = Some(Refusal::Mismatch {
                first_rank: self.members[row.first_rank] as u32,
                expected: Box::new(row.params.clone()),
                rank: self.members[rank] as u32,
                found: Box::new(params.clone()),
            });
        }
        if params.kind.has_own_rows() {
            row.brought.push((rank, params.own_rows()));
        }
        row.asked += 1;
        let complete = row.asked == size;
        match row.ready_us[rank].replace(ready_us) {
            None => Ok(complete),
            Some(_) => {
                Err(self.invalid(rank, "a second request for a tensor in flight".to_owned()))
            }
        }
    }

    fn join(&mut self, rank: usize) {
        if !std::mem::replace(&mut self.joined[rank], true) {
            self.joined_count += 1;
        }
    }

    /// Answers tensors that only wait for joined ranks, in the order of first requests; but not
    /// tensors that a joined rank will request again.
    fn sweep(
        &mut self,
        asked_again: &HashSet<Arc<str>>,
        answer: &mut ResponseList,
        ticks: &mut Vec<Ticks>,
    ) {
        let complete = |row: &Row| {
            let mut ranks = row.ready_us.iter().zip(&self.joined);
            row.params.kind != OpKind::Join
                && ranks.all(|(asked, joined)| asked.is_some() || *joined)
        };
        let mut names: Vec<(u64, Arc<str>)> = self
            .rows
            .iter()
            .filter(|(name, row)| complete(row) && !asked_again.contains(*name))
            .map(|(name, row)| (row.number, Arc::clone(name)))
            .collect();
        names.sort_unstable();
        for (_, name) in names {
            self.respond(name, answer, ticks);
        }
    }

    /// Answers a tensor that is complete.
    fn respond(&mut self, name: Arc<str>, answer: &mut ResponseList, ticks: &mut Vec<Ticks>) {
        let Some(row) = self.rows.remove(&name) else {
            return;
        };
        let absent: Vec<u32> = (0..self.size() as u32)
            .filter(|&rank| row.ready_us[rank as usize].is_none())
            .collect();
        let rows = row.rows(self.size());
        ticks.push(Ticks {
            name: Arc::clone(&name),
            kind: row.params.kind,
            ready_us: row.ready_us,
        });
        let group = row.params.group;
        let needed = |&&rank: &&u32| row.params.needs_rank(self.members[rank as usize]);
        let fits = rows.is_empty() || rows_fit_memory(&rows, row.params.row_bytes());
        let outcome = match (row.refusal, absent.iter().find(needed)) {
            (Some(refusal), _) => Err(refusal),
            (None, Some(&rank)) => Err(Refusal::Joined {
                rank: self.members[rank as usize] as u32,
            }),
            (None, None) if !fits => Err(Refusal::TooLarge { rows }),
            (None, None) => Ok(Agreed {
                rows,
                params: (!absent.is_empty()).then_some(row.params),
                absent,
                last_joined: 0,
            }),
        };
        answer.responses.push(Response {
            name,
            group,
            outcome,
        });
    }
}

impl Row {
    /// Rows of all `size` ranks; see [`Agreed::rows`].
    fn rows(&self, size: usize) -> Vec<u64> {
        let each = self.params.kind.rows_each(size);
        let mut all = vec![0; size * each];
        for (rank, own) in &self.brought {
            // Rows of another operation are refused, and not used.
            let rows = all[rank * each..][..each].iter_mut();
            rows.zip(own).for_each(|(row, own)| *row = *own);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::cache::tests::params;
    use super::super::request::JOIN;
    use super::*;
    use crate::error::LimitError;

    fn set(size: usize) -> Coordinator {
        Coordinator::new((0..size).collect())
    }

    /// Calls the coordinator, without an error.
    fn ask_all(
        coordinator: &mut Coordinator,
        lists: Vec<RequestList>,
        cache: &ResponseCache,
        is_held: impl Fn(u32) -> bool,
        ticks: &mut Vec<Ticks>,
    ) -> ResponseList {
        coordinator.answer(lists, cache, is_held, ticks).unwrap()
    }

    /// No rank has a cached tensor ready.
    fn nobody(_slot: u32) -> bool {
        false
    }

    fn ask(names: &[(&str, usize)]) -> RequestList {
        let request = |&(name, elements): &(&str, usize)| Request {
            name: name.into(),
            params: params(elements),
            ready_us: elements as u64,
        };
        RequestList {
            requests: names.iter().map(request).collect(),
        }
    }

    fn join() -> RequestList {
        let params = Params::plain(OpKind::Join, crate::tensor::Dtype::U8, Default::default());
        let (name, ready_us) = (JOIN.into(), 9);
        RequestList {
            requests: vec![Request {
                name,
                params,
                ready_us,
            }],
        }
    }

    fn names(answer: &ResponseList) -> Vec<&str> {
        answer
            .responses
            .iter()
            .map(|response| &*response.name)
            .collect()
    }

    #[test]
    fn a_tensor_is_complete_when_every_rank_has_requested_it_whatever_the_cycle() {
        let (cache, mut ticks) = (ResponseCache::new(8, 8), Vec::new());
        let mut coordinator = set(2);
        let first = ask_all(
            &mut coordinator,
            vec![ask(&[("a", 4), ("b", 5)]), ask(&[("b", 5)])],
            &cache,
            nobody,
            &mut ticks,
        );
        assert_eq!(names(&first), ["b"]);
        let second = ask_all(
            &mut coordinator,
            vec![ask(&[]), ask(&[("a", 4)])],
            &cache,
            nobody,
            &mut ticks,
        );
        assert_eq!(second.responses[0].outcome, Ok(Agreed::default()));
        assert!(coordinator.is_idle());
        assert_eq!(ticks[1].ready_us, [Some(4), Some(4)]);
    }

    #[test]
    fn a_mismatch_names_both_ranks_of_the_job_and_both_values() {
        let (cache, mut ticks) = (ResponseCache::new(8, 8), Vec::new());
        let answer = ask_all(
            &mut Coordinator::new([1, 4, 7].into()),
            vec![ask(&[("a", 4)]), ask(&[("a", 4)]), ask(&[("a", 6)])],
            &cache,
            nobody,
            &mut ticks,
        );
        let error = answer.responses[0]
            .outcome
            .clone()
            .unwrap_err()
            .into_error("a");
        let text = error.to_string();
        assert_eq!(
            text,
            "mismatched ALLREDUCE tensor shapes for tensor a: rank 7 has [6], rank 1 has [4]"
        );
    }

    #[test]
    fn a_request_for_a_cached_tensor_evicts_it() {
        let (mut cache, mut ticks) = (ResponseCache::new(8, 8), Vec::new());
        cache.insert("a".into(), params(4), Arc::default());
        let answer = ask_all(
            &mut set(2),
            vec![ask(&[]), ask(&[("a", 6)])],
            &cache,
            nobody,
            &mut ticks,
        );
        assert_eq!((answer.evict, answer.responses), (vec![0], vec![]));
    }

    #[test]
    fn the_coordinator_does_not_wait_for_joined_ranks() {
        let (cache, mut ticks) = (ResponseCache::new(8, 8), Vec::new());
        let mut coordinator = set(3);
        // Rank 0 waits for `b` and `a`; rank 2 has requested `a` before it joins.
        let lists = vec![ask(&[("b", 5), ("a", 4)]), ask(&[]), ask(&[("a", 4)])];
        assert_eq!(
            names(&ask_all(
                &mut coordinator,
                lists,
                &cache,
                nobody,
                &mut ticks
            )),
            [""; 0]
        );
        assert_eq!(
            names(&ask_all(
                &mut coordinator,
                vec![ask(&[]), join(), ask(&[])],
                &cache,
                nobody,
                &mut ticks
            )),
            ["a"]
        );
        let answer = ask_all(
            &mut coordinator,
            vec![ask(&[]), ask(&[]), join()],
            &cache,
            nobody,
            &mut ticks,
        );
        assert_eq!((names(&answer), &answer.joined), (vec!["b"], &vec![2]));
        let agreed = answer.responses[0].outcome.clone().unwrap();
        assert_eq!(
            (agreed.absent, agreed.params),
            (vec![1, 2], Some(params(5)))
        );
        // While two ranks have joined, rank 0 needs no other rank.
        assert_eq!(
            names(&ask_all(
                &mut coordinator,
                vec![ask(&[("c", 1)]), ask(&[]), ask(&[])],
                &cache,
                nobody,
                &mut ticks
            )),
            ["c"]
        );
        let answer = ask_all(
            &mut coordinator,
            vec![join(), ask(&[]), ask(&[])],
            &cache,
            nobody,
            &mut ticks,
        );
        // The join ends a cycle later, with the last tensors of the joined ranks.
        assert_eq!((names(&answer), &*answer.joined), (vec![], &[0][..]));
        assert!(coordinator.all_joined());
        let idle = vec![ask(&[]), ask(&[]), ask(&[])];
        let answer = ask_all(&mut coordinator, idle, &cache, nobody, &mut ticks);
        assert_eq!((names(&answer), &*answer.joined), (vec![JOIN], &[][..]));
        assert!(!coordinator.all_joined());
        // After that no rank counts as joined.
        assert_eq!(
            names(&ask_all(
                &mut coordinator,
                vec![ask(&[("d", 1)]), ask(&[]), ask(&[])],
                &cache,
                nobody,
                &mut ticks
            )),
            [""; 0]
        );
    }

    #[test]
    fn the_rows_of_all_ranks_are_put_together() {
        let (cache, mut ticks) = (ResponseCache::new(8, 8), Vec::new());
        let mut coordinator = set(2);
        let gather = |rows: usize| {
            let mut list = ask(&[("g", 0), ("t", 0)]);
            list.requests[0].params.kind = OpKind::Allgather;
            list.requests[0].params.shape = [rows, 3].into_iter().collect();
            list.requests[1].params.kind = OpKind::Alltoall;
            list.requests[1].params.shape = [rows + 1].into_iter().collect();
            list.requests[1].params.splits = Some(Box::new([rows as u64, 1]));
            list
        };
        let answer = ask_all(
            &mut coordinator,
            vec![gather(5), gather(7)],
            &cache,
            nobody,
            &mut ticks,
        );
        let rows = |at: usize| answer.responses[at].outcome.clone().unwrap().rows;
        assert_eq!((rows(0), rows(1)), (vec![5, 7], vec![5, 1, 7, 1]));
        let agreed = answer.responses[1].outcome.clone().unwrap();
        assert_eq!(agreed.without(vec![1], 2).rows, [5, 1, 0, 0]);
    }

    #[test]
    fn invalid_requests_name_the_rank_that_sent_them() {
        let refused = |change: &dyn Fn(&mut Request)| {
            let (cache, mut ticks) = (ResponseCache::new(8, 8), Vec::new());
            let mut list = ask(&[("a", 4)]);
            change(&mut list.requests[0]);
            let lists = vec![ask(&[]), list, ask(&[])];
            let mut coordinator = Coordinator::new([1, 4, 7].into());
            let answer = coordinator.answer(lists, &cache, nobody, &mut ticks);
            match answer.unwrap_err() {
                Error::Peer(PeerError::InvalidData { rank: 4, problem }) => problem,
                error => panic!("{error}"),
            }
        };
        let problem =
            refused(&|request| request.params.shape = [usize::MAX, 2].into_iter().collect());
        assert!(problem.ends_with("does not fit memory"), "{problem}");
        let problem = refused(&|request| {
            request.params.kind = OpKind::Alltoall;
            request.params.splits = Some(Box::new([u64::MAX, 5, 0]));
        });
        assert!(
            problem.ends_with("with splits Some([18446744073709551615, 5, 0])"),
            "{problem}"
        );
        let problem = refused(&|request| request.params.splits = Some(Box::new([4, 0, 0])));
        assert!(
            problem.starts_with("tensor a: ALLREDUCE of shape [4] with splits"),
            "{problem}"
        );
        let problem = refused(&|request| {
            request.params.kind = OpKind::Broadcast;
            request.params.root = 5;
        });
        assert_eq!(
            problem,
            "tensor a: BROADCAST from rank 5, which is not a member"
        );
        let problem = refused(&|request| request.name = "ronde.x".into());
        assert_eq!(problem, "a request for ALLREDUCE under the name ronde.x");
        let problem = refused(&|request| request.ready_us = u64::MAX);
        assert!(
            problem.starts_with("tensor a is ready since microsecond"),
            "{problem}"
        );
        let problem = refused(&|request| request.params.kind = OpKind::Join);
        assert_eq!(problem, "a request for JOIN under the name a");
    }

    #[test]
    fn a_rank_requests_a_tensor_once() {
        let (cache, mut ticks) = (ResponseCache::new(8, 8), Vec::new());
        let mut coordinator = set(2);
        let lists = vec![ask(&[]), ask(&[("a", 4), ("a", 5)])];
        let error = coordinator
            .answer(lists, &cache, nobody, &mut ticks)
            .unwrap_err();
        assert!(
            error
                .to_string()
                .contains("a second request for a tensor in flight"),
            "{error}"
        );
    }

    #[test]
    fn rows_that_overflow_refuse_the_tensor_and_nothing_else() {
        // The rows have no bytes on any rank, and the sum of both ranks' rows overflows.
        let (cache, mut ticks) = (ResponseCache::new(8, 8), Vec::new());
        let gather = || {
            let mut list = ask(&[("g", 0)]);
            list.requests[0].params.kind = OpKind::Allgather;
            list.requests[0].params.shape = [isize::MAX as usize / 4, 0].into_iter().collect();
            list
        };
        let lists = (0..5).map(|_| gather()).collect();
        let answer = set(5).answer(lists, &cache, nobody, &mut ticks).unwrap();
        let refusal = answer.responses[0].outcome.clone().unwrap_err();
        assert!(matches!(
            refusal.into_error("g"),
            Error::Limit(LimitError::TooLarge { .. })
        ));
    }

    #[test]
    fn a_broadcast_from_a_rank_that_has_joined_is_refused() {
        let (cache, mut ticks) = (ResponseCache::new(8, 8), Vec::new());
        let mut coordinator = Coordinator::new([3, 5].into());
        let mut list = ask(&[("b", 2)]);
        list.requests[0].params.kind = OpKind::Broadcast;
        list.requests[0].params.root = 5;
        let answer = ask_all(
            &mut coordinator,
            vec![list, join()],
            &cache,
            nobody,
            &mut ticks,
        );
        assert_eq!(
            answer.responses[0].outcome,
            Err(Refusal::Joined { rank: 5 })
        );
    }

    #[test]
    fn ranks_that_handle_joined_ranks_differently_do_not_match() {
        let (cache, mut ticks) = (ResponseCache::new(8, 8), Vec::new());
        let mut coordinator = set(3);
        let gather = |needs_all: bool| {
            let mut list = ask(&[("g", 2)]);
            list.requests[0].params.kind = OpKind::Allgather;
            list.requests[0].params.needs_all = needs_all;
            list
        };
        let lists = vec![join(), gather(true), gather(false)];
        let answer = ask_all(&mut coordinator, lists, &cache, nobody, &mut ticks);
        let refusal = answer.responses[0].outcome.clone().unwrap_err();
        assert_eq!(
            refusal.into_error("g").to_string(),
            "mismatched setting strict_join for tensor g: rank 2 has false, rank 1 has true"
        );
    }

    #[test]
    fn the_coordinator_waits_for_a_joined_rank_whose_cached_tensor_is_evicted() {
        let (mut cache, mut ticks) = (ResponseCache::new(8, 8), Vec::new());
        cache.insert("a".into(), params(4), Arc::default());
        let mut coordinator = set(3);
        let lists = vec![ask(&[]), join(), join()];
        assert_eq!(
            names(&ask_all(
                &mut coordinator,
                lists,
                &cache,
                nobody,
                &mut ticks
            )),
            [""; 0]
        );
        // Rank 1 submitted `a` before it joined; rank 0, the last one, requests it with other
        // parameters.
        let mut list = ask(&[("a", 4)]);
        list.requests.extend(join().requests);
        let answer = ask_all(
            &mut coordinator,
            vec![list, ask(&[]), ask(&[])],
            &cache,
            |_| true,
            &mut ticks,
        );
        assert_eq!((answer.evict, answer.responses), (vec![0], vec![]));
        cache.evict(0);
        let lists = vec![ask(&[]), ask(&[("a", 4)]), ask(&[])];
        let answer = ask_all(&mut coordinator, lists, &cache, nobody, &mut ticks);
        assert_eq!(names(&answer), ["a", JOIN]);
        assert_eq!(answer.responses[0].outcome.as_ref().unwrap().absent, [2]);
    }

    #[test]
    fn a_tensor_that_a_joined_rank_requests_again_is_not_answered_without_it() {
        let (cache, mut ticks) = (ResponseCache::new(8, 8), Vec::new());
        let mut coordinator = set(2);
        ask_all(
            &mut coordinator,
            vec![ask(&[]), join()],
            &cache,
            nobody,
            &mut ticks,
        );
        let lists = vec![ask(&[("a", 4)]), ask(&[("a", 4)])];
        let answer = ask_all(&mut coordinator, lists, &cache, nobody, &mut ticks);
        assert_eq!(names(&answer), ["a"]);
        assert_eq!(
            answer.responses[0].outcome.as_ref().unwrap().absent,
            [0u32; 0]
        );
    }
}
