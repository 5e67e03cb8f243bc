//! State that all process sets of a rank share, and the start of their engines.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::controls::JobControls;
use super::process_set::{Inner, ProcessSet, Running};
use crate::autotune::Progress;
use crate::backend::{Backend, Opened};
use crate::clock::{Clock, Reference};
use crate::collective::asynchronous::OpenDevice;
use crate::cycle::engine::{Engine, EngineGroup};
use crate::cycle::{Cycle, Parts};
use crate::dash::Controls;
use crate::error::Failure;
use crate::error::{Error, ProcessSetError, StartError};
use crate::gpu::{self, DeviceBinding, Registry};
use crate::identity::{self, Hosts, Identity, Source};
use crate::knobs::{self, Knobs, START_TIMEOUT};
use crate::negotiation::ResponseCache;
use crate::observer::Observer;
use crate::queue::TensorQueue;
use crate::rendezvous::{Alarm, JobContract, RendezvousConfig};
use crate::settings::Settings;
use crate::settings_cell::{SettingsCell, SettingsSource};
use crate::shm::Watch;
use crate::sync::lock;
use crate::telemetry::{Telemetry, Watchers};
use crate::timeline::{Options, Timeline};
use crate::traffic::MpiTraffic;
use crate::{dash, prometheus, rank_times};

/// Knobs that each rank uses by itself and that must be equal on all ranks. (Settings come from
/// rank 0, from the first cycle on.)
const ALIKE: [&str; 3] = [
    "HOROVOD_CACHE_CAPACITY",
    "RONDE_CACHE_CAPACITY_MAX",
    "HOROVOD_DYNAMIC_PROCESS_SETS",
];

/// Default time limit of the start of a job that another launcher starts. It has started all ranks,
/// and ends the job when one ends; on a shared file system, imports of hundreds of ranks may end
/// minutes apart. Horovod over MPI has no limit.
const FOREIGN_START_TIMEOUT: Duration = Duration::from_secs(600);

/// State of this rank's job, shared by its process sets.
pub(super) struct Job {
    pub(super) identity: Identity,
    pub(super) knobs: Knobs,
    pub(super) clock: Arc<dyn Clock>,
    /// Settings of the job, for all process sets.
    pub(super) settings: Arc<SettingsCell>,
    pub(super) progress: Arc<Progress>,
    pub(super) timeline: Arc<Timeline>,
    /// Rank 0's clock, for all process sets.
    reference: Arc<Reference>,
    engine_group: Arc<EngineGroup>,
    key: String,
    backend: Backend,
    /// Number of contexts that this process has had in the job, this one included.
    init: u32,
    /// Watch over the ranks of the job; set when the set of all ranks is open.
    watch: OnceLock<Arc<dyn Watch>>,
    /// Watches over the ranks of the other sets.
    set_watches: Mutex<Vec<Weak<dyn Watch>>>,
    /// GPUs that this process uses.
    gpus: Arc<Registry>,
    /// Whether only allreduces run without joined ranks.
    strict_join: bool,
    /// For the live page; set when the set of all ranks is open.
    controls: Arc<OnceLock<Arc<dyn Controls>>>,
    /// Hosts of the job's ranks; set when the set of all ranks is open.
    hosts: OnceLock<Hosts>,
}

