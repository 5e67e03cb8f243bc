//! Output of the tuner: log, messages and news.

use ronde_tuner::Verdict;

use super::{Autotune, News, Place};
use crate::logging;

impl Autotune {
    pub(super) fn announce(&mut self, verdict: &Verdict) {
        self.logbook.finished(verdict);
        let report = self.search.to_report(verdict);
        if !self.quiet {
            logging::tell(format_args!("autotune: {report}"));
        }
        self.progress
            .tell(|| News::Verdict(Box::new(report.clone())));
        self.search.verdict = Some(report);
    }

    pub(super) fn tell(&self, text: &str) {
        self.say(text);
        self.progress.tell(|| News::Note(text.to_owned()));
    }

    /// The active search has begun, or goes on.
    pub(super) fn tell_search(&self) {
        let default = Place::of(&self.search.session.reference());
        self.progress.tell(|| News::Search { default });
    }

    pub(super) fn say(&self, text: &str) {
        tracing::info!("autotune: {text}");
        if !self.quiet {
            logging::tell(format_args!("autotune: {text}"));
        }
    }

    pub(super) fn tell_warnings(&mut self) {
        for warning in self.search.session.take_warnings() {
            tracing::warn!("autotune: {warning}");
            self.progress.tell(|| News::Warning(warning.to_string()));
        }
    }

    pub(super) fn write_log(&mut self) {
        let measurements = self.search.session.take_measurements();
        if let Some(last) = measurements.last() {
            self.search.last_ms = Some(last.step_ms);
        }
        let best = self.search.session.best_so_far();
        self.logbook.measured(&measurements, best.as_ref());
        for measurement in &measurements {
            self.progress.tell(|| News::Measured {
                place: Place::of(&measurement.setting),
                step_ms: measurement.step_ms,
                ci95_ms: measurement.step_ms_ci95,
                best: best.map(|best| Place::of(&best.setting)),
                cost: self.search.session.cost(),
            });
        }
        // The other ranks of an elastic job continue from it if this one is lost.
        if !measurements.is_empty()
            && self.knobs.elastic_socket.is_some()
            && let Some(signature) = self.search.signature
        {
            let key = self.store.key(signature, &self.facts);
            self.keep(key, false);
        }
    }

    pub(super) fn report(&self) {
        self.progress.set_autotune(self.search.report());
    }
}
