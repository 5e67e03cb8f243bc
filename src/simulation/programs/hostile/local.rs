//! Programs with a hostile rank on shared memory: the real transport and collective, with ranks as
//! threads.
//!
//! Under valgrind this shows that no modification makes a rank access memory that is not its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use super::{Beside, Hostile, Hostility, check_hostile, first_seed, mutations};
use crate::clock::{Clock, MonotonicClock, Nanos, Reference};
use crate::collective::asynchronous::NoDevice;
use crate::collective::local::LocalCollective;
use crate::context::{ProcessSet, RawHandle};
use crate::cycle::engine::{Engine, EngineGroup};
use crate::cycle::{Cycle, Parts, Stalls};
use crate::error::Error;
use crate::negotiation::ResponseCache;
use crate::observer::{Observer, Pending, StallCheck};
use crate::queue::TensorQueue;
use crate::rendezvous::{Patience, RendezvousConfig};
use crate::settings_cell::SettingsSource;
use crate::simulation::programs::play::{Begun, Played, Stage, play};
use crate::simulation::programs::program::Program;
use crate::sync::lock;
use crate::transport::Transport;
use crate::transport::local::LocalTransport;

/// Slots of the response cache.
const CACHE_SLOTS: usize = 64;

/// Number of modifications if `TEST_RONDE_MUTATIONS` is not set.
const MUTATIONS: u64 = 200;

/// Time limit of waits for a rank or a tensor. A wait for data that a hostile rank left out takes
/// this long.
const LIMIT: Duration = Duration::from_secs(5);

/// State that the ranks of one process share.
struct Shared {
    /// Number of the program's rendezvous.
    key: String,
    /// No rank leaves before all ranks have finished their waits.
    all_played: Barrier,
}

/// Time limit of the hostile rank's waits: it may have left out the data that it waits for, or that
/// others need to join.
const HOSTILE_PATIENCE: Duration = Duration::from_secs(15);

/// One rank.
struct Threaded {
    sets: BTreeMap<usize, ProcessSet>,
    is_hostile: bool,
    begun: Mutex<Begun>,
}

impl Stage for Threaded {
    fn set(&self, place: usize) -> &ProcessSet {
        &self.sets[&place]
    }

    fn begin(&self, step: usize, action: usize) {
        lock(&self.begun).insert((step, action), MonotonicClock.now());
    }

    fn pause(&self, duration: Duration) {
        thread::sleep(duration);
    }

    fn wait(&self, _place: usize, handle: &RawHandle) -> Result<(), Error> {
        if self.is_hostile {
            let end = MonotonicClock.now() + HOSTILE_PATIENCE;
            if !handle.engine.wait(&handle.ticket, Some(end)) {
                handle.engine.shut_down(&Error::Internal {
                    rank: handle.engine.rank,
                    message: "the end of a hostile rank".to_owned(),
                });
            }
        }
        handle.wait()
    }
}

/// Ends operations that wait too long.
struct Inspector(Option<Stalls>);

impl Observer for Inspector {
    fn check_stalls(&mut self, now: Nanos, pending: &dyn Pending) -> Result<StallCheck, Error> {
        self.0.as_mut().map_or(Ok(StallCheck::default()), |stalls| {
            stalls.look(now, pending, &mut |_| {})
        })
    }
}

/// Runs the part of rank `rank` in `program`.
fn play_rank(
    program: &Program,
    rank: usize,
    hostility: Option<&Hostility>,
    shared: &Shared,
) -> (Played, Begun) {
    let (engine_group, reference) = (Arc::<EngineGroup>::default(), Arc::<Reference>::default());
    let mut engines = Vec::new();
    let mut sets = BTreeMap::new();
    for (place, members) in program.sets.iter().enumerate() {
        let Some(set_rank) = members.iter().position(|member| *member == rank) else {
            continue;
        };
        let config = RendezvousConfig {
            job_key: format!("{}-{place}", shared.key),
            init: 0,
            rank: set_rank,
            members: members.clone().into(),
            start_timeout: Duration::from_secs(60),
            warn_after: Duration::ZERO,
            host_key: "host".to_owned(),
            contract: Vec::new(),
            alarm: None,
        };
        let patience = Patience {
            spin: Duration::ZERO,
            warn_after: Duration::ZERO,
            give_up_after: Some(LIMIT),
        };
        let data_bytes = LocalCollective::required_bytes(members.len());
        let opened = LocalTransport::open(&config, CACHE_SLOTS / 64, data_bytes, |_| patience)
            .expect("all come");
        let size = members.len();
        let collective =
            LocalCollective::new(opened.data, set_rank, size, Duration::ZERO, opened.watch);
        let transport: Box<dyn Transport> = match hostility {
            Some(hostility) => Box::new(Hostile::new(opened.transport, hostility.of_set(place))),
            None => Box::new(opened.transport),
        };
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock);
        let queue = Arc::new(TensorQueue::new(rank, true, transport.doorbell(), clock));
        engine_group.add(Arc::clone(&queue));
        let cycle = Cycle::new(Parts {
            members: config.members,
            transport,
            collective: Box::new(collective),
            observer: Box::new(Inspector(Stalls::new(set_rank, size, LIMIT, Some(LIMIT)))),
            queue: Arc::clone(&queue),
            cache: ResponseCache::new(CACHE_SLOTS, CACHE_SLOTS),
            reference: Arc::clone(&reference),
            is_world: place == 0,
            settings: SettingsSource::Decides(Arc::default()),
            early: true,
            device: Arc::new(NoDevice),
        });
        let engine = Arc::new(Engine {
            queue,
            cycle: Mutex::new(cycle),
            rank,
            engine_group: Arc::clone(&engine_group),
        });
        let background = Arc::clone(&engine);
        engines.push((Arc::clone(&engine), thread::spawn(move || background.run())));
        sets.insert(place, ProcessSet::around(engine, place as u32, members));
    }
    let stage = Threaded {
        sets,
        is_hostile: hostility.is_some(),
        begun: Mutex::default(),
    };
    let played = play(program, rank, &stage);
    shared.all_played.wait();
    for (engine, background) in engines {
        assert!(engine.shut_down(&Error::ShutDown), "nobody holds the cycle");
        background.join().expect("its panics are caught");
    }
    (played, lock(&stage.begun).clone())
}

/// Runs `program` with the rank `hostile`, each rank on a thread of its own.
fn run(program: &Program, hostile: usize, hostility: &Hostility) -> Beside {
    let shared = &Shared {
        key: format!("test-hostile-{}-{:x}", std::process::id(), program.seed),
        all_played: Barrier::new(program.ranks),
    };
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..program.ranks)
            .map(|rank| {
                let hostility = (rank == hostile).then_some(hostility);
                scope.spawn(move || play_rank(program, rank, hostility, shared))
            })
            .collect();
        let ranks = ranks.into_iter().map(|rank| rank.join());
        let (played, begun) = ranks.map(|rank| rank.expect("no rank panics")).unzip();
        Beside {
            played: Vec::into_iter(played).map(Some).collect(),
            begun,
            stall_limit: LIMIT,
        }
    })
}

#[test]
fn beside_a_hostile_rank_on_shared_memory_results_are_right_or_errors_name_it() {
    let mut made = 0;
    for seed in first_seed(0x50_0000).. {
        if made >= mutations(MUTATIONS) {
            break;
        }
        made += check_hostile(seed, run);
    }
}
