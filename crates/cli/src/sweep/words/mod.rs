//! Texts of a sweep's finding, the same for the terminal, Markdown and pictures.

mod conclusion;
mod evidence;
mod paste;

pub(super) use crate::present::units::{change as signed, duration, percent};
pub(super) use conclusion::{change, conclusion, level};
pub(super) use evidence::{effect, effort, incomplete, knobs_tell, noise};
pub(super) use paste::{environment, flags, paste};

use crate::present::units::counted;
use crate::setting::Naming;
use ronde_lab::sweep::Finding;

/// Format of the names of a finding's settings.
pub(super) fn naming(finding: &Finding) -> Naming {
    Naming::of(finding.points.iter().map(|outcome| &outcome.point))
}

/// Number of ranks as text: `2 ranks`.
pub(super) fn ranks(finding: &Finding) -> String {
    counted(finding.np.into(), "rank")
}
