//! Feed: the thread that makes events of the records and of the tuner's news, and publishes them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ronde_dash::{End, Event, Log, LogKind, SettingsChange, Step, now_unix_ms};
use rtrb::Consumer;

use super::page::Page;
use super::ranks::RankView;
use super::recorder::{Change, Record, Steps};
use super::shared::Shared;
use super::tuner::{self, TunerView};
use crate::autotune::Progress;
use crate::identity::Hosts;
use crate::rank_times;

/// Time between two passes.
const INTERVAL: Duration = Duration::from_millis(200);

/// Time in which connected pages must have received the end of the job.
const FAREWELL: Duration = Duration::from_millis(900);

/// Most characters of the job's name.
const NAME_CHARACTERS_MAX: usize = 200;

/// Sources of the feed, its page, and properties of the job.
pub(super) struct Source {
    pub(super) page: Arc<Page>,
    pub(super) progress: Arc<Progress>,
    pub(super) times: Option<Arc<rank_times::Shared>>,
    /// Number of ranks.
    pub(super) ranks: usize,
    pub(super) backend: &'static str,
    pub(super) is_tuned: bool,
    /// Timeline that is recorded from the start on.
    pub(super) timeline: Option<String>,
}

/// Feed of one context.
pub(super) struct Feed {
    source: Source,
    records: Consumer<Record>,
    shared: Arc<Shared>,
    /// Number of steps published.
    steps: u64,
    ranks: RankView,
    tuner: TunerView,
}

impl Feed {
    pub(super) fn new(source: Source, records: Consumer<Record>, shared: Arc<Shared>) -> Self {
        Self {
            ranks: RankView::new(source.ranks),
            source,
            records,
            shared,
            steps: 0,
            tuner: TunerView::default(),
        }
    }

    /// Runs until nothing is recorded any more.
    pub(super) fn run(mut self, hosts: Hosts) {
        self.publish(Event::Job(self.job(&hosts)));
        if let Some(timeline) = &self.source.timeline {
            let text = format!("timeline started: {timeline}");
            self.log(LogKind::Timeline, text);
        }
        loop {
            let is_over = self.shared.is_over(); // before the pass, which then sees everything
            self.pass();
            if is_over {
                break;
            }
            std::thread::park_timeout(INTERVAL);
        }
        self.source.page.release();
        let end = self.shared.take_end().unwrap_or(End {
            failed: false,
            text: "the job has ended".to_owned(),
        });
        self.publish(Event::End(end));
        self.source.page.dash.flush(FAREWELL);
    }

    fn pass(&mut self) {
        while let Ok(record) = self.records.pop() {
            match record {
                Record::Steps(steps) => self.steps(&steps),
                Record::Settings(change) => self.change(&change),
            }
        }
        for (step, news) in self.source.progress.take_news() {
            let event = self.tuner.news(step, news);
            event.into_iter().for_each(|event| self.publish(event));
        }
        let surface = self.tuner.changed_surface();
        surface.into_iter().for_each(|event| self.publish(event));
        if let Some(report) = self.source.progress.autotune() {
            let is_stopped = self.source.progress.is_stopped();
            let progress = self.tuner.changed_progress(&report, is_stopped);
            progress.into_iter().for_each(|event| self.publish(event));
        }
        let now = Instant::now();
        if self.ranks.is_due(now, self.steps) {
            let times = self.source.times.as_ref();
            let times = times.map_or_else(Vec::new, |times| times.read());
            let lateness = self.shared.lateness_ns();
            let ranks = self.ranks.report(now, self.steps, lateness, times);
            self.publish(Event::Ranks(ranks));
        }
        for (kind, text) in self.shared.take_logs() {
            self.log(kind, text);
        }
        for (what, why) in self.shared.failed_requests() {
            tracing::warn!("live page: {what}: {why}");
            self.log(LogKind::Warning, format!("{what}: {why}"));
        }
    }

    fn steps(&mut self, steps: &Steps) {
        let (count, sums) = (steps.count as f64, &steps.sums);
        let per_step_ms = |time: Duration| time.as_secs_f64() * 1e3 / count;
        self.steps = steps.first + steps.count;
        self.publish(Event::Step(Step {
            step: steps.first,
            steps: steps.count,
            value: per_step_ms(steps.took),
            settings: steps.settings,
            window: tuner::window(steps.purpose),
            exposed_ms: Some(per_step_ms(sums.blocked)),
            negotiation_ms: Some(per_step_ms(sums.negotiation)),
            messages: Some(sums.messages as f64 / count),
            bytes: Some(sums.bytes as f64 / count),
            fill: (sums.filled > 0).then(|| sums.fill / sums.filled as f64),
        }));
    }

    fn change(&mut self, change: &Change) {
        let progress = &self.source.progress;
        let is_tuners = self.source.is_tuned && !progress.is_stopped();
        let why = match self.shared.take_change() {
            true => "the page",
            false if is_tuners => tuner::reason(change.purpose),
            false => "the program",
        };
        self.publish(Event::Settings(SettingsChange {
            step: change.step,
            settings: change.settings,
            why: why.to_owned(),
        }));
    }

    fn log(&self, kind: LogKind, text: String) {
        self.publish(Event::Log(Log {
            step: Some(self.steps),
            kind,
            text,
            at_unix_ms: None,
        }));
    }

    fn publish(&self, event: Event) {
        self.source.page.dash.publish(event);
    }

    fn job(&self, hosts: &Hosts) -> ronde_dash::Job {
        let words: Vec<_> = std::env::args_os()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        ronde_dash::Job {
            name: words.join(" ").chars().take(NAME_CHARACTERS_MAX).collect(),
            ranks: Some(self.source.ranks as u64),
            hosts: Some(hosts.count as u64),
            backend: self.source.backend.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_ms: Some(now_unix_ms()),
            ..ronde_dash::Job::default()
        }
    }
}
