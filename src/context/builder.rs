//! Builder of a context: rank and size, backend, settings and process sets of this process.

use std::sync::Arc;

use super::job::Job;
use super::registry::Registry;
use super::{Context, fork};
use crate::clock::{Clock, MonotonicClock};
use crate::error::{Error, SettingsError};
use crate::identity::{self, Identity, Source};
use crate::knobs::Knobs;
use crate::logging;
use crate::rendezvous::Alarm;
use crate::telemetry::Telemetry;

/// Builds a [`Context`]; values that are not given come from the environment.
#[must_use = "`build` joins the job"]
#[derive(Clone, Debug, Default)]
pub struct Builder {
    identity: Option<Identity>,
    job: Option<String>,
    knobs: Option<Knobs>,
    quiet_autotune: bool,
    process_sets: Vec<Vec<usize>>,
    dynamic_process_sets: bool,
    strict_join: bool,
    without_logging: bool,
    resets: u64,
    alarm: Option<Alarm>,
}

impl Builder {
    /// Sets this process's rank, from 0 to `size - 1`, and the number of ranks, all on this host.
    pub fn rank(mut self, rank: usize, size: usize) -> Self {
        self.identity = Some(Identity::on_one_host(rank, size));
        self
    }

    /// Makes a job of one rank.
    pub fn alone(self) -> Self {
        self.rank(0, 1)
    }

    /// Sets the job key: the same on all ranks of this job, and different from this user's other
    /// jobs.
    pub fn job(mut self, key: impl Into<String>) -> Self {
        self.job = Some(key.into());
        self
    }

    /// Sets the knobs, instead of reading them from the environment.
    pub fn knobs(mut self, knobs: Knobs) -> Self {
        self.knobs = Some(knobs);
        self
    }

    /// Keeps the tuner from writing its result to standard error; the program shows
    /// [`Context::autotune_report`] itself.
    pub fn quiet_autotune(mut self) -> Self {
        self.quiet_autotune = true;
        self
    }

    /// Adds process sets, as lists of ranks: the same on all ranks, in the same order. They get the
    /// numbers 1, 2, ….
    pub fn process_sets(mut self, sets: impl IntoIterator<Item = Vec<usize>>) -> Self {
        self.process_sets.extend(sets);
        self
    }

    /// Allows the program to add and remove process sets later, as `HOROVOD_DYNAMIC_PROCESS_SETS=1`
    /// does.
    pub fn dynamic_process_sets(mut self) -> Self {
        self.dynamic_process_sets = true;
        self
    }

    /// Makes operations other than allreduce fail with
    /// [`NegotiationError::RankJoined`](crate::error::NegotiationError::RankJoined) while a rank
    /// has joined, as in Horovod. Without it they run without that rank.
    pub fn strict_join(mut self) -> Self {
        self.strict_join = true;
        self
    }

    /// Leaves the log to the program. Otherwise [`build`](Self::build) sets the process's `tracing`
    /// subscriber, which prints warnings and errors, unless the program has set one before.
    pub fn without_logging(mut self) -> Self {
        self.without_logging = true;
        self
    }

    /// Sets how often the ranks of an elastic job have changed so far; the same on all ranks. With
    /// more than 0, the tuner continues from what it has learned, and timeline and autotune log
    /// continue with a mark instead of being replaced.
    pub fn resets(mut self, count: u64) -> Self {
        self.resets = count;
        self
    }

    /// Ends [`build`](Self::build) early: `reason` is called a few times a second, on any thread,
    /// while this rank waits for others in shared memory or over TCP, and returns the reason why
    /// waiting has become useless, if it has.
    pub fn give_up_when(
        mut self,
        reason: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let error = move || {
            reason().map(|reason| Error::Aborted {
                reason: reason.into(),
            })
        };
        self.alarm = Some(Alarm(Arc::new(error)));
        self
    }

    /// Joins the job. Blocks the thread as [`Context::from_env`] does.
    ///
    /// # Errors
    /// As for [`Context::from_env`].
    pub fn build(self) -> Result<Context, Error> {
        fork::arm();
        if fork::forked() {
            return Err(Error::Forked);
        }
        let configuration = |error: Arc<dyn std::error::Error + Send + Sync>| {
            Error::Settings(SettingsError::Invalid(error))
        };
        let mut knobs = match self.knobs {
            Some(knobs) => {
                let checked = knobs.check();
                checked.map_err(|error| configuration(Arc::new(error)))?;
                knobs
            }
            None => Knobs::from_env().map_err(|error| configuration(Arc::new(error)))?,
        };
        knobs.dynamic_process_sets |= self.dynamic_process_sets;
        knobs.resets = knobs.resets.max(self.resets);
        let identity = match self.identity {
            Some(identity) => {
                let checked = identity.check();
                checked.map_err(|error| configuration(Arc::new(error)))?;
                identity
            }
            None => Identity::from_env().map_err(|error| configuration(Arc::new(error)))?,
        };
        // Alone, each process would train a model of its own.
        if identity.source == Source::Single && knobs.elastic_socket.is_some() {
            return Err(Error::Settings(SettingsError::NoElasticRank));
        }
        if self.without_logging {
            logging::set_rank(identity.rank);
        } else {
            logging::init(&knobs, identity.rank);
        }
        if identity.rank == 0 {
            knobs
                .warnings
                .iter()
                .for_each(|warning| tracing::warn!("{warning}"));
        }
        let key = self.job.or_else(|| knobs.job_id.clone());
        let key = key
            .unwrap_or_else(|| identity::job_key(&identity::environment, &identity::ProcessTable));

        // Files come first: a path that cannot be written is an error of this rank alone, before
        // another rank waits for it.
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock);
        let job = Job::new(key, identity, knobs, Arc::clone(&clock), self.strict_join)?;
        let progress = Arc::clone(&job.progress);
        let observer = Telemetry::new(
            &job.knobs,
            &job.identity,
            clock,
            progress,
            &job.timeline,
            self.quiet_autotune,
        )?
        .with_watchers(job.watchers()?);

        let sets: Vec<String> = self
            .process_sets
            .iter()
            .map(|ranks| format!("{ranks:?}"))
            .collect();
        let world = job.open_world(Box::new(observer), sets.join(" "), self.alarm)?;
        job.offer_controls(&world);
        let context = Context {
            registry: Registry::new(world.clone()),
            world,
            job,
        };
        if context.job.knobs.dynamic_process_sets || !self.process_sets.is_empty() {
            ronde_net::raise_open_files_limit(); // a set has a descriptor for each of its ranks
        }
        // From here on, dropping the context leaves the job.
        for ranks in &self.process_sets {
            context.make_process_set(ranks)?;
        }
        Ok(context)
    }
}
