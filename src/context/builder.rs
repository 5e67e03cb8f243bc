//! How a context is made: who am I, with whom, over what, under which settings.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Context, fork};
use crate::autotune::Progress;
use crate::clock::{Clock, MonotonicClock};
use crate::collective::Collective;
use crate::collective::local::LocalCollective;
use crate::collective::shaped::ShapedCollective;
use crate::cycle::Cycle;
use crate::drive::Engine;
use crate::error::Error;
use crate::identity::{self, Identity};
use crate::knobs::Knobs;
use crate::logging;
use crate::queue::{Front, lock};
use crate::settings::Settings;
use crate::telemetry::Telemetry;
use crate::transport::Transport;
use crate::transport::local::{LocalTransport, Meeting, Patience};

/// Spinning before sleeping, where there is a core for every rank of the host: about what waking a sleeper costs,
/// so that it is never much worse than the better of the two.
const SPIN: Duration = Duration::from_micros(100);

/// Makes a [`Context`]; what is not given comes from the environment.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    identity: Option<Identity>,
    job: Option<String>,
    knobs: Option<Knobs>,
    quiet_autotune: bool,
}

impl Builder {
    /// This process's rank and the number of ranks, all on this host.
    #[must_use]
    pub fn rank(mut self, rank: usize, size: usize) -> Self {
        self.identity = Some(Identity::on_one_host(rank, size));
        self
    }

    /// A job of one rank.
    #[must_use]
    pub fn alone(self) -> Self {
        self.rank(0, 1)
    }

    /// What all ranks of this job have in common and no other job of this user has.
    #[must_use]
    pub fn job(mut self, key: impl Into<String>) -> Self {
        self.job = Some(key.into());
        self
    }

    /// Settings, instead of those of the environment.
    #[must_use]
    pub fn knobs(mut self, knobs: Knobs) -> Self {
        self.knobs = Some(knobs);
        self
    }

    /// Keeps the tuner from writing its verdict to standard error: the program shows
    /// [`Context::autotune_report`] itself.
    #[must_use]
    pub fn quiet_autotune(mut self) -> Self {
        self.quiet_autotune = true;
        self
    }

    /// Joins the job.
    ///
    /// # Errors
    /// As for [`Context::from_env`].
    pub fn build(self) -> Result<Context, Error> {
        fork::arm();
        let configuration = |error: Arc<dyn std::error::Error + Send + Sync>| Error::Configuration(error);
        let knobs = match self.knobs {
            Some(knobs) => knobs,
            None => Knobs::from_env().map_err(|error| configuration(Arc::new(error)))?,
        };
        let identity = match self.identity {
            Some(identity) => identity,
            None => Identity::from_env().map_err(|error| configuration(Arc::new(error)))?,
        };
        let Identity {
            rank,
            size,
            local_size,
            ..
        } = identity;
        logging::init(&knobs, rank);
        if rank == 0 {
            knobs
                .warnings
                .iter()
                .for_each(|warning| tracing::warn!("{warning}"));
        }
        if local_size != size {
            return Err(Error::SeveralHosts { size, local_size });
        }
        let job = self
            .job
            .unwrap_or_else(|| identity::job_key(&identity::environment, &identity::ProcessTable));

        // Files first: a path that cannot be written is an error of this rank alone, before anybody waits for it.
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock);
        let progress = Arc::<Progress>::default();
        let observer = Telemetry::new(
            &knobs,
            rank,
            size,
            Arc::clone(&clock),
            Arc::clone(&progress),
            self.quiet_autotune,
        )?;

