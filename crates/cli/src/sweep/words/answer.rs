//! The answer, in sentences: what is best, what that gains, what ties with it.

use super::naming::Naming;
use super::numbers::{level, percent, range, signed, time};
use crate::timeline::text::capitalized;
use ronde_lab::gain::{Saved, Sense};
use ronde_lab::sweep::{Basis, Conclusion, Ending, Finding, Outcome};

/// Ties that are named.
const NAMED_MOST: usize = 6;
/// An interval that reaches above this leaves open whether there is something to gain.
const OPEN: f64 = 0.03;
/// The least share that is shown as one.
const LEAST: f64 = 0.0005;
/// Predictions that all miss by more than this are of another job.
const MISSES: f64 = 0.15;

/// The answer.
pub(in crate::sweep) fn answer(finding: &Finding) -> Vec<String> {
    let naming = Naming::of(finding);
    let Some(best) = finding.best() else {
        return vec!["No setting has a result.".to_owned()];
    };
    let mut sentences = match finding.conclusion {
        Conclusion::Nothing => vec!["No setting has a result.".to_owned()],
        Conclusion::NoDefault => vec![no_default(finding, best, naming)],
        Conclusion::Faster => faster(finding, best, naming),
        Conclusion::Unproven => unproven(finding, best, naming),
        Conclusion::DefaultAsGood => as_good(finding, best, naming),
    };
    sentences.extend(finding.withheld().map(|withheld| withheld.to_string()));
    sentences.extend(ties(finding, naming));
    sentences.extend(missed(finding));
    sentences
}

fn no_default(finding: &Finding, best: &Outcome, naming: Naming) -> String {
    let why = match finding.default().map(|default| &default.ending) {
        Some(Ending::Failed(why)) => format!("it failed ({why})"),
        Some(_) => "it was cut short".to_owned(),
        None => "it was not measured".to_owned(),
    };
    format!(
        "Best: {}, {}. What that gains nobody can say, for the default has no result: {why}.",
        naming.setting(&best.point),
        time(best),
    )
}

fn faster(finding: &Finding, best: &Outcome, naming: Naming) -> Vec<String> {
    let mut sentences = vec![compared(finding, best, naming)];
    if finding.gains_too_little() {
        sentences.push("That much is proven, but too little to matter: the default will do.".to_owned());
    }
    sentences.push(basis(finding));
    sentences
}

/// What the best does to the default's step time.
fn compared(finding: &Finding, best: &Outcome, naming: Naming) -> String {
    let default = finding.default().map(time).unwrap_or_default();
    format!(
        "{} {}: {} a step against the default's {default}.",
        capitalized(&naming.setting(&best.point)),
        gain(finding),
        time(best)
    )
}

fn basis(finding: &Finding) -> String {
    match finding.basis {
        Basis::Confirmed => "The gain is from measurements made after the grid, the best few and the default in turns, so that \
                             the luck that made a setting look best has no part in it."
            .to_owned(),
        Basis::Verified => "Measured: the best of what replay predicted and the default, in turns.".to_owned(),
        Basis::Grid => format!(
            "It is the best of {} settings, and chance helps the best: the interval allows for that, the number itself may be a \
             little high.",
            measured(finding)
        ),
        Basis::Predicted => "Predicted by replay, not measured: --verify 3 measures the best three.".to_owned(),
    }
}

fn unproven(finding: &Finding, best: &Outcome, naming: Naming) -> Vec<String> {
    let doubt = match finding.basis {
        Basis::Predicted => {
            "The recording does not say enough to be sure of it: --verify 3 measures the best three."
        }
        _ => "But no setting was measured twice, so nobody can tell that from chance: take --repeats 3.",
    };
    vec![compared(finding, best, naming), doubt.to_owned()]
}

fn as_good(finding: &Finding, best: &Outcome, naming: Naming) -> Vec<String> {
    let Some(default) = finding.default() else {
        return Vec::new();
    };
    let predicted = finding.basis == Basis::Predicted;
    let is_default = finding.best == finding.default;
    let most = match is_default {
        true => gain_most(finding),
        false => finding.gain.and_then(|gain| gain.interval).map(|[_, high]| high),
    };
    let open = !predicted && most.is_some_and(|most| most > OPEN);
    let hedge = if open {
        "for all that can be told, the"
    } else {
        "the"
    };
    let mut sentence = capitalized(&format!(
        "{hedge} default is as good as anything here: {} a step. ",
        time(default)
    ));
    sentence += &match (is_default, most) {
        (false, _) => runner_up(finding, best, naming),
        (true, Some(most)) if most >= LEAST => {
            format!(
                "No other setting saves more than {} of it ({} %).",
                percent(most),
                level(finding)
            )
        }
        (true, Some(_)) => format!("No other setting takes less ({} %).", level(finding)),
        (true, None) if predicted => String::new(),
        (true, None) => {
            "No setting was measured twice, though: --repeats 3 says how sure that is.".to_owned()
        }
    };
    if open {
        sentence += " The measurements are noisy: more --repeats or --steps would tell.";
    }
    vec![sentence.trim_end().to_owned()]
}

