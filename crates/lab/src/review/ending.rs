//! End of a search: whether it finished, the evidence for that, and the number of missing samples.
//!
//! For each combination of the switches that it tunes, Horovod tries M + 1 settings, (M + 1) · 2^k
//! in all, each for 5 S + 1 steps. Then it repeats the best row. M and S are settings of the job
//! that the log does not contain. M follows from the first switch that changes: until then all rows
//! have the same combination.

use ronde_tuner::contest_steps_left;
use serde::Serialize;

use super::trial::{Phase, Search, Trial, Writer};
use ronde_job::units::{counted, list};

/// Horovod's defaults of M and S.
const SAMPLES_DEFAULT: u64 = 20;
const STEPS_DEFAULT: u64 = 10;
/// Sub-samples of a sample, of which Horovod takes the median; it ends one step after them.
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

impl Known {
    /// Steps of one of Horovod's trials: S for each sub-sample, and one.
    pub(super) fn steps_per_trial(&self) -> u64 {
        SUB_SAMPLES * self.steps_per_sample.unwrap_or(STEPS_DEFAULT) + 1
    }
}

/// End of a search.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
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
        _ if search.reverted => {
            "the row \"reverted\" says that the chosen settings turned out slower, and the default \
             is in force again"
                .to_owned()
        }
        _ if finished => "the row \"final\" has the verdict".to_owned(),
        None => "the job ended during the first sample".to_owned(),
        Some(_) if search.is_followed => {
            "the job changed during the search, so a new search began".to_owned()
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
        combinations: 1,
        steps_left,
        ..Ending::default()
    }
}

fn of_horovod(search: &Search, known: &Known) -> Ending {
    let trials = search.trials.len() as u64;
    let finished = search.end.is_some();
    // Lengths of the runs of rows with one combination of switches.
    let same = |a: &Trial, b: &Trial| a.setting.switches == b.setting.switches;
    let runs = search.trials.chunk_by(same);
    let blocks: Vec<u64> = runs.map(|run| run.len() as u64).collect();
    let combinations = blocks.len() as u64;
    let ends = if finished { "ends" } else { "does not end" };
    let mut evidence = vec![format!(
        "the log {ends} with a copy of the best trial, which Horovod writes at the end of a search"
    )];

    // M + 1: given by the user, or seen in the log, or the default as long as the rows do not
    // contradict it.
    let first = blocks.first().copied().unwrap_or(0);
    let seen = (combinations > 1 || (finished && combinations == 1)).then_some(first);
    let given = known.max_samples.map(|samples| samples.saturating_add(1));
    let default = SAMPLES_DEFAULT + 1;
    let stated = seen.or(given.filter(|given| *given >= first));
    let per_combination = stated.or((first <= default).then_some(default));
    match (per_combination, seen, given) {
        (_, Some(seen), Some(given)) if seen != given => evidence.push(format!(
            "the combinations of switches have {} trials, not the {given} of --max-samples {}",
            list(&blocks.iter().map(u64::to_string).collect::<Vec<_>>()),
            given - 1
        )),
        (None, ..) => evidence.push(format!(
            "{} of one combination of switches are more than the {default} of Horovod's default: \
             HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES was set to {} or more (--max-samples states \
             it)",
            counted(first, "trial"),
            first - 1
        )),
        (Some(per), None, None) if trials == per => evidence.push(format!(
            "one combination of switches has all its {per} trials, if \
             HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES was its default {SAMPLES_DEFAULT}, so at least \
             one more combination was to follow"
        )),
        (Some(per), None, None) if trials > 0 => evidence.push(format!(
            "{} of the {per} that one combination of switches gets, if \
             HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES was its default {SAMPLES_DEFAULT}",
            counted(trials, "trial")
        )),
        _ => {}
    }

    let columns: Vec<&str> = search.switches.iter().map(|of| of.column()).collect();
    let varied = search.varied().len() as u32;
    let samples_left = per_combination.filter(|_| !finished).map(|per| {
        let left = |switches: u32| per.saturating_mul(1 << switches).saturating_sub(trials);
        let least = if left(varied) > 0 { varied } else { varied + 1 };
        [left(least), left((columns.len() as u32).max(least))]
    });
    if !finished && per_combination.is_none() && !columns.is_empty() {
        let all = (first << columns.len()).saturating_sub(trials);
        evidence.push(format!(
            "if {} {} tuned as well, at least {all} more trials were missing",
            list(&columns),
            if columns.len() == 1 { "was" } else { "were" },
        ));
    }
    let steps = |samples: u64| samples.saturating_mul(known.steps_per_trial());
    Ending {
        finished,
        evidence,
        samples_per_combination: per_combination,
        combinations,
        samples_left,
        steps_left: samples_left.map(|left| left.map(steps)),
    }
}

/// Whether a log begins with the settings with which Horovod always begins.
pub(super) fn begins_as_horovod(search: &Search) -> bool {
    let settings = search.trials.iter().map(|trial| trial.setting);
    let mut begin = settings.zip(HOROVODS_FIRST);
    search.writer == Writer::Horovod
        && !search.trials.is_empty()
        && begin.all(|(setting, first)| (setting.fusion_mb, setting.cycle_ms) == first)
}
