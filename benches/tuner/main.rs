//! Evaluation of tuners on jobs whose best setting is known (`results/tuner/README.md`).
//!
//! `cargo bench --bench tuner` runs the main comparison: Ronde's tuner with and without a model of
//! the job, no tuning, random search and Horovod's algorithm, on surfaces with which nothing was
//! chosen, 50 runs on each. `-- --table` selects another table; `-- --help` lists the options.
//! Equal options give equal results on any machine, which the hash at the end shows. Other tuners
//! (`peers.py`) drive the same jobs through `--serve`, and `--add` puts their runs into the table.

mod environment;
// Its unit tests run in `tests/tuning/main.rs`; here they are compiled without a harness that would
// call them.
#[allow(dead_code, unused_imports)]
mod harness;
mod options;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use harness::outcome::Outcome;
use harness::run::{self, Plan};
use harness::serve::serve;
use harness::truth::{Surface, Truth, label, surfaces};
use harness::tuners::{self, Tuner};
use harness::{attacks, commands, drift, table};
use options::{Options, Table};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    // `cargo bench` starts this in the package's folder; paths on the command line are relative to
    // the repository.
    if let Some(package) = std::env::var_os("CARGO_MANIFEST_DIR") {
        std::env::set_current_dir(std::path::Path::new(&package).join("../.."))?;
    }
    let options = Options::parsed();
    if options.serve {
        return Ok(serve(
            std::io::stdin().lock(),
            std::io::stdout().lock(),
            options.noise,
            options.part,
        )?);
    }
    if let Some(path) = &options.log {
        let all = [&attacks::CHOSEN[..], &attacks::APART].concat();
        let chosen = chosen_processes(&options, &all)?;
        let [process] = chosen.as_slice() else {
            return Err("--log: name one process with --processes".into());
        };
        return process.log(options.first_seed, path);
    }
    print!("{}", environment::text());
    if options.table.has_surfaces() {
        println!("Surfaces: {} (split.rs).\n", options.part);
    }
    match options.table {
        Table::Surfaces => surfaces_table(&options),
        Table::Headline => {
            println!("## Step-time processes\n");
            processes_table(&options, &attacks::CHOSEN, attacks::processes)?;
            println!("\n## Step-time processes with which nothing was chosen\n");
            processes_table(&options, &attacks::APART, attacks::processes)?;
            println!();
            print!("{}", table::summary(&surface_runs(&options)?));
            Ok(())
        }
        Table::Coverage => coverage_table(&options),
        Table::NetworkDrift => network_drift_table(&options),
        Table::Commands => commands_table(&options),
        Table::Drift => process_drift_table(&options),
        Table::Processes => processes_table(&options, &attacks::CHOSEN, attacks::processes),
        Table::Apart => processes_table(&options, &attacks::APART, attacks::processes),
        Table::Drawn => drawn_table(&options),
        Table::Gains => processes_table(&options, &attacks::GAINS, attacks::gains),
        Table::Flat => processes_table(&options, &attacks::FLAT, attacks::flat),
    }
}

/// Runs every tuner on every surface.
fn surface_runs(options: &Options) -> Result<Vec<Outcome>, Failure> {
    let tuners = chosen_tuners(&options.tuners)?;
    let mut outcomes = Vec::new();
    for truth in &options.truth {
        let surfaces = chosen_surfaces(options, *truth, 1.0)?;
        let surfaces: Vec<&Surface> = surfaces.iter().collect();
        let name = label(*truth, options.noise, options.error);
        let plan = plan(options, &name, &surfaces);
        run::parallel(surfaces.len(), plan.threads, |index| {
            surfaces[index].optimum()
        });
        for tuner in &tuners {
            let began = Instant::now();
            outcomes.extend(run::all(&plan, tuner.as_ref()));
            eprintln!(
                "{name}: {}: {:.1} s",
                tuner.name(),
                began.elapsed().as_secs_f64()
            );
        }
    }
    Ok(outcomes)
}

