//! Names of settings: threshold and cycle time, and the booleans if they were varied or differ from
//! the default.

use crate::present::units::{counted, setting as knob};
use ronde_lab::sweep::{Finding, Point};

/// Format of the names of one finding's settings.
#[derive(Clone, Copy, Debug)]
pub(in crate::sweep) struct Naming {
    cache: bool,
    hierarchical: bool,
}

impl Naming {
    pub(in crate::sweep) fn of(finding: &Finding) -> Self {
        let varied =
            |of: fn(&Point) -> bool| finding.points.iter().any(|outcome| of(&outcome.point));
        Self {
            cache: varied(|point| !point.cache),
            hierarchical: varied(|point| point.hierarchical_allreduce),
        }
    }

    /// Name of a setting: `fusion 16 MiB, cycle 2.5 ms`.
    pub(in crate::sweep) fn setting(self, point: &Point) -> String {
        let mut words = format!(
            "fusion {} MiB, cycle {} ms",
            knob(point.fusion_mb()),
            knob(point.cycle_time_ms)
        );
        if self.cache {
            words += &format!(", cache {}", on(point.cache));
        }
        if self.hierarchical {
            words += if point.hierarchical_allreduce {
                ", hierarchical"
            } else {
                ", flat"
            };
        }
        words
    }

    /// Columns of a setting: heading and cell.
    pub(in crate::sweep) fn columns(self, point: &Point) -> Vec<(&'static str, String)> {
        let columns = [
            (true, "fusion MiB", knob(point.fusion_mb())),
            (true, "cycle ms", knob(point.cycle_time_ms)),
            (self.cache, "cache", on(point.cache).to_owned()),
            (
                self.hierarchical,
                "hier.",
                on(point.hierarchical_allreduce).to_owned(),
            ),
        ];
        let shown = columns.into_iter().filter(|(is_shown, ..)| *is_shown);
        shown.map(|(_, heading, cell)| (heading, cell)).collect()
    }
}

pub(in crate::sweep) fn on(switch: bool) -> &'static str {
    if switch { "on" } else { "off" }
}

/// Number of ranks as text: `2 ranks`.
pub(in crate::sweep) fn ranks(finding: &Finding) -> String {
    counted(finding.np.into(), "rank")
}