/// The setting that is best but no better than the default for all that can be told; it may even have done worse when the two
/// were compared again.
fn runner_up(finding: &Finding, best: &Outcome, naming: Naming) -> String {
    let (setting, ms) = (capitalized(&naming.setting(&best.point)), time(best));
    let gain = gain(finding);
    match (sense(finding), finding.basis) {
        (Sense::Less | Sense::Same, Basis::Predicted) | (Sense::Same, _) => {
            format!("{setting} {gain}: {ms}.")
        }
        (Sense::Less, Basis::Confirmed) => {
            format!("{setting} took {ms}; measured again beside the default it {gain}, which may be chance.")
        }
        (Sense::Less, _) => format!("{setting} took {ms}, which {gain}: that may be chance."),
        (Sense::More, Basis::Predicted) => {
            format!("{setting} {gain} in most of the jobs that would have left this recording.")
        }
        (Sense::More, Basis::Confirmed) => {
            format!("{setting} was ahead in the grid, but measured again beside the default it {gain}.")
        }
        (Sense::More, Basis::Verified | Basis::Grid) => {
            format!("{setting} seemed ahead with {ms}, but beside the default it {gain}.")
        }
    }
}

/// What the best does to the default's step time: `saves 2.1 % (95 %: 1.2 to 3.0 %)`.
fn gain(finding: &Finding) -> String {
    let (to_save, to_take) = match finding.basis {
        Basis::Predicted => ("is predicted to save", "is predicted to take"),
        _ => ("saves", "takes"),
    };
    let Some(saved) = saved(finding) else {
        return format!("{to_take} as long");
    };
    let amount = percent(saved.share.abs());
    let proven = saved.interval.is_some_and(|[low, _]| low > 0.0);
    let words = match saved.sense() {
        Sense::Less => format!("{to_save} {amount}"),
        Sense::Same if proven => format!("{to_save} less than 0.1 %"),
        Sense::Same => format!("{to_take} as long"),
        Sense::More => format!("{to_take} {amount} longer"),
    };
    let range = saved.range("less", "longer", percent);
    let range = range.map(|range| format!(" ({} %: {range})", level(finding)));
    words + &range.unwrap_or_default()
}

fn sense(finding: &Finding) -> Sense {
    saved(finding).map_or(Sense::Same, Saved::sense)
}

fn saved(finding: &Finding) -> Option<Saved> {
    finding.gain.map(|gain| Saved {
        share: gain.value,
        interval: gain.interval,
    })
}

/// How far replay was from what was measured afterwards.
fn missed(finding: &Finding) -> Option<String> {
    let error = |outcome: &Outcome| Some(outcome.predicted_ms?.value / outcome.step_ms? - 1.0);
    let measured = finding
        .points
        .iter()
        .filter(|outcome| outcome.ending == Ending::Measured);
    let errors: Vec<f64> = measured.filter_map(error).collect();
    let (least, most) = errors
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), &error| {
            (least.min(error), most.max(error))
        });
    if errors.is_empty() {
        return None;
    }
    let off = match signed(least) == signed(most) {
        true => signed(least),
        false => range(least, most),
    };
    let mut sentence = format!("Replay was off by {off}.");
    // What is off by the same in all settings leaves their order as it is.
    if errors.iter().all(|error| error.abs() > MISSES) {
        sentence += " That much at every setting means that the job which was measured is not the one that was recorded \
                     (another machine, network or load): believe how settings compare rather than the times.";
    }
    Some(sentence)
}

fn ties(finding: &Finding, naming: Naming) -> Option<String> {
    let others: Vec<String> = finding
        .ties()
        .filter(|tie| Some(*tie) != finding.best())
        .map(|tie| match tie.point.is_default() {
            true => "the default".to_owned(),
            false => naming.setting(&tie.point),
        })
        .collect();
    if others.is_empty() {
        return (finding.ties_known && finding.conclusion == Conclusion::Faster)
            .then(|| "No other setting ties with it.".to_owned());
    }
    let count = others.len();
    if count > NAMED_MOST {
        let timed = |outcome: &&Outcome| matches!(outcome.ending, Ending::Measured | Ending::Predicted);
        let all = finding.points.iter().filter(timed).count();
        return Some(format!(
            "{count} of the {} other settings tie with the best, that is, cannot be told from it.",
            all.saturating_sub(1)
        ));
    }
    let tie = if count == 1 {
        "setting ties"
    } else {
        "settings tie"
    };
    Some(format!(
        "{count} other {tie} with the best, that is, cannot be told from it: {}.",
        others.join("; ")
    ))
}

/// The most that any setting may save, all looked at together.
fn gain_most(finding: &Finding) -> Option<f64> {
    let low = |outcome: &Outcome| {
        outcome
            .against_default
            .and_then(|against| against.interval)
            .map(|[low, _]| -low)
    };
    finding
        .points
        .iter()
        .filter_map(low)
        .reduce(f64::max)
        .map(|most| most.max(0.0))
}

fn measured(finding: &Finding) -> usize {
    finding
        .points
        .iter()
        .filter(|outcome| outcome.ending == Ending::Measured)
        .count()
}

#[cfg(test)]
mod tests;
