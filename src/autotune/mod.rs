//! Tuning a running job: step times in, settings out. Rank 0 only.
//!
//! The search itself is the crate `ronde-tuner`, which knows parameters and step times; here its points become
//! [`Settings`], its measurements rows of the log, and its proposals are computed on a thread of low priority, so
//! that no cycle waits for a Gaussian process. A log that can no longer be written, or a failing optimizer, is a
//! warning and never harms the job.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use ronde_tuner::{Action, Best, Log, Parameter, Point, Proposal, Session, SessionConfig, Space, Verdict};

mod csv;
mod report;
mod trace;

pub(crate) use report::Progress;
pub(crate) use trace::Tracer;
pub use report::{AutotuneReport, AutotuneVerdict};

use crate::error::Error;
use crate::knobs::Knobs;
use crate::settings::Settings;
use crate::timeline::metrics::StepSample;

/// Bytes in the unit that Horovod's flags and log call MB.
const MIB: f64 = (1u64 << 20) as f64;

/// A tuning session and what belongs to it.
pub(crate) struct Autotune {
    session: Session,
    log: Option<Log>,
    proposal: Option<Receiver<Proposal>>,
    progress: Arc<Progress>,
    /// Of the measurement under way, or of the last one once it is `closed`.
    traffic: Traffic,
    closed: bool,
    /// There is a verdict.
    finished: bool,
    quiet: bool,
}

/// What the log says about steps beyond their time, averaged since the last row.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    bytes: u64,
    step_ms: f64,
    negotiate_ms: f64,
    steps: u64,
}

impl Autotune {
    /// A session that starts from what the knobs say. `quiet`: the program shows the progress itself.
    ///
    /// # Errors
    /// A log that cannot be written; a space without a free parameter is not an error, but ends at once.
    pub(crate) fn new(knobs: &Knobs, progress: Arc<Progress>, quiet: bool) -> Result<Self, Error> {
        let start = knobs.autotune_start.unwrap_or_default();
        let fusion_mb = start
            .fusion_mb
            .unwrap_or(knobs.fusion_threshold_bytes as f64 / MIB);
        let cycle_ms = start.cycle_ms.unwrap_or(knobs.cycle_time_ms);
        let configuration = |error: ronde_tuner::Error| Error::Configuration(Arc::new(error));
        let space = space(knobs, fusion_mb, cycle_ms).map_err(configuration)?;
        let start = space.point(&[fusion_mb, cycle_ms]).map_err(configuration)?;
        let session = Session::new(space, config(knobs), start).map_err(configuration)?;
        let log = knobs.autotune_log.as_ref().map(|path| {
            Log::create(path, &csv::COLUMNS).map_err(|error| Error::Output {
                what: "the autotune log",
                path: path.clone(),
                variable: "HOROVOD_AUTOTUNE_LOG",
                source: Arc::new(error),
            })
        });
        let log = log.transpose()?;
        let autotune = Self {
            session,
            log,
            proposal: None,
            progress,
            traffic: Traffic::default(),
            closed: false,
            finished: false,
            quiet,
        };
        autotune.report(None);
        Ok(autotune)
    }

    /// The settings to begin with.
    pub(crate) fn start(&self) -> Settings {
        settings(&self.session.setting())
    }

    /// Takes in one step; answers with settings to switch to.
    pub(crate) fn on_step(&mut self, sample: &StepSample) -> Option<Settings> {
        if self.finished {
            return None;
        }
        if std::mem::take(&mut self.closed) {
            self.traffic = Traffic::default();
        }
        self.traffic.add(sample);
        let step = self.session.on_step(sample.step_ms);
        let action = match (step, self.received()) {
            (Action::Keep, Some(proposal)) => self.session.propose(proposal),
            (action, _) => action,
        };
        self.act(action)
    }

    fn act(&mut self, action: Action) -> Option<Settings> {
        let next = match &action {
            Action::Keep => None,
            Action::Switch(point) => Some(settings(point)),
            Action::Ask => {
                self.ask();
                None
            }
            Action::Finished(verdict) => Some(settings(&verdict.chosen)),
        };
        self.write_log();
        for warning in self.session.take_warnings() {
            tracing::warn!("autotune: {warning}");
        }
        let verdict = if let Action::Finished(verdict) = action {
            Some(*verdict)
        } else {
            None
        };
        if let Some(verdict) = &verdict {
            self.finished = true;
            self.write_final(verdict);
        }
        self.report(verdict);
        next
    }

    /// Has the next proposal computed, on a thread that any other work may push aside.
    fn ask(&mut self) {
        let (sender, receiver) = channel();
        let job = self.session.proposal_job();
        let thread = std::thread::Builder::new()
            .name("ronde-tuner".into())
            .spawn(move || {
                // Refused where priorities cannot be lowered: then it competes, no more.
                let _ = rustix::process::nice(19);
                // The session may be over when the proposal comes; nobody is then interested.
                let _ = sender.send(job.run());
            });
        match thread {
            Ok(_) => self.proposal = Some(receiver),
            Err(error) => {
                tracing::warn!("autotune: cannot start its thread ({error}); the settings stay as they are")
            }
        }
    }

