//! Review as text for a terminal.

use super::{compare, report};
use crate::present::{Look, harmless, page, prose, titled, warnings, wrapped};
use ronde_lab::review::{Comparison, Review};

/// Largest number of sentences of a section; the page has all of them.
const SENTENCES: usize = 30;

/// Returns the text of all reviews, which ends with a newline.
pub(super) fn reviews(reviews: &[Review], look: &Look) -> String {
    let sections = reviews.iter().flat_map(|review| sections(review, look));
    page(sections, look)
}

fn sections(review: &Review, look: &Look) -> Vec<Vec<String>> {
    let mut sections = vec![head(review, look), warnings(&review.warnings, look)];
    for mut section in report::sections(review) {
        let more = section.sentences.len().saturating_sub(SENTENCES);
        section.sentences.truncate(SENTENCES);
        if more > 0 {
            let more = format!("… and {more} more; --html writes all.");
            section.sentences.push(more);
        }
        sections.push(section.lines(look));
    }
    if let Some(lines) = report::paste(review) {
        // Do not wrap: these lines are meant to be copied.
        let lines = lines.map(|line| format!("  {line}")).to_vec();
        sections.push(titled("To paste", lines, look));
    }
    sections
}

fn head(review: &Review, look: &Look) -> Vec<String> {
    let headline = format!("{}: {}", review.source, report::summary(review));
    let mut head = wrapped("", &harmless(&headline), look.width);
    head.extend(prose("  ", &report::answer(review), look));
    head
}

/// Returns the text of a comparison.
pub(super) fn comparison(comparison: &Comparison, both: [&Review; 2], look: &Look) -> String {
    let heads = both.map(|review| head(review, look));
    let sections = [compare::common(comparison), compare::preferred(comparison)];
    let sections = sections.map(|section| section.lines(look));
    page(heads.into_iter().chain(sections), look)
}
