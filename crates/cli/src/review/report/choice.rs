//! The choice of a search: its luck, similar settings, its gain over the default, and the next
//! trial.

use super::{DEFAULT, LUCKY, luck, probability, words};
use crate::present::units::{self, NONE, counted, percent, short};
use crate::present::{Section, Table};
use ronde_lab::review::{Best, Candidate, Measure, Next, Review, Setting, TRIALS_FEW, Writer};

/// Largest number of candidates in the table.
const CANDIDATES: usize = 6;

/// The choice with its expected value, and the settings that may be better.
pub(super) fn choice(review: &Review) -> Section<'static> {
    let section = Section::new("choice", "Choice");
    let Some(best) = &review.best else {
        return section;
    };
    let measure = review.measure;
    let chosen = match review.ending.finished {
        true => "Chosen",
        false => "Nothing was chosen; the best so far",
    };
    let luck = match best.luck > LUCKY {
        true => format!("; {}", luck(review, best)),
        false => String::new(),
    };
    let choice = format!(
        "{chosen}: {}, measured {}{luck}.",
        words(review, &best.choice.setting),
        measure.words(best.choice.measured),
    );
    let measured = match measure {
        Measure::Score => "best",
        Measure::StepMs => "best ms",
    };
    let mut table = Table::new([
        "=setting",
        "trials",
        measured,
        "expected (95 %)",
        "is best",
        "within 1 %",
        "slower (95 %)",
    ]);
    for candidate in shown(best) {
        let slower = match candidate == &best.favourite {
            true => String::new(),
            false => candidate.slower.words(),
        };
        let expected = &candidate.expected;
        table.row([
            words(review, &candidate.setting),
            candidate.trials.to_string(),
            short(candidate.measured),
            format!(
                "{} ({}–{})",
                short(expected.value),
                short(expected.low),
                short(expected.high)
            ),
            probability(candidate.probability_best),
            probability(candidate.probability_good),
            slower,
        ]);
    }
    section.text(choice).table(table)
}

/// Candidates for the table: the favourite, the choice, and those that cannot be distinguished from
/// them.
fn shown(best: &Best) -> Vec<&Candidate> {
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

/// Comparisons with the default: in alternating windows, otherwise by all trials.
pub(super) fn gain(review: &Review) -> Section<'static> {
    let section = Section::new("gain", "Against the default");
    let Some(default) = &review.gain.default else {
        return match (review.writer, &review.tried) {
            (Writer::Horovod, Some(_)) => section.text(format!(
                "Never tried: Horovod's default of {DEFAULT} (64 MiB and 5 ms in old releases). Its search goes up to 64 MiB and \
                 down to 1 ms, so none of its logs shows what tuning gained."
            )),
            _ => section,
        };
    };
    let mut table = Table::headed("=setting; =against; default's time; time; change (95 %); n");
    for contest in &review.gain.contests {
        let against = contest.against.as_ref();
        table.row([
            words(review, &contest.challenger),
            against.map_or_else(|| "default".to_owned(), |setting| words(review, setting)),
            review.measure.words(contest.default_ms),
            review.measure.words(contest.challenger_ms),
            contest.gain.reversed().words(),
            counted(contest.rounds, "round"),
        ]);
    }
    let choice = review.best.as_ref().map(|best| best.choice.setting);
    let choice = choice.filter(|choice| !choice.is_near(default) && table.is_empty());
    if let (Some(choice), Some(gain)) = (choice, &review.gain.by_trials) {
        table.row([
            words(review, &choice),
            "default".to_owned(),
            NONE.to_owned(),
            NONE.to_owned(),
            gain.reversed().words(),
            counted(review.trials.len() as u64, "trial"),
        ]);
    }
    if table.is_empty() {
        return section;
    }
    let default = words(review, default);
    section
        .text(format!(
            "The default is {default}; changes of the step time are relative to it."
        ))
        .table(table)
}

/// The next trial, and the number of trials that a comparison takes.
pub(super) fn next(review: &Review) -> Section<'static> {
    let section = Section::new("next", "What to try next");
    let (Some(next), Some(best)) = (&review.next, &review.best) else {
        return section;
    };
    let mut lines = Vec::new();
    let verdict = review.writer == Writer::Ronde && review.ending.finished;
    if verdict {
        let ended = "Nothing: the search ended because no other setting promised enough, by its trials and by its model of the job, \
                     which the log does not contain.";
        lines.push(ended.to_owned());
    }
    // The search's model knew more than the trials. A suggestion of the trials alone is shown only
    // if it is probably better and there are enough trials.
    let told = next.probability >= 0.5 && review.trials.len() >= TRIALS_FEW;
    match next.setting.as_ref().filter(|_| !verdict || told) {
        Some(setting) => lines.push(format!(
            "{} {}: faster than {} with a probability of {}, expected step time {}.{}{}",
            if verdict {
                "The trials alone suggest"
            } else {
                "Try"
            },
            words(review, setting),
            words(review, &best.favourite.setting),
            probability(next.probability),
            next.difference.words(),
            kept(next),
            extrapolated(review, setting).unwrap_or_default(),
        )),
        None if !verdict => lines.push(format!(
            "Nothing: the expected gain of a trial of another setting is at most {}.",
            percent(next.improvement.max(0.001))
        )),
        None => {}
    }
    if let Some(trials) = next.trials_to_tell.filter(|trials| *trials > 3) {
        lines.push(format!(
            "To distinguish two settings that differ by 2 % takes {trials} trials of each, with this noise."
        ));
    }
    if review.gain.default.is_none() {
        lines.push(format!("Measure the default, {DEFAULT}, as well."));
    }
    section.texts(lines)
}

/// Reason to try a setting that is probably slower.
fn kept(next: &Next) -> &'static str {
    match next.difference.mean < 0.0 {
        true => "",
        false => " It is worth a trial because it is kept only if it is faster.",
    }
}

/// States an extrapolation, if a setting lies outside of the measured range.
fn extrapolated(review: &Review, setting: &Setting) -> Option<String> {
    let tried = review.tried.as_ref()?;
    let outside = |[least, most]: [f64; 2], value: f64| value < 0.99 * least || value > 1.01 * most;
    let is_outside =
        outside(tried.fusion_mb, setting.fusion_mb) || outside(tried.cycle_ms, setting.cycle_ms);
    let range = |ends: [f64; 2], unit: &str| {
        let [least, most] = ends.map(units::setting);
        match least == most {
            true => format!("{least} {unit}"),
            false => format!("{least} to {most} {unit}"),
        }
    };
    is_outside.then(|| {
        format!(
            " This is an extrapolation: the log has {} and {}.",
            range(tried.fusion_mb, "MiB"),
            range(tried.cycle_ms, "ms")
        )
    })
}
