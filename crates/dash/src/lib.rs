//! Live page of a job: its owner publishes events, browsers show them.

mod command;
mod event;

pub use command::Command;
pub use event::{
    End, Event, Job, Log, LogKind, Measure, Measured, Place, RankTimes, Ranks, Recheck,
    SettingsChange, Step, Surface, Tuner, Verdict, Window,
};
