//! Conclusion of a finding: one sentence, and further sentences about ties and the error of
//! predictions.

use super::naming;
use crate::present::units::{self, capitalized, changes, counted, ms, percent};
use ronde_job::gate::Withheld;
use ronde_lab::sweep::{
    Basis, Conclusion, Ending, Estimate, Finding, LEVEL, LEVEL_PREDICTED, Outcome,
};

/// Upper end of a gain's interval above which a faster setting is still possible.
const OPEN: f64 = 0.03;
/// Relative error above which, if all predictions have it, the measured job counts as another job.
const MISSES: f64 = 0.15;

/// Sentences of the conclusion.
pub(in crate::sweep) fn conclusion(finding: &Finding) -> Vec<String> {
    let Some(best) = finding.best() else {
        return vec!["No setting has a result.".to_owned()];
    };
    let compared = compared(finding, best);
    let predicted = finding.basis == Basis::Predicted;
    let main = match (finding.conclusion, finding.withheld()) {
        (Conclusion::NoDefault, _) => format!(
            "No recommendation: the default has no result ({}), so the gain over it is unknown. {compared}.",
            no_default(finding)
        ),
        (Conclusion::Unproven, Some(Withheld::Chance)) => {
            let why = match predicted {
                true => {
                    "the recording does not determine the gain well enough; --verify 3 measures the best three"
                }
                false => {
                    "no setting was measured twice, so chance cannot be excluded; use --repeats 3"
                }
            };
            format!("No recommendation: {why}. {compared}.")
        }
        (_, Some(withheld)) => format!("{withheld} {compared}."),
        (Conclusion::Faster, None) if finding.gains_too_little() => {
            format!("Keep the default: the gain is too small to matter. {compared}.")
        }
        (Conclusion::DefaultAsGood, None) => keep_default(finding, best, &compared),
        (_, None) => format!("{compared}. {}.", basis(finding)),
    };
    [Some(main), ties(finding), missed(finding)]
        .into_iter()
        .flatten()
        .collect()
}

/// Comparison with the default: `Fusion 16 MiB, cycle 2.5 ms: 50.0 ms, −2.0 % against the default
/// (95 %: −2.8 to −1.2 %)`.
fn compared(finding: &Finding, best: &Outcome) -> String {
    let time = best.time_ms();
    let time = time.map_or_else(|| units::NONE.to_owned(), ms);
    let prefix = match finding.basis {
        Basis::Predicted => "predicted ",
        _ => "",
    };
    let gain = finding.gain.map(|Estimate { value, interval }| {
        let level = percent(level(finding));
        let words = |[low, high]: [f64; 2]| format!(" ({level}: {})", changes(-high, -low));
        let (change, interval) = (units::change(-value), interval.map(words));
        let interval = interval.unwrap_or_default();
        format!(", {change} against the default{interval}")
    });
    let setting = capitalized(&naming(finding).setting(&best.point));
    format!("{setting}: {prefix}{time}{}", gain.unwrap_or_default())
}

fn no_default(finding: &Finding) -> String {
    match finding.default().map(|default| &default.reason) {
        Some(Some(why)) => format!("it failed: {why}"),
        Some(None) => "it was cut short".to_owned(),
        None => "it was not measured".to_owned(),
    }
}

fn basis(finding: &Finding) -> &'static str {
    match finding.basis {
        Basis::Confirmed => "Measured again after the grid, alternately with the default",
        Basis::Verified => "Measured alternately with the default",
        Basis::Grid => "Best of the grid, not measured again: --confirm 6 does that",
        Basis::Predicted => "Not measured: --verify 3 measures the best three",
    }
}

fn keep_default(finding: &Finding, best: &Outcome, compared: &str) -> String {
    let is_default = best.point.is_default();
    let most = match is_default {
        true => gain_most(finding),
        false => finding.gain.and_then(|gain| Some(gain.interval?[1])),
    };
    let mut text = "Keep the default: no setting is significantly faster.".to_owned();
    match most {
        _ if !is_default => text += &format!(" {compared}."),
        Some(most) => {
            let (most, level) = (percent(most), percent(level(finding)));
            text += &format!(" No other setting gains more than {most} ({level}).");
        }
        None if finding.basis == Basis::Predicted => {}
        None => text += " No setting was measured twice: use --repeats 3.",
    }
    if finding.basis != Basis::Predicted && most.is_some_and(|most| most > OPEN) {
        text += " The measurements are noisy: more --repeats or --steps narrow the interval.";
    }
    text
}

/// Largest gain within the intervals of all settings.
fn gain_most(finding: &Finding) -> Option<f64> {
    let gain = |outcome: &Outcome| Some(-outcome.against_default?.interval?[0]);
    let most = finding.points.iter().filter_map(gain).reduce(f64::max);
    most.map(|most| most.max(0.0))
}

fn ties(finding: &Finding) -> Option<String> {
    let others = finding.ties().filter(|tie| Some(*tie) != finding.best());
    let tied = others.count() as u64;
    if tied == 0 {
        let known = finding.ties_known && finding.conclusion == Conclusion::Faster;
        return known.then(|| "No other setting ties with it.".to_owned());
    }
    let complete = finding.points.iter().filter(|one| one.is_complete());
    let others = complete.count().saturating_sub(1) as u64;
    let settings = counted(others, "other setting");
    let told = match (others, tied) {
        (1, _) => "The other setting cannot be distinguished".to_owned(),
        (others, tied) if others == tied => format!("None of the {settings} can be distinguished"),
        _ => format!("Of the {settings}, {tied} cannot be distinguished"),
    };
    Some(format!("{told} from the best (`ties` in the table)."))
}

