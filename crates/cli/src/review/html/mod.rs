//! Review as one self-contained HTML page: the recommendation first, then the charts, then the
//! evidence.

mod tables;

use maud::{Markup, html};

use super::figures::Pictures;
use super::say;
use crate::html::text::Foreign;
use crate::html::{Document, section};
use ronde_lab::review::words::{counted, percent, signed};
use ronde_lab::review::{Measure, Review};
use tables::{choice, knobs, trials};

const STYLE: &str = include_str!("review.css");

/// Renders the page of all reviews.
pub(super) fn page(reviews: &[Review]) -> String {
    let title = match reviews {
        [only] => format!("Review of {}", only.source),
        _ => format!(
            "Review of {}",
            counted(reviews.len() as u64, "autotune log")
        ),
    };
    let mut body = Vec::new();
    for (index, review) in reviews.iter().enumerate() {
        body.push(one(review, index, reviews.len() > 1));
    }
    let page = Document {
        title: &title,
        style: STYLE,
        body: html! {
            @if reviews.len() > 1 {
                nav aria-label="Logs" {
                    @for (index, review) in reviews.iter().enumerate() { a href={ "#log-" (index) } { (Foreign(&review.source)) } " " }
                }
            }
            @for part in &body { (part) }
        },
    };
    page.render()
}

fn one(review: &Review, index: usize, several: bool) -> Markup {
    let id = |name: &str| {
        if several {
            format!("{name}-{index}")
        } else {
            name.to_owned()
        }
    };
    let pictures = Pictures::of(review, "", index);
    let mut sections: Vec<(&str, &str, Markup)> = Vec::new();
    let mut push = |name, heading, body: Option<Markup>| {
        if let Some(body) = body {
            sections.push((name, heading, body));
        }
    };
    push(
        "warnings",
        "Before you believe this",
        list(&review.warnings),
    );
    if let Some(pictures) = &pictures {
        push(
            "trials",
            "Trials",
            Some(html! { (pictures.trail) p.note { (trail_note(review)) } }),
        );
        push(
            "surface",
            "Expected value of every setting",
            Some(
                html! { @for surface in &pictures.surfaces { (surface) } p.note { "Numbers are in the tables below." } },
            ),
        );
    }
    push(
        "choice",
        "The choice, and whether it was luck",
        review.best.as_ref().map(|best| choice(review, best)),
    );
    push("noise", "Noise", paragraphs(&say::noise(review)));
    push(
        "knobs",
        "Which knobs mattered",
        (!review.knobs.is_empty()).then(|| knobs(review)),
    );
    push(
        "finished",
        "Was it finished?",
        paragraphs(&say::finished(review)),
    );
    push(
        "tried",
        "What was tried",
        review
            .tried
            .as_ref()
            .and_then(|tried| paragraphs(&say::tried(review, tried))),
    );
    push("next", "What to try next", paragraphs(&say::next(review)));
    push("cost", "Cost and pay-back", paragraphs(&say::cost(review)));
    push("trail", "How it went", trail(review));
    push(
        "table",
        "All trials",
        (!review.trials.is_empty()).then(|| trials(review)),
    );
    push("guide", "How to read this page", Some(guide(review)));
    html! {
        div id={ "log-" (index) } {
            @if several { h2 { (Foreign(&review.source)) } }
            p.soft { (Foreign(&say::summary(review))) "." }
            p.answer { strong { @for sentence in say::answer(review) { (Foreign(&sentence)) " " } } }
            @if let Some([environment, flags]) = say::paste(review) {
                pre.paste { (Foreign(&environment)) "\n" (Foreign(&flags)) }
            }
            (tiles(review))
            nav aria-label="Sections" {
                @for (name, heading, _) in &sections { a href={ "#" (id(name)) } { (heading) } " " }
            }
            @for (name, heading, body) in &sections { (section(&id(name), heading, body)) }
        }
    }
}

fn paragraphs(sentences: &[String]) -> Option<Markup> {
    (!sentences.is_empty())
        .then(|| html! { @for sentence in sentences { p { (Foreign(sentence)) } } })
}

fn list(sentences: &[String]) -> Option<Markup> {
    (!sentences.is_empty())
        .then(|| html! { ul { @for sentence in sentences { li { (Foreign(sentence)) } } } })
}

fn tile(name: &str, value: &str, detail: &str) -> Markup {
    html! {
        div { dt { (name) } dd { (value) } @if !detail.is_empty() { dd.detail { (Foreign(detail)) } } }
    }
}

