//! Live page of a job: its owner publishes events, browsers show them.
//!
//! [`Dash::start`] serves a page from a thread of its own. [`Dash::publish`] puts an event into a
//! queue and never blocks. The thread keeps a history of the job in bounded memory, in which older
//! steps are combined. A page gets all of it when it connects, and then what has changed, as
//! server-sent events, five times a second. A page that reads too slowly is disconnected; it
//! connects again and gets all of it.
//!
//! Clients are untrusted: a page needs a token, and the server limits connections, bytes and time
//! ([`ronde_http`]). `docs/DASH.md` describes the protection.
//!
//! ```
//! use ronde_dash::{Config, Dash, Event, Job};
//!
//! let config = Config {
//!     address: "0".to_owned(), // any free port of 127.0.0.1
//!     token_file: None,
//!     control: false,
//! };
//! let dash = Dash::start(&config, |command| Err(format!("cannot {command}")))?;
//! dash.publish(Event::Job(Job { name: "train.py".to_owned(), ..Job::default() }));
//! assert!(dash.url().starts_with("http://127.0.0.1:"));
//! # Ok::<(), ronde_dash::DashError>(())
//! ```

mod access;
mod assets;
mod command;
mod control;
mod dash;
mod event;
mod history;
mod inbox;
mod service;
#[cfg(test)]
mod testing;

pub use command::Command;
pub use dash::{Config, Dash, DashError};
pub use event::{
    End, Event, Job, Log, LogKind, Measure, Measured, Place, RankTimes, Ranks, Recheck,
    SettingsChange, Step, Surface, Tuner, Verdict, Window,
};
pub use history::now_unix_ms;