        let (transport, collective) = open_local(&job, rank, size, &knobs)?;
        let settings = Settings {
            version: 0,
            fusion_threshold_bytes: threshold_bytes(&knobs),
            cycle_time_ns: (knobs.cycle_time_ms * 1e6).round() as u64,
        };
        progress.set_settings(settings);
        let front = Arc::new(Front::new(rank, knobs.early_cycle, transport.doorbell(), clock));
        let capacity = cache_words(&knobs) * 64;
        let cycle = Cycle::new(
            transport,
            collective,
            Box::new(observer),
            Arc::clone(&front),
            capacity,
            settings,
            knobs.early_cycle,
        );
        let engine = Arc::new(Engine {
            front,
            cycle: Mutex::new(cycle),
            rank,
        });
        let affinity = knobs.thread_affinity.get(identity.local_rank).copied();
        let thread = std::thread::Builder::new().name("ronde-cycle".into()).spawn({
            let engine = Arc::clone(&engine);
            move || {
                affinity.into_iter().for_each(pin);
                engine.run();
            }
        });
        let thread = thread.map_err(|error| Error::Internal {
            rank,
            message: format!("no cycle thread: {error}"),
        })?;
        Ok(Context {
            engine,
            identity,
            progress,
            thread: Some(thread),
        })
    }
}

/// The threshold that the knobs mean. Without group fusion a tensor outside of groups is a group by itself, as in
/// Horovod; and a group is never cut, so that is the same as no fusion.
fn threshold_bytes(knobs: &Knobs) -> u64 {
    if knobs.disable_group_fusion {
        0
    } else {
        knobs.fusion_threshold_bytes
    }
}

/// 64-bit words for a bit per cached tensor. The capacity is rounded up to whole words, and the ranks compare
/// words when they meet: caches of different sizes would drift apart.
fn cache_words(knobs: &Knobs) -> usize {
    knobs.cache_capacity.div_ceil(64)
}

/// Control and data of one process set.
type Backend = (Box<dyn Transport>, Box<dyn Collective>);

fn open_local(job: &str, rank: usize, size: usize, knobs: &Knobs) -> Result<Backend, Error> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let spin = if cores >= size { SPIN } else { Duration::ZERO };
    let seconds = |seconds: u64| Duration::from_secs(seconds);
    let shutdown = seconds(knobs.stall_shutdown_seconds);
    let patience = Patience {
        spin,
        warn_after: if knobs.stall_check_disable {
            Duration::ZERO
        } else {
            seconds(knobs.stall_warning_seconds)
        },
        give_up_after: (!knobs.stall_check_disable && !shutdown.is_zero()).then_some(shutdown),
    };
    let host_key = identity::host_key(&identity::environment, &identity::HostFacts::read());
    let meeting = Meeting {
        init: next_init(job, rank),
        job_key: job.to_owned(),
        rank,
        size,
        start_timeout: seconds(knobs.start_timeout_seconds),
        host_key,
    };
    let data_bytes = LocalCollective::required_bytes(size);
    let opened = LocalTransport::open(&meeting, cache_words(knobs), data_bytes, patience)
        .map_err(|error| Error::Rendezvous(Arc::new(error)))?;
    let local = LocalCollective::new(opened.data, rank, size, spin, opened.watch);
    let collective: Box<dyn Collective> = match knobs.link {
        Some(link) => Box::new(ShapedCollective::new(Box::new(local), link, rank, size)),
        None => Box::new(local),
    };
    Ok((Box::new(opened.transport), collective))
}

/// How many contexts this process has had in `job` under `rank`: every meeting has a name of its own.
fn next_init(job: &str, rank: usize) -> u32 {
    static INITS: Mutex<Option<HashMap<(String, usize), u32>>> = Mutex::new(None);
    let mut inits = lock(&INITS);
    let count = inits
        .get_or_insert_default()
        .entry((job.to_owned(), rank))
        .or_default();
    *count += 1;
    *count
}

/// Binds the calling thread to a core. Horovod only logs it if that fails, and so do we.
fn pin(core: usize) {
    let mut set = rustix::thread::CpuSet::new();
    if core < rustix::thread::CpuSet::MAX_CPU {
        set.set(core);
    }
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::error!("HOROVOD_THREAD_AFFINITY: cannot bind the cycle thread to core {core}: {error}");
    }
}
