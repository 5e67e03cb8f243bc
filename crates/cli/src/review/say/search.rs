//! Sentences on the search: whether it finished, the range it tried, the noise of its trials, and
//! its cost.

use super::{DEFAULT, LEAST_STEPS, NOISY, steps, words};
use crate::present::units::capitalized;
use ronde_lab::review::words::{counted, knob, list, number, percent};
use ronde_lab::review::{Against, Measure, Review, Scatter, Tried, Writer};

/// Sentences on whether the search finished, the evidence for it, and the trials that were missing.
pub(in crate::review) fn finished(review: &Review) -> Vec<String> {
    let ending = &review.ending;
    let mut lines = vec![format!(
        "{}: {}.",
        if ending.finished {
            "Finished"
        } else {
            "Not finished"
        },
        ending.evidence.first().map_or("", String::as_str)
    )];
    lines.extend(
        ending
            .evidence
            .iter()
            .skip(1)
            .map(|sentence| capitalized(sentence) + "."),
    );
    if let Some([least, most]) = ending.samples_left {
        let steps = ending.steps_left.map(|[least, most]| {
            if least == most {
                format!("{least} training steps")
            } else {
                format!("{least} to {most} training steps")
            }
        });
        let trials = if least == most {
            counted(least, "more trial")
        } else {
            format!("{least} to {most} more trials")
        };
        lines.push(format!(
            "It would have taken {trials}, {}; {}.",
            steps.unwrap_or_default(),
            if least == most {
                "all switches are known to be tuned"
            } else {
                "the more, the more of the switches were tuned and not fixed"
            }
        ));
    } else if let Some([_, most]) = ending.steps_left {
        lines.push(format!(
            "It would have taken at most {}.",
            counted(most, "more step")
        ));
    }
    lines
}

/// Sentences on the ranges and combinations that were tried, and on the default if it was not.
pub(in crate::review) fn tried(review: &Review, tried: &Tried) -> Vec<String> {
    let range = |[low, high]: [f64; 2], unit: &str| {
        if low == high {
            format!("{} {unit} alone", knob(low))
        } else {
            format!("{} to {} {unit}", knob(low), knob(high))
        }
    };
    let mut lines = vec![format!(
        "Fusion threshold {}, cycle time {}; {}{}.",
        range(tried.fusion_mb, "MiB"),
        range(tried.cycle_ms, "ms"),
        match tried.combinations {
            1 => "one combination of the switches".to_owned(),
            n => format!("{n} combinations of the switches"),
        },
        if tried.never_varied.is_empty() {
            String::new()
        } else {
            format!(", always {}", list(&tried.never_varied))
        },
    )];
    if !tried.default_measured && review.writer == Writer::Horovod {
        lines.push(format!(
            "Never tried: Horovod's default of {DEFAULT} (64 MiB and 5 ms in old releases). Its search goes up to 64 MiB and down to 1 ms, so no \
             log of it can say what tuning gained."
        ));
    }
    lines
}

/// Sentences on the noise: the variation of trials with equal settings.
pub(in crate::review) fn noise(review: &Review) -> Vec<String> {
    let noise = &review.noise;
    let mut lines = Vec::new();
    let scatter = |scatter: &Scatter| {
        format!(
            "{} ({} to {})",
            percent(scatter.sd),
            percent(scatter.low),
            percent(scatter.high)
        )
    };
    if let Some(replicates) = &noise.replicates {
        let example = noise.most_often.as_ref().map_or(String::new(), |most| {
            let values: Vec<String> = most
                .values
                .iter()
                .take(8)
                .map(|value| number(*value))
                .collect();
            let more = if most.values.len() > 8 { " …" } else { "" };
            format!(
                ": {} was measured {} times, {}{more}",
                words(review, &most.setting),
                most.values.len(),
                values.join(", ")
            )
        });
        lines.push(format!(
            "Trials of one setting (within 1 %) differ by a standard deviation of {}{example}.",
            scatter(replicates)
        ));
    }
    if let Some(neighbours) = &noise.neighbours {
        lines.push(format!(
            "Neighbours, at most a factor of 1.35 apart, differ by {}.",
            scatter(neighbours)
        ));
    }
    if let Some(stated) = noise.stated_sd {
        lines.push(format!(
            "The log itself gives its trials a standard error of {}.",
            percent(stated)
        ));
    }
    if let Some(fitted) = &noise.fitted {
        let beside = if noise.stated_sd.is_some() {
            "Beside that, a"
        } else {
            "A"
        };
        lines.push(format!(
            "{beside} smooth surface through all trials leaves {} unexplained.",
            scatter(fitted)
        ));
    }
    if noise.sd().is_some_and(|sd| sd > NOISY) {
        let of = match review.measure {
            Measure::Score => "score",
            Measure::StepMs => "step time",
        };
        lines.push(format!(
            "So a single {of} says little about differences of a few percent."
        ));
    }
    lines
}

/// Sentences on the cost of the search, and on the time until the gain has paid for it.
pub(in crate::review) fn cost(review: &Review) -> Vec<String> {
    let Some(cost) = &review.cost else {
        return Vec::new();
    };
    let mut lines = vec![match cost.against {
        Against::Default => {
            let trials = match cost.steps_lost {
                lost if lost <= -LEAST_STEPS => format!(
                    "The trials cost nothing: they took less than with the default, by the time of {}",
                    steps(-lost)
                ),
                lost if lost < LEAST_STEPS => {
                    "The trials took no longer than with the default".to_owned()
                }
                lost => format!(
                    "The trials cost the time of about {} with the default",
                    steps(lost)
                ),
            };
            let all = counted(cost.steps, "step");
            format!("{trials}, in {all} of the search (those right after a change are in no log).")
        }
        Against::Favourite => format!(
            "While it was tuned, the job's steps took {} longer than under the best setting tried, on average: the time of {} in {}{}.",
            percent(cost.share.max(0.0)),
            steps(cost.steps_lost),
            counted(cost.steps, "step"),
            if cost.steps_assumed {
                " (at 10 steps per sample; --steps-per-sample says otherwise)"
            } else {
                ""
            },
        ),
    }];
    if let Some(step) = cost.payback_step {
        lines.push(if cost.steps_lost < LEAST_STEPS {
            "So there was nothing to pay back: the gain counts from the end of the search on."
                .to_owned()
        } else {
            format!(
                "The gain has paid for that at step {step}, counted from the first of the search."
            )
        });
    }
    lines
}
