//! Evidence of a review: noise, effects of the knobs, the end of the search and its cost.

use super::finished;
use crate::present::units::{NONE, capitalized, count, fixed};
use crate::present::{Section, Table};
use ronde_lab::review::words::{counted, knob, list, percent, signed, within};
use ronde_lab::review::{Against, Effect, Importance, Knob, Measure, Review, Scatter};

/// Relative standard deviation of equal settings above which single trials are not conclusive.
pub(in crate::review) const NOISY: f64 = 0.03;

/// Estimates of the noise, and what follows for a single trial.
pub(super) fn noise(review: &Review) -> Section {
    let noise = &review.noise;
    let mut table = Table::new(&["=from", "standard deviation", "95 %", "n"]);
    let scatters = [
        ("trials of one setting (within 1 %)", &noise.replicates),
        (
            "neighbours, at most a factor of 1.35 apart",
            &noise.neighbours,
        ),
        ("residuals of the fitted surface", &noise.fitted),
    ];
    for (from, scatter) in scatters {
        let Some(Scatter {
            sd,
            low,
            high,
            differences,
        }) = scatter
        else {
            continue;
        };
        table.row([
            from.to_owned(),
            percent(*sd),
            format!("{} to {}", percent(*low), percent(*high)),
            differences.to_string(),
        ]);
    }
    if let Some(sd) = noise.stated_sd {
        let none = || NONE.to_owned();
        table.row(["stated by the log".to_owned(), percent(sd), none(), none()]);
    }
    let value = match review.measure {
        Measure::Score => "score",
        Measure::StepMs => "step time",
    };
    let noisy = noise.sd().is_some_and(|sd| sd > NOISY);
    let conclusion = format!("A single {value} says little about differences of a few percent.");
    Section::new(
        "noise",
        "Noise",
        noisy.then_some(conclusion).into_iter().collect(),
    )
    .with(table)
}

/// Effects of the knobs over the range that was tried.
pub(super) fn knobs(review: &Review) -> Section {
    let mut table = Table::new(&[
        "=knob",
        "=",
        "tried",
        "best at",
        "worst at",
        "change (95 %)",
        "share",
    ]);
    let mut fixed = Vec::new();
    for effect in &review.knobs {
        let knob = match effect.knob {
            Knob::FusionMb => "fusion MiB",
            Knob::CycleMs => "cycle ms",
            Knob::Switch(switch) => switch.name(),
        };
        let importance = match effect.importance {
            Importance::Matters => "matters",
            Importance::Dead => "no effect",
            Importance::Unclear => "unclear",
            Importance::Fixed => {
                fixed.push(format!("{knob} {}", level(effect, effect.best)));
                continue;
            }
        };
        let [low, high] = effect.range.map(|value| level(effect, value));
        table.row([
            knob.to_owned(),
            importance.to_owned(),
            format!("{low} to {high}"),
            level(effect, effect.best),
            level(effect, effect.worst),
            within(&effect.reach),
            percent(effect.share),
        ]);
    }
    let fixed = (!fixed.is_empty()).then(|| format!("The same in all trials: {}.", list(&fixed)));
    Section::new("knobs", "Knobs", fixed.into_iter().collect()).with(table)
}

/// Formats a level of a knob.
fn level(effect: &Effect, value: f64) -> String {
    match effect.knob {
        Knob::FusionMb | Knob::CycleMs => knob(value),
        Knob::Switch(_) => if value > 0.5 { "on" } else { "off" }.to_owned(),
    }
}

/// The end of the search, the evidence for it, and the trials that were missing.
pub(super) fn search(review: &Review) -> Section {
    let ending = &review.ending;
    let mut evidence = ending.evidence.iter();
    let first = evidence.next().map_or("", String::as_str);
    let mut lines = vec![format!("{}: {first}.", capitalized(finished(review)))];
    lines.extend(evidence.map(|sentence| capitalized(sentence) + "."));
    let range = |[least, most]: [u64; 2], noun: &str| match least == most {
        true => counted(least, noun),
        false => format!("{least} to {}", counted(most, noun)),
    };
    lines.extend(match (ending.samples_left, ending.steps_left) {
        (Some(samples), Some(steps)) => Some(format!(
            "It would have taken {} ({}){}.",
            range(samples, "more trial"),
            range(steps, "training step"),
            match samples[0] == samples[1] {
                true => "",
                false => ": the log does not show how many of the switches were tuned",
            }
        )),
        (_, Some([_, most])) => Some(format!(
            "It would have taken at most {}.",
            counted(most, "more step")
        )),
        (_, None) => None,
    });
    Section::new("search", "Search", lines)
}

/// Cost of the search, and the time until the gain has paid for it.
pub(super) fn cost(review: &Review) -> Section {
    let Some(cost) = &review.cost else {
        return Section::default();
    };
    let mut table = Table::new(&[
        "=against",
        "steps",
        "steps lost",
        "share",
        "paid back at step",
    ]);
    let against = match cost.against {
        Against::Default => "default",
        Against::Favourite => "best setting tried",
    };
    table.row([
        against.to_owned(),
        count(cost.steps),
        fixed(cost.steps_lost, 1),
        signed(cost.share),
        cost.payback_step
            .map_or_else(|| NONE.to_owned(), |step| step.to_string()),
    ]);
    let assumed = "Assumes 10 steps per sample; --steps-per-sample states another number.";
    let lines = match (cost.steps_assumed, cost.against) {
        (true, _) => vec![assumed.to_owned()],
        (false, Against::Default) => {
            vec!["Without the steps right after a change, which no log contains.".to_owned()]
        }
        (false, Against::Favourite) => Vec::new(),
    };
    Section::new("cost", "Cost of the search", lines).with(table)
}
