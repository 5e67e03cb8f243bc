//! Drift of the job: its network gets slower after the verdict. Measures whether and when that is
//! noticed, whether another search is worth it, and false alarms if nothing changes.

use super::job::Job;
use super::run::{parallel, seed};
use super::table::quantile;
use super::truth::Surface;
use super::tuners::{Driven, Event, Ours};
use super::witness::Errors;

/// Steps between the verdict and the change.
const CALM_STEPS: usize = 400;
/// Steps that are evaluated after the change.
const AFTER_STEPS: usize = 1500;
/// Steps after which a search counts as endless.
const SEARCH_MOST: usize = 20_000;
/// Steps of a job without a change, on each surface.
const LONG_STEPS: usize = 30_000;
/// Relative change of the step time below which no alarm is wanted.
const IGNORED: f64 = 0.03;

/// One job whose network changed.
#[derive(Clone, Debug, PartialEq)]
struct Run {
    /// Alarms before the change.
    false_alarms: usize,
    /// Relative slow-down of a step by the change.
    shift: f64,
    /// Steps until it was noticed.
    delay: Option<usize>,
    /// Steps of the search after that, if it ended.
    search: Option<usize>,
    /// Step times of the settings before and after, as multiples of the new best.
    kept: f64,
    tuned: f64,
    /// Loss after the change, in steps of the new best: as measured, and without another search.
    lost: f64,
    lost_kept: f64,
}

/// Parameters of the runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan<'a> {
    /// Each surface before and after.
    pub(crate) surfaces: &'a [(Surface, Surface)],
    /// Options of the command line.
    pub(crate) factor: f64,
    pub(crate) seeds: u64,
    pub(crate) first_seed: u64,
    pub(crate) error: f64,
    pub(crate) threads: usize,
}

/// Formats the table, as Markdown.
pub(crate) fn table(plan: &Plan<'_>) -> Result<String, ronde_tuner::Error> {
    let seeds = plan.seeds as usize;
    let runs = parallel(plan.surfaces.len() * seeds, plan.threads, |index| {
        let (before, after) = &plan.surfaces[index / seeds];
        changed(
            plan,
            before,
            after,
            plan.first_seed + (index % seeds) as u64,
        )
    });
    let runs: Vec<Run> = runs.into_iter().collect::<Result<_, _>>()?;
    let alarms = parallel(plan.surfaces.len(), plan.threads, |index| {
        calm(plan, &plan.surfaces[index].0)
    });
    let alarms: Vec<usize> = alarms.into_iter().collect::<Result<_, _>>()?;

    let mut text = format!(
        "## The network {} times as slow after the verdict\n\n{HEADER}\n",
        plan.factor
    );
    for (index, (before, _)) in plan.surfaces.iter().enumerate() {
        text += &row(
            &before.name,
            &runs[index * seeds..(index + 1) * seeds],
            Some(alarms[index]),
        );
    }
    text += &row("all", &runs, Some(alarms.iter().sum()));
    let shifted: Vec<Run> = runs
        .iter()
        .filter(|run| run.shift.abs() > IGNORED)
        .cloned()
        .collect();
    if !shifted.is_empty() {
        text += &row(
            "all that got more than 3 % slower or faster",
            &shifted,
            None,
        );
    }
    Ok(text)
}

const HEADER: &str = "| surface | runs | step time grew | noticed | after steps: median / p90 | re-tuned in steps: median / p90 | kept / best | re-tuned / best: mean, worst | > 1 % worse than kept | lost in 1,500: kept, re-tuned | false alarms in 400 | false alarms in 30,000 |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |";

fn row(name: &str, runs: &[Run], alarms: Option<usize>) -> String {
    let mean = |value: fn(&Run) -> f64| runs.iter().map(value).sum::<f64>() / runs.len() as f64;
    let steps = |value: fn(&Run) -> Option<usize>| {
        let steps: Vec<f64> = runs
            .iter()
            .filter_map(value)
            .map(|steps| steps as f64)
            .collect();
        match steps.as_slice() {
            [] => "-".into(),
            steps => format!("{:.0} / {:.0}", quantile(steps, 0.5), quantile(steps, 0.9)),
        }
    };
    let noticed = runs.iter().filter(|run| run.delay.is_some()).count();
    let worse = runs
        .iter()
        .filter(|run| run.tuned > 1.01 * run.kept)
        .count();
    format!(
        "| {name} | {} | {:.1} % | {noticed} | {} | {} | {:.3} | {:.3}, {:.3} | {worse} | {:.0}, {:.0} | {} | {} |\n",
        runs.len(),
        100.0 * mean(|run| run.shift),
        steps(|run| run.delay),
        steps(|run| run.search),
        mean(|run| run.kept),
        mean(|run| run.tuned),
        runs.iter().map(|run| run.tuned).fold(0.0, f64::max),
        mean(|run| run.lost_kept),
        mean(|run| run.lost),
        runs.iter().map(|run| run.false_alarms).sum::<usize>(),
        alarms.map_or("-".into(), |alarms| alarms.to_string()),
    )
}

