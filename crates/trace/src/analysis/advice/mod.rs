//! Advice: at most five sentences, each with the number it is based on and the setting to change.
//!
//! The advice is computed, not taken from rules of thumb. The cost of a late rank is recomputed
//! ([`super::stragglers`]), and the gain of a setting is predicted by a simulation of the recorded
//! steps ([`super::whatif`]). Advice that gains less than [`GAIN_LEAST`] of the step is dropped. If
//! none is left, a sentence says that nothing can be gained.

mod profiler;
mod settings;

use super::report::{Advice, PartKind, Report, StragglerGroup, Summary};
use super::whatif::WhatIf;
use crate::Format;
use ronde_job::gate::{Evidence, Withheld};
use ronde_job::units::{ms, percent};

/// Maximum number of sentences.
const MOST: usize = 5;
/// Minimum gain of advice, as a share of the step.
const GAIN_LEAST: f64 = 0.02;
/// Minimum cost of a start-up to be mentioned, as a share of the recorded time.
const STARTUP_LEAST: f64 = 0.02;
/// Minimum share of the step that other ranks wait for two late ones.
const WAITING_LEAST: f64 = 0.1;
/// Exposed communication below this share of the step is negligible.
const HIDDEN: f64 = 0.05;

/// Advice for the job of `report`; `whatif` simulates its steady steps. Settings are recommended
/// only if the `evidence` passes the gate. Otherwise a sentence gives the reason, and the only
/// other advice concerns late ranks, if the files can be trusted.
pub(super) fn advice(
    report: &Report,
    whatif: Option<&WhatIf>,
    evidence: &Evidence,
) -> (Vec<Advice>, Option<Withheld>) {
    let withheld = evidence.check().err();
    let because = withheld.as_ref().map(|withheld| Advice {
        sentence: withheld.to_string(),
        variable: None,
        value: None,
        gain_ms: None,
    });
    let steady = report
        .steady
        .as_ref()
        .filter(|steady| steady.step_ms.p50 > 0.0 && steady.steps >= 2);
    let advice = match (&withheld, steady) {
        (Some(Withheld::Incomplete { .. } | Withheld::Mixed { .. }), _) | (_, None) => Vec::new(),
        (Some(_), Some(steady)) => straggler(report, steady)
            .filter(|advice| gains(advice, steady))
            .into_iter()
            .collect(),
        (None, Some(steady)) => supported(report, steady, whatif),
    };
    (advice.into_iter().chain(because).collect(), withheld)
}

/// Whether the gain of the advice is large enough.
fn gains(advice: &Advice, steady: &Summary) -> bool {
    let least = GAIN_LEAST * steady.step_ms.p50;
    advice.gain_ms.is_some_and(|gain| gain >= least)
}

/// Advice that the data support.
fn supported(report: &Report, steady: &Summary, whatif: Option<&WhatIf>) -> Vec<Advice> {
    let mut advice: Vec<Advice> = straggler(report, steady).into_iter().collect();
    let whatif = whatif.filter(|whatif| whatif.reproduces());
    let costs_known = whatif.is_some_and(|whatif| whatif.costs_known);
    let gains = |advice: &Advice| gains(advice, steady);
    let best = whatif.map(|whatif| {
        let (settings, best) = settings::settings(report, whatif);
        advice.extend(settings);
        best
    });
    advice.retain(gains);
    advice.sort_by(|a, b| {
        b.gain_ms
            .unwrap_or(0.0)
            .total_cmp(&a.gain_ms.unwrap_or(0.0))
    });
    // Sending fewer bytes costs accuracy or a new network: considered after the settings.
    if let (Some(whatif), Some(best), true) = (whatif, best, costs_known) {
        advice.extend(settings::fewer_bytes(report, steady, whatif, best).filter(gains));
    }
    advice.extend(profiler::advice(report, steady));
    advice.truncate(MOST - 1);
    if advice.is_empty() {
        let one_size = whatif.is_some() && !costs_known;
        advice.push(nothing_to_gain(
            report,
            steady,
            whatif.filter(|_| costs_known),
            one_size,
        ));
    }
    advice.extend(startup(report, steady));
    advice
}

fn straggler(report: &Report, steady: &Summary) -> Option<Advice> {
    let stragglers = report.stragglers.as_ref()?;
    let Some(slowest) = stragglers.slowest else {
        return group(stragglers.slowest_group.as_ref()?, steady);
    };
    let rank = stragglers.ranks.iter().find(|rank| rank.rank == slowest)?;
    Some(Advice {
        sentence: format!(
            "Rank {slowest} delays the others: it is last for {} of the tensors, by {} at the median, and without its \
             delay a step would take {} instead of {}. Look at that rank first (its input pipeline, its device's clock, \
             other processes on its host).",
            percent(rank.last_share),
            ms(rank.lag_ms.p50),
            ms(rank.step_ms_without),
            ms(steady.step_ms.p50),
        ),
        variable: None,
        value: None,
        gain_ms: Some(rank.cost_ms),
    })
}

