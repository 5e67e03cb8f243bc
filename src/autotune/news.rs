//! News of the tuner for the live page: kept until the page fetches them, if there is one.

use std::collections::VecDeque;

use ronde_tuner::{Point, Proposal, Recheck};

use super::report::AutotuneVerdict;
use super::space::{CYCLE_MS, FUSION_MB};

/// Most entries that wait to be fetched; older ones are dropped.
const UNREAD_MAX: usize = 1024;

/// Place of a setting on the surface.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    /// MiB.
    pub(crate) fusion_mb: f64,
    pub(crate) cycle_ms: f64,
}

/// Predicted step times over fusion threshold and cycle time, at the other parameters of the
/// incumbent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Surface {
    /// Ascending, MiB.
    pub(crate) fusion_mb: Vec<f64>,
    /// Ascending.
    pub(crate) cycle_ms: Vec<f64>,
    /// For each cycle time, one value for each threshold; NaN where there is none.
    pub(crate) predicted_ms: Vec<f64>,
}

/// Something that the tuner did.
#[derive(Clone, Debug)]
pub(crate) enum News {
    /// A search began from this default. What was measured before is not part of it.
    Search {
        default: Place,
    },
    /// A setting was measured.
    Measured {
        place: Place,
        step_ms: f64,
        /// Half the width of the 95 % interval.
        ci95_ms: f64,
        best: Option<Place>,
        /// Cost of the search so far, in steps.
        cost: f64,
    },
    /// The next setting was chosen, from this surface; it is empty if none could be fitted.
    Proposed {
        surface: Surface,
        incumbent: Place,
        next: Option<Place>,
    },
    Verdict(Box<AutotuneVerdict>),
    /// The chosen settings were compared with the default again.
    Recheck(Recheck),
    /// The step time has changed permanently.
    Drift(String),
    /// Anything else.
    Note(String),
    Warning(String),
}

/// News that wait to be fetched, each with the number of the step after which it came.
#[derive(Debug, Default)]
pub(super) struct Journal {
    entries: VecDeque<(u64, News)>,
}

impl Journal {
    pub(super) fn push(&mut self, step: u64, news: News) {
        if self.entries.len() == UNREAD_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back((step, news));
    }

    pub(super) fn take(&mut self) -> Vec<(u64, News)> {
        self.entries.drain(..).collect()
    }
}

impl Place {
    pub(super) fn of(point: &Point) -> Self {
        Self {
            fusion_mb: point.value(FUSION_MB),
            cycle_ms: point.value(CYCLE_MS),
        }
    }
}

impl Surface {
    /// Cuts the proposal's surface at the incumbent's other parameters.
    pub(super) fn of(proposal: &Proposal) -> Self {
        let surface = &proposal.surface;
        let others = |point: &Point| {
            [
                &point.values()[..FUSION_MB],
                &point.values()[CYCLE_MS + 1..],
            ]
            .concat()
        };
        let cut = others(&proposal.incumbent);
        let all = surface.settings.iter().zip(&surface.log_times);
        let within: Vec<(Place, f64)> = all
            .filter(|(point, _)| others(point) == cut)
            .map(|(point, log_time)| (Place::of(point), log_time.exp()))
            .collect();
        // A level has a value at nearly all levels of the other parameter; a measured setting
        // between the levels has none.
        let levels = |of: fn(&Place) -> f64, other: fn(&Place) -> f64| {
            let mut levels: Vec<f64> = within.iter().map(|(place, _)| of(place)).collect();
            levels.sort_by(f64::total_cmp);
            levels.dedup();
            let mut others: Vec<f64> = within.iter().map(|(place, _)| other(place)).collect();
            others.sort_by(f64::total_cmp);
            others.dedup();
            let count = |level: f64| {
                within
                    .iter()
                    .filter(|(place, _)| of(place) == level)
                    .count()
            };
            levels.retain(|&level| 2 * count(level) > others.len());
            levels
        };
        let fusion = |place: &Place| place.fusion_mb;
        let cycle = |place: &Place| place.cycle_ms;
        let (fusion_mb, cycle_ms) = (levels(fusion, cycle), levels(cycle, fusion));
        let mut predicted_ms = vec![f64::NAN; fusion_mb.len() * cycle_ms.len()];
        for (place, step_ms) in &within {
            let column = fusion_mb.iter().position(|&level| level == place.fusion_mb);
            let row = cycle_ms.iter().position(|&level| level == place.cycle_ms);
            if let (Some(column), Some(row)) = (column, row) {
                predicted_ms[row * fusion_mb.len() + column] = *step_ms;
            }
        }
        Self {
            fusion_mb,
            cycle_ms,
            predicted_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ronde_tuner::{Observation, Parameter, Space, Tuner, TunerConfig};

    #[test]
    fn a_surface_is_cut_at_the_other_parameters_of_the_incumbent() {
        let space = Space::new(vec![
            Parameter::log("fusion_mb", 1.0, 4.0, 3).with_zero(),
            Parameter::log("cycle_ms", 1.0, 100.0, 3),
            Parameter::boolean("cache"),
        ])
        .unwrap();
        let start = space.point(&[3.0, 7.0, 1.0]).unwrap(); // between the levels
        let mut tuner = Tuner::new(space, TunerConfig::default(), start).unwrap();
        let observation = Observation {
            value: 50.0,
            spread: 1.0,
            steps: 10,
        };
        tuner.tell(start, observation).unwrap();
        let surface = Surface::of(&tuner.job().run());
        assert_eq!(surface.fusion_mb, [0.0, 1.0, 2.0, 4.0]);
        let rounded = surface.cycle_ms.iter().map(|ms| ms.round());
        assert_eq!(rounded.collect::<Vec<_>>(), [1.0, 10.0, 100.0]);
        assert_eq!(surface.predicted_ms.len(), 12);
        let near = |ms: &f64| (10.0..250.0).contains(ms);
        assert!(surface.predicted_ms.iter().all(near), "{surface:?}");
    }

    #[test]
    fn news_that_nobody_fetches_do_not_grow() {
        let mut journal = Journal::default();
        for step in 0..2000 {
            journal.push(step, News::Note(String::new()));
        }
        let taken = journal.take();
        assert_eq!((taken.len(), taken[0].0), (UNREAD_MAX, 2000 - 1024));
        assert!(journal.take().is_empty());
    }
}
