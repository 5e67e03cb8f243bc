//! Tables of the step-time processes, as Markdown.

use super::{Change, LEAVING, Process, Run};

/// Guard steps within which a gain is to be found, and steps within which a change is to be noticed
/// and tuned for.
const FOUND_WITHIN: u64 = 250;
const NOTICED_WITHIN: [u64; 2] = [15, 60];
const TUNED_WITHIN: u64 = 100;

fn percent(part: usize, whole: usize) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => format!("{:.1} %", 100.0 * part as f64 / whole as f64),
    }
}

fn share(runs: &[Run], of: impl Fn(&Run) -> bool) -> String {
    percent(runs.iter().filter(|run| of(run)).count(), runs.len())
}

/// Number of steps to an event that did not happen; larger than all others.
const NEVER: u64 = u64::MAX;

/// The value below which this share of the values lies.
fn quantile(mut values: Vec<u64>, share: f64) -> String {
    values.sort_unstable();
    let place = (share * values.len() as f64) as usize;
    match values.get(place.min(values.len().saturating_sub(1))) {
        None => "-".to_owned(),
        Some(&NEVER) => "never".to_owned(),
        Some(value) => value.to_string(),
    }
}

fn paid(runs: &[Run]) -> String {
    let sum: f64 = runs.iter().map(|run| run.paid).sum();
    let most = runs.iter().map(|run| run.paid).fold(f64::MIN, f64::max);
    let mean = 100.0 * sum / runs.len().max(1) as f64;
    format!("{mean:.2} %, {:.1} %", 100.0 * most)
}

/// Coverage of the intervals at the stop: of those given, and of the runs whose statements hold.
fn intervals(runs: &[Run]) -> (String, String) {
    let given: u32 = runs.iter().map(|run| run.intervals).sum();
    let missed: u32 = runs.iter().map(|run| run.missed).sum();
    let of_given = match given {
        0 => "none given".to_owned(),
        _ => format!(
            "{} of {given}",
            percent((given - missed) as usize, given as usize)
        ),
    };
    (of_given, share(runs, |run| run.missed == 0))
}

/// The [`intervals`] of a process; "-" where its gain changes during a run: no interval has a true gain to contain.
fn coverage_of(process: &Process, runs: &[Run]) -> (String, String) {
    match process.gain_pct() {
        Some(_) => intervals(runs),
        None => ("-".to_owned(), "-".to_owned()),
    }
}

/// Formats the table of processes.
pub(crate) fn processes(all: &[(Process, Vec<Run>)]) -> String {
    let mut text = "| process | mean gain of leaving | runs | not settled at the start at step 3,000 (of these searching) \
         | ever left | reverted | paid over 3,000 steps: mean, worst | claim a gain | intervals that hold \
         | runs without a wrong interval | guard steps: median | runs with a drift alarm |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for (process, runs) in all {
        let gain = process.gain_pct();
        let gain = gain.map_or("changes".to_owned(), |gain| format!("{gain:.1} %"));
        let (of_given, of_runs) = coverage_of(process, runs);
        text += &format!(
            "| {} | {gain} | {} | {} ({}) | {} | {} | {} | {} | {of_given} | {of_runs} | {} | {} |\n",
            process.name,
            runs.len(),
            share(runs, |run| !run.state.is_settled_at_start()),
            runs.iter().filter(|run| run.state.is_searching).count(),
            share(runs, |run| run.left),
            share(runs, |run| run.reverted),
            paid(runs),
            share(runs, |run| run.claims > 0),
            quantile(runs.iter().map(|run| run.guard_steps).collect(), 0.5),
            share(runs, |run| run.alarms > 0),
        );
    }
    text
}

/// Formats the table of true gains.
pub(crate) fn gains(all: &[(Process, Vec<Run>)]) -> String {
    let mut text = "| true gain, noise 3.5 % | runs | found | found within 250 guard steps \
         | guard steps until then: median / p90 | kept at step 3,000 | intervals that hold |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for (process, runs) in all {
        let found: Vec<u64> = runs.iter().filter_map(|run| run.left_after).collect();
        text += &format!(
            "| {} | {} | {} | {} | {} / {} | {} | {} |\n",
            process.name,
            runs.len(),
            share(runs, |run| run.left),
            share(runs, |run| run
                .left_after
                .is_some_and(|steps| steps <= FOUND_WITHIN)),
            quantile(found.clone(), 0.5),
            quantile(found, 0.9),
            share(runs, |run| run.state.is_away && !run.state.is_searching),
            intervals(runs).0,
        );
    }
    text
}

