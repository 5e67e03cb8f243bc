//! `ronde tune -- COMMAND` on simulated commands: the plan and its runs as they are, with a formula
//! in the place of the command.
//!
//! A run of the command gives one figure: the true mean step time of a surface, with noise. The
//! parameters are the 17 fusion thresholds and 13 cycle times that tuners search.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, StandardNormal};
use ronde_command::{
    Limit, Outcome, Parameter, Phase, Plan, Row, Runner, Setting as Levels, search,
};

use super::run::{parallel, seed};
use super::truth::{Setting, Surface};

/// Conditions of the searches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    pub(crate) runs: usize,
    /// Noise of a run, as a share.
    pub(crate) noise: f64,
    pub(crate) first_seed: u64,
    pub(crate) seeds: u64,
    pub(crate) threads: usize,
    /// Whether each search starts at a setting of its own, drawn at random.
    pub(crate) start_anywhere: bool,
}

/// One search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// Figure of the chosen setting and of the start, as multiples of the best one.
    pub(crate) chosen: f64,
    pub(crate) start: f64,
    /// Figure of the setting that was compared with the start.
    pub(crate) candidate: f64,
    pub(crate) runs: usize,
}

/// Settings of the lattice with their figures, relative to the best.
struct Command {
    parameters: Vec<Parameter>,
    /// By index of the threshold and of the cycle time.
    figures: Vec<Vec<f64>>,
}

impl Command {
    fn new(surface: &Surface) -> Self {
        let lattice = Setting::lattice();
        let flat: Vec<&Setting> = lattice.iter().skip(1).filter(|s| !s.hierarchical).collect();
        let distinct = |value: fn(&Setting) -> f64| {
            let mut values: Vec<f64> = flat.iter().map(|setting| value(setting)).collect();
            values.sort_by(f64::total_cmp);
            values.dedup();
            values
        };
        let (fusion, cycle) = (
            distinct(|s| s.fusion_bytes as f64),
            distinct(|s| s.cycle_ms),
        );
        let at = |fusion: f64, cycle_ms: f64| Setting {
            fusion_bytes: fusion as u64,
            cycle_ms,
            ..Setting::DEFAULT
        };
        let figures: Vec<Vec<f64>> = (fusion.iter())
            .map(|fusion| {
                cycle
                    .iter()
                    .map(|cycle| surface.step_us(&at(*fusion, *cycle)))
                    .collect()
            })
            .collect();
        let best = figures
            .iter()
            .flatten()
            .copied()
            .fold(f64::INFINITY, f64::min);
        // The start is the level nearest to the default.
        let nearest = |values: &[f64], value: f64| {
            let distance = |other: &f64| ((other + 1e-9) / value).ln().abs();
            let nearest = values
                .iter()
                .min_by(|a, b| distance(a).total_cmp(&distance(b)));
            *nearest.unwrap_or(&value)
        };
        let parameter = |name: &str, values: &[f64], start: f64| {
            let list: Vec<String> = values.iter().map(f64::to_string).collect();
            let start = nearest(values, start);
            let text = format!("{name}={},start={start}", list.join("|"));
            text.parse::<Parameter>()
                .expect("a list of numbers is a parameter")
        };
        let default = Setting::DEFAULT;
        Self {
            parameters: vec![
                parameter("fusion", &fusion, default.fusion_bytes as f64),
                parameter("cycle", &cycle, default.cycle_ms),
            ],
            figures: (figures.into_iter())
                .map(|row| row.into_iter().map(|figure| figure / best).collect())
                .collect(),
        }
    }

    fn figure(&self, setting: &Levels) -> f64 {
        self.figures[setting.0[0]][setting.0[1]]
    }
}

/// Runs a simulated command.
struct Simulated<'a> {
    command: &'a Command,
    noise: f64,
    rng: Xoshiro256PlusPlus,
}