/// Error of the predictions that were measured afterwards.
fn missed(finding: &Finding) -> Option<String> {
    let error = |outcome: &Outcome| Some(outcome.predicted()? / outcome.step_ms? - 1.0);
    let points = finding.points.iter();
    let measured = points.filter(|outcome| outcome.ending == Ending::Measured);
    let errors: Vec<f64> = measured.filter_map(error).collect();
    let least = errors.iter().copied().reduce(f64::min)?;
    let most = errors.iter().copied().reduce(f64::max)?;
    let range = match units::change(least) == units::change(most) {
        true => units::change(least),
        false => changes(least, most),
    };
    let mut text = format!("Replay was off by {range}.");
    // An error common to all settings does not change their order.
    if errors.iter().all(|error| error.abs() > MISSES) {
        text += " The measured job is not the recorded one (another machine, network or load): use the order of the settings, \
                 not the times.";
    }
    Some(text)
}

/// Formats a change of the step time with its interval, for tables: `−2.0 % (−4.5 to +0.6)`.
pub(in crate::sweep) fn change(estimate: Option<Estimate>) -> String {
    let Some(Estimate { value, interval }) = estimate else {
        return units::NONE.to_owned();
    };
    let interval =
        interval.map(|[low, high]| format!(" ({})", changes(low, high).trim_end_matches(" %")));
    units::change(value) + &interval.unwrap_or_default()
}

/// Confidence level of a finding's intervals.
pub(in crate::sweep) fn level(finding: &Finding) -> f64 {
    match finding.basis {
        Basis::Predicted => LEVEL_PREDICTED,
        _ => LEVEL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ronde_lab::sweep::Point;

    fn outcome(point: Point, ms: f64) -> Outcome {
        Outcome {
            point,
            ending: Ending::Measured,
            reason: None,
            measurements: 9,
            failures: 0,
            step_ms: Some(ms),
            predicted_ms: None,
            above_best: None,
            against_default: None,
            tied: true,
        }
    }

    /// Finding with 50 ms at 16 MiB and 2.5 ms, and 50.4 ms at the default; `gain` is the share
    /// that the first saves.
    fn finding(conclusion: Conclusion, basis: Basis, gain: Estimate) -> Finding {
        let best = Point {
            fusion_threshold_bytes: 16 << 20,
            cycle_time_ms: 2.5,
            ..Point::default_of(2)
        };
        Finding {
            np: 2,
            basis,
            conclusion,
            points: vec![outcome(best, 50.0), outcome(Point::default_of(2), 50.4)],
            gain: Some(gain),
            ties_known: true,
            of_recording: None,
            noise: None,
            knobs: Vec::new(),
            interaction: 0.0,
        }
    }

    fn estimate(value: f64, interval: Option<[f64; 2]>) -> Estimate {
        Estimate { value, interval }
    }

    #[test]
    fn conclusions_and_their_reasons() {
        use Basis::{Confirmed, Grid, Predicted, Verified};
        use Conclusion::{DefaultAsGood, Faster, NoDefault, Unproven};
        let mut text = String::new();
        let mut say = |case: &str, finding: &Finding| {
            text += &format!("{case}\n  {}\n\n", super::conclusion(finding).join("\n  "));
        };
        for (conclusion, basis, gain, interval) in [
            (Faster, Confirmed, 0.02, Some([0.012, 0.028])),
            (Faster, Confirmed, 0.0003, Some([0.0001, 0.0004])),
            (DefaultAsGood, Confirmed, -0.02, Some([-0.045, 0.006])),
            (DefaultAsGood, Verified, -0.02, Some([-0.045, 0.006])),
            (DefaultAsGood, Predicted, -0.02, Some([-0.045, 0.006])),
            (DefaultAsGood, Grid, 0.01, Some([-0.05, 0.07])),
            (Unproven, Grid, 0.269, None),
            (Unproven, Predicted, 0.1, Some([-0.01, 0.2])),
        ] {
            let case = format!("{conclusion:?}, {basis:?}, {gain} {interval:?}");
            say(&case, &finding(conclusion, basis, estimate(gain, interval)));
        }
        let gain = estimate(0.1, Some([0.05, 0.15]));
        let mut failed = finding(NoDefault, Grid, gain);
        (failed.gain, failed.points[1].ending) = (None, Ending::Failed);
        failed.points[1].reason = Some("rank 1 died".to_owned());
        say("the default failed", &failed);
        let mut once = finding(Faster, Grid, gain);
        once.points[1].measurements = 1;
        say("the default was measured once", &once);
        for conclusion in [Faster, DefaultAsGood] {
            let mut off = finding(conclusion, Predicted, gain);
            off.of_recording = Some(Withheld::ModelOff {
                measured_ms: 100.0,
                modelled_ms: 150.0,
            });
            say("the model does not reproduce the recording", &off);
            assert_eq!(off.recommended(), None);
        }
        for low in [-0.011, 0.01] {
            let mut default = finding(DefaultAsGood, Grid, gain);
            default.points.swap(0, 1);
            default.gain = None;
            default.points[1].against_default = Some(estimate(0.02, Some([low, 0.05])));
            say(&format!("the default is best, others from {low}"), &default);
        }
        let mut ties = finding(DefaultAsGood, Grid, Estimate::bare(0.001));
        ties.points.extend((1..=8).map(|fusion_mb| Outcome {
            tied: fusion_mb < 8,
            ..outcome(Point::default_of(fusion_mb), 50.5)
        }));
        say("eight of nine others tie", &ties);
        for predicted in [40.0, 49.0] {
            let mut measured = finding(Faster, Verified, gain);
            measured.points[0].predicted_ms = Some(Estimate::bare(predicted));
            say(&format!("{predicted} ms were predicted"), &measured);
        }
        ronde_cases::document("conclusions.txt", &text);
    }
}
