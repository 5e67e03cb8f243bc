//! Review as text for a terminal.

use super::say;
use crate::present::{Look, Table, harmless, page, titled, warnings, wrapped};
use ronde_lab::review::words::{number, percent, signed};
use ronde_lab::review::{Best, Candidate, Comparison, Effect, Importance, Measure, Review};

/// Largest number of candidates in the table.
const CANDIDATES: usize = 6;
/// Largest number of sentences of the trail; the page has all of them.
const TRAIL: usize = 30;

/// Returns the text of all reviews, which ends with a newline.
pub(super) fn reviews(reviews: &[Review], look: &Look) -> String {
    let sections = reviews.iter().flat_map(|review| sections(review, look));
    page(sections, look)
}

fn sections(review: &Review, look: &Look) -> Vec<Vec<String>> {
    let section =
        |title: &str, sentences: Vec<String>| titled(title, prose(&sentences, look), look);
    let mut head = wrapped("", &harmless(&say::headline(review)), look.width);
    head.extend(prose(&say::answer(review), look));
    let mut sections = vec![head, warnings(&review.warnings, look)];
    sections.push(section("Finished?", say::finished(review)));
    if let Some(tried) = &review.tried {
        sections.push(section("Tried", say::tried(review, tried)));
    }
    sections.push(section("Noise", say::noise(review)));
    if let Some(best) = &review.best {
        let mut lines = prose(&say::chosen(review, best), look);
        lines.extend(candidates(best, review, look));
        sections.push(titled("Choice", lines, look));
    }
    let mut lines = prose(&say::knobs(&review.knobs), look);
    lines.extend(effects(&review.knobs, look));
    sections.push(titled("Knobs", lines, look));
    sections.push(section("What to try next", say::next(review)));
    sections.push(section("Cost", say::cost(review)));
    sections.push(section("How it went", trail(review)));
    if let Some(lines) = say::paste(review) {
        // Do not wrap: these lines are meant to be copied.
        let lines = lines.map(|line| format!("  {line}")).to_vec();
        sections.push(titled("To paste", lines, look));
    }
    sections
}

fn prose(sentences: &[String], look: &Look) -> Vec<String> {
    sentences
        .iter()
        .flat_map(|sentence| wrapped("  ", &harmless(sentence), look.width))
        .collect()
}

fn trail(review: &Review) -> Vec<String> {
    let more = review.trail.len().saturating_sub(TRAIL);
    let mut trail: Vec<String> = review.trail.iter().take(TRAIL).cloned().collect();
    if more > 0 {
        trail.push(format!("… and {more} more; --html tells all."));
    }
    trail
}

/// Candidates for the table: the favourite, the choice, and those that cannot be distinguished from
/// them.
pub(super) fn shown(best: &Best) -> Vec<&Candidate> {
    let mut shown = vec![&best.favourite];
    if !best.is_favourite {
        shown.push(&best.choice);
    }
    let others = best
        .ties
        .iter()
        .filter(|tie| !tie.setting.is_near(&best.choice.setting));
    shown.extend(others.take(CANDIDATES - shown.len()));
    shown
}

fn candidates(best: &Best, review: &Review, look: &Look) -> Vec<String> {
    let measured = match review.measure {
        Measure::Score => "best",
        Measure::StepMs => "best ms",
    };
    let mut table = Table::new(&[
        "=setting",
        "trials",
        measured,
        "expected (95 %)",
        "is best",
        "within 1 %",
        "slower than the first",
    ]);
    for candidate in shown(best) {
        table.row([
            say::words(review, &candidate.setting),
            candidate.trials.to_string(),
            number(candidate.measured),
            say::expected(candidate),
            say::share(candidate.probability_best),
            say::share(candidate.probability_good),
            if candidate == &best.favourite {
                String::new()
            } else {
                say::behind(candidate)
            },
        ]);
    }
    table.lines(look.width)
}

fn effects(effects: &[Effect], look: &Look) -> Vec<String> {
    let varied = || {
        effects
            .iter()
            .filter(|effect| effect.importance != Importance::Fixed)
    };
    if varied().next().is_none() {
        return Vec::new();
    }
    let mut table = Table::new(&[
        "<knob",
        "best at",
        "worst at",
        "costs there",
        "95 %",
        "share",
        "<",
    ]);
    for effect in varied() {
        table.row([
            effect.knob.name().to_owned(),
            say::level(effect, effect.best),
            say::level(effect, effect.worst),
            signed(effect.reach.mean),
            format!(
                "{} to {}",
                signed(effect.reach.low),
                signed(effect.reach.high)
            ),
            percent(effect.share),
            say::importance(effect).to_owned(),
        ]);
    }
    table.lines(look.width)
}

/// Returns the text of a comparison.
pub(super) fn comparison(comparison: &Comparison, both: [&Review; 2], look: &Look) -> String {
    let mut sections = Vec::new();
    for review in both {
        let mut head = wrapped("", &harmless(&say::headline(review)), look.width);
        head.extend(prose(&say::answer(review), look));
        sections.push(head);
    }
    sections.push(titled(
        "In common",
        prose(&super::compare::common(comparison), look),
        look,
    ));
    sections.push(titled(
        "Whose choice",
        prose(&super::compare::preferred(comparison), look),
        look,
    ));
    page(sections, look)
}
