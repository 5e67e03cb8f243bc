//! `ronde tune`: tunes any program.
//!
//! With a command, the program is run with other settings and compared with the start
//! ([`command`]). Without one, it is the tuner as a service for a program that calls it
//! ([`ronde_command::Service`]). `docs/TUNE.md` describes both.

mod args;
mod command;
mod service;

use std::process::ExitCode;

pub(super) use args::Args;
pub(super) use command::CommandError;

use super::error::Error;

pub(super) fn main(args: &Args) -> Result<ExitCode, Error> {
    if args.preset.as_deref() == Some(args::PRESET_LIST) {
        return Ok(command::list_presets());
    }
    if args.command.is_empty() {
        if let Some(option) = args.option_of_commands() {
            return Err(CommandError::NoCommand { option }.into());
        }
        return service::main(args.space.as_deref(), args.state.as_deref());
    }
    command::main(args)
}
