//! Entries before a comparison: the start and the best settings, each several times from another
//! setting. Step times may have changed since the start's sample, and a setting may have several
//! stable ones.

use super::{Session, Stage};
use crate::session::verdict::Phase;
use crate::tuner::proposal::FAR_SLOWER;
use crate::{Action, Point};

/// Number of finalists.
const FINALISTS: usize = 3;

/// How often settings are entered.
struct Entries {
    /// Visits of each setting, its sample included.
    visits: usize,
    /// Steps of an entry.
    steps: usize,
}

/// Two steps show a second step time that matters.
const ENTRIES: Entries = Entries {
    visits: 3,
    steps: 2,
};
/// If the start is far slower, an entry costs less than the steps at the start that it replaces. The
/// comparison with the start does not tell the finalists apart.
const ENTRIES_FAR: Entries = Entries {
    visits: 6,
    steps: 4,
};
/// A setting is entered if it is slower than the best by less than this, in log step time: a far
/// network had stable step times 22 % apart.
const GAP: f64 = 0.25;

impl Session {
    /// The setting to be entered next. None if the start and the finalists were entered often
    /// enough; a single finalist is entered by the comparison anyway.
    pub(super) fn next_entry(&self) -> Option<Point> {
        let wanted = self.entries_wanted().visits;
        // As many as the start and the finalists need: under noise, an entry may change which
        // settings are the best.
        if self.left() <= 0.0 || self.entries >= (1 + FINALISTS) * (wanted - 1) {
            return None;
        }
        let start = self.tuner.start();
        let is_near = self.known(&start)? - self.known(&self.incumbent)? < GAP;
        let start_visits = self.tuner.sample(&start)?.visits.len();
        if is_near && self.setting != start && start_visits < wanted {
            return Some(start);
        }
        let start_log = self.start_log()?;
        let is_other = |point: &Point| {
            ![self.default, start].contains(point) && !self.rejected.contains(point)
        };
        let samples = self.tuner.estimates().into_iter();
        let mut all: Vec<(Point, f64, usize)> = samples
            .filter(|(sample, _)| is_other(&sample.point) && !sample.visits.is_empty())
            .map(|(sample, seen)| (sample.point, seen.log_time, sample.visits.len()))
            .filter(|(_, center, _)| *center < start_log)
            .collect();
        all.sort_by(|a, b| a.1.total_cmp(&b.1));
        let best = all.first()?.1;
        all.truncate(FINALISTS);
        all.retain(|(_, center, _)| center - best < GAP);
        let is_done = all.iter().all(|(_, _, visits)| *visits >= wanted);
        if all.len() < 2 || is_done {
            return None;
        }
        // Never the setting in force: that would not be an entry.
        let others = all.iter().filter(|(point, ..)| *point != self.setting);
        others
            .min_by_key(|(_, _, visits)| *visits)
            .map(|(point, ..)| *point)
    }

    fn entries_wanted(&self) -> Entries {
        let both = self.start_log().zip(self.known(&self.incumbent));
        match both.is_some_and(|(start, best)| start - best > FAR_SLOWER) {
            true => ENTRIES_FAR,
            false => ENTRIES,
        }
    }

    /// Enters the start or a finalist.
    pub(super) fn enter(&mut self, point: Point) -> Action {
        self.stage = Stage::Entry;
        self.entries += 1;
        self.predicted = None;
        self.go_to(point)
    }

    /// After a step of an entry.
    pub(super) fn on_entry(&mut self) -> Action {
        if self.window.steps() < self.entries_wanted().steps {
            return Action::Keep;
        }
        self.close_window(Phase::Sample, self.sample);
        match self.next_entry() {
            Some(point) => self.enter(point),
            None => self.ask_from(self.setting),
        }
    }
}