/// Advice on ranks that are late together, if the waiting matters.
fn group(group: &StragglerGroup, steady: &Summary) -> Option<Advice> {
    let waiting = steady.parts.iter();
    let waiting = waiting.filter(|part| part.kind == PartKind::WaitForRanks);
    let waiting: f64 = waiting.map(|part| part.share).sum();
    // If the reference is one of them, it does not wait.
    let matters = waiting.max(group.cost_ms / steady.step_ms.p50) >= WAITING_LEAST;
    matters.then(|| Advice {
        sentence: format!(
            "Ranks {} delay the others: they are the last {} for {} of the tensors, by {} at the median, and without \
             their delay a step would take {} instead of {}. Look at what they share first (their host, its input \
             pipeline, other processes on it).",
            group.ranks_text(),
            group.ranks.len(),
            percent(group.last_share),
            ms(group.lag_ms.p50),
            ms(group.step_ms_without),
            ms(steady.step_ms.p50),
        ),
        variable: None,
        value: None,
        gain_ms: Some(group.cost_ms),
    })
}

fn startup(report: &Report, steady: &Summary) -> Option<Advice> {
    let startup = report.startup.as_ref()?;
    let lost = (startup.step_ms.mean - steady.step_ms.mean) * startup.steps as f64;
    let all: f64 = report.steps.iter().map(|step| step.ms).sum();
    (lost > STARTUP_LEAST * all).then(|| Advice {
        sentence: format!(
            "The first {} instead of {}, {} in all: exclude these steps from measurements (the figures here do). Typical \
             causes are new connections, cold caches and the first reading of the data.",
            match startup.steps {
                1 => format!("whole step takes {}", ms(startup.step_ms.p50)),
                steps => format!("{steps} whole steps take {} each", ms(startup.step_ms.p50)),
            },
            ms(steady.step_ms.p50),
            ms(lost),
        ),
        variable: None,
        value: None,
        gain_ms: None,
    })
}

/// Sentence for a job in which no change gains enough.
fn nothing_to_gain(
    report: &Report,
    steady: &Summary,
    whatif: Option<&WhatIf>,
    one_size: bool,
) -> Advice {
    let exposed = steady.exposed_ms();
    let share = exposed / steady.step_ms.mean.max(f64::MIN_POSITIVE);
    let parts = steady
        .parts
        .iter()
        .filter(|part| part.kind.is_communication());
    let largest = parts.max_by(|a, b| a.exposed_ms.mean.total_cmp(&b.exposed_ms.mean));
    let largest = largest.map_or("waiting", |part| part.kind.name());
    let format = report.sources.first().map(|source| source.format);
    let settable = matches!(format, Some(Format::Horovod | Format::Ronde));
    let sentence = if share <= HIDDEN {
        format!(
            "Communication is hidden behind computation: of {} a step only {} ({} of the step, on average) adds to its length, so no \
             setting can gain more than that. Leave the settings as they are.",
            ms(steady.communication_ms.p50),
            ms(exposed),
            percent(share),
        )
    } else if !settable {
        format!(
            "On average {} of a step ({}) is exposed communication, most of it “{largest}”. This recording does not contain the \
             data that a prediction for other settings needs, so no setting is recommended.",
            ms(exposed),
            percent(share),
        )
    } else if let Some(whatif) = whatif {
        let error = (whatif.modelled_ns / whatif.measured_ns - 1.0).abs();
        let (tried, conclusion) = match settings::states_threshold(report) {
            true => (
                "fusion threshold or cycle time",
                "Leave the settings as they are.",
            ),
            false => (
                "shorter cycle time",
                "The recording does not state the fusion threshold, so other thresholds cannot be predicted.",
            ),
        };
        format!(
            "On average {} of a step ({}) is exposed communication, most of it “{largest}”, but no {tried} is predicted to gain \
             {} (the model reproduces the recorded step within {}). {conclusion}",
            ms(exposed),
            percent(share),
            percent(GAIN_LEAST),
            percent(error.max(0.01)),
        )
    } else {
        return Advice {
            sentence: format!(
                "On average {} of a step ({}) is exposed communication, but the gain of other \
                 settings cannot be estimated from this recording ({}); HOROVOD_AUTOTUNE=1 \
                 measures it in the running job.",
                ms(exposed),
                percent(share),
                if one_size {
                    "all batches are of nearly one size"
                } else {
                    "it does not contain sizes or negotiation times"
                },
            ),
            variable: Some("HOROVOD_AUTOTUNE".into()),
            value: Some("1".into()),
            gain_ms: None,
        };
    };
    Advice {
        sentence,
        variable: None,
        value: None,
        gain_ms: None,
    }
}