    fn received(&mut self) -> Option<Proposal> {
        match self.proposal.as_ref()?.try_recv() {
            Ok(proposal) => {
                self.proposal = None;
                Some(proposal)
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                tracing::warn!("autotune: the proposal was lost; asking again");
                self.proposal = None;
                self.ask();
                None
            }
        }
    }

    fn write_log(&mut self) {
        let measurements = self.session.take_measurements();
        if measurements.is_empty() {
            return;
        }
        let best = self.session.best_so_far();
        let traffic = self.traffic;
        self.closed = true;
        for measurement in measurements {
            tracing::info!(
                "autotune: {} {}: fusion {}: {:.3} ms",
                measurement.phase,
                measurement.sample,
                settings(&measurement.setting),
                measurement.step_ms
            );
            let row = csv::measurement_row(&measurement, &settings(&measurement.setting), &traffic);
            self.append(&row, &csv::best_row(best.as_ref(), &measurement, &traffic));
        }
    }

    fn write_final(&mut self, verdict: &Verdict) {
        let traffic = self.traffic;
        let row = csv::final_row("final", verdict, &settings(&verdict.chosen), &traffic);
        let best = csv::final_row("best", verdict, &settings(&verdict.chosen), &traffic);
        self.append(&row, &best);
        if !self.quiet {
            eprintln!("ronde: autotune: {}", verdict_of(verdict));
        }
    }

    fn append(&mut self, row: &[String], best: &[String]) {
        if let Some(log) = &mut self.log
            && let Err(error) = log.append(row, best)
        {
            tracing::warn!(
                "autotune: the log cannot be written any more ({error}); tuning goes on without it"
            );
            self.log = None;
        }
    }

    fn report(&self, verdict: Option<Verdict>) {
        let progress = self.session.progress();
        let best = |best: Best| (settings(&best.setting), best.step_ms);
        self.progress.set_autotune(AutotuneReport {
            phase: progress.phase,
            sample: progress.sample,
            settings: settings(&progress.setting),
            step_ms: progress.step_ms,
            best: progress.best.map(best),
            steps_left: progress.steps_left,
            verdict: verdict.as_ref().map(verdict_of),
        });
    }
}

impl Drop for Autotune {
    /// Training has ended: says so if that was before the verdict.
    fn drop(&mut self) {
        if !self.finished
            && !self.quiet
            && let Some(verdict) = self.session.verdict_if_stopped()
        {
            eprintln!("ronde: autotune: {}", verdict.reason);
        }
    }
}

impl Traffic {
    fn add(&mut self, sample: &StepSample) {
        self.bytes += sample.bytes;
        self.step_ms += sample.step_ms;
        self.negotiate_ms += sample.negotiate_ms;
        self.steps += 1;
    }
}

/// Threshold in MiB and cycle time in ms, on the lattice of `facts/tuner.md` §8; fixed where the environment says so.
fn space(knobs: &Knobs, fusion_mb: f64, cycle_ms: f64) -> Result<Space, ronde_tuner::Error> {
    let mut fusion = Parameter::log("fusion_mb", 1.0 / 16.0, 256.0, 16).with_zero();
    let mut cycle = Parameter::log("cycle_ms", 0.1, 100.0, 13);
    if knobs.fixed.fusion_threshold || knobs.disable_group_fusion {
        fusion = fusion.fixed(fusion_mb);
    }
    if knobs.fixed.cycle_time {
        cycle = cycle.fixed(cycle_ms);
    }
    Space::new(vec![fusion, cycle])
}

fn config(knobs: &Knobs) -> SessionConfig {
    let config = SessionConfig::default();
    SessionConfig {
        seed: knobs.autotune_seed,
        warmup_samples: knobs.autotune_warmup_samples,
        steps_per_sample: knobs.autotune_steps_per_sample.unwrap_or(config.steps_per_sample),
        early_abort: knobs.autotune_steps_per_sample.is_none(),
        max_samples: knobs.autotune_max_samples,
        fixed_noise: knobs.autotune_noise,
        ..config
    }
}

/// A point of the space as settings; the version is the cycle's to give.
fn settings(point: &Point) -> Settings {
    Settings {
        version: 0,
        fusion_threshold_bytes: (point.value(0) * MIB).round() as u64,
        cycle_time_ns: (point.value(1) * 1e6).round() as u64,
    }
}

fn verdict_of(verdict: &Verdict) -> AutotuneVerdict {
    AutotuneVerdict {
        kept_default: verdict.kept_default,
        settings: settings(&verdict.chosen),
        default_step_ms: verdict.default_step_ms,
        chosen_step_ms: verdict.chosen_step_ms,
        gain_pct: verdict.gain_pct,
        steps_active: verdict.steps_active,
        steps_lost: verdict.steps_lost,
        payback_step: verdict.payback_step,
        reason: verdict.reason.clone(),
    }
}
