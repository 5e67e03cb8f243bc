//! The setting to run with, as lines to paste.

use ronde_lab::paste::Paste;
use ronde_lab::sweep::{Finding, Point};

/// Variables to paste before a command.
pub(in crate::sweep) fn environment(point: &Point) -> String {
    of(point).environment()
}

/// Flags that mean the same to `horovodrun` and `ronde run`; none if the threshold is no whole number of MiB, for
/// `horovodrun` takes no other.
pub(in crate::sweep) fn flags(point: &Point) -> Option<String> {
    let whole = point.fusion_threshold_bytes.is_multiple_of(1 << 20);
    whole.then(|| of(point).flags(point.fusion_threshold_bytes >> 20))
}

/// The lines that there are to paste; none where the default will do.
pub(in crate::sweep) fn paste(finding: &Finding) -> Vec<String> {
    let recommended = finding.recommended().map(|outcome| outcome.point);
    let Some(point) = recommended.filter(|point| !point.is_default()) else {
        return Vec::new();
    };
    let mut lines = vec![environment(&point)];
    if let Some(flags) = flags(&point) {
        lines.push(format!("horovodrun -np {} {flags} …", finding.np));
        lines.push(format!("ronde run -np {} {flags} -- …", finding.np));
    }
    lines
}

/// Switches only where they are not as usual.
fn of(point: &Point) -> Paste {
    Paste {
        fusion_threshold_bytes: point.fusion_threshold_bytes,
        cycle_time_ms: point.cycle_time_ms.to_string(),
        hierarchical_allreduce: point.hierarchical_allreduce.then_some(true),
        cache: (!point.cache).then_some(false),
        ..Paste::default()
    }
}