fn surfaces_table(options: &Options) -> Result<(), Failure> {
    let mut outcomes = surface_runs(options)?;
    let hash = table::hash(&outcomes);
    for path in &options.add {
        outcomes.extend(read(path)?);
    }
    print!("{}", table::markdown(&outcomes));
    println!("Hash of the runs: {hash:016x}");
    if let Some(path) = &options.outcomes {
        write(path, |file| {
            outcomes
                .iter()
                .try_for_each(|outcome| Ok(writeln!(file, "{}", serde_json::to_string(outcome)?)?))
        })?;
    }
    if let Some(path) = &options.json {
        let rows = table::rows(&outcomes);
        let hash = format!("{hash:016x}");
        let whole =
            serde_json::json!({"environment": environment::text(), "hash": hash, "rows": rows});
        write(path, |file| {
            Ok(writeln!(file, "{}", serde_json::to_string_pretty(&whole)?)?)
        })?;
    }
    Ok(())
}

fn plan<'a>(options: &Options, truth: &'a str, surfaces: &'a [&'a Surface]) -> Plan<'a> {
    Plan {
        truth,
        surfaces,
        first_seed: options.first_seed,
        seeds: options.seeds,
        error: options.error,
        threads: options.jobs,
    }
}

fn chosen_surfaces(options: &Options, truth: Truth, network: f64) -> Result<Vec<Surface>, Failure> {
    let mut all = surfaces(truth, network, options.noise)?;
    all.retain(|surface| options.part.has(truth, surface));
    if !options.surfaces.is_empty() {
        let names: Vec<String> = all.iter().map(|surface| surface.name.clone()).collect();
        all.retain(|surface| {
            options
                .surfaces
                .iter()
                .any(|name| surface.name.contains(name))
        });
        if all.is_empty() && !names.is_empty() {
            let wanted = options.surfaces.join(",");
            return Err(format!("--surfaces {wanted}: none of {}", names.join(", ")).into());
        }
    }
    all.truncate(options.surfaces_most());
    Ok(all)
}

fn chosen_tuners(names: &[String]) -> Result<Vec<Arc<dyn Tuner>>, Failure> {
    let all = tuners::all();
    let find = |name: &String| {
        let found = all.iter().find(|tuner| tuner.name() == *name).cloned();
        found.ok_or_else(|| {
            let names: Vec<String> = all.iter().map(|tuner| tuner.name()).collect();
            format!(
                "--tuners: no tuner {name:?}; there are {}",
                names.join(", ")
            )
            .into()
        })
    };
    names.iter().map(find).collect()
}

/// A process and its runs.
type ProcessRuns = (attacks::Process, Vec<attacks::Run>);

/// Prints `table` of the runs of a list of processes.
fn processes_table(
    options: &Options,
    list: &[attacks::Process],
    table: fn(&[ProcessRuns]) -> String,
) -> Result<(), Failure> {
    print!("{}", table(&process_runs(options, list)?));
    Ok(())
}

/// Runs the processes of a list.
fn process_runs(options: &Options, list: &[attacks::Process]) -> Result<Vec<ProcessRuns>, Failure> {
    let chosen = chosen_processes(options, list)?;
    let runs = chosen.into_iter().map(|process| {
        let began = Instant::now();
        let runs = run::parallel(options.seeds as usize, options.jobs, |index| {
            process.run(options.first_seed + index as u64)
        });
        let runs: Vec<attacks::Run> = runs.into_iter().collect::<Result<_, _>>()?;
        eprintln!("{}: {:.1} s", process.name, began.elapsed().as_secs_f64());
        Ok((process, runs))
    });
    runs.collect()
}

/// Prints the table of the processes that are drawn for each run.
fn drawn_table(options: &Options) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for (kind, name) in attacks::ENVIRONMENTS.into_iter().enumerate() {
        let run = |leaving: attacks::Leaving| {
            let runs = run::parallel(options.seeds as usize, options.jobs, |index| {
                let seed = options.first_seed + index as u64;
                attacks::Process::drawn(kind, leaving, seed).run(seed)
            });
            runs.into_iter().collect::<Result<Vec<_>, _>>()
        };
        let [a, b, c, d] = attacks::LEAVING.map(run);
        rows.push((name, [a?, b?, c?, d?]));
    }
    print!("{}", attacks::drawn(&rows));
    Ok(())
}

