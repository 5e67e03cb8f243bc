//! The best few settings as a table, for the terminal and for Markdown.

use super::words::{self, Naming};
use crate::html::number;
use ronde_lab::sweep::{Basis, Ending, Finding, Outcome};

/// Rows, without the default where it is not among the best.
const ROWS: usize = 10;

/// Headings and cells; the first column is of words, the others of numbers.
pub(super) struct Best {
    pub(super) headings: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

/// The best few of `finding` and the default.
pub(super) fn best(finding: &Finding) -> Best {
    let naming = Naming::of(finding);
    let timed = |outcome: &&Outcome| matches!(outcome.ending, Ending::Measured | Ending::Predicted);
    let mut shown: Vec<&Outcome> = finding.points.iter().filter(timed).take(ROWS).collect();
    let default = finding.default().filter(timed);
    shown.extend(default.filter(|default| !shown.iter().any(|outcome| outcome.point == default.point)));
    let columns = Columns {
        measured: finding.basis != Basis::Predicted,
        predicted: shown.iter().any(|outcome| outcome.predicted_ms.is_some()),
    };
    let mut headings = vec![String::new()];
    headings.extend(naming.headings().into_iter().map(str::to_owned));
    headings.extend(columns.headings(finding));
    let row = |outcome: &&Outcome| {
        let mut cells = vec![mark(finding, outcome)];
        cells.extend(naming.cells(&outcome.point));
        cells.extend(columns.cells(outcome));
        cells
    };
    Best {
        rows: shown.iter().map(row).collect(),
        headings,
    }
}

/// Which columns there are.
struct Columns {
    measured: bool,
    predicted: bool,
}

impl Columns {
    fn headings(&self, finding: &Finding) -> Vec<String> {
        let level = words::level(finding);
        let mut headings = Vec::new();
        if self.measured {
            headings.push("step ms".to_owned());
        }
        if self.predicted {
            headings.push("predicted ms (80 %)".to_owned());
        }
        if self.measured && self.predicted {
            headings.push("error".to_owned());
        }
        headings.push("above best".to_owned());
        headings.push(format!("against default ({level} %)"));
        if self.measured {
            headings.push("measured".to_owned());
        }
        headings
    }

    fn cells(&self, outcome: &Outcome) -> Vec<String> {
        let dash = || "–".to_owned();
        let mut cells = Vec::new();
        if self.measured {
            cells.push(outcome.step_ms.map_or_else(dash, number::digits));
        }
        if self.predicted {
            cells.push(outcome.predicted_ms.map_or_else(dash, |predicted| {
                let [value, bounds] = [number::digits(predicted.value), interval(predicted.interval)];
                value + &bounds
            }));
        }
        if self.measured && self.predicted {
            let error = outcome.step_ms.zip(outcome.predicted_ms);
            cells.push(error.map_or_else(dash, |(ms, predicted)| words::signed(predicted.value / ms - 1.0)));
        }
        cells.push(outcome.above_best.map_or_else(dash, words::signed));
        cells.push(words::change(outcome.against_default));
        if self.measured {
            cells.push(match outcome.measurements {
                0 => dash(),
                count => format!("{count} ×"),
            });
        }
        cells
    }
}

fn interval(bounds: Option<[f64; 2]>) -> String {
    bounds.map_or_else(String::new, |[low, high]| {
        format!(" ({} to {})", number::digits(low), number::digits(high))
    })
}

fn mark(finding: &Finding, outcome: &Outcome) -> String {
    let is = |other: Option<&Outcome>| other.is_some_and(|other| other.point == outcome.point);
    let mut words = Vec::new();
    if is(finding.best()) {
        words.push("best");
    } else if outcome.tied {
        words.push("ties");
    }
    if is(finding.default()) {
        words.push("default");
    }
    // Twelve columns at most: narrower ones would cut it.
    words.join("/")
}