impl Runner for Simulated<'_> {
    type Error = std::convert::Infallible;

    fn run(&mut self, setting: &Levels, _: &Limit) -> Result<Option<Outcome>, Self::Error> {
        let normal: f64 = StandardNormal.sample(&mut self.rng);
        let log = self.noise * normal - self.noise * self.noise / 2.0;
        Ok(Some(Outcome::measured(
            100.0 * self.command.figure(setting) * log.exp(),
        )))
    }
}

fn one(command: &Command, conditions: &Conditions, seed: u64) -> End {
    let mut parameters = command.parameters.clone();
    if conditions.start_anywhere {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(!seed);
        for parameter in &mut parameters {
            let start = rng.random_range(0..parameter.values().len());
            *parameter = parameter.clone().starting_at(start);
        }
    }
    let plan = Plan::new(parameters, conditions.runs);
    let plan = plan
        .expect("the lattice is a space")
        .seeded(seed.rotate_left(17));
    let mut runner = Simulated {
        command,
        noise: conditions.noise,
        rng: Xoshiro256PlusPlus::seed_from_u64(seed),
    };
    let mut rows: Vec<Row> = Vec::new();
    let Ok(_) = search(&plan, &mut runner, &mut rows, |_| Ok(()));
    let verdict = plan.verdict(&rows);
    let compared = rows.iter().any(|row| row.phase == Phase::Compare);
    let candidate = verdict
        .candidate
        .filter(|_| compared)
        .unwrap_or_else(|| plan.start());
    End {
        chosen: command.figure(&verdict.chosen),
        start: command.figure(&plan.start()),
        candidate: command.figure(&candidate),
        runs: rows.len(),
    }
}

/// All searches of each surface, with its name.
pub(crate) fn all(surfaces: &[Surface], conditions: &Conditions) -> Vec<(String, Vec<End>)> {
    let ends = surfaces.iter().map(|surface| {
        let command = Command::new(surface);
        let ends = parallel(conditions.seeds as usize, conditions.threads, |index| {
            let number = conditions.first_seed + index as u64;
            one(&command, conditions, seed(&surface.name, number))
        });
        eprintln!("{}", surface.name);
        (surface.name.clone(), ends)
    });
    ends.collect()
}

/// Table of the searches: each surface, then all.
pub(crate) fn table(ends: &[(String, Vec<End>)]) -> String {
    let mut text =
        "| command | searches | start % | candidate: median, p90 % | chosen: median, p90, p99 % | \
                    worse than the start by > 1 % | start kept | runs: mean, most |\n\
                    | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
            .to_owned();
    let all: Vec<End> = ends.iter().flat_map(|(_, ends)| ends.clone()).collect();
    for (name, ends) in ends
        .iter()
        .map(|(name, ends)| (name.as_str(), ends))
        .chain([("all", &all)])
    {
        text += &row(name, ends);
    }
    text
}

fn row(name: &str, ends: &[End]) -> String {
    let count = ends.len() as f64;
    let share = |is: &dyn Fn(&End) -> bool| {
        100.0 * ends.iter().filter(|end| is(end)).count() as f64 / count
    };
    let quantile = |value: fn(&End) -> f64, share: f64| {
        let mut values: Vec<f64> = ends.iter().map(|end| 100.0 * (value(end) - 1.0)).collect();
        values.sort_by(f64::total_cmp);
        values[((share * count).ceil() as usize).clamp(1, values.len()) - 1]
    };
    let runs = ends.iter().map(|end| end.runs);
    format!(
        "| {name} | {} | {:.1} | {:.1}, {:.1} | {:.1}, {:.1}, {:.1} | {:.1} % | {:.0} % | \
         {:.1}, {} |\n",
        ends.len(),
        quantile(|end| end.start, 0.5),
        quantile(|end| end.candidate, 0.5),
        quantile(|end| end.candidate, 0.9),
        quantile(|end| end.chosen, 0.5),
        quantile(|end| end.chosen, 0.9),
        quantile(|end| end.chosen, 0.99),
        share(&|end| end.chosen > 1.01 * end.start),
        share(&|end| end.chosen == end.start),
        runs.clone().sum::<usize>() as f64 / count,
        runs.max().unwrap_or(0),
    )
}
