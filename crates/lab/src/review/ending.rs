//! End of a search: whether it finished, the evidence for that, and the number of missing samples.
//!
//! For each combination of the switches that it tunes, Horovod tries M + 1 settings, (M + 1) · 2^k
//! in all, each for 5 S + 1 steps. Then it repeats the best row. M and S are settings of the job
//! that the log does not contain. M follows from the first switch that changes: until then all rows
//! have the same combination.

use ronde_tuner::contest_steps_left;
use serde::Serialize;

use super::setting::Switch;
use super::trial::{Phase, Search, Trial, Writer};
use super::words::{counted, list};

/// Horovod's defaults of M and S.
const SAMPLES_DEFAULT: u64 = 20;
const STEPS_DEFAULT: u64 = 10;
/// Number of sub-samples in a sample, of which Horovod takes the median; a sample ends one step
/// after the last of them.
const SUB_SAMPLES: u64 = 5;
/// Thresholds and cycle times with which Horovod begins in every job.
const HOROVODS_FIRST: [(f64, f64); 4] = [(4.0, 5.0), (32.0, 50.0), (16.0, 25.0), (8.0, 10.0)];

/// Settings of a job that are known from other sources than its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// M, `HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES`.
    pub max_samples: Option<u64>,
    /// S, `HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE`.
    pub steps_per_sample: Option<u64>,
}

/// End of a search.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ending {
    /// Whether the search finished.
    pub finished: bool,
    /// Evidence for that, in sentences.
    pub evidence: Vec<String>,
    /// Number of settings tried for each combination of switches (Horovod), if known.
    pub samples_per_combination: Option<u64>,
    /// Number of combinations of the switches that were begun.
    pub combinations: u64,
    /// Minimum and maximum number of missing samples; `None` if unknown.
    pub samples_left: Option<[u64; 2]>,
    /// Minimum and maximum number of missing training steps.
    pub steps_left: Option<[u64; 2]>,
}

impl Ending {
    /// Determines how `search` ended.
    pub(super) fn of(search: &Search, known: &Known) -> Self {
        match search.writer {
            Writer::Horovod => of_horovod(search, known),
            Writer::Ronde => of_ronde(search),
        }
    }
}

fn of_ronde(search: &Search) -> Ending {
    let finished = search.end.is_some();
    let unfinished = "there is no row \"final\" with a verdict: the job ended";
    let mut steps_left = None;
    let evidence = match search.trials.last() {
        _ if search.reverted => "the row \"reverted\" states that the chosen settings were \
             slower, and that the default is in force again"
            .to_owned(),
        _ if finished => "it has a verdict, in the row \"final\"".to_owned(),
        None => "the job ended while the first sample was under way".to_owned(),
        Some(_) if search.is_followed => {
            "the job changed during the search, which began again".to_owned()
        }
        Some(last) if last.phase == Phase::Ab => {
            let rounds = u32::try_from(last.number).unwrap_or(u32::MAX);
            steps_left = Some([0, contest_steps_left(rounds)]);
            let round = last.number + 1;
            format!("{unfinished} in round {round} of a comparison with the default")
        }
        Some(Trial { number, .. }) => {
            format!("{unfinished} after sample {number}, before any comparison with the default")
        }
    };
    Ending {
        finished,
        evidence: vec![evidence],
        samples_per_combination: None,
        combinations: 1,
        samples_left: None,
        steps_left,
    }
}

fn of_horovod(search: &Search, known: &Known) -> Ending {
    let trials = search.trials.len() as u64;
    let finished = search.end.is_some();
    let blocks = blocks(search);
    let combinations = blocks.len() as u64;
    let mut evidence = vec![if finished {
        "the last row repeats the best trial, which Horovod does at the end of a search".to_owned()
    } else {
        "no last row repeats the best trial, which Horovod adds at the end of a search".to_owned()
    }];

    // M + 1: given by the user, or seen in the log, or the default as long as the rows do not
    // contradict it.
    let first = blocks.first().copied().unwrap_or(0);
    let seen = (combinations > 1 || (finished && combinations == 1)).then_some(first);
    let said = known.max_samples.map(|samples| samples.saturating_add(1));
    let default = SAMPLES_DEFAULT + 1;
    let per_combination = seen
        .or(said.filter(|said| *said >= first))
        .or((first <= default).then_some(default));
    if let (Some(seen), Some(said)) = (seen, said)
        && seen != said
    {
        evidence.push(format!(
            "each combination of switches has {}{}, not the {said} of --max-samples {}",
            counted(seen, "trial"),
            match blocks.last() {
                Some(last) if *last != seen => format!(" (the last one {last})"),
                _ => String::new(),
            },
            said - 1
        ));
    }
    match (per_combination, seen, said) {
        (None, ..) => evidence.push(format!(
            "{} of one combination of switches are more than the {default} of Horovod's default: HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES was \
             set, to {} or more (say what it was with --max-samples)",
            counted(first, "trial"),
            first - 1
        )),
        (Some(per), None, None) if trials > 0 => evidence.push(format!(
            "{} of the {per} that one combination of switches gets, if HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES was its default {SAMPLES_DEFAULT}",
            counted(trials, "trial")
        )),
        _ => {}
    }

    let columns = Switch::ALL.into_iter().filter(|switch| search.has(*switch));
    let columns: Vec<&str> = columns.map(Switch::column).collect();
    let varied = search.varied().len() as u32;
    let samples_left = per_combination.filter(|_| !finished).map(|per| {
        let left = |switches: u32| per.saturating_mul(1 << switches).saturating_sub(trials);
        let least = if left(varied) > 0 { varied } else { varied + 1 };
        let most = (columns.len() as u32).max(least);
        [left(least), left(most)]
    });
    if !finished && per_combination.is_none() && !columns.is_empty() {
        let all = (first << columns.len()).saturating_sub(trials);
        evidence.push(format!(
            "if {} {} tuned as well, at least {all} more trials were to come",
            list(&columns),
            if columns.len() == 1 { "was" } else { "were" },
        ));
    }
    let per_sample = SUB_SAMPLES * known.steps_per_sample.unwrap_or(STEPS_DEFAULT) + 1;
    Ending {
        finished,
        evidence,
        samples_per_combination: per_combination,
        combinations,
        samples_left,
        steps_left: samples_left.map(|left| left.map(|samples| samples.saturating_mul(per_sample))),
    }
}

