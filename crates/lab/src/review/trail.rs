//! Decision trail: the decisions of the search and their reasons, as sentences in order.

use super::best::records;
use super::ending::begins_as_horovod;
use super::gain::{Contest, Gain, begins_contest};
use super::setting::{Setting, Switch};
use super::trial::{Phase, Search, Trial, Writer};
use super::words::{counted, faster, list, percent, signed};
use crate::gain::{Saved, Sense};

/// A sample of Ronde's with fewer steps was cut short.
const STEPS_FULL: u64 = 5;
/// Maximum number of Horovod's records that are listed individually.
const RECORDS_MOST: usize = 12;

/// Returns the sentences of the trail.
pub(super) fn trail(search: &Search, gain: &Gain) -> Vec<String> {
    if search.trials.is_empty() {
        return Vec::new();
    }
    match search.writer {
        Writer::Horovod => of_horovod(search),
        Writer::Ronde => of_ronde(search, gain),
    }
}

fn of_horovod(search: &Search) -> Vec<String> {
    let trials = &search.trials;
    let varied = search.varied();
    let mut trail = Vec::new();
    if begins_as_horovod(search) {
        trail.push(format!(
            "It begins with the settings that Horovod always begins with: {}.",
            list(
                &trials
                    .iter()
                    .take(4)
                    .map(|trial| trial.setting.words(&varied))
                    .collect::<Vec<_>>()
            )
        ));
    }
    let names: Vec<&str> = varied.iter().map(|switch| switch.name()).collect();
    if !names.is_empty() {
        trail.push(format!(
            "The search was run again for each combination of {}; what one taught, the next did not know.",
            list(&names)
        ));
    }
    let records = records(trials);
    let skipped = records.len().saturating_sub(RECORDS_MOST);
    let mut before: Option<&Trial> = None;
    for (index, record) in records.iter().enumerate() {
        // The first and the latest records.
        if index == 0 || index > skipped {
            let better = before.map_or(String::new(), |before| {
                format!(
                    ", {} better than the best before",
                    percent((before.log - record.log).exp_m1())
                )
            });
            let place = if index == 0 {
                "scores"
            } else {
                "is the best so far:"
            };
            trail.push(format!(
                "Trial {} ({}) {place} {}{better}.",
                record.number,
                record.setting.words(&varied),
                search.measure.words(record.value)
            ));
        }
        before = Some(record);
    }
    if let (Some(last), None) = (records.last(), &search.end) {
        let after = trials.iter().filter(|trial| trial.line > last.line).count() as u64;
        if after > 0 {
            trail.push(format!(
                "None of the {} after it was better.",
                counted(after, "trial")
            ));
        }
    }
    if let Some(end) = search.end.as_ref().and_then(Setting::of) {
        trail.push(format!(
            "The best single trial was taken, {}, without trying it again.",
            end.words(&varied)
        ));
    }
    trail
}

fn of_ronde(search: &Search, gain: &Gain) -> Vec<String> {
    let varied = search.varied();
    let mut trail = Vec::new();
    let mut default: Option<&Trial> = None;
    let mut contests = gain.contests.iter();
    for (index, trial) in search.trials.iter().enumerate() {
        match trial.phase {
            Phase::Default => {
                default = Some(trial);
                trail.push(format!(
                    "The settings in force come first, {}: {}.",
                    trial.setting.words(&varied),
                    measured(search, trial)
                ));
            }
            Phase::Sample => trail.push(sample(search, trial, default)),
            // The sentence at the first window describes the whole contest.
            Phase::Ab if begins_contest(&search.trials, index) => {
                if let Some(contest) = contests.next() {
                    trail.push(contest_sentence(contest, &varied));
                }
            }
            Phase::Ab => {}
        }
    }
    if let Some(end) = search.end.as_ref()
        && let Some(chosen) = Setting::of(end)
    {
        let setting = chosen.words(&varied);
        let kept = gain
            .default
            .as_ref()
            .is_some_and(|default| default.is_near(&chosen));
        trail.push(match (kept, gain.contests.is_empty()) {
            (true, true) => format!("No other setting promised enough for a comparison: {setting} stays."),
            (true, false) => format!("The challenger had not shown that it is faster, and further rounds would not have paid: {setting} stays."),
            (false, _) => format!("{setting} is faster beyond the doubt that the rule allows, and takes the default's place."),
        });
    }
    trail
}

fn measured(search: &Search, trial: &Trial) -> String {
    let steps = trial.steps.map_or(String::new(), |steps| {
        format!(" in {}", counted(steps, "step"))
    });
    format!("{}{steps}", search.measure.words(trial.value))
}

