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

/// Shortest time between two looks at the files. A log that takes long to evaluate is looked at
/// less often, so that this program is busy for at most a fifth of the time.
const INTERVAL: Duration = Duration::from_millis(500);
const PART_BUSY: u32 = 4;

/// Events that are published at a time, with a pause in which the page takes them.
const EVENTS_AT_A_TIME: usize = 4096;
const PAUSE: Duration = Duration::from_millis(600);

/// Runs the subcommand until a signal ends it.
pub(super) fn main(args: &Args) -> Result<ExitCode, Error> {
    let mut follower = Follower::new(args.paths.iter().map(|path| Source::new(path)).collect());
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
    let announcement = dash.announcement();
    let (url, warning) = announcement.split_once('\n').unwrap_or((&announcement, ""));
    let code = crate::print(&format!("{url}\n"));
    if let Some(warning) = warning.strip_prefix("warning: ") {
        warn("dash", warning);
    }
    publish(&dash, first);

    let (sender, ended) = channel();
    let mut signals = Signals::new(end_signals()).map_err(|source| Error::System {
        action: "handle signals",
        source,
    })?;
    std::thread::spawn(move || signals.forever().next().map(|signal| sender.send(signal)));
    let mut wait = INTERVAL;
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(wait) {
        let began = Instant::now();
        publish(&dash, follower.look_again());
        wait = INTERVAL.max(began.elapsed() * PART_BUSY);
    }
    dash.publish(Event::End(End {
        failed: false,
        text: "`ronde dash` has ended.".to_owned(),
    }));
    Ok(code)
}

fn publish(dash: &Dash, events: Vec<Event>) {
    for (index, event) in events.into_iter().enumerate() {
        if index > 0 && index % EVENTS_AT_A_TIME == 0 {
            std::thread::sleep(PAUSE);
        }
        dash.publish(event);
    }
}