impl Job {
    /// Makes the state of rank `identity` in the job `key`.
    ///
    /// # Errors
    /// A timeline that cannot be written, a backend that is not available.
    pub(super) fn new(
        key: String,
        identity: Identity,
        mut knobs: Knobs,
        clock: Arc<dyn Clock>,
        strict_join: bool,
    ) -> Result<Self, Error> {
        let settings = first_settings(&knobs);
        let backend = Backend::choose(&knobs, &identity)?;
        if backend.name() == "tcp" {
            knobs.backend = knobs::Backend::Tcp; // for the tuner: other settings suit MPI
        }
        let options = Options::new(&knobs, &identity, backend.name(), settings);
        let timeline = Timeline::new(options.clone(), &*clock).map(Some);
        let timeline = match knobs.unless_reset(timeline)? {
            Some(timeline) => timeline,
            None => {
                let options = Options {
                    path: None,
                    byteps: None,
                    ..options
                };
                Timeline::new(options, &*clock)?
            }
        };
        Ok(Self {
            init: match knobs.elastic_socket {
                // All ranks of an elastic job count the same resets. Nothing is kept for each.
                Some(_) => u32::try_from(knobs.resets)
                    .unwrap_or(u32::MAX)
                    .saturating_add(1),
                None => next_init(&key, identity.rank),
            },
            identity,
            knobs,
            clock,
            settings: Arc::new(SettingsCell::new(settings)),
            progress: Arc::default(),
            timeline,
            reference: Arc::default(),
            engine_group: Arc::default(),
            key,
            backend,
            gpus: Arc::clone(gpu::devices()),
            strict_join,
            watch: OnceLock::new(),
            set_watches: Mutex::default(),
            controls: Arc::default(),
            hosts: OnceLock::new(),
        })
    }

    /// Opens the metrics of this rank and the job's live page, if there are any.
    ///
    /// # Errors
    /// At the start of a job, an address that cannot be listened on, a file that cannot be written,
    /// an invalid token.
    pub(super) fn watchers(&self) -> Result<Option<Watchers>, Error> {
        if !self.is_watched() {
            return Ok(None);
        }
        let host_key = identity::host_key(&identity::environment, &identity::HostFacts::read());
        let key = format!("{host_key} {} {}", self.key, self.init);
        let times = rank_times::Shared::open(&key, &self.identity);
        let (identity, backend) = (&self.identity, self.backend.name());
        let metrics = match self.knobs.has_metrics() {
            true => self.knobs.unless_reset(prometheus::open(
                &self.knobs,
                &prometheus::Job {
                    identity,
                    backend,
                    resets: self.knobs.resets,
                    progress: &self.progress,
                    times: &times,
                },
            ))?,
            false => None,
        };
        let page = self.knobs.unless_reset(dash::open(
            &self.knobs,
            &dash::Job {
                identity,
                backend,
                progress: &self.progress,
                times: &times,
                controls: &self.controls,
            },
        ))?;
        Ok(Some(Watchers::new(
            identity.rank,
            Arc::clone(&self.clock),
            rank_times::Recorder::new(times),
            metrics,
            page,
        )))
    }

    /// Offers the controls of the running job to its live page, if it has one.
    pub(super) fn offer_controls(&self, world: &ProcessSet) {
        if let Some(running) = &world.inner.running
            && self.knobs.has_page()
            && self.identity.rank == 0
        {
            let controls = JobControls {
                queue: Arc::clone(&running.engine.queue),
                knobs: self.knobs.clone(),
                progress: Arc::clone(&self.progress),
                timeline: Arc::clone(&self.timeline),
                why_flat: self.why_flat(),
            };
            self.controls.get_or_init(|| Arc::new(controls));
        }
    }

    fn is_watched(&self) -> bool {
        self.knobs.has_metrics() || self.knobs.has_page()
    }

