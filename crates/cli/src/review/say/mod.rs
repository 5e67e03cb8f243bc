//! Sentences of a review, shared by the text on a terminal and the page.

mod choice;
mod search;

use ronde_lab::review::words::{counted, faster, number, percent, signed};
use ronde_lab::review::{CANDIDATES_MOST, Candidate, Contest, Reason, Review, Setting, Writer};

pub(super) use choice::{chosen, importance, knobs, level, next};
pub(super) use search::{cost, finished, noise, tried};

/// Relative standard deviation of equal settings above which single trials are not conclusive.
pub(super) const NOISY: f64 = 0.03;
/// Numbers of steps below this value count as none.
pub(super) const LEAST_STEPS: f64 = 0.05;
/// Relative luck above which it is mentioned.
const LUCKY: f64 = 0.01;
/// Default of Horovod and Ronde, which Horovod's search never tries.
const DEFAULT: &str = "128 MiB and 1 ms";

/// Describes a setting, with the switches that were tried both on and off.
pub(super) fn words(review: &Review, setting: &Setting) -> String {
    setting.words(&review.varied)
}

/// Name of the log with its summary.
pub(super) fn headline(review: &Review) -> String {
    format!("{}: {}", review.source, summary(review))
}

/// Writer of the log, number of trials, and whether the search finished.
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

/// Recommendation in one or two sentences.
pub(super) fn answer(review: &Review) -> Vec<String> {
    if let Some(withheld) = &review.withheld {
        return vec![withheld.to_string()];
    }
    let (Some(best), Some(advice)) = (&review.best, &review.advice) else {
        return vec![no_trials(review)];
    };
    let setting = words(review, &advice.setting);
    let mut lines = vec![match advice.reason {
        Reason::Verdict => match review.gain.contest_of(&advice.setting) {
            Some(contest) => verdict(&setting, contest),
            None => format!("Use {setting}: nothing that was tried is faster."),
        },
        Reason::Choice if review.ending.finished => format!("Use {setting}, as the search chose."),
        Reason::Choice => format!("Use {setting}: of what was tried it is as good as anything."),
        Reason::Favourite => format!(
            "Use {setting} rather than what scored best: by all trials together it is {} faster.",
            percent(best.choice.slower.mean)
        ),
        Reason::Default => {
            format!("Keep the default, {setting}: nothing that was tried is surely faster.")
        }
    }];
    if best.luck > LUCKY && advice.reason == Reason::Choice {
        lines.push(format!(
            "Expect {} there, not the {} that was measured: {} of that was luck.",
            review.measure.words(best.choice.expected.value),
            number(best.choice.measured),
            percent(lucky_share(best))
        ));
    }
    if !best.ties.is_empty() && advice.reason != Reason::Verdict {
        // If the limit of compared candidates is reached, there may be more.
        let least = match best.ties.len() + 1 >= CANDIDATES_MOST {
            true => "At least ",
            false => "",
        };
        lines.push(format!(
            "{least}{} of the {} cannot be told from the best.",
            best.ties.len() + 1,
            counted(best.settings, "setting")
        ));
    }
    lines
}

/// Luck relative to the measured value.
pub(super) fn lucky_share(best: &ronde_lab::review::Best) -> f64 {
    let measured = best.choice.measured;
    (best.choice.expected.value - measured).abs() / measured
}

fn no_trials(review: &Review) -> String {
    if !review.warnings.is_empty() {
        return "No row of the log can be used: what is wrong with each stands below.".to_owned();
    }
    match review.writer {
        Writer::Horovod => "Nothing was measured. Either the job ended during its warm-up, or its tensors have no names that repeat from step to \
                            step: then Horovod never takes a sample, and stays at 4 MiB and 5 ms."
            .to_owned(),
        Writer::Ronde => "Nothing was measured: the job ended before the first sample closed.".to_owned(),
    }
}

/// Recommended setting to copy: environment variables, and flags of horovodrun and `ronde run`.
pub(super) fn paste(review: &Review) -> Option<[String; 2]> {
    let setting: Setting = review.advice.as_ref()?.setting;
    Some([
        setting.environment(&review.varied),
        setting.flags(&review.varied),
    ])
}