fn chosen_processes(
    options: &Options,
    list: &[attacks::Process],
) -> Result<Vec<attacks::Process>, Failure> {
    let is_wanted = |process: &&attacks::Process| {
        let wanted = &options.processes;
        wanted.is_empty() || wanted.iter().any(|name| name == process.name)
    };
    let chosen: Vec<attacks::Process> = list.iter().filter(is_wanted).copied().collect();
    if chosen.is_empty() {
        let names: Vec<&str> = list.iter().map(|process| process.name).collect();
        let wanted = options.processes.join(",");
        return Err(format!("--processes {wanted}: none of {}", names.join(", ")).into());
    }
    Ok(chosen)
}

/// Factors of a permanent change, and the processes under which it is to be noticed.
const CHANGES: [f64; 2] = [4.0, 1.15];

fn process_drift_table(options: &Options) -> Result<(), Failure> {
    let seeds = options.seeds;
    let mut rows = Vec::new();
    for process in chosen_processes(options, &attacks::DRIFT)? {
        let steps = options.calm_steps.div_ceil(seeds);
        let seed = |index: usize| options.first_seed + index as u64;
        let alarms = run::parallel(seeds as usize, options.jobs, |index| {
            process.false_alarms(steps, seed(index))
        });
        let alarms: Vec<u64> = alarms.into_iter().collect::<Result<_, _>>()?;
        for factor in CHANGES {
            let runs = run::parallel(seeds as usize, options.jobs, |index| {
                process.changed(factor, seed(index))
            });
            let runs: Vec<attacks::Change> = runs.into_iter().collect::<Result<_, _>>()?;
            rows.push((process, factor, runs, [alarms.iter().sum(), steps * seeds]));
        }
    }
    print!("{}", attacks::drift(&rows));
    Ok(())
}

fn coverage_table(options: &Options) -> Result<(), Failure> {
    println!("{}", table::COVERAGE_HEADER);
    for row in table::rows(&surface_runs(options)?) {
        println!("{}", table::coverage(&row));
    }
    println!();
    let all = [&attacks::CHOSEN[..], &attacks::APART, &attacks::GAINS].concat();
    print!("{}", attacks::coverage(&process_runs(options, &all)?));
    Ok(())
}

/// Noise of a run of a simulated command, if none is given.
const RUN_NOISE: f64 = 0.03;

fn commands_table(options: &Options) -> Result<(), Failure> {
    let conditions = commands::Conditions {
        runs: options.runs,
        noise: options.noise.unwrap_or(RUN_NOISE),
        first_seed: options.first_seed,
        seeds: options.seeds,
        threads: options.jobs,
        start_anywhere: options.start_anywhere,
    };
    for truth in &options.truth {
        let surfaces = chosen_surfaces(options, *truth, 1.0)?;
        let noise = 100.0 * conditions.noise;
        println!("## {truth}: {} runs, noise {noise} %\n", conditions.runs);
        print!(
            "{}",
            commands::table(&commands::all(&surfaces, &conditions))
        );
        println!();
    }
    Ok(())
}

fn network_drift_table(options: &Options) -> Result<(), Failure> {
    let truth = options.truth.first().copied().unwrap_or(Truth::Lab);
    let factor = options.factor;
    let before = chosen_surfaces(options, truth, 1.0)?;
    let after = chosen_surfaces(options, truth, factor)?;
    let surfaces: Vec<(Surface, Surface)> = before.into_iter().zip(after).collect();
    let plan = drift::Plan {
        surfaces: &surfaces,
        factor,
        seeds: options.seeds,
        first_seed: options.first_seed,
        error: options.error,
        threads: options.jobs,
    };
    print!("{}", drift::table(&plan)?);
    Ok(())
}

fn read(path: &Path) -> Result<Vec<Outcome>, Failure> {
    let name = path.display();
    let file = File::open(path).map_err(|error| format!("{name}: {error}"))?;
    let mut outcomes = Vec::new();
    for (index, line) in BufReader::new(file).lines().enumerate() {
        let outcome = serde_json::from_str(&line?);
        outcomes
            .push(outcome.map_err(|error| format!("{name}:{}: not a run: {error}", index + 1))?);
    }
    Ok(outcomes)
}

fn write(
    path: &Path,
    content: impl FnOnce(&mut File) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let named = |error| format!("{}: {error}", path.display());
    content(&mut File::create(path).map_err(named)?)
}