    /// Returns the name of the backend.
    pub(super) fn backend(&self) -> &'static str {
        self.backend.name()
    }

    /// Messages that this process has sent over MPI; `None` for other backends.
    pub(super) fn mpi_traffic(&self) -> Option<MpiTraffic> {
        self.backend.traffic()
    }

    /// Reason why no operation can be hierarchical in this job; `None` if operations can be.
    pub(super) fn is_homogeneous(&self) -> bool {
        (self.hosts.get()).is_none_or(|hosts| hosts.least == hosts.most)
    }

    pub(super) fn why_flat(&self) -> Option<&'static str> {
        self.hosts.get().and_then(Hosts::why_flat)
    }

    /// Opens the set of all ranks. `process_sets` describes the other sets; the text must be equal
    /// on all ranks. `alarm` ends the wait for other ranks early.
    ///
    /// # Errors
    /// Ranks that do not arrive in time or do not match this one; too little memory.
    pub(super) fn open_world(
        &self,
        observer: Box<dyn Observer>,
        process_sets: String,
        alarm: Option<Alarm>,
    ) -> Result<ProcessSet, Error> {
        let members: Arc<[usize]> = (0..self.identity.size).collect();
        let contract = job_contract(&self.knobs, process_sets);
        count_init(&self.key, self.identity.rank, self.init);
        let timeout = match self.identity.source {
            Source::Horovod | Source::Single => START_TIMEOUT,
            _ => FOREIGN_START_TIMEOUT,
        };
        let config = RendezvousConfig {
            alarm,
            start_timeout: self.knobs.start_timeout(timeout),
            warn_after: self.knobs.stall_warning(),
            ..self.rendezvous_config(self.key.clone(), self.init, &members, contract)
        };
        let binding = self.binding();
        let running = self
            .start(config, observer, &binding)
            .map_err(|failure| failure.into_error(StartError::Rendezvous))?;
        Ok(self.set(0, members, binding, Some(running)))
    }

    /// Opens process set `id` of `members`, the `generation`-th set of the job. The set has no
    /// engine if this rank is not a member.
    ///
    /// # Errors
    /// As for [`open_world`](Self::open_world).
    pub(super) fn open_set(
        &self,
        id: u32,
        generation: u64,
        members: Arc<[usize]>,
    ) -> Result<ProcessSet, Error> {
        let Ok(rank) = members.binary_search(&self.identity.rank) else {
            return Ok(self.set(id, members, self.binding(), None));
        };
        // Ranks need not have been in the same sets before; so the name counts contexts, not sets.
        let key = format!("{}#{}/set{id}.{generation}", self.key, self.init);
        let mut config = self.rendezvous_config(key, 1, &members, JobContract::new());
        // Half of the stall limit: the other ranks wait for the members' answer, and must learn of
        // a silent member before that wait is a stall.
        if let Some(limit) = self.knobs.stall_shutdown() {
            config.start_timeout = config.start_timeout.min(limit / 2);
        }
        let observer = Telemetry::of_process_set(
            &self.knobs,
            id,
            rank,
            &members,
            Arc::clone(&self.clock),
            &self.timeline,
        );
        let binding = self.binding();
        let running = self
            .start(config, Box::new(observer), &binding)
            .map_err(|failure| {
                failure.into_error(|source| ProcessSetError::Start {
                    set: id,
                    members: members.to_vec(),
                    source,
                })
            })?;
        Ok(self.set(id, members, binding, Some(running)))
    }

    /// Stores `hosts`, and turns off hierarchical operations that these hosts do not allow,
    /// whatever was requested.
    fn spread(&self, hosts: &Hosts) {
        self.hosts.get_or_init(|| *hosts);
        let Some(because) = hosts.why_flat() else {
            return;
        };
        let asked = [
            (
                "HOROVOD_HIERARCHICAL_ALLREDUCE",
                self.knobs.hierarchical_allreduce,
            ),
            (
                "HOROVOD_HIERARCHICAL_ALLGATHER",
                self.knobs.hierarchical_allgather,
            ),
        ];
        let asked = asked.into_iter().filter(|(_, on)| *on);
        let names: Vec<&str> = asked.map(|(name, _)| name).collect();
        if !names.is_empty() && self.identity.rank == 0 {
            tracing::warn!("{} without effect: {because}", names.join(" and "));
        }
        self.settings.begin_with(self.settings.in_force().flat());
    }

    /// Device binding for a process set that is being opened.
    fn binding(&self) -> Arc<DeviceBinding> {
        let (timeline, is_tuned) = (Arc::clone(&self.timeline), self.knobs.autotune);
        let binding = DeviceBinding::new(Arc::clone(&self.gpus), self.identity.local_rank)
            .answering_early(self.knobs.async_completion)
            .telling_times(move || is_tuned || timeline.is_recording());
        Arc::new(binding)
    }

    fn set(
        &self,
        id: u32,
        members: Arc<[usize]>,
        binding: Arc<DeviceBinding>,
        running: Option<Running>,
    ) -> ProcessSet {
        let job_rank = self.identity.rank;
        ProcessSet {
            inner: Arc::new(Inner {
                id,
                members,
                job_rank,
                strict_join: self.strict_join,
                binding,
                running,
            }),
        }
    }

    /// Limits the time that this rank waits for others in operations of the set of all ranks: at
    /// that time they end with the given error. `None`: the knobs' limit.
    pub(super) fn limit_waits(&self, limit: Option<(Instant, Error)>) {
        if let Some(watch) = self.watch.get() {
            watch.limit(limit);
        }
    }

    /// Ends all engines of this rank with `error`, also while they wait for other ranks.
    pub(super) fn abort(&self, error: &Error) {
        let error = &self.engine_group.abort(error);
        let watches = lock(&self.set_watches);
        let of_sets = watches.iter().filter_map(Weak::upgrade);
        for watch in of_sets.chain(self.watch.get().cloned()) {
            watch.abort(error);
        }
    }

    fn rendezvous_config(
        &self,
        job_key: String,
        init: u32,
        members: &Arc<[usize]>,
        contract: JobContract,
    ) -> RendezvousConfig {
        RendezvousConfig {
            job_key,
            init,
            rank: members
                .binary_search(&self.identity.rank)
                .unwrap_or(usize::MAX),
            members: Arc::clone(members),
            start_timeout: self.knobs.start_timeout(START_TIMEOUT),
            warn_after: Duration::ZERO, // the members of a set have agreed on it
            host_key: identity::host_key(&identity::environment, &identity::HostFacts::read()),
            contract,
            alarm: self.watch.get().map(|watch| alarm(watch, members)),
        }
    }

    /// Runs the rendezvous with the other members and starts the engine.
    fn start(
        &self,
        config: RendezvousConfig,
        mut observer: Box<dyn Observer>,
        binding: &Arc<DeviceBinding>,
    ) -> Result<Running, StartFailure> {
        let knobs = &self.knobs;
        let members = Arc::clone(&config.members);
        let is_world = self.watch.get().is_none(); // the set of all ranks is opened first
        let opened = self.backend.open(&config, cache_words(knobs), knobs);
        let Opened {
            transport,
            collective,
            watch,
            hosts,
        } = opened.map_err(StartFailure::Rendezvous)?;
        if !is_world {
            let mut watches = lock(&self.set_watches);
            watches.retain(|watch| watch.strong_count() > 0);
            watches.push(Arc::downgrade(&watch));
        }
        self.watch.get_or_init(|| watch); // of the set of all ranks
        if is_world {
            self.spread(&hosts);
        }
        observer.connected(hosts);
        let queue = TensorQueue::new(
            self.identity.rank,
            knobs.early_cycle,
            transport.doorbell(),
            Arc::clone(&self.clock),
        );
        let queue = Arc::new(queue.measuring_blocks(is_world && self.is_watched()));
        let cycle = Cycle::new(Parts {
            members,
            transport,
            collective,
            observer,
            queue: Arc::clone(&queue),
            cache: ResponseCache::new(words(knobs.cache_capacity) * 64, cache_words(knobs) * 64),
            reference: Arc::clone(&self.reference),
            is_world,
            settings: match is_world {
                true => SettingsSource::Decides(Arc::clone(&self.settings)),
                false => SettingsSource::Follows(Arc::clone(&self.settings)),
            },
            early: knobs.early_cycle,
            device: Arc::clone(binding) as Arc<dyn OpenDevice>,
        });
        self.engine_group.add(Arc::clone(&queue));
        let engine = Arc::new(Engine {
            queue,
            cycle: Mutex::new(cycle),
            rank: self.identity.rank,
            engine_group: Arc::clone(&self.engine_group),
        });
        let affinity = knobs.thread_affinity.get(self.identity.local_rank).copied();
        let thread = std::thread::Builder::new()
            .name("ronde-cycle".into())
            .spawn({
                let engine = Arc::clone(&engine);
                move || {
                    affinity.into_iter().for_each(pin);
                    engine.run();
                }
            });
        let thread = thread.map_err(|source| {
            let error = Error::Start(StartError::Thread {
                rank: self.identity.rank,
                source: Arc::new(source),
            });
            lock(&engine.cycle).end(error.clone()); // which tells the other ranks
            StartFailure::Thread(error)
        })?;
        Ok(Running {
            engine,
            thread: Mutex::new(Some(thread)),
        })
    }
}

