//! History of a job: what a page shows, in bounded memory.
//!
//! A page that connects gets all of it, then updates with the parts that have changed. Applying an
//! update twice changes nothing, so a page that gets all of it between two updates may get some
//! parts again.

mod steps;
mod surface;
mod tail;

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::{End, Event, Job, Log, Ranks, Recheck, SettingsChange, Tuner, Verdict};
use steps::{Row, Steps};
use surface::View;
use tail::{Part, Tail};

/// Most entries of each list.
const ENTRIES_MAX: usize = 400;

/// Largest number of bytes of a text.
const TEXT_MAX: usize = 1000;

/// History of a job.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Number of jobs so far.
    jobs: u64,
    job: Latest<Job>,
    steps: Steps,
    changes: Tail<SettingsChange>,
    ranks: Latest<Ranks>,
    surface: Latest<View>,
    tuner: Latest<Tuner>,
    verdicts: Tail<Verdict>,
    rechecks: Tail<Recheck>,
    log: Tail<Log>,
    end: Latest<End>,
}

/// A value of which only the latest counts.
#[derive(Debug)]
struct Latest<T> {
    value: Option<T>,
    has_changed: bool,
}

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self {
            value: None,
            has_changed: false,
        }
    }
}

impl<T> Latest<T> {
    fn set(&mut self, value: T) {
        self.value = Some(value);
        self.has_changed = true;
    }

    fn part(&self, all: bool) -> Option<&T> {
        self.value.as_ref().filter(|_| all || self.has_changed)
    }
}

/// The parts of the history that have changed, or all of it.
#[derive(Serialize)]
struct Update<'a> {
    /// Whether this is all of it.
    all: bool,
    /// Number of the job; a page that showed another one begins anew.
    jobs: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<&'a Job>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<Part<'a, Row>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Part<'a, SettingsChange>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranks: Option<&'a Ranks>,
    #[serde(skip_serializing_if = "Option::is_none")]
    surface: Option<&'a View>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tuner: Option<&'a Tuner>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdicts: Option<Part<'a, Verdict>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rechecks: Option<Part<'a, Recheck>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    log: Option<Part<'a, Log>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<&'a End>,
}

impl History {
    /// Adds an event.
    pub(crate) fn apply(&mut self, event: Event) {
        match event {
            Event::Job(mut job) => {
                *self = Self {
                    jobs: self.jobs + 1,
                    ..Self::default()
                };
                for text in [
                    &mut job.name,
                    &mut job.backend,
                    &mut job.version,
                    &mut job.model,
                ] {
                    shorten(text);
                }
                self.job.set(job);
            }
            Event::Step(step) => self.steps.push(step),
            Event::Settings(mut change) => {
                shorten(&mut change.why);
                self.changes.push_bounded(change, ENTRIES_MAX);
            }
            Event::Ranks(mut ranks) => {
                ranks.rows.truncate(Ranks::MOST);
                self.ranks.set(ranks);
            }
            Event::Surface(surface) => {
                let measure = self.job.value.as_ref().map(|job| job.measure);
                self.surface
                    .set(View::new(surface, measure.unwrap_or_default()));
            }
            Event::Tuner(mut tuner) => {
                shorten(&mut tuner.phase);
                shorten(&mut tuner.detail);
                self.tuner.set(tuner);
            }
            Event::Verdict(mut verdict) => {
                shorten(&mut verdict.text);
                self.verdicts.push_bounded(verdict, ENTRIES_MAX);
            }
            Event::Recheck(mut recheck) => {
                shorten(&mut recheck.text);
                self.rechecks.push_bounded(recheck, ENTRIES_MAX);
            }
            Event::Log(mut log) => {
                shorten(&mut log.text);
                // A log does not say when its events were.
                if self.job.value.as_ref().is_none_or(|job| !job.is_log) {
                    log.at_unix_ms.get_or_insert_with(now_unix_ms);
                }
                self.log.push_bounded(log, ENTRIES_MAX);
            }
            Event::End(mut end) => {
                shorten(&mut end.text);
                self.end.set(end);
            }
        }
    }

