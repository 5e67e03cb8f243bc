//! Programs in the simulator.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::draw::Draw;
use super::play::{Played, Stage, play};
use super::program::Program;
use crate::clock::Clock;
use crate::context::{ProcessSet, RawHandle};
use crate::error::Error;
use crate::queue::lock;
use crate::simulation::member::{Home, Member, Setup};
use crate::simulation::record::Log;
use crate::transport::sim::{SimSet, World};

/// A rank that dies when it is about to submit its action of this number (from 1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Death {
    pub(super) rank: usize,
    pub(super) at: usize,
}

/// What came of a program.
pub(super) struct Run {
    /// By rank; `None` of one that died.
    pub(super) played: Vec<Option<Played>>,
    /// The steps and actions that each rank submitted.
    pub(super) begun: Vec<Vec<(usize, usize)>>,
    /// What each member of each set saw.
    pub(super) logs: Vec<Vec<Log>>,
}

/// How the engines of a program are set up.
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

/// Runs `program` under the same seed.
pub(super) fn run(program: &Program, death: Option<Death>) -> Run {
    let world = match Draw::new(program.seed ^ 0xc10c).one_in(3) {
        true => World::spread(program.ranks, program.seed),
        false => World::new(program.ranks, program.seed),
    };
    let setup = setup(program);
    let homes: Vec<Home> = (0..program.ranks).map(|_| Home::default()).collect();
    let mut stages: Vec<SimStage> = (0..program.ranks)
        .map(|rank| SimStage {
            world: Arc::clone(&world),
            rank,
            members: BTreeMap::new(),
            death: death.filter(|death| death.rank == rank).map(|death| death.at),
            begun: Arc::default(),
        })
        .collect();
    let mut logs: Vec<Vec<Arc<Mutex<Log>>>> = Vec::new();
    for (place, members) in program.sets.iter().enumerate() {
        let set = SimSet::new(&world, members);
        let mut of_set = Vec::new();
        for (set_rank, &rank) in members.iter().enumerate() {
            let member = Member::start(&world, &set, set_rank, setup, &homes[rank]);
            of_set.push(member.log());
            let process_set = member.process_set(place as u32);
            stages[rank].members.insert(place, (member, process_set));
        }
        logs.push(of_set);
    }
    let begun: Vec<_> = stages.iter().map(|stage| Arc::clone(&stage.begun)).collect();
    let results: Vec<Arc<Mutex<Option<Played>>>> = stages.iter().map(|_| Arc::default()).collect();
    for (rank, stage) in stages.into_iter().enumerate() {
        let (program, result) = (program.clone(), Arc::clone(&results[rank]));
        world.spawn(rank, "its program".into(), move || {
            let played = play(&program, rank, &stage);
            *lock(&result) = Some(played);
            stage.members.values().for_each(|(member, _)| member.shut_down());
        });
    }
    world.run();
    let logs_of_set = |logs: &Vec<Arc<Mutex<Log>>>| logs.iter().map(|log| lock(log).clone()).collect();
    Run {
        played: results.iter().map(|result| lock(result).take()).collect(),
        begun: begun.iter().map(|begun| lock(begun).clone()).collect(),
        logs: logs.iter().map(logs_of_set).collect(),
    }
}

/// One rank in the simulator.
struct SimStage {
    world: Arc<World>,
    rank: usize,
    members: BTreeMap<usize, (Member, ProcessSet)>,
    /// Dies before its submission of this number.
    death: Option<usize>,
    begun: Arc<Mutex<Vec<(usize, usize)>>>,
}

impl Stage for SimStage {
    fn set(&self, place: usize) -> &ProcessSet {
        &self.members[&place].1
    }

    fn begin(&self, step: usize, action: usize) {
        let number = lock(&self.begun).len() + 1;
        if self.death == Some(number) {
            self.world.kill(self.rank);
            self.world.sleep_until(self.world.now()); // vanishes here
        }
        lock(&self.begun).push((step, action));
    }

    fn pause(&self, duration: Duration) {
        self.world.sleep_until(self.world.now() + duration);
    }

    fn wait(&self, place: usize, handle: &RawHandle) -> Result<(), Error> {
        self.members[&place].0.wait(&handle.ticket, None);
        handle.wait()
    }
}