/// Lengths of the runs of rows with one combination of switches.
fn blocks(search: &Search) -> Vec<u64> {
    let same = |a: &Trial, b: &Trial| a.setting.switches == b.setting.switches;
    search
        .trials
        .chunk_by(same)
        .map(|block| block.len() as u64)
        .collect()
}

/// Whether a log begins with the settings with which Horovod always begins.
pub(super) fn begins_as_horovod(search: &Search) -> bool {
    let begin = search.trials.iter().zip(HOROVODS_FIRST);
    search.writer == Writer::Horovod
        && !search.trials.is_empty()
        && begin.into_iter().all(|(trial, (fusion_mb, cycle_ms))| {
            (trial.setting.fusion_mb, trial.setting.cycle_ms) == (fusion_mb, cycle_ms)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::trial::tests::{HOROVOD, RONDE, read};

    fn rows(count: usize, switches: &str, from: usize) -> String {
        (0..count)
            .map(|i| format!("{switches},5,{},{}\n", i + from, 100 + i + from))
            .collect()
    }

    fn ending(rows: &str, known: Known) -> Ending {
        Ending::of(&read(HOROVOD, rows)[0], &known)
    }

    #[test]
    fn the_first_flip_tells_how_many_samples_a_combination_gets() {
        // M + 1 = 21, one switch changed: 42 at least, 21 · 2^4 at most.
        let ending = ending(
            &(rows(21, "0,0,0, 0", 0) + &rows(4, "1,0,0, 0", 30)),
            Known::default(),
        );
        assert_eq!(
            (
                ending.finished,
                ending.samples_per_combination,
                ending.combinations
            ),
            (false, Some(21), 2)
        );
        assert_eq!(ending.samples_left, Some([17, 336 - 25]));
        assert_eq!(ending.steps_left, Some([17 * 51, 311 * 51]));
    }

    #[test]
    fn a_finished_search_repeats_its_best_row() {
        let ending = ending(
            &(rows(21, "0,0,0, 0", 0) + "0,0,0, 0,5,20,120\n"),
            Known::default(),
        );
        assert_eq!((ending.finished, ending.samples_left), (true, None));
        assert!(ending.evidence[0].contains("repeats"));
    }

    #[test]
    fn unfinished_with_the_defaults_or_with_what_is_said() {
        let first = ending(&rows(10, "0,0,0, 0", 0), Known::default());
        assert_eq!(first.samples_left, Some([11, 326]));
        let known = Known {
            max_samples: Some(40),
            steps_per_sample: Some(20),
        };
        let second = ending(&rows(37, "0,0,0, 0", 0), known);
        assert_eq!(
            (second.samples_left, second.steps_left),
            (Some([4, 41 * 16 - 37]), Some([404, 619 * 101]))
        );
        let third = ending(&rows(37, "0,0,0, 0", 0), Known::default());
        assert_eq!(third.samples_left, None);
        assert!(
            third.evidence[1].contains("37 trials") && third.evidence[1].contains("to 36 or more"),
            "{third:?}"
        );
        assert!(third.evidence[2].contains("at least 555 more"), "{third:?}");
        // A whole combination without an end: another switch is tuned.
        assert_eq!(
            ending(&rows(21, "0,0,0, 0", 0), Known::default()).samples_left,
            Some([21, 315])
        );
        let nothing = ending("", Known::default());
        assert_eq!(
            (nothing.finished, nothing.samples_left),
            (false, Some([21, 336]))
        );
    }

    #[test]
    fn rondes_ends_with_its_verdict() {
        let of = |rows: &str| Ending::of(&read(RONDE, rows)[0], &Known::default());
        let default = "0,0,0,1,1,128,500,default,0,10,61.2,1.2,,0.02\n";
        assert!(of(default).evidence[0].contains("after sample 0"));
        let followed = of(&format!("{default}{default}"));
        assert!(followed.evidence[0].contains("began again"));
        let ab = of(&format!(
            "{default}0,0,0,1,1,128,500,ab,2,5,61.0,1.2,,0.02\n"
        ));
        assert!(ab.evidence[0].contains("in round 3") && !ab.finished);
        // 500 steps less two pairs of visits of at least 3 steps, and the pair under way, of 16 and a change each.
        assert_eq!(ab.steps_left, Some([0, 500 - 12 + 34]));
        let kept = format!("{default}0,0,0,1,1,64,520,final,,52,58,,,0.02\n");
        assert!(of(&kept).finished && of(&kept).evidence[0].contains("\"final\""));
        let reverted = of(&format!(
            "{kept}0,0,0,1,1,128,500,reverted,,52,61.2,,,0.02\n"
        ));
        assert!(reverted.finished && reverted.evidence[0].contains("were slower"));
        assert!(
            of(&format!(
                "{default}0,0,0,1,1,128,500,final,,10,61.2,,,0.02\n"
            ))
            .finished
        );
        assert!(of("").evidence[0].contains("first sample was under way"));
    }
}