/// Renders the key figures.
fn tiles(review: &Review) -> Markup {
    let trials = review.tried.as_ref().map_or(0, |tried| tried.trials);
    let noise = review.noise.sd();
    html! {
        dl.tiles {
            (tile("Search", if review.ending.finished { "finished" } else { "not finished" }, &counted(trials, "trial")))
            @if let Some(sd) = noise {
                (tile("Noise of a trial", &percent(sd), if sd > say::NOISY { "much, for differences of a few percent" } else { "little" }))
            }
            @if let Some(best) = &review.best {
                (tile("Luck of the choice", &percent(best.luck.max(0.0)), "of what was measured, beyond what is expected there"))
                (tile(
                    "Choice is within 1 % of the best tried",
                    &say::share(best.choice.probability_good),
                    &match best.ties.len() {
                        0 => "nothing else comes near".to_owned(),
                        ties => format!("{} cannot be told from the best", counted(ties as u64, "other")),
                    },
                ))
            }
            @match review.decisive_contest() {
                Some(contest) => (tile(
                    "Gain over the default",
                    &signed(contest.gain.mean),
                    &format!("{} to {}, {}", signed(contest.gain.low), signed(contest.gain.high), counted(contest.rounds, "round")),
                )),
                None if review.gain.default.is_none() => (tile("Gain over the default", "not known", "it was never tried")),
                None => "",
            }
            @if let Some(cost) = &review.cost {
                (tile(
                    "Cost",
                    &say::steps(cost.steps_lost),
                    &match cost.payback_step {
                        Some(step) if cost.steps_lost >= say::LEAST_STEPS => format!("paid back at step {step}"),
                        _ => format!("in {}", counted(cost.steps, "step")),
                    },
                ))
            }
        }
    }
}

fn trail_note(review: &Review) -> String {
    let what = match review.measure {
        Measure::Score => "Score",
        Measure::StepMs => "Step time",
    };
    format!("{what} of each trial in order; the numbers are in the table of all trials.")
}

fn trail(review: &Review) -> Option<Markup> {
    (!review.trail.is_empty()).then(|| {
        html! { ol.trail { @for sentence in &review.trail { li { (Foreign(sentence)) } } } }
    })
}

fn guide(review: &Review) -> Markup {
    html! {
        @if review.measure == Measure::Score {
            p {
                "A score is the bytes reduced per µs, the median of five stretches of a trial; higher is better. Thresholds are in MiB, which \
                 Horovod calls MB. A score that is 5 % higher is a step that takes 5 % less time."
            }
        } @else {
            p { "Step times are those of the slowest rank, medians of a trial's steps; lower is better. Thresholds are in MiB, called MB." }
        }
        p {
            "“Expected” is what a smooth surface, fitted to all trials, says of a setting: a Gaussian process over the logarithms of threshold and \
             cycle time and the switches, as the tuner itself uses, its noise estimated together with it. The best of many noisy trials is \
             also a lucky one; its neighbours tell by how much. Intervals hold 95 %."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::own_part;
    use ronde_lab::review::{Known, review};
    use ronde_tuner::read_log;

    fn reviews(text: &str, source: &str) -> Vec<Review> {
        review(&read_log(text).unwrap(), source, &Known::default())
    }

    const LOG: &str = "hierarchical_allreduce,cycle_time_ms,tensor_fusion_threshold,score\n0,5,4,100\n0,50,32,120\n1,5,4,150\n";

    #[test]
    fn the_page_stands_alone_and_is_well_formed() {
        let mut both = reviews(LOG, "<a>.csv");
        both.extend(reviews(LOG, "b.csv"));
        let page = own_part(&page(&both));
        assert!(page.contains("&lt;a&gt;.csv") && !page.contains("<a>.csv"));
        assert!(page.contains("HOROVOD_FUSION_THRESHOLD=") && page.contains("id=\"choice-1\""));
        assert!(!page.contains("http://") && !page.contains("https://"));
        let errors = crate::html::errors(&page);
        assert!(errors.is_empty(), "{errors:?}");
    }

    #[test]
    fn a_log_without_trials_has_a_page_too() {
        let empty = LOG.lines().next().unwrap().to_owned() + "\n";
        let page = own_part(&page(&reviews(&empty, "a.csv")));
        assert!(page.contains("Nothing was measured") && !page.contains("class=\"chart\""));
    }
}
