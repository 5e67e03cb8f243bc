//! Review as one self-contained HTML page: the recommendation first, then the charts, then the
//! evidence.

use maud::{Markup, html};

use super::figures::Pictures;
use super::report;
use crate::html::text::Foreign;
use crate::html::{Document, tile};
use crate::present::units::{change, changes, counted, fixed, percent};
use crate::present::{Section, markup};
use ronde_lab::review::{Measure, Review};

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
    let pictures = Pictures::of(review, "", index);
    let mut sections = report::sections(review, pictures.as_ref());
    sections.push(Section::new("guide", "How to read this page").page(guide(review)));
    if several {
        let numbered = sections.into_iter();
        sections = numbered.map(|section| section.numbered(index)).collect();
    }
    html! {
        div id={ "log-" (index) } {
            @if several { h2 { (Foreign(&review.source)) } }
            p.soft { (Foreign(&report::summary(review))) "." }
            p.answer { strong { @for sentence in report::answer(review) { (Foreign(&sentence)) " " } } }
            (tiles(review))
            (markup(&sections))
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
            percent(best.luck.max(0.0)),
            report::luck_of(review).to_owned(),
        ));
        tiles.push((
            "Choice is within 1 % of the best tried",
            report::probability(best.choice.probability_good),
            format!("{ties} cannot be distinguished from the best"),
        ));
    }
    if let Some(contest) = review.decisive_contest() {
        let slower = contest.gain.reversed();
        tiles.push((
            "Step time against the default",
            change(slower.mean),
            format!(
                "{}, {}",
                changes(slower.low, slower.high),
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
            @for (name, value, detail) in &tiles { (tile(name, value, detail)) }
        }
    }
}

fn guide(review: &Review) -> Markup {
    html! {
        @if review.measure == Measure::Score {
            p {
                "A score is the bytes reduced per µs, the median of five samples of a trial; higher is better. A score that is 5 % \
                 higher is a step that takes 5 % less time. Thresholds are in MiB (Horovod writes MB)."
            }
        } @else {
            p { "Step times are those of the slowest rank, medians of a trial's steps; lower is better. Thresholds are in MiB." }
        }
        p {
            "“Expected” values are those of a surface fitted to all trials: the tuner's Gaussian process over the logarithms of threshold \
             and cycle time and over the switches. Its noise is estimated from the trials. The best of many noisy trials is usually too \
             good by luck; the surface estimates by how much. Intervals have a probability of 95 %."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ronde_cases::page::{check, own_part};
    use ronde_lab::review::{Known, review};
    use ronde_tuner::read_log;

    fn reviews(text: &str, source: &str) -> Vec<Review> {
        review(&read_log(text).unwrap(), source, &Known::default())
    }

    const LOG: &str = "hierarchical_allreduce,cycle_time_ms,tensor_fusion_threshold,score\n0,5,4,100\n0,50,32,120\n1,5,4,150\n0,1,128,90\n0,1,128,91\n";

    #[test]
    fn the_page_stands_alone_and_is_well_formed() {
        let mut both = reviews(LOG, "<a>.csv");
        both.extend(reviews(LOG, "b.csv"));
        let page = page(&both);
        check(&page);
        assert!(page.contains("&lt;a&gt;.csv") && !page.contains("<a>.csv"));
        assert!(page.contains("HOROVOD_FUSION_THRESHOLD=") && page.contains("id=\"choice-1\""));
    }

    #[test]
    fn a_log_without_trials_has_a_page_too() {
        let empty = LOG.lines().next().unwrap().to_owned() + "\n";
        let page = own_part(&page(&reviews(&empty, "a.csv")));
        assert!(page.contains("Nothing was measured") && !page.contains("class=\"chart\""));
    }
}
