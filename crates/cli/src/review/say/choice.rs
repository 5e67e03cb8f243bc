//! Sentences on the choice: its gain, whether it was luck, the effect of the knobs, and the next
//! trials.

use super::{DEFAULT, LUCKY, lucky_share, share, words};
use crate::present::units::capitalized;
use ronde_lab::review::words::{counted, faster, knob, list, number, percent, signed};
use ronde_lab::review::{
    Best, Difference, Effect, Importance, Knob, Measure, Review, Setting, TRIALS_FEW, Writer,
};

/// A choice that is slower than the favourite by less than this relative difference is equally
/// good.
const AS_GOOD: f64 = 0.003;

/// Sentences on the chosen setting, its gain, and whether the measurement was luck.
pub(in crate::review) fn chosen(review: &Review, best: &Best) -> Vec<String> {
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
        format!(
            "{again}: {} of what was measured was luck.",
            percent(lucky_share(best))
        )
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

/// Sentences on the gain of the choice over the default.
fn gained(review: &Review) -> Vec<String> {
    let Some(default) = &review.gain.default else {
        return Vec::new();
    };
    let default_words = words(review, default);
    let mut lines = Vec::new();
    if let Some(contest) = review.decisive_contest() {
        let of = contest.against.map_or(String::new(), |against| {
            format!(
                " against {}, which had beaten the default,",
                words(review, &against)
            )
        });
        lines.push(format!(
            "In {} of alternating windows{of} {} took {} and the default, {default_words}, {}: {}.",
            counted(contest.rounds, "round"),
            words(review, &contest.challenger),
            review.measure.words(contest.challenger_ms),
            review.measure.words(contest.default_ms),
            faster(&contest.gain, None),
        ));
    } else if let (Some(gain), Some(best)) = (&review.gain.by_trials, &review.best)
        && !best.choice.setting.is_near(default)
    {
        lines.push(format!(
            "It was not compared with the default, {default_words}, in alternating windows; by the trials alone it is {}.",
            faster(gain, None)
        ));
    }
    lines
}

fn slower(difference: &Difference, who: &str) -> String {
    format!(
        "{who} {} slower ({} to {})",
        percent(difference.mean),
        signed(difference.low),
        signed(difference.high)
    )
}

/// Importance of a knob, in one or two words.
pub(in crate::review) fn importance(effect: &Effect) -> &'static str {
    match effect.importance {
        Importance::Matters => "matters",
        Importance::Dead => "dead",
        Importance::Unclear => "cannot be told",
        Importance::Fixed => "not varied",
    }
}

/// Sentences on the knobs by importance.
pub(in crate::review) fn knobs(effects: &[Effect]) -> Vec<String> {
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

/// Formats a level of a knob with its unit.
pub(in crate::review) fn level(effect: &Effect, value: f64) -> String {
    match effect.knob {
        Knob::FusionMb => format!("{} MiB", knob(value)),
        Knob::CycleMs => format!("{} ms", knob(value)),
        Knob::Switch(_) => if value > 0.5 { "on" } else { "off" }.to_owned(),
    }
}

/// Sentence that states an extrapolation, if a setting lies outside of the measured range; else
/// empty.
fn extrapolated(review: &Review, setting: &Setting) -> String {
    let Some(tried) = &review.tried else {
        return String::new();
    };
    let outside = |[least, most]: [f64; 2], value: f64| value < 0.99 * least || value > 1.01 * most;
    if outside(tried.fusion_mb, setting.fusion_mb) || outside(tried.cycle_ms, setting.cycle_ms) {
        format!(
            " This is an extrapolation: the log ends at {} to {} MB and {} to {} ms.",
            knob(tried.fusion_mb[0]),
            knob(tried.fusion_mb[1]),
            knob(tried.cycle_ms[0]),
            knob(tried.cycle_ms[1])
        )
    } else {
        String::new()
    }
}

/// Sentences on the next trials.
pub(in crate::review) fn next(review: &Review) -> Vec<String> {
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
    // The search's model knew more than the trials. A suggestion of the trials alone is shown only
    // if it is probably better and there are enough trials.
    let told = next.probability >= 0.5 && review.trials.len() >= TRIALS_FEW;
    let suggested = next.setting.as_ref().filter(|_| !verdict || told);
    match suggested {
        Some(setting) => lines.push(format!(
            "{} {}: it is faster than {} with a probability of {}, and promises {} on average.{}",
            if verdict {
                "By the trials alone one would try"
            } else {
                "Try"
            },
            words(review, setting),
            words(review, &best.favourite.setting),
            share(next.probability),
            percent(next.improvement),
            extrapolated(review, setting),
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
