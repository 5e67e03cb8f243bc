//! Settings that `ronde sweep` and `ronde replay` compare: their names, and lines to paste.

use crate::present::units::setting as short;
use ronde_job::point::Point;
use ronde_lab::paste::{Paste, Switch};

/// Format of the names of settings: threshold and cycle time, and the booleans that are shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Naming {
    pub(crate) cache: bool,
    pub(crate) hierarchical: bool,
}

impl Naming {
    /// Format in which the booleans are shown that differ from the default in any of `points`.
    pub(crate) fn of<'a>(points: impl Iterator<Item = &'a Point> + Clone) -> Self {
        Self {
            cache: points.clone().any(|point| !point.cache),
            hierarchical: points.clone().any(|point| point.hierarchical_allreduce),
        }
    }

    /// Name of a setting: `fusion 16 MiB, cycle 2.5 ms`.
    pub(crate) fn setting(self, point: &Point) -> String {
        let (fusion_mb, cycle_ms) = (short(point.fusion_mb()), short(point.cycle_time_ms));
        let mut words = format!("fusion {fusion_mb} MiB, cycle {cycle_ms} ms");
        if self.cache {
            words += &format!(", cache {}", on(point.cache));
        }
        match point.hierarchical_allreduce {
            _ if !self.hierarchical => {}
            true => words += ", hierarchical",
            false => words += ", flat",
        }
        words
    }

    /// Cells of a setting: threshold in MiB, cycle time in ms, cache, hierarchical allreduce; empty
    /// if they are not shown.
    pub(crate) fn cells(self, point: &Point) -> [String; 4] {
        let switch = |shown: bool, value: bool| if shown { on(value) } else { "" }.to_owned();
        [
            short(point.fusion_mb()),
            short(point.cycle_time_ms),
            switch(self.cache, point.cache),
            switch(self.hierarchical, point.hierarchical_allreduce),
        ]
    }
}

/// Threshold and cycle time of a setting: `16 MiB, 2.5 ms`.
pub(crate) fn numbers(point: &Point) -> String {
    let (fusion_mb, cycle_ms) = (short(point.fusion_mb()), short(point.cycle_time_ms));
    format!("{fusion_mb} MiB, {cycle_ms} ms")
}

pub(crate) fn on(switch: bool) -> &'static str {
    if switch { "on" } else { "off" }
}

/// Setting to paste; booleans only if they differ from those in force.
pub(crate) fn paste(point: &Point, in_force: &Point) -> Paste {
    let changed = |of: fn(&Point) -> bool| (of(point) != of(in_force)).then(|| of(point));
    let mut switches = [None; 4];
    switches[Switch::HierarchicalAllreduce as usize] = changed(|of| of.hierarchical_allreduce);
    switches[Switch::CacheEnabled as usize] = changed(|of| of.cache);
    Paste {
        fusion_threshold_bytes: point.fusion_threshold_bytes,
        cycle_time_ms: short(point.cycle_time_ms),
        switches,
        ..Paste::default()
    }
}
