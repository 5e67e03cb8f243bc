//! Recommended setting as lines to paste.

use ronde_lab::paste::Paste;
use ronde_lab::sweep::{Finding, Point};

/// Environment variables to put before a command.
pub(in crate::sweep) fn environment(point: &Point) -> String {
    of(point).environment()
}

/// Flags with the same meaning for `horovodrun` and `ronde run`; `None` if the threshold is not a
/// whole number of MiB, which `horovodrun` requires.
pub(in crate::sweep) fn flags(point: &Point) -> Option<String> {
    let whole = point.fusion_threshold_bytes.is_multiple_of(1 << 20);
    whole.then(|| of(point).flags(point.fusion_threshold_bytes >> 20))
}

/// Lines to paste; none if the default is recommended.
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

fn of(point: &Point) -> Paste {
    crate::setting::paste(point, &Point::default_of(point.np))
}
