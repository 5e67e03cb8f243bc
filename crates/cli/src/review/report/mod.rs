//! Report of a review: the recommendation and sections of sentences and tables, which the text and
//! the page render.

mod choice;
mod evidence;

use maud::html;

use super::figures::{self, Pictures};
use crate::html::text::Foreign;
use crate::present::units::{counted, percent, setting, short};
use crate::present::{List, Section, prose};
use ronde_lab::review::{Best, CANDIDATES_MOST, Contest, Measure, Reason, Review, Setting, Writer};

/// Luck above which it is mentioned.
const LUCKY: f64 = 0.01;
/// Default of Horovod and Ronde, which Horovod's search never tries.
const DEFAULT: &str = "128 MiB and 1 ms";

/// Largest number of sentences of the trail on the terminal; the page has all of them.
const SENTENCES: usize = 30;

/// Returns the sections; some are empty. `charts` are for the page.
pub(super) fn sections<'a>(review: &'a Review, charts: Option<&Pictures>) -> Vec<Section<'a>> {
    let mut sections = vec![
        Section::new("paste", "To paste").code(paste(review)),
        Section::new("warnings", "Warnings").list(List::Warnings, review.warnings.clone()),
    ];
    if let Some(Pictures { trail, surfaces }) = charts {
        let surfaces = html! { @for surface in surfaces { (surface) } };
        sections.push(Section::new("trials", "Trials").page(html! { (trail) }));
        sections.push(Section::new("surface", "Expected value of every setting").page(surfaces));
    }
    sections.extend([
        choice::choice(review),
        choice::gain(review),
        evidence::noise(review),
        evidence::knobs(review),
        evidence::search(review),
        choice::next(review),
        evidence::cost(review),
        trail(review),
        evidence::trials(review),
    ]);
    sections
}

/// Sentences about the course of the search.
fn trail(review: &Review) -> Section<'_> {
    let more = review.trail.len().saturating_sub(SENTENCES);
    let section = Section::new("trail", "How it went").terminal(move |look| {
        let mut shown: Vec<String> = review.trail.iter().take(SENTENCES).cloned().collect();
        if more > 0 {
            shown.push(format!("… and {more} more; --html writes all."));
        }
        prose("  ", &shown, look)
    });
    match review.trail.is_empty() {
        true => section,
        false => {
            section.page(html! { @for sentence in &review.trail { p { (Foreign(sentence)) } } })
        }
    }
}

/// Writer of the log, number of trials, and whether the search finished.
pub(crate) fn summary(review: &Review) -> String {
    let writer = match review.writer {
        Writer::Horovod => "Horovod's autotune log",
        Writer::Ronde => "Ronde's autotune log",
    };
    let trials = review.tried.as_ref().map(|tried| {
        let settings = counted(tried.settings, "setting");
        format!("{} of {settings}", counted(tried.trials, "trial"))
    });
    let trials = trials.unwrap_or_else(|| "no trial".to_owned());
    format!("{writer}, {trials}, {}", finished(review))
}

pub(super) fn finished(review: &Review) -> &'static str {
    match review.ending.finished {
        true => "finished",
        false => "not finished",
    }
}

/// Recommendation, in a few sentences.
pub(crate) fn answer(review: &Review) -> Vec<String> {
    let Some(best) = &review.best else {
        return vec![no_trials(review).to_owned()];
    };
    let mut lines = match (&review.advice, &review.withheld) {
        (Some(advice), _) => recommended(review, best, &advice.setting, advice.reason),
        (None, withheld) => {
            let withheld = withheld.iter().map(ToString::to_string);
            withheld.chain(unproven(review, best)).collect()
        }
    };
    let is_verdict = review
        .advice
        .is_some_and(|advice| advice.reason == Reason::Verdict);
    if !best.ties.is_empty() && !is_verdict {
        // If the limit of compared candidates is reached, there may be more.
        let limited = best.ties.len() + 1 >= CANDIDATES_MOST;
        let (tied, settings) = (best.ties.len() + 1, counted(best.settings, "setting"));
        lines.push(if tied as u64 == best.settings {
            format!("None of the {settings} can be distinguished from the best.")
        } else {
            let least = if limited { "At least " } else { "" };
            format!("{least}{tied} of the {settings} cannot be distinguished from the best.")
        });
    }
    lines
}

fn recommended(review: &Review, best: &Best, of: &Setting, reason: Reason) -> Vec<String> {
    let setting = words(review, of);
    let mut lines = vec![match reason {
        Reason::Verdict => match review.gain.contest_of(of) {
            Some(contest) => verdict(&setting, contest),
            None => format!("Use {setting}: nothing that was tried is faster."),
        },
        Reason::Choice if review.ending.finished => format!("Use {setting}, as the search chose."),
        Reason::Choice => {
            format!("Use {setting}: nothing that was tried is expected to be better.")
        }
        Reason::Favourite => format!(
            "Use {setting}, not the setting with the best measurement: according to all trials that one is {} slower.",
            percent(best.choice.slower.mean)
        ),
        Reason::Default => match review.unfinished_contest() {
            Some(contest) => format!(
                "Keep the default, {setting}: the comparison of {} with it ended before a verdict, at {} after {}.",
                words(review, &contest.challenger),
                contest.gain.reversed().words(),
                counted(contest.rounds, "round")
            ),
            None => format!(
                "Keep the default, {setting}: no setting that was tried is significantly faster."
            ),
        },
    }];
    if best.luck > LUCKY && reason == Reason::Choice {
        lines.push(format!(
            "Expect {} there, not the measured {}: {}.",
            review.measure.words(best.choice.expected.value),
            short(best.choice.measured),
            luck(review, best)
        ));
    }
    lines
}