fn sample(search: &Search, trial: &Trial, default: Option<&Trial>) -> String {
    let mut sentence = format!(
        "Sample {} tries {}: {}",
        trial.number,
        trial.setting.words(&search.varied()),
        measured(search, trial)
    );
    let slower = default.map(|default| (trial.log - default.log).exp_m1());
    if let Some(slower) = slower {
        let saved = Saved {
            share: -slower,
            interval: None,
        };
        sentence += &match saved.sense() {
            Sense::Less => format!(", {} faster than the default", percent(slower)),
            Sense::Same => ", as fast as the default".to_owned(),
            Sense::More => format!(", {} slower than the default", percent(slower)),
        };
    }
    if let Some(predicted) = trial.predicted_step_ms {
        sentence += &format!(" ({} was expected)", search.measure.words(predicted));
    }
    if trial.steps.is_some_and(|steps| steps < STEPS_FULL)
        && slower.is_some_and(|slower| slower > 0.0)
    {
        sentence += "; cut short, as clearly worse";
    }
    sentence + "."
}

fn contest_sentence(contest: &Contest, varied: &[Switch]) -> String {
    let rounds: Vec<String> = contest.by_round.iter().map(|gain| signed(*gain)).collect();
    let against = contest.against.map_or_else(
        || "the default".to_owned(),
        |against| format!("{}, which has beaten the default,", against.words(varied)),
    );
    let than = contest.against.map(|_| "the default");
    format!(
        "{} is compared with {against} in alternating windows, and is {} in {}, with gains of {}.",
        contest.challenger.words(varied),
        faster(&contest.gain, than),
        counted(contest.rounds, "round"),
        list(&rounds),
    )
}

/// Names of the switches that were equal in all trials; empty if there are none.
pub(super) fn never_varied(search: &Search) -> Vec<String> {
    let varied = search.varied();
    let mut alike = Vec::new();
    for switch in Switch::ALL
        .into_iter()
        .filter(|switch| search.has(*switch) && !varied.contains(switch))
    {
        if let Some(on) = search
            .trials
            .last()
            .and_then(|trial| trial.setting.switch(switch))
        {
            alike.push(format!(
                "{} {}",
                switch.name(),
                if on { "on" } else { "off" }
            ));
        }
    }
    alike
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::trial::tests::{HOROVOD, RONDE, read};

    fn trail_of(header: &str, rows: &str) -> Vec<String> {
        let search = &read(header, rows)[0];
        trail(search, &Gain::of(search, None, None))
    }

    #[test]
    fn rondes_trail_in_words() {
        let rows = "0,0,0,1,1,128,500,default,0,10,100,1,,\n0,0,0,1,1,0,600,sample,1,2,200,1,98,\n0,0,0,1,1,4,600,sample,2,8,80,1,90,\n\
                    0,0,0,1,1,128,500,ab,0,5,100,1,,\n0,0,0,1,1,4,600,ab,0,5,80,1,,\n0,0,0,1,1,4,600,ab,1,5,80,1,,\n\
                    0,0,0,1,1,128,500,ab,1,5,100,1,,\n0,0,0,1,1,4,600,final,,40,80,,,\n";
        assert_eq!(
            trail_of(RONDE, rows),
            [
                "The settings in force come first, 128 MiB, 1 ms: 100 ms in 10 steps.",
                "Sample 1 tries 0 MiB, 1 ms: 200 ms in 2 steps, 100 % slower than the default (98 ms was expected); cut short, as clearly worse.",
                "Sample 2 tries 4 MiB, 1 ms: 80 ms in 8 steps, 20 % faster than the default (90 ms was expected).",
                "4 MiB, 1 ms is compared with the default in alternating windows, and is 20 % faster (19 to 21 %) in 2 rounds, with gains of +20.0 % \
                 and +20.0 %.",
                "4 MiB, 1 ms is faster beyond the doubt that the rule allows, and takes the default's place.",
            ]
        );
    }

    #[test]
    fn horovods_trail_in_words() {
        let rows = "0,0,0, 0,5,4,100\n0,0,0, 0,50,32,110\n0,0,0, 0,25,16,90\n0,0,0, 0,10,8,90\n";
        assert_eq!(
            trail_of(HOROVOD, rows),
            [
                "It begins with the settings that Horovod always begins with: 4 MiB, 5 ms, 32 MiB, 50 ms, \
                 16 MiB, 25 ms and 8 MiB, 10 ms.",
                "Trial 1 (4 MiB, 5 ms) scores 100.",
                "Trial 2 (32 MiB, 50 ms) is the best so far: 110, 10 % better than the best before.",
                "None of the 2 trials after it was better.",
            ]
        );
        let finished = trail_of(
            HOROVOD,
            "0,0,0, 1,5,4,100\n0,0,0, 1,6,4,90\n0,0,0, 1,5,4,100\n",
        );
        assert_eq!(
            finished[1],
            "The best single trial was taken, 4 MiB, 5 ms, without trying it again."
        );
        assert!(trail_of(HOROVOD, "").is_empty());
    }

    #[test]
    fn what_never_varied_is_told() {
        let search = &read(HOROVOD, "0,1,0, 1,5,4,100\n0,0,0, 1,5,4,100\n")[0];
        assert_eq!(
            never_varied(search),
            [
                "hierarchical allreduce off",
                "torus allreduce off",
                "response cache on"
            ]
        );
    }
}
