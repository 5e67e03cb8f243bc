//! What a review says, in sentences: the text on a terminal and the page have the same ones.

use crate::review::words::{counted, knob, list, number, percent, signed};
use crate::review::{
    Against, Best, Candidate, Difference, Effect, Importance, Knob, Measure, Reason, Review, Scatter,
    Setting, Tried, Writer,
};

/// Scatter of equal settings above which single trials tell little.
pub(super) const NOISY: f64 = 0.03;
/// Luck that is worth a word.
const LUCKY: f64 = 0.01;
/// A choice that is slower than the favourite by less is as good.
const AS_GOOD: f64 = 0.003;
/// A default that these never try, MiB and ms.
const DEFAULT: &str = "128 MB and 1 ms";

/// A setting, with the switches that were tried both ways.
pub(super) fn words(review: &Review, setting: &Setting) -> String {
    setting.words(&review.varied)
}

/// Which log, whose, and what it comes to.
pub(super) fn headline(review: &Review) -> String {
    format!("{}: {}", review.source, summary(review))
}

/// Whose log, and what it comes to.
pub(super) fn summary(review: &Review) -> String {
    let writer = match review.writer {
        Writer::Horovod => "Horovod's autotune log",
        Writer::Ronde => "Ronde's autotune log",
    };
    let trials = match &review.tried {
        Some(tried) => format!(
            "{} of {}",
            counted(tried.trials, "trial"),
            counted(tried.settings, "setting")
        ),
        None => "no trial".to_owned(),
    };
    let end = if review.ending.finished {
        "finished"
    } else {
        "not finished"
    };
    format!("{writer}, {trials}, {end}")
}

/// The answer in a sentence or two.
pub(super) fn answer(review: &Review) -> Vec<String> {
    let (Some(best), Some(advice)) = (&review.best, &review.advice) else {
        return vec![no_trials(review)];
    };
    let setting = words(review, &advice.setting);
    let mut lines = vec![match advice.reason {
        Reason::Verdict => match review.gain.contest_of(&advice.setting) {
            Some(contest) => format!(
                "Use {setting}: {} than the default, by {}.",
                faster(&contest.gain),
                counted(contest.rounds, "round")
            ),
            None => format!("Use {setting}: nothing that was tried is faster."),
        },
        Reason::Choice if review.ending.finished => format!("Use {setting}, as the search chose."),
        Reason::Choice => format!("Use {setting}: of what was tried it is as good as anything."),
        Reason::Favourite => format!(
            "Use {setting} rather than what scored best: by all trials together it is {} faster.",
            percent(best.choice.slower.mean)
        ),
        Reason::Default => format!("Keep the default, {setting}: nothing that was tried is surely faster."),
    }];
    if best.luck > LUCKY && advice.reason == Reason::Choice {
        lines.push(format!(
            "Expect {} there, not the {} that was measured: {} of that was luck.",
            review.measure.words(best.choice.expected.value),
            number(best.choice.measured),
            percent(best.luck)
        ));
    }
    if !best.ties.is_empty() && advice.reason != Reason::Verdict {
        lines.push(format!(
            "{} of the {} cannot be told from the best.",
            best.ties.len() + 1,
            counted(best.settings, "setting")
        ));
    }
    lines
}

fn no_trials(review: &Review) -> String {
    match review.writer {
        Writer::Horovod => "Nothing was measured. Either the job ended during its warm-up, or its tensors have no names that repeat from step to \
                            step: then Horovod never takes a sample, and stays at 4 MB and 5 ms."
            .to_owned(),
        Writer::Ronde => "Nothing was measured: the job ended before the first sample closed.".to_owned(),
    }
}

/// Finished or not, how that is known, and what was missing.
pub(super) fn finished(review: &Review) -> Vec<String> {
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

/// Ranges, combinations, and what was never tried.
pub(super) fn tried(review: &Review, tried: &Tried) -> Vec<String> {
    let range = |[low, high]: [f64; 2], unit: &str| {
        if low == high {
            format!("{} {unit} alone", knob(low))
        } else {
            format!("{} to {} {unit}", knob(low), knob(high))
        }
    };
    let mut lines = vec![format!(
        "Fusion threshold {}, cycle time {}; {}{}.",
        range(tried.fusion_mb, "MB"),
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
            "Never tried: Horovod's default of {DEFAULT} (64 MB and 5 ms in old releases). Its search goes up to 64 MB and down to 1 ms, so no \
             log of it can say what tuning gained."
        ));
    }
    lines
}