/// Reason why an engine did not start.
enum StartFailure {
    Rendezvous(Failure),
    Thread(Error),
}

impl StartFailure {
    fn into_error<E: Into<Error>>(self, rendezvous: impl FnOnce(Failure) -> E) -> Error {
        match self {
            Self::Rendezvous(source) => rendezvous(source).into(),
            Self::Thread(error) => error,
        }
    }
}

/// Settings at the start, from the knobs.
fn first_settings(knobs: &Knobs) -> Settings {
    Settings {
        // Without group fusion a tensor outside of groups is a group by itself, as in Horovod. A
        // group is never divided, so this is the same as no fusion.
        fusion_threshold_bytes: if knobs.disable_group_fusion {
            0
        } else {
            knobs.fusion_threshold_bytes
        },
        gpu_fusion_threshold_bytes: knobs.gpu_fusion_threshold_bytes,
        cycle_time_ns: (knobs.cycle_time_ms * 1e6).round() as u64,
        cache: knobs.cache_capacity > 0,
        hierarchical_allreduce: knobs.hierarchical_allreduce,
        hierarchical_allgather: knobs.hierarchical_allgather,
    }
}

/// Number of 64-bit words with a bit for each of `tensors`. The capacity is rounded up to whole
/// words, and the ranks compare words at the rendezvous: caches of different capacities would
/// become inconsistent.
fn words(tensors: usize) -> usize {
    tensors.div_ceil(64)
}