/// The fastest measured setting with its spread, and the measurement that shows its gain.
fn unproven(review: &Review, best: &Best) -> [String; 2] {
    let Review { measure, .. } = review;
    let judged = [&best.choice, &best.favourite]
        .into_iter()
        .chain(&best.ties);
    let fastest = judged.min_by(|a, b| measure.log(a.measured).total_cmp(&measure.log(b.measured)));
    let fastest = fastest.unwrap_or(&best.choice);
    let expected = &fastest.expected;
    let default = review.gain.default;
    let (fusion_mb, cycle_ms) = default.map_or(figures::DEFAULT, |default| {
        (default.fusion_mb, default.cycle_ms)
    });
    // Each value once.
    let both = |own: f64, default: f64| {
        let (own, default) = (setting(own), setting(default));
        if own == default {
            own
        } else {
            format!("{own},{default}")
        }
    };
    [
        format!(
            "Fastest measurement: {} with {} (best of {}; expected there: {}, 95 %: {} to {}).",
            measure.words(fastest.measured),
            words(review, &fastest.setting),
            counted(fastest.trials, "trial"),
            short(expected.value),
            short(expected.low),
            short(expected.high),
        ),
        format!(
            "To find out, measure it alternately with the default: ronde sweep --profile PROFILE \
             --fusion-mb {} --cycle-ms {}, or run the job several times with each.",
            both(fastest.setting.fusion_mb, fusion_mb),
            both(fastest.setting.cycle_ms, cycle_ms),
        ),
    ]
}

/// The luck of the choice, as a sentence without its end.
fn luck(review: &Review, best: &Best) -> String {
    format!("luck is {} {}", percent(best.luck), luck_of(review))
}

/// Quantity of which luck is a share.
pub(super) fn luck_of(review: &Review) -> &'static str {
    match review.measure {
        Measure::Score => "of the measured score",
        Measure::StepMs => "of the expected step time",
    }
}

/// The search's verdict, which its alternating windows may confirm or contradict.
fn verdict(setting: &str, contest: &Contest) -> String {
    let change = contest.gain.reversed().words();
    let rounds = counted(contest.rounds, "round");
    match contest.gain.mean > 0.0 {
        true => format!(
            "Use {setting}: step time {change} against the default, by {rounds} in alternation."
        ),
        false => format!(
            "The log's verdict is {setting}, but in {rounds} in alternation its step time was {change} against the default: \
             measure both again before you use it."
        ),
    }
}

fn no_trials(review: &Review) -> &'static str {
    match review.writer {
        _ if !review.warnings.is_empty() => {
            "No row of the log can be used; the warnings have the reasons."
        }
        Writer::Horovod => {
            "Nothing was measured. Either the job ended during its warm-up, or its tensors have no names that repeat from step to \
             step: then Horovod never takes a sample, and stays at 4 MiB and 5 ms."
        }
        Writer::Ronde => {
            "Nothing was measured: the job ended before the first sample was complete."
        }
    }
}

/// Recommended setting to copy: environment variables, and flags of horovodrun and `ronde run`.
fn paste(review: &Review) -> Vec<String> {
    let advice = review.advice.iter().map(|advice| advice.setting);
    let lines = advice.flat_map(|setting| setting.paste(&review.varied, review.on_gpu));
    lines.collect()
}

/// Describes a setting, with the switches that were tried both on and off.
fn words(review: &Review, setting: &Setting) -> String {
    setting.words(&review.varied)
}

/// Formats a probability.
pub(super) fn probability(probability: f64) -> String {
    match probability {
        p if p < 0.005 => "below 1 %".to_owned(),
        p if p > 0.995 => "above 99 %".to_owned(),
        p => format!("{:.0} %", p * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::present::Look;
    use ronde_lab::review::{Known, review};
    use ronde_tuner::read_log;

    fn reviewed(log: &str) -> Review {
        review(&read_log(log).unwrap(), "a.csv", &Known::default()).remove(0)
    }

    /// Review as text on a terminal of this width.
    fn text(review: Review, width: usize) -> String {
        let look = Look {
            width,
            ..Look::PLAIN
        };
        crate::review::text::reviews(&[review], &look)
    }

    #[test]
    fn reviews_of_small_logs_as_text() {
        ronde_cases::check("reviews.txt", |log| {
            let review = reviewed(&format!("{log}\n"));
            let withheld = serde_json::to_string(&review.withheld).unwrap();
            format!("{}withheld: {withheld}", text(review, 100))
        });
    }

    #[test]
    fn text_and_tables_fit_the_terminal() {
        for width in [60, 80, 120] {
            let log = "cycle_time_ms,tensor_fusion_threshold,score\n1,4,500\n1,4,501\n1,128,400\n1,128,401\n";
            let text = text(reviewed(log), width);
            assert!(
                text.contains("    HOROVOD_FUSION_THRESHOLD=4194304"),
                "{text}"
            );
            // Lines to paste stay whole.
            for line in text.lines().filter(|line| !line.starts_with("    ")) {
                assert!(
                    console::measure_text_width(line) <= width,
                    "{width}: {line}"
                );
            }
        }
    }

    #[test]
    fn probabilities_have_no_false_certainty() {
        let expected = ["below 1 %", "below 1 %", "13 %", "above 99 %"];
        assert_eq!([0.0, 0.004, 0.126, 0.9999].map(probability), expected);
    }
}
