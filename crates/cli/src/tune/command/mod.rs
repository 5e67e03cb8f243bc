//! `ronde tune` with a command: runs it with other settings, and reports what is shown to be
//! faster.

mod export;
mod figures;
mod job;
mod page;
mod progress;
mod report;

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use ronde_command::{
    End, Event, MetricError, Outcome, ParameterError, PlanError, Processes, RunError, Runner,
    State, StateError, StateLock, TemplateError, Watch, preset, search,
};
use rustix::process::Pid;

use super::args::Args;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::present::output::{
    Output, OutputError, check_distinct, open, stdout_is_free, write, write_json,
};
use crate::present::{Look, Section, Table, text, warn};
use crate::run::Guard;
use crate::{fail, print, program};
use job::Job;
use progress::Display;
use report::Report;

/// Exit code of a program that was ended by a signal, without the signal's number.
const EXIT_SIGNAL: u8 = 128;

/// Reason why a command cannot be tuned.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(
        "{option} needs a command to tune: write it after --, as in ronde tune {option} … -- \
         ./solve {{threads}}"
    )]
    NoCommand { option: &'static str },
    #[error("there is nothing to tune: give --parameter NAME=VALUES, or --preset NAME")]
    NoParameters,
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    #[error("parameter {name} is given twice; give each name once")]
    Repeated { name: String },
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("--env {text}: it does not begin with NAME=; write --env OMP_NUM_THREADS={{threads}}")]
    Variable { text: String },
    #[error("--env sets {name} twice; give each variable once, or leave out the preset's")]
    VariableTwice { name: String },
    #[error(transparent)]
    Metric(#[from] MetricError),
    #[error("--maximize: the wall time cannot be maximized; give --metric or --metric-file")]
    MaximizedTime,
    #[error("--maximize: the preset's own metric is better when lower; give --metric with it")]
    MaximizedPreset,
    #[error("--metric-use chooses among the matches of --metric, and {instead} is the figure here")]
    NoMatches { instead: &'static str },
    #[error(transparent)]
    Preset(#[from] preset::PresetError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(
        "the command failed with the start, {setting}: {reason}; correct the command or the \
         metric, or give another start{tail}"
    )]
    Start {
        setting: String,
        reason: String,
        tail: String,
    },
}

impl CommandError {
    /// Whether the command line is wrong.
    pub(crate) fn is_usage(&self) -> bool {
        match self {
            Self::Run(_) | Self::Start { .. } => false,
            Self::Template(error) => !matches!(error, TemplateError::ConfigRead { .. }),
            Self::State(error) => !matches!(error, StateError::Io { .. }),
            _ => true,
        }
    }
}

/// Prints all presets.
pub(super) fn list_presets() -> ExitCode {
    let section = |preset: &preset::Preset| {
        let mut table = Table::new(["<parameter", "=values"]);
        for parameter in preset.parameters {
            let (name, values) = parameter.split_once('=').unwrap_or((parameter, ""));
            table.row([name, values]);
        }
        let title = format!("--preset {}: {}", preset.name, preset.tunes);
        let section = Section::new(preset.name, title).table(table);
        let section = section.text(format!("Passed: {}.", preset.passed));
        let section = section.text(format!("Measured: {}.", preset.measured));
        match preset.note {
            "" => section,
            note => section.text(format!("Note: {note}.")),
        }
    };
    let sections: Vec<Section> = preset::ALL.iter().map(section).collect();
    let shown = text(&sections, &Look::of_stdout(0));
    print(&format!(
        "{shown}\n--parameter with a preset's name replaces its values, and --metric its metric.\n"
    ))
}

/// Runs the search and reports.
pub(super) fn main(args: &Args) -> Result<ExitCode, Error> {
    let mut job = Job::new(args)?;
    let inputs: Vec<_> = args.state.iter().chain(&args.config).cloned().collect();
    check_distinct(&args.outputs(), &inputs)?;
    let outputs = [
        open(&args.json)?,
        open(&args.csv)?,
        open(&args.markdown)?,
        open(&args.html)?,
    ];
    // Until the end: the rows of a second search would replace those of this one.
    let lock = args.state.as_deref().map(StateLock::take);
    let _lock = lock.transpose().map_err(CommandError::from)?;
    let mut state = match &args.state {
        Some(path) => {
            let loaded = State::load(path, &job.identity, job.plan.parameters());
            loaded.map_err(CommandError::from)?
        }
        None => None,
    }
    .unwrap_or_else(|| State::new(job.identity.clone()));
    let lacking = lacking_warning(&state, &job);
    job.plan = job.plan.comparing(state.pairs);
    if let Some(path) = &args.logs {
        std::fs::create_dir_all(path).map_err(|source| Error::Folder {
            path: path.clone(),
            source,
        })?;
    }
    let folder = tempfile::tempdir().map_err(Error::system("create a temporary folder"))?;
    if let Some(path) = &args.state {
        // A file that cannot be written is named before the first run.
        state.save(path).map_err(CommandError::from)?;
    }
    let interrupt = Interrupt::watch()?;
    for warning in job.start_warnings().iter().chain(&lacking) {
        warn("tune", warning);
    }
    say(&job.introduction(&state.rows));
    let ended = run(args, &job, &mut state, folder.path(), &interrupt);
    let (code, unfinished) = match ended {
        Ok(Ended::Completed) => (0, None),
        Ok(Ended::Interrupted) => {
            let signal = interrupt.signal().unwrap_or_default();
            let unfinished = job.unfinished(args, state.rows.len());
            (EXIT_SIGNAL + signal, Some(unfinished))
        }
        Err(_) => (1, Some("The search could not go on.".to_owned())),
    };
    if state.rows.is_empty() {
        ended?;
        say("nothing was measured");
        return Ok(ExitCode::from(code.max(1)));
    }
    let report = Report::new(&job, &state.rows, unfinished);
    let written = export_all(&report, outputs, args);
    // An error of the search is reported rather than one of the outputs.
    ended?;
    written?;
    Ok(ExitCode::from(code))
}