/// Formats the table of equal settings.
pub(crate) fn flat(all: &[(Process, Vec<Run>)]) -> String {
    let mut text = "| noise | runs | adopted | claim a gain above 0 | kept at step 3,000 \
         | paid over 3,000 steps: mean, worst | guard steps: median |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for (process, runs) in all {
        text += &format!(
            "| {} | {} | {} | {} | {} | {} | {} |\n",
            process.name,
            runs.len(),
            share(runs, |run| run.left),
            share(runs, |run| run.claims > 0),
            share(runs, |run| run.state.is_away && !run.state.is_searching),
            paid(runs),
            quantile(runs.iter().map(|run| run.guard_steps).collect(), 0.5),
        );
    }
    text
}

/// Formats the table of permanent changes: for each process the factor and its runs, and the false
/// alarms in a number of steps.
pub(crate) fn drift(all: &[(Process, f64, Vec<Change>, [u64; 2])]) -> String {
    let mut text = "| process | step time times | runs | noticed: within 15 steps | within 60 steps \
         | within 600 steps | after steps: median / p90 / p99 of all runs | of those that noticed: new verdict within 100 steps of that \
         | after steps: median / p90 | false alarms without a change |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for (process, factor, changes, [alarms, steps]) in all {
        let or_never = |steps: Option<u64>| steps.unwrap_or(NEVER);
        let noticed: Vec<u64> = changes
            .iter()
            .map(|change| or_never(change.noticed))
            .collect();
        let known = changes.iter().filter(|change| change.noticed.is_some());
        let tuned: Vec<u64> = known.map(|change| or_never(change.tuned)).collect();
        let within = |values: &[u64], most: u64| {
            percent(
                values.iter().filter(|steps| **steps <= most).count(),
                values.len(),
            )
        };
        let [soon, later] = NOTICED_WITHIN.map(|most| within(&noticed, most));
        let of = |share: f64| quantile(noticed.clone(), share);
        text += &format!(
            "| {} | {factor} | {} | {soon} | {later} | {} | {} / {} / {} | {} | {} / {} | {alarms} in {steps} |\n",
            process.name,
            changes.len(),
            within(&noticed, NEVER - 1),
            of(0.5),
            of(0.9),
            of(0.99),
            within(&tuned, TUNED_WITHIN),
            quantile(tuned.clone(), 0.5),
            quantile(tuned.clone(), 0.9),
        );
    }
    text
}

/// Formats the table of drawn processes: for each environment the runs by [`LEAVING`].
pub(crate) fn drawn(all: &[(&str, [Vec<Run>; LEAVING.len()])]) -> String {
    let mut text = "| environment | runs of each | slower: not settled at the start at step 3,000 | claim a gain | paid: mean, worst \
         | equal: claim a gain | paid | rare slow steps: not settled at the start | claim a gain | paid | intervals that hold \
         | faster: found | paid | intervals that hold |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    let pooled =
        [0, 1, 2, 3].map(|index| all.iter().flat_map(|row| row.1[index].clone()).collect());
    let pooled = ("all", pooled);
    for (name, [slower, equal, rare, faster]) in all.iter().chain([&pooled]) {
        let away = |runs: &[Run]| share(runs, |run| !run.state.is_settled_at_start());
        let claims = |runs: &[Run]| share(runs, |run| run.claims > 0);
        text += &format!(
            "| {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
            slower.len(),
            away(slower),
            claims(slower),
            paid(slower),
            claims(equal),
            paid(equal),
            away(rare),
            claims(rare),
            paid(rare),
            intervals(rare).0,
            share(faster, |run| run.left),
            paid(faster),
            intervals(faster).0,
        );
    }
    text
}

/// Formats the table of coverage.
pub(crate) fn coverage(all: &[(Process, Vec<Run>)]) -> String {
    let mut text =
        "| process | runs | intervals of the gain that hold | runs without a wrong interval |\n\
         | --- | --- | --- | --- |\n"
            .to_owned();
    for (process, runs) in all {
        let (of_given, of_runs) = coverage_of(process, runs);
        text += &format!(
            "| {} | {} | {of_given} | {of_runs} |\n",
            process.name,
            runs.len()
        );
    }
    text
}
