//! Simulated job: ranks that submit sums to several overlapping process sets, step after step.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::member::{Member, RankState, Setup};
use super::record::Log;
use crate::clock::Clock;
use crate::error::Error;
use crate::queue::Ticket;
use crate::sync::lock;
use crate::transport::simulated::{SimulatedSet, World};

/// Parameters of a job; everything else is drawn from the seed.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) ranks: usize,
    pub(super) seed: u64,
    /// Whether each rank has a clock of its own, and messages take time.
    pub(super) is_spread: bool,
    /// Process sets other than the set of all ranks: the ranks of each, ascending.
    pub(super) sets: Vec<Vec<usize>>,
    pub(super) steps: usize,
    /// Number of tensors in each set and step.
    pub(super) tensors: usize,
    pub(super) setup: Setup,
    /// Number of steps after which tensor 0 changes its shape on all ranks.
    pub(super) reshape_every: usize,
    /// Rank that dies, and the number of the submission before which it does.
    pub(super) death: Option<(usize, usize)>,
    /// Ranks that are killed whatever they do, and when.
    pub(super) kills: Vec<(usize, Duration)>,
    /// Position of a set, a rank of it that submits another shape than the others for tensor 1, and
    /// the step.
    pub(super) mismatch: Option<(usize, usize, usize)>,
    pub(super) devices: Devices,
}

/// Where a job's tensors are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Devices {
    /// All are in host memory.
    #[default]
    None,
    /// Every second tensor is in device memory; its ticket completes with its batch.
    Waiting,
    /// Every second tensor is in device memory; its ticket completes when its batch is launched.
    Early,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            ranks: 4,
            seed: 1,
            is_spread: false,
            sets: Vec::new(),
            steps: 6,
            tensors: 12,
            setup: Setup {
                cache_capacity: 1024,
                cache_capacity_max: 1024,
                threshold_bytes: 256,
                early: true,
                retune_every: 0,
            },
            reshape_every: usize::MAX,
            death: None,
            kills: Vec::new(),
            mismatch: None,
            devices: Devices::None,
        }
    }
}

/// Sum, or the error of the operation.
pub(super) type Outcome = Result<Vec<i64>, Error>;

/// Results of one rank in one set.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) log: Log,
    /// Results by step and tensor; none for a rank that died.
    pub(super) results: Vec<Vec<Outcome>>,
}

/// Results of one set.
#[derive(Clone, Debug)]
pub(super) struct SetOutcome {
    /// Job ranks of the set, and the results of each.
    pub(super) members: Vec<usize>,
    pub(super) seen: Vec<Seen>,
}

impl Job {
    /// Returns the ranks of every set, the set of all ranks first.
    pub(super) fn members(&self) -> Vec<Vec<usize>> {
        let everybody = (0..self.ranks).collect();
        std::iter::once(everybody)
            .chain(self.sets.clone())
            .collect()
    }

    pub(super) fn elements(&self, step: usize, tensor: usize) -> usize {
        let reshaped = tensor == 0 && step.is_multiple_of(self.reshape_every) && step > 0;
        1 + tensor % 7 + usize::from(reshaped)
    }

    /// Returns the sum over the set at `place`, of job ranks `members`.
    pub(super) fn expected(
        &self,
        place: usize,
        members: &[usize],
        step: usize,
        tensor: usize,
    ) -> Vec<i64> {
        let mut expected = vec![0; self.elements(step, tensor)];
        for &rank in members {
            let contribution = contribution(place, rank, step, tensor, expected.len());
            expected
                .iter_mut()
                .zip(contribution)
                .for_each(|(sum, value)| *sum += value);
        }
        expected
    }

