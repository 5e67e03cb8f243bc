//! `ronde dash`: shows autotune logs as a live page and follows them.

mod args;
mod events;
mod follow;

use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use ronde_dash::{Config, Dash, End, Event};
use signal_hook::iterator::Signals;

use crate::end_signals;
use crate::error::Error;
use crate::present::warn;
use follow::{Follower, Source};

pub(super) use args::Args;

/// Shortest time between two looks at the files. A log that takes long to evaluate is looked at less
/// often, so that this program is busy for at most a quarter of the time.
const INTERVAL: Duration = Duration::from_millis(500);
const PART_BUSY: u32 = 4;

/// Runs the subcommand until a signal ends it.
pub(super) fn main(args: &Args) -> Result<ExitCode, Error> {
    let mut follower = Follower::new(args.paths.iter().map(Source::new).collect());
    let first = follower.look()?;
    let config = Config {
        address: args.address(),
        token_file: args.token_file.clone(),
        control: false,
    };
    let refused = |source| Error::Dash {
        address: args.address(),
        source,
    };
    let dash = Dash::start(&config, |_| Err("a log cannot be controlled".to_owned()));
    let dash = dash.map_err(refused)?;
    let mut lines = dash
        .announcement()
        .lines()
        .map(str::to_owned)
        .collect::<Vec<_>>()
        .into_iter();
    let code = crate::print(&format!("{}\n", lines.next().unwrap_or_default()));
    lines.for_each(|line| warn("dash", line.trim_start_matches("warning: ")));
    first.into_iter().for_each(|event| dash.publish(event));

    let (sender, ended) = channel();
    let mut signals = Signals::new(end_signals()).map_err(|source| Error::System {
        action: "handle signals",
        source,
    })?;
    std::thread::spawn(move || signals.forever().next().map(|signal| sender.send(signal)));
    let mut wait = INTERVAL;
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(wait) {
        let began = Instant::now();
        for event in follower.look_again() {
            dash.publish(event);
        }
        wait = INTERVAL.max(began.elapsed() * PART_BUSY);
    }
    dash.publish(Event::End(End {
        failed: false,
        text: "`ronde dash` has ended.".to_owned(),
    }));
    Ok(code)
}