/// How far equal settings scatter.
pub(super) fn noise(review: &Review) -> Vec<String> {
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
            let values: Vec<String> = most.values.iter().take(8).map(|value| number(*value)).collect();
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

/// What was chosen, what it gained, and whether it was luck.
pub(super) fn chosen(review: &Review, best: &Best) -> Vec<String> {
    let measure = review.measure;
    let choice = &best.choice;
    let what = match measure {
        Measure::Score => "score",
        Measure::StepMs => "step time",
    };
    let mut lines = vec![match (review.ending.finished, review.writer) {
        (true, Writer::Horovod) => format!(
            "Chosen: {}, with the best single {what}, {}.",
            words(review, &choice.setting),
            measure.words(choice.measured)
        ),
        (true, Writer::Ronde) => format!("Chosen: {}.", words(review, &choice.setting)),
        (false, Writer::Ronde) => format!(
            "Nothing was chosen. The log's best so far is {}.",
            words(review, &choice.setting)
        ),
        (false, Writer::Horovod) => format!(
            "Nothing was chosen. The best {what} so far is {} at {}.",
            measure.words(choice.measured),
            words(review, &choice.setting)
        ),
    }];
    lines.extend(gained(review));
    let expected = &choice.expected;
    let again = format!(
        "By all trials together {} is to be expected there ({} to {})",
        measure.words(expected.value),
        number(expected.low),
        number(expected.high)
    );
    lines.push(if best.luck > LUCKY {
        format!("{again}: {} of what was measured was luck.", percent(best.luck))
    } else {
        format!("{again}: it was no luck.")
    });
    if choice.slower.mean > AS_GOOD {
        lines.push(format!(
            "More is expected of {}: {} ({} to {}), {}.",
            words(review, &best.favourite.setting),
            measure.words(best.favourite.expected.value),
            number(best.favourite.expected.low),
            number(best.favourite.expected.high),
            slower(&choice.slower, "the choice is"),
        ));
    }
    lines.push(format!(
        "Probability that the choice is the best of the {} tried: {}; that it is within 1 % of the best: {}{}.",
        counted(best.settings, "setting"),
        share(choice.probability_best),
        share(choice.probability_good),
        match best.ties.len() {
            0 => "; none of the others comes near".to_owned(),
            ties => format!("; {} cannot be told from the best", counted(ties as u64, "other")),
        }
    ));
    lines
}

/// What the choice gained over the default.
fn gained(review: &Review) -> Vec<String> {
    let Some(default) = &review.gain.default else {
        return Vec::new();
    };
    let default_words = words(review, default);
    let mut lines = Vec::new();
    if let Some(contest) = review.gain.contests.last() {
        lines.push(format!(
            "In {} of alternating windows {} took {} and the default, {default_words}, {}: a gain of {} ({} to {}).",
            counted(contest.rounds, "round"),
            words(review, &contest.challenger),
            review.measure.words(contest.challenger_ms),
            review.measure.words(contest.default_ms),
            signed(contest.gain.mean),
            signed(contest.gain.low),
            signed(contest.gain.high),
        ));
    } else if let (Some(gain), Some(best)) = (&review.gain.by_trials, &review.best)
        && !best.choice.setting.is_near(default)
    {
        lines.push(format!(
            "It was not compared with the default, {default_words}, in alternating windows; by the trials alone it gains {} ({} to {}).",
            signed(gain.mean),
            signed(gain.low),
            signed(gain.high)
        ));
    }
    lines
}

/// What a knob did.
pub(super) fn importance(effect: &Effect) -> &'static str {
    match effect.importance {
        Importance::Matters => "matters",
        Importance::Dead => "dead",
        Importance::Unclear => "cannot be told",
        Importance::Fixed => "not varied",
    }
}

