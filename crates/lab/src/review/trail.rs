//! Decision trail: what the search did, as sentences in order.

use super::best::records;
use super::ending::begins_as_horovod;
use super::gain::{Contest, Gain, chunks};
use super::setting::{Setting, Switch};
use super::trial::{Phase, Search, Trial, Writer};
use ronde_job::units::{change, counted, list};

/// A sample of Ronde's with fewer steps ended early.
const STEPS_FULL: u64 = 5;

pub(super) fn trail(search: &Search, gain: &Gain) -> Vec<String> {
    match search.writer {
        _ if search.trials.is_empty() => Vec::new(),
        Writer::Horovod => of_horovod(search),
        Writer::Ronde => of_ronde(search, gain),
    }
}

fn of_horovod(search: &Search) -> Vec<String> {
    let varied = search.varied();
    let mut trail = Vec::new();
    if begins_as_horovod(search) {
        trail.push("The first four settings are the same in every search of Horovod.".to_owned());
    }
    if !varied.is_empty() {
        let names: Vec<&str> = varied.iter().map(|switch| switch.name()).collect();
        trail.push(format!(
            "The search was repeated for each combination of {}, independently.",
            list(&names)
        ));
    }
    let records = records(&search.trials);
    for record in &records {
        trail.push(format!(
            "Trial {} ({}) is the best so far: {}.",
            record.number,
            record.setting.words(&varied),
            search.measure.words(record.value)
        ));
    }
    let last = records.last().map_or(0, |record| record.line);
    let after = search.trials.iter().filter(|trial| trial.line > last);
    match (search.end.as_ref().and_then(Setting::of), after.count()) {
        (Some(end), _) => trail.push(format!(
            "The setting of the best single trial was chosen, without repeating it: {}.",
            end.words(&varied)
        )),
        (None, 0) => {}
        (None, after) => trail.push(format!(
            "{} followed without a better result.",
            counted(after as u64, "trial")
        )),
    }
    trail
}

fn of_ronde(search: &Search, gain: &Gain) -> Vec<String> {
    let varied = search.varied();
    let mut trail = Vec::new();
    let mut default: Option<&Trial> = None;
    let mut contests = gain.contests.iter();
    for chunk in chunks(&search.trials) {
        if chunk[0].phase == Phase::Ab {
            trail.extend(contests.next().map(|contest| compared(contest, &varied)));
            continue;
        }
        for trial in chunk {
            trail.push(measured(search, trial, default));
            default = default.or(Some(trial).filter(|trial| trial.phase == Phase::Default));
        }
    }
    if let Some(chosen) = search.end.as_ref().and_then(Setting::of) {
        let why = match (gain.is_default(&chosen), &gain.contests[..]) {
            (true, _) if search.reverted => {
                "the default again; the setting chosen before turned out slower"
            }
            (true, []) => "the default; no other setting promised enough for a comparison",
            (true, _) => "the default; no setting was significantly faster",
            (false, _) => "significantly faster than the default",
        };
        trail.push(format!("Verdict: {}, {why}.", chosen.words(&varied)));
    }
    trail
}

/// `Sample 1 (4 MiB, 1 ms): 80.0 ms in 8 steps, −20.0 % against the default (90 ms expected).`
fn measured(search: &Search, trial: &Trial, default: Option<&Trial>) -> String {
    let name = match trial.phase {
        Phase::Default => "Default".to_owned(),
        _ => format!("Sample {}", trial.number),
    };
    let setting = trial.setting.words(&search.varied());
    let mut sentence = format!("{name} ({setting}): {}", search.measure.words(trial.value));
    if let Some(steps) = trial.steps {
        sentence += &format!(" in {}", counted(steps, "step"));
    }
    let slower = default.map(|default| (trial.log - default.log).exp_m1());
    if let Some(slower) = slower {
        sentence += &format!(", {} against the default", change(slower));
    }
    if let Some(predicted) = trial.predicted_step_ms {
        sentence += &format!(" ({} expected)", search.measure.words(predicted));
    }
    let is_short = trial.steps.is_some_and(|steps| steps < STEPS_FULL);
    if is_short && slower.is_some_and(|slower| slower > 0.0) {
        sentence += "; ended early because it was clearly slower";
    }
    sentence + "."
}

fn compared(contest: &Contest, varied: &[Switch]) -> String {
    let rounds: Vec<String> = contest.by_round.iter().map(|gain| change(-gain)).collect();
    let against = match contest.against {
        Some(against) => format!("{}, the winner so far", against.words(varied)),
        None => "the default".to_owned(),
    };
    format!(
        "{} in alternation with {against}: {} against the default in {}, each {}.",
        contest.challenger.words(varied),
        contest.gain.reversed().words(),
        counted(contest.rounds, "round"),
        list(&rounds),
    )
}

/// Names of the switches that were equal in all trials; empty if there are none.
pub(super) fn never_varied(search: &Search) -> Vec<String> {
    let varied = search.varied();
    let alike = |switch: &Switch| {
        let on = search.trials.last()?.setting.switch(*switch)?;
        let state = if on { "on" } else { "off" };
        (!varied.contains(switch)).then(|| format!("{} {state}", switch.name()))
    };
    search.switches.iter().filter_map(alike).collect()
}
