//! Report of a review: the recommendation and sections of sentences and tables, which the text and
//! the page render.

mod choice;
mod evidence;

use maud::html;

use super::figures::Pictures;
use crate::html::text::Foreign;
use crate::present::{List, Section, prose};
use ronde_lab::review::words::{counted, number, percent, within};
use ronde_lab::review::{Best, CANDIDATES_MOST, Contest, Reason, Review, Setting, Writer};

/// Relative luck above which it is mentioned.
const LUCKY: f64 = 0.01;
/// Default of Horovod and Ronde, which Horovod's search never tries.
const DEFAULT: &str = "128 MiB and 1 ms";

/// Largest number of sentences of the trail on the terminal; the page has all of them.
const SENTENCES: usize = 30;

/// Returns the sections; some are empty. `charts` are for the page.
pub(super) fn sections<'a>(review: &'a Review, charts: Option<&Pictures>) -> Vec<Section<'a>> {
    let mut sections =
        vec![Section::new("warnings", "Warnings").list(List::Warnings, review.warnings.clone())];
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
pub(super) fn summary(review: &Review) -> String {
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
pub(super) fn answer(review: &Review) -> Vec<String> {
    if let Some(withheld) = &review.withheld {
        return vec![withheld.to_string()];
    }
    let (Some(best), Some(advice)) = (&review.best, &review.advice) else {
        return vec![no_trials(review).to_owned()];
    };
    let setting = words(review, &advice.setting);
    let mut lines = vec![match advice.reason {
        Reason::Verdict => match review.gain.contest_of(&advice.setting) {
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
        Reason::Default => {
            format!("Keep the default, {setting}: nothing that was tried is faster beyond chance.")
        }
    }];
    if best.luck > LUCKY && advice.reason == Reason::Choice {
        lines.push(format!(
            "Expect {} there, not the measured {}: {} of that was luck.",
            review.measure.words(best.choice.expected.value),
            number(best.choice.measured),
            percent(lucky_share(best))
        ));
    }
    if !best.ties.is_empty() && advice.reason != Reason::Verdict {
        // If the limit of compared candidates is reached, there may be more.
        let least = match best.ties.len() + 1 >= CANDIDATES_MOST {
            true => "At least ",
            false => "",
        };
        lines.push(format!(
            "{least}{} of the {} cannot be told from the best.",
            best.ties.len() + 1,
            counted(best.settings, "setting")
        ));
    }
    lines
}

/// The search's verdict, which its alternating windows may confirm or contradict.
fn verdict(setting: &str, contest: &Contest) -> String {
    let change = within(&contest.gain.reversed());
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
pub(super) fn paste(review: &Review) -> Option<[String; 2]> {
    let setting: Setting = review.advice.as_ref()?.setting;
    Some([
        setting.environment(&review.varied),
        setting.flags(&review.varied),
    ])
}

/// Describes a setting, with the switches that were tried both on and off.
fn words(review: &Review, setting: &Setting) -> String {
    setting.words(&review.varied)
}

/// Luck relative to the measured value; 0 if the choice was not lucky.
pub(super) fn lucky_share(best: &Best) -> f64 {
    let measured = best.choice.measured;
    match best.luck > 0.0 {
        true => (best.choice.expected.value - measured).abs() / measured,
        false => 0.0,
    }
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
    use ronde_lab::review::{Known, review};
    use ronde_tuner::read_log;

    const RONDE: &str = "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,\
                         tensor_fusion_threshold,score,phase,sample,steps,step_ms_p50,step_ms_ci95,predicted_step_ms,negotiate_share\n";

    /// A search in which the default took 100 ms and 4 MiB took `ms` in an alternating window;
    /// its verdict is 4 MiB.
    fn search(ms: &str) -> Review {
        let rows = format!(
            "{RONDE}0,0,0,1,1,128,500,default,0,10,100,1,,\n0,0,0,1,1,4,500,sample,1,8,99,1,,\n\
             0,0,0,1,1,128,500,ab,0,5,100,1,,\n0,0,0,1,1,4,500,ab,0,5,{ms},1,,\n0,0,0,1,1,4,500,final,,40,101,,,\n"
        );
        review(&read_log(&rows).unwrap(), "a.csv", &Known::default()).remove(0)
    }

    #[test]
    fn rows_that_cannot_be_used_are_no_job_that_ended() {
        for (rows, expected) in [
            ("", "Either the job ended during its warm-up"),
            ("5,4,nan\n5,8,-1\n", "No row of the log can be used"),
        ] {
            let log = format!("cycle_time_ms,tensor_fusion_threshold,score\n{rows}");
            let reviews = review(&read_log(&log).unwrap(), "a.csv", &Known::default());
            let said = answer(&reviews[0]).join(" ");
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn a_loss_is_not_called_a_gain() {
        for (ms, expected, change) in [
            (
                "102",
                "The log's verdict is 4 MiB, 1 ms, but in 1 round in alternation its step time was +2.0 % (+0.6 to +3.4 %) \
                 against the default: measure both again before you use it.",
                "+2.0 % (+0.6 to +3.4 %)",
            ),
            (
                "100",
                "The log's verdict is 4 MiB, 1 ms, but in 1 round in alternation its step time was 0.0 % (−1.4 to +1.4 %) \
                 against the default: measure both again before you use it.",
                "0.0 % (−1.4 to +1.4 %)",
            ),
            (
                "80",
                "Use 4 MiB, 1 ms: step time −20.0 % (−21.3 to −18.7 %) against the default, by 1 round in alternation.",
                "−20.0 % (−21.3 to −18.7 %)",
            ),
        ] {
            let review = search(ms);
            assert_eq!(answer(&review)[0], expected);
            let table = choice::gain(&review).markdown();
            let row = format!("| 4 MiB, 1 ms | default | 100 ms | {ms} ms | {change} | 1 round |");
            assert!(table.contains(&row), "{table}");
        }
    }

    #[test]
    fn probabilities_have_no_false_certainty() {
        assert_eq!(
            [0.0, 0.004, 0.126, 0.9999].map(probability),
            ["below 1 %", "below 1 %", "13 %", "above 99 %"]
        );
    }
}