/// Which knobs mattered and which were dead, in a sentence each.
pub(super) fn knobs(effects: &[Effect]) -> Vec<String> {
    let of = |wanted: Importance| -> Vec<&str> {
        let of = effects.iter().filter(|effect| effect.importance == wanted);
        of.map(|effect| effect.knob.name()).collect()
    };
    let said = |what: &[&str], one: &str, more: &str| {
        (!what.is_empty()).then(|| {
            capitalized(&format!(
                "{} {}.",
                list(what),
                if what.len() == 1 { one } else { more }
            ))
        })
    };
    [
        said(&of(Importance::Matters), "matters", "matter"),
        said(
            &of(Importance::Dead),
            "is dead: between its best and its worst level lies less than 2 %",
            "are dead: between their best and their worst levels lies less than 2 %",
        ),
        said(
            &of(Importance::Unclear),
            "may matter or not: these trials do not tell",
            "may matter or not: these trials do not tell",
        ),
        said(
            &of(Importance::Fixed),
            "was the same in all trials",
            "were the same in all trials",
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A level of a knob with its unit.
pub(super) fn level(effect: &Effect, value: f64) -> String {
    match effect.knob {
        Knob::FusionMb => format!("{} MB", knob(value)),
        Knob::CycleMs => format!("{} ms", knob(value)),
        Knob::Switch(_) => if value > 0.5 { "on" } else { "off" }.to_owned(),
    }
}

/// What to try next.
pub(super) fn next(review: &Review) -> Vec<String> {
    let (Some(next), Some(best)) = (&review.next, &review.best) else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    let verdict = review.writer == Writer::Ronde && review.ending.finished;
    if verdict {
        lines.push(
            "Nothing: the search ended since no other setting promised enough, by its trials and by a model of the job, which is in no log."
                .to_owned(),
        );
    }
    match &next.setting {
        Some(setting) => lines.push(format!(
            "{} {}: it is faster than {} with a probability of {}, and promises {} on average.",
            if verdict {
                "By the trials alone one would try"
            } else {
                "Try"
            },
            words(review, setting),
            words(review, &best.favourite.setting),
            share(next.probability),
            percent(next.improvement),
        )),
        None if !verdict => lines.push(format!(
            "Nothing: no other setting promises more than {}.",
            percent(next.improvement.max(0.001))
        )),
        None => {}
    }
    if let Some(trials) = next.trials_to_tell.filter(|trials| *trials > 3) {
        lines.push(format!(
            "To tell two settings that differ by 2 % takes {trials} trials of each, with this noise."
        ));
    }
    if review.gain.default.is_none() {
        lines.push(format!(
            "Measure the default, {DEFAULT}, beside it: nobody knows yet whether tuning gained anything."
        ));
    }
    lines
}

/// Lines to paste: variables, and flags of horovodrun and `ronde run`.
pub(super) fn paste(review: &Review) -> Option<[String; 2]> {
    let setting: Setting = review.advice.as_ref()?.setting;
    Some([setting.environment(&review.varied), setting.flags(&review.varied)])
}

/// What the search cost, and when that is paid back.
pub(super) fn cost(review: &Review) -> Vec<String> {
    let Some(cost) = &review.cost else {
        return Vec::new();
    };
    let mut lines = vec![match cost.against {
        Against::Default => format!(
            "The trials cost about {} of the default's, in {} of the search (those right after a change are in no log).",
            steps(cost.steps_lost),
            counted(cost.steps, "step"),
        ),
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
        lines.push(format!(
            "The gain has paid for that at step {step}, counted from the first of the search."
        ));
    }
    lines
}

/// `12 % faster (11 % to 13 %)`.
fn faster(gain: &Difference) -> String {
    format!(
        "{} faster ({} to {})",
        percent(gain.mean),
        signed(gain.low),
        signed(gain.high)
    )
}

fn slower(difference: &Difference, who: &str) -> String {
    format!(
        "{who} {} slower ({} to {})",
        percent(difference.mean),
        signed(difference.low),
        signed(difference.high)
    )
}

/// How much slower a candidate is than the favourite, for a table.
pub(super) fn behind(candidate: &Candidate) -> String {
    let end = |share: f64| signed(share).trim_end_matches(" %").to_owned();
    let slower = &candidate.slower;
    format!(
        "{} ({} to {})",
        signed(slower.mean),
        end(slower.low),
        end(slower.high)
    )
}

/// What is expected of a candidate, for a table.
pub(super) fn expected(candidate: &Candidate) -> String {
    let expected = &candidate.expected;
    format!(
        "{} ({}–{})",
        number(expected.value),
        number(expected.low),
        number(expected.high)
    )
}

/// A number of steps that need not be whole; not below 0.
pub(super) fn steps(steps: f64) -> String {
    let steps = steps.max(0.0);
    if steps < 0.05 {
        return "no step".to_owned();
    }
    let number = if steps < 9.95 {
        format!("{steps:.1}")
    } else {
        format!("{steps:.0}")
    };
    format!("{number} steps")
}

/// A probability.
pub(super) fn share(probability: f64) -> String {
    match probability {
        p if p < 0.005 => "below 1 %".to_owned(),
        p if p > 0.995 => "above 99 %".to_owned(),
        p => format!("{:.0} %", p * 100.0),
    }
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_have_no_false_certainty() {
        assert_eq!(
            [0.0, 0.004, 0.126, 0.9999].map(share),
            ["below 1 %", "below 1 %", "13 %", "above 99 %"]
        );
        assert_eq!(
            [-1.0, 0.492, 139.6].map(steps),
            ["no step", "0.5 steps", "140 steps"]
        );
        assert_eq!(capitalized("élan"), "Élan");
        assert_eq!(capitalized(""), "");
    }
}
