//! Review as one self-contained HTML page: the recommendation first, then the charts, then the
//! evidence.

use maud::{Markup, html};

use super::figures::Pictures;
use super::report;
use crate::html::text::Foreign;
use crate::html::{Document, folded, section, section_body, wide};
use crate::present::Table;
use crate::present::units::{changes, fixed};
use ronde_lab::review::words::{counted, number, percent, signed};
use ronde_lab::review::{Measure, Phase, Review};

const STYLE: &str = include_str!("review.css");

/// Largest number of rows in the table of trials; the log itself has all of them.
const TRIALS: usize = 1000;

/// Renders the page of all reviews.
pub(super) fn page(reviews: &[Review]) -> String {
    let title = match reviews {
        [only] => format!("Review of {}", only.source),
        _ => format!(
            "Review of {}",
            counted(reviews.len() as u64, "autotune log")
        ),
    };
    let page = Document {
        title: &title,
        style: STYLE,
        body: html! {
            @if reviews.len() > 1 {
                nav aria-label="Logs" {
                    @for (index, review) in reviews.iter().enumerate() { a href={ "#log-" (index) } { (Foreign(&review.source)) } " " }
                }
            }
            @for (index, review) in reviews.iter().enumerate() { (one(review, index, reviews.len() > 1)) }
        },
    };
    page.render()
}

fn one(review: &Review, index: usize, several: bool) -> Markup {
    let id = |name: &str| match several {
        true => format!("{name}-{index}"),
        false => name.to_owned(),
    };
    let mut sections: Vec<(&str, String, Markup)> = Vec::new();
    let mut push = |id, heading: &str, body| sections.push((id, heading.to_owned(), body));
    if !review.warnings.is_empty() {
        let warnings = &review.warnings;
        let list = html! { ul { @for warning in warnings { li { (Foreign(warning)) } } } };
        push("warnings", "Warnings", list);
    }
    if let Some(pictures) = Pictures::of(review, "", index) {
        push("trials", "Trials", html! { (pictures.trail) });
        let surfaces = html! { @for surface in &pictures.surfaces { (surface) } };
        push("surface", "Expected value of every setting", surfaces);
    }
    for section in report::sections(review) {
        push(section.id, &section.title, section_body(&section));
    }
    if !review.trials.is_empty() {
        push("table", "All trials", trials(review));
    }
    push("guide", "How to read this page", guide(review));
    html! {
        div id={ "log-" (index) } {
            @if several { h2 { (Foreign(&review.source)) } }
            p.soft { (Foreign(&report::summary(review))) "." }
            p.answer { strong { @for sentence in report::answer(review) { (Foreign(&sentence)) " " } } }
            @if let Some([environment, flags]) = report::paste(review) {
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

/// Renders the key figures.
fn tiles(review: &Review) -> Markup {
    let mut tiles = vec![(
        "Search",
        report::finished(review).to_owned(),
        counted(review.trials.len() as u64, "trial"),
    )];
    if let Some(sd) = review.noise.sd() {
        tiles.push(("Noise of a trial", percent(sd), String::new()));
    }
    if let Some(best) = &review.best {
        let ties = counted(best.ties.len() as u64, "other");
        tiles.push((
            "Luck of the choice",
            percent(report::lucky_share(best)),
            "of what was measured".to_owned(),
        ));
        tiles.push((
            "Choice is within 1 % of the best tried",
            report::probability(best.choice.probability_good),
            format!("{ties} cannot be told from the best"),
        ));
    }
    if let Some(contest) = review.decisive_contest() {
        let change = contest.gain.reversed();
        tiles.push((
            "Step time against the default",
            signed(change.mean),
            format!(
                "{}, {}",
                changes(change.low, change.high),
                counted(contest.rounds, "round")
            ),
        ));
    }
    if let Some(cost) = &review.cost {
        tiles.push((
            "Steps lost",
            fixed(cost.steps_lost, 1),
            format!("in {}", counted(cost.steps, "step")),
        ));
    }
    html! {
        dl.tiles {
            @for (name, value, detail) in &tiles {
                div { dt { (name) } dd { (value) } @if !detail.is_empty() { dd.detail { (detail) } } }
            }
        }
    }
}

/// Renders the table of all trials, folded.
fn trials(review: &Review) -> Markup {
    let mut table = Table::new(&[
        "line", "<for", "=setting", "value", "±", "expected", "steps",
    ]);
    let optional = |value: Option<f64>| value.map_or_else(String::new, number);
    for trial in review.trials.iter().take(TRIALS) {
        let phase = match trial.phase {
            Phase::Default => "default",
            Phase::Sample => "sample",
            Phase::Ab => "A/B",
        };
        table.row([
            trial.line.to_string(),
            format!("{phase} {}", trial.number),
            trial.setting.words(&review.varied),
            review.measure.words(trial.value),
            optional(trial.ci95),
            optional(trial.predicted_step_ms),
            trial
                .steps
                .map_or_else(String::new, |steps| steps.to_string()),
        ]);
    }
    let more = review.trials.len().saturating_sub(TRIALS);
    folded(
        &counted(review.trials.len() as u64, "trial"),
        &html! {
            (wide("All trials", &crate::html::table(&table)))
            @if more > 0 { p.note { "And " (more) " more." } }
        },
    )
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
