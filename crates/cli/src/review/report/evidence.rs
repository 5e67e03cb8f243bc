//! Evidence of a review: noise, effects of the knobs, the end of the search and its cost.

use super::finished;
use crate::present::units::{
    self, NONE, capitalized, change, count, counted, fixed, list, percent, short,
};
use crate::present::{Section, Table};
use crate::setting::on;
use ronde_lab::review::{Against, Effect, Importance, Knob, Measure, Phase, Review};

/// Relative standard deviation of equal settings above which single trials are not conclusive.
const NOISY: f64 = 0.03;
/// Largest number of rows in the table of trials; the log itself has all of them.
const TRIALS: usize = 1000;

/// Estimates of the noise, and what follows for a single trial.
pub(super) fn noise(review: &Review) -> Section<'static> {
    let noise = &review.noise;
    let mut table = Table::headed("=from; standard deviation; 95 %; n");
    let scatters = [
        ("trials of one setting (within 1 %)", &noise.replicates),
        (
            "neighbours, at most a factor of 1.35 apart",
            &noise.neighbours,
        ),
        ("residuals of the fitted surface", &noise.fitted),
    ];
    for (from, scatter) in scatters {
        if let Some(of) = scatter {
            let interval = format!("{} to {}", percent(of.low), percent(of.high));
            let n = of.differences.to_string();
            table.row([from.to_owned(), percent(of.sd), interval, n]);
        }
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
    let noisy =
        noisy.then(|| format!("A single {value} says little about differences of a few percent."));
    let section = Section::new("noise", "Noise").texts(noisy);
    section.table(table)
}

/// Effects of the knobs over the range that was tried.
pub(super) fn knobs(review: &Review) -> Section<'static> {
    let mut table = Table::headed("=knob; =; tried; best at; worst at; change (95 %); share");
    let mut same = Vec::new();
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
                same.push(format!("{knob} {}", level(effect, effect.best)));
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
            effect.reach.words(),
            percent(effect.share),
        ]);
    }
    let same = (!same.is_empty()).then(|| format!("The same in all trials: {}.", list(&same)));
    let section = Section::new("knobs", "Knobs").texts(same);
    section.table(table)
}

/// Formats a level of a knob.
fn level(effect: &Effect, value: f64) -> String {
    match effect.knob {
        Knob::FusionMb | Knob::CycleMs => units::setting(value),
        Knob::Switch(_) => on(value > 0.5).to_owned(),
    }
}

/// The end of the search, the evidence for it, and the trials that were missing.
pub(super) fn search(review: &Review) -> Section<'static> {
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
            "The search needed {} ({}) to finish{}.",
            range(samples, "more trial"),
            range(steps, "training step"),
            match samples[0] == samples[1] {
                true => "",
                false => ": the log does not show how many of the switches were tuned",
            }
        )),
        (_, Some([_, most])) => Some(format!(
            "The search needed at most {} to finish.",
            counted(most, "more step")
        )),
        (_, None) => None,
    });
    Section::new("search", "Search").texts(lines)
}

/// Cost of the search, and the time until the gain has paid for it.
pub(super) fn cost(review: &Review) -> Section<'static> {
    let section = Section::new("cost", "Cost of the search");
    let Some(cost) = &review.cost else {
        return section;
    };
    let mut table = Table::headed("=against; steps; steps lost; share; paid back at step");
    let against = match cost.against {
        Against::Default => "default",
        Against::Favourite => "best setting tried",
    };
    table.row([
        against.to_owned(),
        count(cost.steps),
        fixed(cost.steps_lost, 1),
        change(cost.share),
        cost.payback_step
            .map_or_else(|| NONE.to_owned(), |step| step.to_string()),
    ]);
    let note = match (cost.steps_assumed, cost.against) {
        (true, _) => "Assumes 10 steps per sample; --steps-per-sample sets another number.",
        (false, Against::Default) => {
            "Without the steps right after a change, which no log contains."
        }
        (false, Against::Favourite) => return section.table(table),
    };
    section.text(note).table(table)
}

/// All trials, for the page.
pub(super) fn trials(review: &Review) -> Section<'static> {
    let mut table = Table::headed("line; <for; =setting; value; ±; expected; steps");
    let optional = |value: Option<f64>| value.map_or_else(String::new, short);
    for trial in review.trials.iter().take(TRIALS) {
        let phase = match trial.phase {
            Phase::Default => "default",
            Phase::Sample => "sample",
            Phase::Ab => "A/B",
        };
        table.row([
            trial.line.to_string(),
            format!("{phase} {}", trial.number),
            trial.setting.words(&review.varied),
            review.measure.words(trial.value),
            optional(trial.ci95),
            optional(trial.predicted_step_ms),
            trial
                .steps
                .map_or_else(String::new, |steps| steps.to_string()),
        ]);
    }
    let shown = match review.trials.len() {
        count if count > TRIALS => format!("the first {TRIALS} of {count} trials"),
        count => counted(count as u64, "trial"),
    };
    Section::new("table", "All trials").folded(shown, table)
}
