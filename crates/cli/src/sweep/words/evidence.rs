//! Evidence of a conclusion: number of measurements, noise, failures, effects of the knobs.

use super::naming;
use crate::present::units::{self as number, capitalized, duration, percent, setting as knob};
use crate::setting::on;
use ronde_job::percentile::range;
use ronde_lab::sweep::{Ending, Finding, Knob, KnobEffect, Level, Outcome, Tally, Verdict};

/// A knob does not matter if both its share and its largest effect are below this.
const DEAD: f64 = 0.01;
/// Relative increase of the step time from which it is written as a factor.
const MANY: f64 = 1.0;
/// Most cut settings that are named; the picture shows all of them.
const NAMED_MOST: usize = 12;

/// Number of measurements and their outcomes, in one sentence.
pub(in crate::sweep) fn effort(verdict: &Verdict) -> String {
    let settings = |wanted: fn(&&Outcome) -> bool| {
        let outcomes = verdict.findings.iter().flat_map(|finding| &finding.points);
        outcomes.filter(wanted).count() as u64
    };
    let predicted = settings(|outcome| outcome.predicted_ms.is_some());
    let tried = settings(|outcome| outcome.ending != Ending::Predicted);
    let Tally { done, cut, failed } = verdict.measurements;
    let count = done + cut + failed;
    let mut parts = Vec::new();
    if predicted > 0 {
        parts.push(format!(
            "{} predicted",
            number::counted(predicted, "setting")
        ));
    }
    if count > 0 {
        let ends = [
            (done, "complete"),
            (cut, "cut short as clearly worse"),
            (failed, "failed"),
        ];
        let ends = ends.into_iter().filter(|(count, _)| *count > 0);
        let ends: Vec<String> = ends.map(|(count, end)| format!("{count} {end}")).collect();
        let ends = match done == count {
            true => String::new(),
            false => format!(" ({})", ends.join(", ")),
        };
        parts.push(format!(
            "{} of {}{ends} in {}",
            number::counted(count.into(), "measurement"),
            number::counted(tried, "setting"),
            duration(verdict.took_s)
        ));
    }
    parts.join("; ")
}

/// Settings without a complete measurement, with the reasons.
pub(in crate::sweep) fn incomplete(finding: &Finding) -> Vec<String> {
    let naming = naming(finding);
    let points = || finding.points.iter();
    let cut = points().filter(|outcome| outcome.ending == Ending::Cut);
    let mut cut: Vec<String> = cut
        .map(|outcome| {
            let ms = outcome.step_ms.map(number::ms).unwrap_or_default();
            format!("{} ({ms})", naming.setting(&outcome.point))
        })
        .collect();
    if cut.len() > NAMED_MOST {
        let more = format!("and {} more", cut.len() - NAMED_MOST);
        cut.splice(NAMED_MOST.., [more]);
    }
    let cut = (!cut.is_empty()).then(|| {
        let cut = cut.join("; ");
        format!("Cut short as clearly worse, at about these step times: {cut}.")
    });
    let shown = |outcome: &Outcome| match &outcome.reason {
        Some(why) => Some(format!("{} failed: {why}", naming.setting(&outcome.point))),
        None if outcome.ending == Ending::Measured && outcome.failures > 0 => Some(format!(
            "{}: {} failed besides those that count",
            naming.setting(&outcome.point),
            number::counted(outcome.failures.into(), "measurement")
        )),
        None => None,
    };
    let sentences = cut.into_iter().chain(points().filter_map(shown));
    sentences.map(|text| capitalized(&text)).collect()
}

/// Accuracy of the measurements, in sentences.
pub(in crate::sweep) fn noise(finding: &Finding) -> Vec<String> {
    let Some(noise) = &finding.noise else {
        return Vec::new();
    };
    let naming = naming(finding);
    let mut sentences = vec![format!(
        "Standard deviation of one measurement: {} ({} of freedom).",
        percent(noise.sd),
        number::counted(noise.freedom.into(), "degree")
    )];
    let times = noise.default_over_time.iter().map(|(_, ms)| *ms);
    let [least, most] = range(times).map(number::ms);
    let default = match noise.default_over_time.len() {
        0 | 1 => None,
        count => Some(format!(
            "the default took {least} to {most} ({count} measurements)"
        )),
    };
    // The times of the default include drift within blocks, which counts as noise.
    let drift = noise.drift.map(percent);
    let drift = drift.map(|of| format!("drift between blocks: {of}, removed from the results"));
    let parts: Vec<String> = [drift, default].into_iter().flatten().collect();
    if !parts.is_empty() {
        sentences.push(format!("{}.", capitalized(&parts.join("; "))));
    }
    let strays = noise.strays.iter().map(|stray| {
        format!(
            "{}: {}, expected {}, at {}",
            naming.setting(&stray.point),
            number::ms(stray.step_ms),
            number::ms(stray.expected_ms),
            duration(stray.at_s)
        )
    });
    let strays: Vec<String> = strays.collect();
    if !strays.is_empty() {
        let count = number::counted(strays.len() as u64, "outlier");
        sentences.push(format!("{count} left out: {}.", strays.join("; ")));
    }
    sentences
}

/// Effect of a knob as a short text.
pub(in crate::sweep) fn effect(effect: &KnobEffect) -> String {
    let by_time = |a: &&Level, b: &&Level| a.best_ms.total_cmp(&b.best_ms);
    let (Some(best), Some(worst)) = (
        effect.levels.iter().min_by(by_time),
        effect.levels.iter().max_by(by_time),
    ) else {
        return String::new();
    };
    let cost = worst.best_ms / best.best_ms - 1.0;
    if effect.share < DEAD && cost < DEAD {
        return "does not matter here".to_owned();
    }
    if effect.levels.iter().all(|level| level.tied) {
        return "no significant difference".to_owned();
    }
    let cost = match cost >= MANY {
        true => format!("{} times as long", number::fixed(1.0 + cost, 1)),
        false => format!("{} longer", percent(cost)),
    };
    format!(
        "best at {}; at {} at least {cost}",
        value(effect.knob, best.value),
        value(effect.knob, worst.value),
    )
}

/// Whether any value of a knob differs significantly from the best; if not, the shares are noise.
pub(in crate::sweep) fn knobs_tell(finding: &Finding) -> bool {
    let mut levels = finding.knobs.iter().flat_map(|effect| &effect.levels);
    levels.any(|level| !level.tied)
}

fn value(knob: Knob, value: f64) -> String {
    match knob {
        Knob::FusionThreshold => format!("{} MiB", self::knob(value)),
        Knob::CycleTime => format!("{} ms", self::knob(value)),
        Knob::Cache | Knob::HierarchicalAllreduce => on(value > 0.5).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(value: f64, best_ms: f64, tied: bool) -> Level {
        Level {
            value,
            effect: 0.0,
            best_ms,
            tied,
        }
    }

    #[test]
    fn effects_are_shares_or_factors() {
        let said = |worst: f64, share: f64, tied: bool| {
            effect(&KnobEffect {
                knob: Knob::FusionThreshold,
                share,
                levels: vec![level(0.0, worst, tied), level(64.0, 50.0, true)],
            })
        };
        assert_eq!(
            said(57.5, 0.9, false),
            "best at 64 MiB; at 0 MiB at least 15 % longer"
        );
        assert_eq!(
            said(230.0, 0.9, false),
            "best at 64 MiB; at 0 MiB at least 4.6 times as long"
        );
        assert_eq!(said(50.1, 0.001, false), "does not matter here");
        assert_eq!(said(57.5, 0.9, true), "no significant difference");
    }
}