    /// Runs the job and returns the results of each set, the set of all ranks first.
    pub(super) fn run(&self) -> Vec<SetOutcome> {
        let world = if self.is_spread {
            World::spread(self.ranks, self.seed)
        } else {
            World::new(self.ranks, self.seed)
        };
        let mut of_rank: Vec<Vec<(usize, Member)>> = (0..self.ranks).map(|_| Vec::new()).collect();
        let rank_states: Vec<RankState> = (0..self.ranks).map(|_| RankState::default()).collect();
        let mut books = Vec::new();
        for (place, members) in self.members().into_iter().enumerate() {
            let set = SimulatedSet::new(&world, &members);
            let mut logs = Vec::new();
            for (set_rank, &rank) in members.iter().enumerate() {
                let member = Member::start(&world, &set, set_rank, self.setup, &rank_states[rank]);
                logs.push(member.log());
                of_rank[rank].push((place, member));
            }
            books.push((members, logs));
        }
        let results: Vec<Arc<Mutex<Results>>> = (0..self.ranks).map(|_| Arc::default()).collect();
        for (rank, sets) in of_rank.into_iter().enumerate() {
            let (job, in_world) = (self.clone(), Arc::clone(&world));
            let results = Arc::clone(&results[rank]);
            let program = move || *lock(&results) = job.program(&in_world, rank, &sets);
            world.spawn(rank, "its program".into(), program);
        }
        for &(rank, after) in &self.kills {
            let in_world = Arc::clone(&world);
            world.spawn(rank, "its end".into(), move || {
                in_world.sleep_until(in_world.present() + after);
                in_world.kill(rank);
            });
        }
        world.run();
        let mut outcomes = Vec::new();
        for (place, (members, logs)) in books.into_iter().enumerate() {
            let seen = members.iter().zip(logs).map(|(&rank, log)| Seen {
                log: lock(&log).clone(),
                results: lock(&results[rank]).get(place).cloned().unwrap_or_default(),
            });
            let seen = seen.collect();
            outcomes.push(SetOutcome { members, seen });
        }
        outcomes
    }

    /// Program of `rank`: in each step it submits the tensors of all its sets in an order and at
    /// times of its own, and then waits for all of them in another order.
    fn program(&self, world: &World, rank: usize, sets: &[(usize, Member)]) -> Results {
        let mut results: Results = vec![Vec::new(); 1 + self.sets.len()];
        let mut submitted = 0;
        for step in 0..self.steps {
            let mut work: Vec<Work<'_>> = Vec::new();
            for tensor in 0..self.tensors {
                for (place, member) in sets {
                    let odd = self.mismatch == Some((*place, rank, step)) && tensor == 1;
                    let elements = self.elements(step, tensor) + usize::from(odd);
                    work.push(Work {
                        place: *place,
                        member,
                        tensor,
                        buffer: contribution(*place, rank, step, tensor, elements),
                        ticket: Err(Error::ShutDown),
                    });
                }
            }
            shuffle(world, &mut work, 4);
            for work in &mut work {
                submitted += 1;
                if self.death == Some((rank, submitted)) {
                    world.kill(rank);
                }
                world.sleep_until(world.now() + Duration::from_micros(world.draw(800)));
                let name = format!("t{}", work.tensor);
                work.ticket = match self.devices {
                    Devices::Waiting | Devices::Early if work.tensor % 2 == 0 => {
                        let contribution = std::mem::take(&mut work.buffer);
                        work.buffer = vec![0; contribution.len()];
                        let is_early = self.devices == Devices::Early;
                        work.member.submit_sum_on_device(
                            &name,
                            &mut work.buffer,
                            contribution,
                            is_early,
                        )
                    }
                    _ => work.member.submit_sum(&name, &mut work.buffer),
                };
            }
            shuffle(world, &mut work, 1);
            for work in &work {
                if let Ok(ticket) = &work.ticket {
                    work.member.wait(ticket, None);
                    work.member.follow(ticket);
                }
            }
            sets.iter().for_each(|(_, member)| member.synchronize());
            work.sort_by_key(|work| work.tensor);
            sets.iter()
                .for_each(|(place, _)| results[*place].push(Vec::new()));
            for work in work {
                let outcome = work.ticket.and_then(|ticket| match ticket.outcome() {
                    Some(outcome) => outcome,
                    None => Err(Error::ShutDown),
                });
                results[work.place][step].push(outcome.map(|()| work.buffer));
            }
        }
        sets.iter().for_each(|(_, member)| member.shut_down());
        results
    }
}

/// Results by set, step and tensor.
type Results = Vec<Vec<Vec<Outcome>>>;

/// Tensor in flight.
struct Work<'a> {
    place: usize,
    member: &'a Member,
    tensor: usize,
    buffer: Vec<i64>,
    ticket: Result<Arc<Ticket>, Error>,
}

/// Moves one item in `one_in` to a position drawn from the simulation's seed.
fn shuffle<T>(world: &World, items: &mut [T], one_in: u64) {
    for index in (1..items.len()).rev() {
        if world.draw(one_in) == 0 {
            items.swap(index, world.draw(index as u64 + 1) as usize);
        }
    }
}

fn contribution(
    place: usize,
    rank: usize,
    step: usize,
    tensor: usize,
    elements: usize,
) -> Vec<i64> {
    (0..elements)
        .map(|index| (100_000 * place + 1000 * rank + 100 * step + 10 * tensor + index) as i64)
        .collect()
}