    /// Whether the job has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.end.value.is_some()
    }

    /// All of it as JSON.
    pub(crate) fn all(&self) -> String {
        self.json(true)
    }

    /// Changes since the last call, as JSON; `None` if there are none. The first update of a job
    /// has all of it.
    pub(crate) fn update(&mut self) -> Option<String> {
        let is_new = self.job.has_changed;
        let has_changed = self.flags().into_iter().any(|flag| *flag)
            || self.steps.part(false).is_some()
            || self.changes.unsent() > 0
            || self.verdicts.unsent() > 0
            || self.rechecks.unsent() > 0
            || self.log.unsent() > 0;
        let update = has_changed.then(|| self.json(is_new));
        self.sent();
        update
    }

    fn sent(&mut self) {
        self.flags().into_iter().for_each(|flag| *flag = false);
        self.steps.sent();
        self.changes.sent();
        self.verdicts.sent();
        self.rechecks.sent();
        self.log.sent();
    }

    /// For each value of which only the latest counts, whether it has changed.
    fn flags(&mut self) -> [&mut bool; 5] {
        [
            &mut self.job.has_changed,
            &mut self.ranks.has_changed,
            &mut self.surface.has_changed,
            &mut self.tuner.has_changed,
            &mut self.end.has_changed,
        ]
    }

    fn json(&self, all: bool) -> String {
        let update = Update {
            all,
            jobs: self.jobs,
            job: self.job.part(all),
            steps: self.steps.part(all),
            changes: self.changes.part(all),
            ranks: self.ranks.part(all),
            surface: self.surface.part(all),
            tuner: self.tuner.part(all),
            verdicts: self.verdicts.part(all),
            rechecks: self.rechecks.part(all),
            log: self.log.part(all),
            end: self.end.part(all),
        };
        // Serialization fails only for maps without string keys and for types that return an error;
        // there are neither.
        serde_json::to_string(&update).unwrap_or_else(|_| "{}".to_owned())
    }
}

/// Cuts a text that is too long.
fn shorten(text: &mut String) {
    if text.len() > TEXT_MAX {
        let end = (0..=TEXT_MAX).rfind(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
}

/// Returns the present time, milliseconds since 1970-01-01 00:00 UTC.
pub fn now_unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_millis() as u64
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::testing::step;
    use crate::{LogKind, Measured, Place, RankTimes, Surface};

    fn json(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    fn log(text: &str) -> Event {
        Event::Log(Log {
            step: Some(3),
            kind: LogKind::LostRank,
            text: text.to_owned(),
            at_unix_ms: None,
        })
    }

    #[test]
    fn updates_have_only_what_has_changed() {
        let mut history = History::default();
        assert_eq!(history.update(), None);
        history.apply(Event::Job(Job {
            name: "train.py".to_owned(),
            ..Job::default()
        }));
        let first = json(&history.update().unwrap());
        assert_eq!((&first["all"], &first["jobs"]), (&true.into(), &1.into()));
        assert_eq!(first["job"]["name"], "train.py");
        assert_eq!(history.update(), None);
        history.apply(Event::Step(step(0, 12.0)));
        history.apply(log("rank 3 is lost"));
        let second = json(&history.update().unwrap());
        assert_eq!(second["all"], false);
        assert_eq!((second.get("job"), second.get("tuner")), (None, None));
        assert_eq!(second["steps"]["rows"][0][2], 12.0);
        assert_eq!(second["log"]["rows"][0]["kind"], "lost_rank");
        assert!(second["log"]["rows"][0]["at_unix_ms"].as_u64().unwrap() > 0);
        history.apply(Event::Step(step(1, 13.0)));
        let third = json(&history.update().unwrap());
        assert_eq!(third["steps"]["from"], 1);
        // A page that connects gets the same.
        let all = json(&history.all());
        assert_eq!(all["steps"]["rows"].as_array().unwrap().len(), 2);
        assert_eq!(all["job"]["name"], "train.py");
    }

    #[test]
    fn a_new_job_replaces_the_old_one() {
        let mut history = History::default();
        history.apply(Event::Step(step(0, 12.0)));
        history.apply(Event::End(End {
            failed: true,
            text: "rank 1 was lost".to_owned(),
        }));
        history.update();
        assert!(history.has_ended());
        history.apply(Event::Job(Job::default()));
        let update = json(&history.update().unwrap());
        assert_eq!((&update["all"], &update["jobs"]), (&true.into(), &1.into()));
        assert_eq!(update["steps"]["rows"], Value::Array(vec![]));
        assert_eq!(update.get("end"), None);
    }

    #[test]
    fn the_history_of_any_job_is_bounded() {
        let mut history = History::default();
        let long = "ö".repeat(5000);
        history.apply(Event::Job(Job {
            name: long.clone(),
            ..Job::default()
        }));
        let place = |fusion_mb| Place {
            fusion_mb,
            cycle_ms: 1.0,
        };
        for number in 0..4_000u32 {
            history.apply(Event::Step(step(
                number.into(),
                f64::from(number).sin() + 9.0,
            )));
            history.apply(log(&long));
            history.apply(Event::Ranks(Ranks {
                step: 1,
                rows: vec![RankTimes::default(); 100],
            }));
            if number % 20 == 0 {
                history.update();
            }
        }
        history.apply(Event::Surface(Surface {
            fusion_mb: (0..2000).map(f64::from).collect(),
            cycle_ms: (0..2000).map(f64::from).collect(),
            predicted: vec![1.0; 4_000_000],
            tried: (0..5000)
                .map(|fusion_mb| Measured {
                    place: place(f64::from(fusion_mb)),
                    value: 1.0,
                    ci95: None,
                    measurements: 1,
                })
                .collect(),
            ..Surface::default()
        }));
        let all = history.all();
        assert!(all.len() < 2 << 20, "{}", all.len());
        assert_eq!(json(&all)["ranks"]["rows"].as_array().unwrap().len(), 8);
    }
}
