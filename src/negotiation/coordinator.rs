//! Rank 0's side of the slow path: waits until every rank has asked for a tensor, and compares what they asked.

use std::collections::HashMap;
use std::sync::Arc;

use super::cache::ResponseCache;
use super::request::{OpKind, Params, RequestList};
use super::response::{Refusal, Response, ResponseList};

/// A tensor that some ranks have asked for.
#[derive(Clone, Debug)]
struct Row {
    first_rank: usize,
    params: Params,
    refusal: Option<Refusal>,
    /// For each rank, when it submitted the tensor (microseconds), if it has.
    ready_us: Vec<Option<u64>>,
    missing: usize,
}

/// When each rank had a tensor ready, for the timeline and the stall inspector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticks {
    /// Name of the tensor.
    pub name: Arc<str>,
    /// The operation, as the first rank named it.
    pub kind: OpKind,
    /// For each rank, microseconds on the job's clock, if it has asked.
    pub ready_us: Vec<Option<u64>>,
}

/// See the module.
#[derive(Debug)]
pub struct Coordinator {
    size: usize,
    rows: HashMap<Arc<str>, Row>,
}

impl Coordinator {
    /// For `size` ranks.
    pub fn new(size: usize) -> Self {
        Self {
            size,
            rows: HashMap::new(),
        }
    }

    /// Takes in the requests of every rank, in rank order, and answers with what has become complete. `ticks`
    /// gets the ready times of these.
    pub fn answer(
        &mut self,
        lists: Vec<RequestList>,
        cache: &ResponseCache,
        ticks: &mut Vec<Ticks>,
    ) -> ResponseList {
        let mut answer = ResponseList::default();
        for (rank, list) in lists.into_iter().enumerate() {
            for request in list.requests {
                let slot = cache.slot(&request.name);
                answer
                    .evict
                    .extend(slot.filter(|slot| !answer.evict.contains(slot)));
                let name = Arc::clone(&request.name);
                if self.note(rank, &name, request.params, request.ready_us)
                    && let Some(row) = self.rows.remove(&name)
                {
                    ticks.push(Ticks {
                        name: Arc::clone(&name),
                        kind: row.params.kind,
                        ready_us: row.ready_us,
                    });
                    answer.responses.push(Response {
                        name,
                        outcome: row.refusal.map_or(Ok(row.params), Err),
                    });
                }
            }
        }
        answer
    }

    /// The tensors that some but not all ranks have asked for.
    pub fn outstanding(&self) -> impl Iterator<Item = (&str, &[Option<u64>])> {
        self.rows.iter().map(|(name, row)| (&**name, &row.ready_us[..]))
    }

    /// Whether nothing is outstanding.
    pub fn is_idle(&self) -> bool {
        self.rows.is_empty()
    }

    /// Notes one request; true if it was the last one missing.
    fn note(&mut self, rank: usize, name: &Arc<str>, params: Params, ready_us: u64) -> bool {
        let size = self.size;
        let row = self.rows.entry(Arc::clone(name)).or_insert_with(|| Row {
            first_rank: rank,
            params: params.clone(),
            refusal: None,
            ready_us: vec![None; size],
            missing: size,
        });
        if row.refusal.is_none()
            && let Some((what, expected, found)) = row.params.difference(&params)
        {
            let (first_rank, rank) = (row.first_rank as u32, rank as u32);
            row.refusal = Some(Refusal {
                what: what.to_owned(),
                first_rank,
                expected,
                rank,
                found,
            });
        }
        if row.ready_us[rank].replace(ready_us).is_none() {
            row.missing -= 1;
        }
        row.missing == 0
    }
}

#[cfg(test)]
mod tests {
    use super::super::cache::tests::params;
    use super::super::request::Request;
    use super::*;

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

    #[test]
    fn a_tensor_is_complete_when_every_rank_has_asked_whatever_the_cycle() {
        let (cache, mut ticks) = (ResponseCache::new(8), Vec::new());
        let mut coordinator = Coordinator::new(2);
        let first = coordinator.answer(
            vec![ask(&[("a", 4), ("b", 5)]), ask(&[("b", 5)])],
            &cache,
            &mut ticks,
        );
        assert_eq!(
            first.responses.iter().map(|r| &*r.name).collect::<Vec<_>>(),
            ["b"]
        );
        let second = coordinator.answer(vec![ask(&[]), ask(&[("a", 4)])], &cache, &mut ticks);
        assert_eq!(second.responses[0].outcome, Ok(params(4)));
        assert!(coordinator.is_idle());
        assert_eq!(ticks[1].ready_us, [Some(4), Some(4)]);
    }

    #[test]
    fn a_mismatch_names_both_ranks_and_both_values() {
        let (cache, mut ticks) = (ResponseCache::new(8), Vec::new());
        let answer = Coordinator::new(3).answer(
            vec![ask(&[("a", 4)]), ask(&[("a", 4)]), ask(&[("a", 6)])],
            &cache,
            &mut ticks,
        );
        let error = answer.responses[0].outcome.clone().unwrap_err().into_error("a");
        let text = error.to_string();
        assert_eq!(
            text,
            "mismatched ALLREDUCE tensor shapes for tensor a: rank 2 has [6], rank 0 has [4]"
        );
    }

    #[test]
    fn asking_for_a_cached_tensor_evicts_it() {
        let (mut cache, mut ticks) = (ResponseCache::new(8), Vec::new());
        cache.insert("a".into(), params(4));
        let answer = Coordinator::new(2).answer(vec![ask(&[]), ask(&[("a", 6)])], &cache, &mut ticks);
        assert_eq!((answer.evict, answer.responses), (vec![0], vec![]));
    }
}