/// Sentence on the search's verdict, which its alternating windows may confirm or contradict.
fn verdict(setting: &str, contest: &Contest) -> String {
    let compared = faster(&contest.gain, Some("the default"));
    let rounds = counted(contest.rounds, "round");
    match contest.gain.mean > 0.0 {
        true => format!("Use {setting}: {compared}, by {rounds} in turns."),
        false => format!(
            "The log's verdict is {setting}, but in {rounds} in turns it was {compared}: measure both again before you use it."
        ),
    }
}

/// Formats by how much a candidate is slower than the favourite, for a table.
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

/// Formats the expected value of a candidate, for a table.
pub(super) fn expected(candidate: &Candidate) -> String {
    let expected = &candidate.expected;
    format!(
        "{} ({}–{})",
        number(expected.value),
        number(expected.low),
        number(expected.high)
    )
}

/// Formats a number of steps, which need not be an integer; negative values count as 0.
pub(super) fn steps(steps: f64) -> String {
    let steps = steps.max(0.0);
    if steps < LEAST_STEPS {
        return "no step".to_owned();
    }
    let number = if steps < 9.95 {
        format!("{steps:.1}")
    } else {
        format!("{steps:.0}")
    };
    format!("{number} steps")
}

/// Formats a probability.
pub(super) fn share(probability: f64) -> String {
    match probability {
        p if p < 0.005 => "below 1 %".to_owned(),
        p if p > 0.995 => "above 99 %".to_owned(),
        p => format!("{:.0} %", p * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ronde_lab::review::{Known, review};
    use ronde_tuner::read_log;

    const RONDE: &str = "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,\
                         tensor_fusion_threshold,score,phase,sample,steps,step_ms_p50,step_ms_ci95,predicted_step_ms,negotiate_share\n";

    /// A search in which the default took 100 ms and 4 MiB took `ms` in an alternating window.
    /// `end` holds the last rows of the log.
    fn search(ms: &str, end: &str) -> Review {
        let rows = format!(
            "{RONDE}0,0,0,1,1,128,500,default,0,10,100,1,,\n0,0,0,1,1,4,500,sample,1,8,99,1,,\n\
             0,0,0,1,1,128,500,ab,0,5,100,1,,\n0,0,0,1,1,4,500,ab,0,5,{ms},1,,\n{end}"
        );
        review(&read_log(&rows).unwrap(), "a.csv", &Known::default()).remove(0)
    }

    #[test]
    fn rows_that_cannot_be_used_are_no_job_that_ended() {
        let of = |rows: &str| {
            let log = read_log(&format!(
                "cycle_time_ms,tensor_fusion_threshold,score\n{rows}"
            ))
            .unwrap();
            answer(&review(&log, "a.csv", &Known::default())[0]).join(" ")
        };
        assert!(
            of("").contains("the job ended during its warm-up"),
            "{}",
            of("")
        );
        let said = of("5,4,nan\n5,8,-1\n");
        assert!(said.starts_with("No row of the log can be used"), "{said}");
    }

    #[test]
    fn a_loss_is_not_called_a_gain() {
        let verdict = "0,0,0,1,1,4,500,final,,40,101,,,\n";
        let lost = search("102", verdict);
        assert_eq!(
            answer(&lost)[0],
            "The log's verdict is 4 MiB, 1 ms, but in 1 round in turns it was 2.0 % slower than the default (0.6 to 3.4 %): measure \
             both again before you use it."
        );
        let said = chosen(&lost, lost.best.as_ref().unwrap()).join(" ");
        assert!(
            said.contains(
                "4 MiB, 1 ms took 102 ms and the default, 128 MiB, 1 ms, 100 ms: 2.0 % slower (0.6 to 3.4 %)."
            ),
            "{said}"
        );
        let open = search("100", verdict);
        let said = chosen(&open, open.best.as_ref().unwrap()).join(" ");
        assert!(
            said.contains("100 ms: as fast (between 1.4 % slower and 1.4 % faster)."),
            "{said}"
        );
        let won = search("80", verdict);
        assert!(
            answer(&won)[0].starts_with("Use 4 MiB, 1 ms: 20 % faster than the default ("),
            "{:?}",
            answer(&won)
        );
    }

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
    }
}