/// Warning about a state file of an earlier version, which does not have all properties.
fn lacking_warning(state: &State, job: &Job) -> Option<String> {
    let lacking = state.lacking(&job.identity);
    (!lacking.is_empty()).then(|| {
        format!(
            "the state file is of an earlier version and does not have {}: if that was another \
             value, give another file",
            lacking.join(" and ")
        )
    })
}

/// End of a search that did not fail.
enum Ended {
    Completed,
    Interrupted,
}

/// Runs the plan from where the state is.
fn run(
    args: &Args,
    job: &Job,
    state: &mut State,
    folder: &Path,
    interrupt: &Interrupt,
) -> Result<Ended, Error> {
    let is_interrupted = || interrupt.signal().is_some();
    let mut runner = Processes {
        template: &job.template,
        parameters: job.plan.parameters(),
        metric: &job.metric,
        maximize: job.maximize,
        check: job.check.as_ref(),
        prepare: args.prepare.as_deref(),
        time_limit: args.time_limit,
        show_output: args.show_output,
        logs: args.logs.as_deref(),
        folder,
        is_interrupted: &is_interrupted,
        watch: &guarded,
        number: 0,
        is_warmup: true,
        tail: VecDeque::new(),
    };
    let start = job.plan.start();
    for _ in 0..args.warmup() {
        let outcome = runner
            .run(&start, &job.plan.limit_of_warmup())
            .map_err(CommandError::from)?;
        match outcome {
            None => return Ok(Ended::Interrupted),
            Some(Outcome::Failed { reason }) => {
                return Err(start_failed(job, reason, &runner.tail));
            }
            Some(_) => {}
        }
    }
    (runner.number, runner.is_warmup) = (state.rows.len(), false);
    let display = Display::new(job, state.rows.len(), args.show_output);
    let mut rows = std::mem::take(&mut state.rows);
    let saved = |rows: &[_]| -> Result<(), CommandError> {
        let Some(path) = &args.state else {
            return Ok(());
        };
        let mut saved = State::new(job.identity.clone());
        saved.rows = rows.to_vec();
        saved.pairs = job.plan.pairs(rows);
        Ok(saved.save(path)?)
    };
    let mut is_warned = false;
    let ended = search(&job.plan, &mut runner, &mut rows, |event| {
        match event {
            Event::Begins(phase, setting, rows) => display.begins(phase, setting, rows),
            Event::Ended(rows) => {
                display.ended(rows);
                // A full disk must not end a search of hours; the warning comes once.
                if let Err(error) = saved(rows)
                    && !is_warned
                {
                    warn("tune", &format!("{error}; the search goes on without it"));
                    is_warned = true;
                }
            }
        }
        Ok(())
    });
    drop(display);
    let tail = runner.tail;
    state.rows = rows;
    match ended.map_err(CommandError::from)? {
        End::Done => Ok(Ended::Completed),
        End::Interrupted => Ok(Ended::Interrupted),
        End::StartFailed(reason) => {
            // The next attempt begins anew.
            state.rows.clear();
            if let Some(path) = &args.state {
                let _ = std::fs::remove_file(path);
            }
            Err(start_failed(job, reason, &tail))
        }
    }
}

fn start_failed(job: &Job, reason: String, tail: &VecDeque<String>) -> Error {
    let tail: Vec<&str> = tail.iter().map(String::as_str).collect();
    let tail = match tail.is_empty() {
        true => String::new(),
        false => format!("\nThe end of its output:\n  {}", tail.join("\n  ")),
    };
    let setting = job.words(&job.plan.start());
    CommandError::Start {
        setting,
        reason,
        tail,
    }
    .into()
}

/// Starts a guard, which kills a run's process group if this process is killed.
fn guarded() -> io::Result<Box<dyn Watch>> {
    let again = program::again();
    let (program, arguments) = again.split_first().ok_or(io::ErrorKind::NotFound)?;
    Ok(Box::new(Guarded(Some(Guard::start(program, arguments)?))))
}

/// Guard of a run, which is dismissed at its end.
struct Guarded(Option<Guard>);

impl Watch for Guarded {
    fn group(&mut self, group: u32) {
        let group = i32::try_from(group).ok().and_then(Pid::from_raw);
        if let (Some(guard), Some(group)) = (&mut self.0, group) {
            // An error means that the guard has been killed; the run goes on without it.
            let _ = guard.watch(group);
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if let Some(guard) = self.0.take() {
            guard.dismiss();
        }
    }
}

/// Writes all outputs, and the text to standard output unless one of them goes there.
fn export_all(
    report: &Report,
    outputs: [Option<Output>; 4],
    args: &Args,
) -> Result<(), OutputError> {
    let [json, csv, markdown, html] = outputs;
    write(json, |sink| write_json(sink, &export::json(report)))?;
    write(csv, |sink| export::csv(report, sink))?;
    write(markdown, |sink| {
        sink.write_all(report.markdown().as_bytes())
    })?;
    write(html, |sink| sink.write_all(page::page(report).as_bytes()))?;
    if stdout_is_free(&args.outputs()) {
        print(&report.text(&Look::of_stdout(0)));
    }
    Ok(())
}

/// Prints a message that is not part of the result.
fn say(message: &str) {
    fail(&format!("tune: {message}"), 0);
}