/// Largest number of words of the response cache.
fn cache_words(knobs: &Knobs) -> usize {
    match knobs.cache_capacity {
        0 => 0,
        capacity => words(capacity.max(knobs.cache_capacity_max)),
    }
}

/// Settings that must be equal on all ranks of a job.
fn job_contract(knobs: &Knobs, process_sets: String) -> JobContract {
    let knobs = knobs.print().into_iter();
    let alike = knobs.filter(|(knob, _)| ALIKE.contains(&knob.env));
    let mut contract: JobContract = alike
        .map(|(knob, value)| (knob.env.to_owned(), value.to_string_lossy().into_owned()))
        .collect();
    debug_assert_eq!(contract.len(), ALIKE.len());
    contract.push(("process sets".to_owned(), process_sets));
    contract
}

/// Returns the check that ends a process set's rendezvous when one of its members has failed.
fn alarm(watch: &Arc<dyn Watch>, members: &Arc<[usize]>) -> Alarm {
    let (watch, members) = (Arc::clone(watch), Arc::clone(members));
    Alarm(Arc::new(move || {
        let check = |&rank: &usize| watch.check(rank, Duration::ZERO).err();
        members.iter().find_map(check)
    }))
}

/// Number of rendezvous of this process in each job under each rank: every one needs a different
/// name.
static INITS: Mutex<Option<HashMap<(String, usize), u32>>> = Mutex::new(None);

/// Returns the number of the next rendezvous in `job` under `rank`. It counts when it begins: a
/// context that fails before that is unknown to the other ranks.
fn next_init(job: &str, rank: usize) -> u32 {
    let inits = lock(&INITS);
    let counts = inits.as_ref();
    let last = counts.and_then(|counts| counts.get(&(job.to_owned(), rank)));
    last.map_or(1, |last| last + 1)
}

fn count_init(job: &str, rank: usize, init: u32) {
    let mut inits = lock(&INITS);
    let counts = inits.get_or_insert_default();
    counts.insert((job.to_owned(), rank), init);
}

/// Binds the calling thread to a core. A failure is only logged, as in Horovod.
fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    if core < rustix::thread::CpuSet::MAX_CPU {
        set.set(core);
    }
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::error!(
            "HOROVOD_THREAD_AFFINITY: cannot bind the cycle thread to core {core}: {error}"
        );
    }
}
