//! Review as text for a terminal.

use super::{compare, report};
use crate::present::{Look, Section, prose, text};
use ronde_lab::review::{Comparison, Review};

/// Returns the text of all reviews, which ends with a newline.
pub(super) fn reviews(reviews: &[Review], look: &Look) -> String {
    let mut sections = Vec::new();
    for review in reviews {
        sections.push(head(review));
        sections.extend(report::sections(review, None));
    }
    text(&sections, look)
}

fn head(review: &Review) -> Section<'_> {
    Section::new("head", "").untitled().terminal(|look| {
        let headline = format!("{}: {}", review.source, report::summary(review));
        let mut lines = prose("", &[headline], look);
        lines.extend(prose("  ", &report::answer(review), look));
        lines
    })
}

/// Returns the text of a comparison.
pub(super) fn comparison(comparison: &Comparison, [a, b]: [&Review; 2], look: &Look) -> String {
    let sections = [
        head(a),
        head(b),
        compare::common(comparison),
        compare::preferred(comparison),
    ];
    text(&sections, look)
}
