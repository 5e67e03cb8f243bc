//! Command line of Ronde: the subcommands `ronde run`, `ronde knobs` and so on.
//!
//! Exit codes: 0 for success, 1 for a failure, 2 for wrong usage; `ronde run` passes on the code of
//! the rank that failed first. If the output is not a terminal, all output is plain text.

mod argv;
mod bench;
mod completions;
mod config_file;
mod dash;
mod error;
mod knob_flags;
mod knobs;
mod licences;
mod man;
mod program;
mod range;
mod replay;
mod review;
pub mod run;
mod setting;
mod sweep;
mod timeline;
mod tune;

pub(crate) use ronde_present::interrupt::end_signals;
pub(crate) use ronde_present::{self as present, chart, fail, html, interrupt, print};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

pub use ronde_present::EXIT_USAGE;

const EXAMPLES: &str = "\
Examples:
  ronde run -np 4 -- python train.py             start four ranks on this machine
  ronde run -np 4 --autotune -- python train.py  the same, tuning while they train
  ronde bench --model resnet50 -np 2             benchmark of a model's gradients
  ronde sweep --model resnet50 --budget 5m       measured settings: the best one and its gain
  ronde timeline t.json t.rank1.json             parts of a recorded job's steps, and advice
  ronde replay t.json --fusion-mb 1..128         predictions for other settings
  ronde review autotune.csv --html r.html        review of an autotune log, Horovod's or Ronde's
  ronde dash autotune.csv                        an autotune log as a live page, which follows it
  ronde tune -p threads=1..8 -- ./solve {threads}  tuning of any command; as a service without one
  ronde knobs                                    every setting: variable, flag, range, default
  ronde knobs --effective                        the values in force here, and their sources
  ronde man | man -l -                           the manual page, with all settings
  ronde licenses                                 the licences of the files in this program
  ronde completions bash > ~/.local/share/bash-completion/completions/ronde";

/// Data-parallel training with automatically tuned tensor fusion
#[derive(Parser)]
#[command(name = "ronde", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Bench(bench::Args),
    Sweep(sweep::Args),
    Timeline(timeline::Args),
    Replay(replay::Args),
    Review(review::Args),
    Dash(dash::Args),
    Tune(tune::Args),
    Knobs(knobs::Args),
    Completions(completions::Args),
    Licenses(licences::Args),
    Man(man::Args),
    #[command(hide = true, name = run::GUARD)]
    Guard,
    #[command(hide = true, name = run::AGENT)]
    Agent,
    #[command(hide = true, name = run::ELASTIC_AGENT)]
    ElasticAgent,
    #[command(hide = true, name = sweep::rank::RANK)]
    SweepRank(sweep::rank::Args),
}

pub use program::Program;
pub use ronde_command::Service as TuneService;

/// Runs the program with this process's arguments.
pub fn main() -> ExitCode {
    run(Program::from_env())
}

/// Runs `program`, which may be part of another program; to be called once per process.
pub fn run(program: Program) -> ExitCode {
    let argv = std::iter::once("ronde".into()).chain(program.arguments().iter().cloned());
    let argv = argv::rewrite(argv.collect(), &mut Cli::command());
    program.remember();
    let (name, outcome) = match parse(argv).unwrap_or_else(|error| error.exit()).command {
        Command::Run(args) => ("run", run::main(args)),
        Command::Bench(args) => ("bench", bench::main(&args)),
        Command::Sweep(args) => ("sweep", sweep::main(&args)),
        Command::Timeline(args) => ("timeline", timeline::main(&args)),
        Command::Replay(args) => ("replay", replay::main(&args)),
        Command::Review(args) => ("review", review::main(&args)),
        Command::Dash(args) => ("dash", dash::main(&args)),
        Command::Tune(args) => ("tune", tune::main(&args)),
        Command::Knobs(args) => ("knobs", knobs::main(&args)),
        Command::Completions(args) => return completions::main(&args, Cli::command()),
        Command::Licenses(_) => return licences::main(),
        Command::Man(args) => ("man", man::main(&args, Cli::command())),
        Command::SweepRank(args) => ("sweep", sweep::rank::main(&args)),
        Command::Guard => return run::guard_main(),
        Command::Agent => return run::agent_main(),
        Command::ElasticAgent => return run::elastic_agent_main(),
    };
    outcome.unwrap_or_else(|error| fail(&format!("{name}: {error}"), error.exit_code()))
}

/// Parses the arguments. An option takes a negative number as its value, so that the error says
/// that the number is out of range.
fn parse(argv: Vec<OsString>) -> Result<Cli, clap::Error> {
    let negative = |arg: clap::Arg| {
        let takes_value = !arg.is_positional() && arg.get_action().takes_values();
        arg.allow_negative_numbers(takes_value)
    };
    let mut command = Cli::command().mut_subcommands(|command| command.mut_args(negative));
    let matches = command.try_get_matches_from_mut(argv)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_value_that_is_expected() {
        ronde_cases::check("arguments.txt", |arguments| {
            let argv = arguments.split(' ').map(OsString::from).collect();
            let error = parse(argv).err().unwrap().to_string();
            let is_told = |line: &&str| !line.is_empty() && !line.starts_with("For more");
            error.lines().filter(is_told).collect::<Vec<_>>().join("\n")
        });
    }

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