/// Returns a job whose search has ended.
fn tuned<'a>(
    ours: &'a Ours,
    plan: &Plan<'_>,
    surface: &'a Surface,
    number: u64,
) -> Result<(Job<'a>, Driven<'a>), ronde_tuner::Error> {
    let seed = seed(&surface.name, number);
    let mut job = Job::new(surface, seed, Some(Errors::draw(plan.error, !seed)));
    let mut driven = Driven::new(ours, &job, seed.rotate_left(17))?;
    search(&mut driven, &mut job);
    Ok((job, driven))
}

/// Runs steps until the current search has ended.
fn search(driven: &mut Driven<'_>, job: &mut Job<'_>) {
    let most = job.steps() + SEARCH_MOST;
    while job.steps() < most && driven.step(job) != Event::Finished {}
}

/// Runs this many steps without a change; returns the number of alarms. Ends between searches.
fn alarms(driven: &mut Driven<'_>, job: &mut Job<'_>, steps: usize) -> usize {
    let mut alarms = 0;
    let end = job.steps() + steps;
    while job.steps() < end {
        if driven.step(job) == Event::Drifted {
            alarms += 1;
            search(driven, job);
        }
    }
    alarms
}

fn calm(plan: &Plan<'_>, surface: &Surface) -> Result<usize, ronde_tuner::Error> {
    let ours = Ours::with_model();
    let (mut job, mut driven) = tuned(&ours, plan, surface, plan.first_seed)?;
    Ok(alarms(&mut driven, &mut job, LONG_STEPS))
}

fn changed(
    plan: &Plan<'_>,
    before: &Surface,
    after: &Surface,
    number: u64,
) -> Result<Run, ronde_tuner::Error> {
    let ours = Ours::with_model();
    let (mut job, mut driven) = tuned(&ours, plan, before, number)?;
    let false_alarms = alarms(&mut driven, &mut job, CALM_STEPS);
    let kept = driven.setting();
    job.change(after);
    let since = job.steps();
    let (mut noticed, mut search) = (None, None);
    while job.steps() < since + AFTER_STEPS {
        match driven.step(&mut job) {
            Event::Drifted => noticed = noticed.or(Some(job.steps())),
            Event::Finished => search = search.or(noticed.map(|step| job.steps() - step)),
            Event::Step => {}
        }
    }
    let kept_relative = after.relative(&kept);
    Ok(Run {
        false_alarms,
        shift: after.step_us(&kept) / before.step_us(&kept) - 1.0,
        delay: noticed.map(|step| step - since),
        search,
        kept: kept_relative,
        tuned: after.relative(&driven.setting()),
        lost: job.regret()[since..].iter().sum(),
        lost_kept: AFTER_STEPS as f64 * (kept_relative - 1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::truth::{Truth, surfaces};

    #[test]
    #[cfg_attr(
        debug_assertions,
        ignore = "takes a minute without optimization; scripts/test runs it with"
    )]
    fn a_network_four_times_as_slow_is_noticed_and_tuned_for() {
        let at = |factor: f64| surfaces(Truth::Lab, factor, None).unwrap().swap_remove(8); // bert/g25
        let (before, after) = (at(1.0), at(4.0));
        let surfaces = [(before, after)];
        let plan = Plan {
            surfaces: &surfaces,
            factor: 4.0,
            seeds: 1,
            first_seed: 0,
            error: 0.3,
            threads: 1,
        };
        let run = changed(&plan, &surfaces[0].0, &surfaces[0].1, 0).unwrap();
        assert!(run.shift > 1.0, "{run:?}");
        assert!(
            run.delay.is_some_and(|delay| (1..=30).contains(&delay)),
            "{run:?}"
        );
        assert!(run.search.is_some(), "{run:?}");
        assert!(run.tuned < 1.1 && run.lost < 1500.0, "{run:?}");
    }
}
