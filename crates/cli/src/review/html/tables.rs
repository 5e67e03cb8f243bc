//! Tables of the page: candidates, knobs and trials.

use maud::{Markup, html};

use crate::html::text::Foreign;
use crate::html::{folded, wide};
use crate::review::{say, text};
use ronde_lab::review::words::{counted, number, percent, signed};
use ronde_lab::review::{Best, Importance, Measure, Phase, Review, Trial};

/// Largest number of rows in the table of trials; the log itself has all of them.
const TRIALS: usize = 1000;

/// Renders the sentences on the choice, and the table of the alternatives.
pub(super) fn choice(review: &Review, best: &Best) -> Markup {
    let measured = match review.measure {
        Measure::Score => "best score",
        Measure::StepMs => "best, ms",
    };
    html! {
        @for sentence in say::chosen(review, best) { p { (Foreign(&sentence)) } }
        (wide("The settings of which most is expected", &html! {
            table {
                caption { "Of which most is expected: the first, the choice, and what cannot be told from the first" }
                thead { tr {
                    th scope="col" { "setting" } th.n scope="col" { "trials" } th.n scope="col" { (measured) } th.n scope="col" { "expected (95 %)" }
                    th.n scope="col" { "is the best" } th.n scope="col" { "within 1 %" } th.n scope="col" { "slower than the first" }
                } }
                tbody {
                    @for candidate in text::shown(best) {
                        tr.favourite[candidate == &best.favourite] {
                            th scope="row" { (say::words(review, &candidate.setting)) }
                            td.n { (candidate.trials) }
                            td.n { (number(candidate.measured)) }
                            td.n { (say::expected(candidate)) }
                            td.n { (say::share(candidate.probability_best)) }
                            td.n { (say::share(candidate.probability_good)) }
                            td.n { @if candidate != &best.favourite { (say::behind(candidate)) } }
                        }
                    }
                }
            }
        }))
    }
}

/// Renders the effect of each knob.
pub(super) fn knobs(review: &Review) -> Markup {
    let varied: Vec<_> = review
        .knobs
        .iter()
        .filter(|effect| effect.importance != Importance::Fixed)
        .collect();
    html! {
        @for sentence in say::knobs(&review.knobs) { p { (Foreign(&sentence)) } }
        @if !varied.is_empty() {
            (wide("What each knob does", &html! {
                table {
                    caption { "Over the range that was tried, the other knobs averaged" }
                    thead { tr {
                        th scope="col" { "knob" } th scope="col" { "" } th.n scope="col" { "best at" } th.n scope="col" { "worst at" }
                        th.n scope="col" { "costs there" } th.n scope="col" { "95 %" } th.n scope="col" { "share of all differences" }
                    } }
                    tbody {
                        @for effect in varied {
                            tr {
                                th scope="row" { (effect.knob.name()) }
                                td class=(match effect.importance { Importance::Matters => "matters", Importance::Dead => "dead", _ => "" }) {
                                    (say::importance(effect))
                                }
                                td.n { (say::level(effect, effect.best)) }
                                td.n { (say::level(effect, effect.worst)) }
                                td.n { (signed(effect.reach.mean)) }
                                td.n { (signed(effect.reach.low)) " to " (signed(effect.reach.high)) }
                                td.n { (percent(effect.share)) }
                            }
                        }
                    }
                }
            }))
        }
    }
}

/// Renders the table of all trials, folded.
pub(super) fn trials(review: &Review) -> Markup {
    let (what, timed) = match review.measure {
        Measure::Score => ("score", false),
        Measure::StepMs => ("step, ms", true),
    };
    let phase = |trial: &Trial| match trial.phase {
        Phase::Default => "default",
        Phase::Sample => "sample",
        Phase::Ab => "A/B",
    };
    let optional = |value: Option<f64>| value.map_or_else(String::new, number);
    let table = html! {
        table {
            thead { tr {
                th.n scope="col" { "line" } th scope="col" { "for" } th scope="col" { "setting" } th.n scope="col" { (what) }
                @if timed {
                    th.n scope="col" { "±" } th.n scope="col" { "was expected" } th.n scope="col" { "steps" }
                }
            } }
            tbody {
                @for trial in review.trials.iter().take(TRIALS) {
                    tr {
                        td.n { (trial.line) }
                        td { (phase(trial)) " " (trial.number) }
                        td { (say::words(review, &trial.setting)) }
                        td.n { (number(trial.value)) }
                        @if timed {
                            td.n { (optional(trial.ci95)) }
                            td.n { (optional(trial.predicted_step_ms)) }
                            td.n { @if let Some(steps) = trial.steps { (steps) } }
                        }
                    }
                }
            }
        }
    };
    let more = review.trials.len().saturating_sub(TRIALS);
    html! {
        (folded(&counted(review.trials.len() as u64, "trial"), &html! {
            (wide("All trials", &table))
            @if more > 0 { p.note { "And " (more) " more." } }
        }))
    }
}
