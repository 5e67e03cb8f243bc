//! Simulator of random programs: each rank is an agent with its engines.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::draw::Draw;
use super::hostile::{Beside, Hostile, Hostility};
use super::play::{Begun, Played, Stage, play};
use super::program::Program;
use crate::clock::Clock;
use crate::context::{ProcessSet, RawHandle};
use crate::cycle::Stalls;
use crate::error::Error;
use crate::simulation::member::{Member, RankState, Setup};
use crate::simulation::record::Log;
use crate::sync::lock;
use crate::transport::Transport;
use crate::transport::simulated::{HostileStates, SimulatedSet, SimulatedTransport, World};

/// Longest time that a tensor may wait when a rank is hostile, in the simulation's time: far longer
/// than in a correct job.
const STALL_WARNING: Duration = Duration::from_secs(10);
const STALL_LIMIT: Duration = Duration::from_secs(30);

/// Time at which a hostile rank dies, in the simulation's time.
const HOSTILE_LIFE: Duration = Duration::from_secs(300);

/// Rank that dies when it is about to submit its action of this number (from 1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Death {
    pub(super) rank: usize,
    pub(super) at: usize,
}

/// Result of a program.
pub(super) struct Run {
    /// Outputs by rank; `None` for a rank that died.
    pub(super) played: Vec<Option<Played>>,
    /// Actions that each rank submitted.
    pub(super) begun: Vec<Begun>,
    /// Log of each member of each set.
    pub(super) logs: Vec<Vec<Log>>,
}

/// Returns the engines' configuration for a program.
fn setup(program: &Program) -> Setup {
    let mut draw = Draw::new(program.seed ^ 0x5e7);
    let (cache_capacity, cache_capacity_max) = draw.pick(&[(0, 0), (3, 3), (3, 9), (1024, 1024)]);
    Setup {
        cache_capacity,
        cache_capacity_max,
        threshold_bytes: draw.pick(&[0, 100, 1000, 1 << 20]),
        early: draw.one_in(2),
        retune_every: draw.below(5) as u64,
    }
}

/// Runs `program` with its own seed.
pub(super) fn run(program: &Program, death: Option<Death>) -> Run {
    run_with(program, death, None)
}

/// Runs `program` with a stall limit and one rank whose control messages are modified.
pub(super) fn run_hostile(program: &Program, rank: usize, hostility: &Hostility) -> Beside {
    let Run { played, begun, .. } = run_with(program, None, Some((rank, hostility)));
    Beside {
        played,
        begun,
        stall_limit: STALL_LIMIT,
    }
}

fn run_with(program: &Program, death: Option<Death>, hostile: Option<(usize, &Hostility)>) -> Run {
    let world = match Draw::new(program.seed ^ 0xc10c).one_in(3) {
        true => World::spread(program.ranks, program.seed),
        false => World::new(program.ranks, program.seed),
    };
    let setup = setup(program);
    let rank_states: Vec<RankState> = (0..program.ranks).map(|_| RankState::default()).collect();
    let mut stages: Vec<SimStage> = (0..program.ranks)
        .map(|rank| SimStage {
            world: Arc::clone(&world),
            rank,
            members: BTreeMap::new(),
            death: death
                .filter(|death| death.rank == rank)
                .map(|death| death.at),
            begun: Arc::default(),
        })
        .collect();
    let mut logs: Vec<Vec<Arc<Mutex<Log>>>> = Vec::new();
    for (place, members) in program.sets.iter().enumerate() {
        let set = SimulatedSet::new(&world, members);
        if let Some((hostile, hostility)) = hostile {
            set.set_hostile(hostile);
            set.set_hostile_states(HostileStates {
                seed: hostility.seed ^ place as u64,
                one_in: 8 * hostility.one_in as u32,
            });
        }
        let mut of_set = Vec::new();
        for (set_rank, &rank) in members.iter().enumerate() {
            let rank_state = &rank_states[rank];
            let member = match hostile {
                None => Member::start(&world, &set, set_rank, setup, rank_state),
                Some((hostile, hostility)) => {
                    let transport = SimulatedTransport::new(&set, set_rank);
                    let transport: Box<dyn Transport> = if rank == hostile {
                        Box::new(Hostile::new(transport, hostility.of_set(place)))
                    } else {
                        Box::new(transport)
                    };
                    let stalls =
                        Stalls::new(set_rank, members.len(), STALL_WARNING, Some(STALL_LIMIT));
                    Member::over(transport, &world, &set, setup, rank_state, stalls)
                }
            };
            of_set.push(member.log());
            let process_set = member.process_set(place as u32);
            stages[rank].members.insert(place, (member, process_set));
        }
        logs.push(of_set);
    }
    let begun: Vec<_> = stages
        .iter()
        .map(|stage| Arc::clone(&stage.begun))
        .collect();
    let results: Vec<Arc<Mutex<Option<Played>>>> = stages.iter().map(|_| Arc::default()).collect();
    for (rank, stage) in stages.into_iter().enumerate() {
        let (program, result) = (program.clone(), Arc::clone(&results[rank]));
        world.spawn(rank, "its program".into(), move || {
            let played = play(&program, rank, &stage);
            *lock(&result) = Some(played);
            stage
                .members
                .values()
                .for_each(|(member, _)| member.shut_down());
        });
    }
    if let Some((hostile, _)) = hostile {
        // The rank may wait forever for an operation that it skipped, and others for it to join.
        let in_world = Arc::clone(&world);
        world.spawn(hostile, "its end".into(), move || {
            in_world.sleep_until(in_world.now() + HOSTILE_LIFE);
            in_world.kill(hostile);
        });
    }
    world.run();
    let logs_of_set =
        |logs: &Vec<Arc<Mutex<Log>>>| logs.iter().map(|log| lock(log).clone()).collect();
    Run {
        played: results.iter().map(|result| lock(result).take()).collect(),
        begun: begun.iter().map(|begun| lock(begun).clone()).collect(),
        logs: logs.iter().map(logs_of_set).collect(),
    }
}

/// Rank in the simulator.
struct SimStage {
    world: Arc<World>,
    rank: usize,
    members: BTreeMap<usize, (Member, ProcessSet)>,
    /// Number of the submission before which it dies.
    death: Option<usize>,
    begun: Arc<Mutex<Begun>>,
}

impl Stage for SimStage {
    fn set(&self, place: usize) -> &ProcessSet {
        &self.members[&place].1
    }

    fn begin(&self, step: usize, action: usize) {
        let number = lock(&self.begun).len() + 1;
        if self.death == Some(number) {
            self.world.kill(self.rank);
            self.world.sleep_until(self.world.now()); // does not return
        }
        lock(&self.begun).insert((step, action), self.world.now());
    }

    fn pause(&self, duration: Duration) {
        self.world.sleep_until(self.world.now() + duration);
    }

    fn wait(&self, place: usize, handle: &RawHandle) -> Result<(), Error> {
        self.members[&place].0.wait(&handle.ticket, None);
        handle.wait()
    }
}
