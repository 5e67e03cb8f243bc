//! Handler: carries out the commands of the page. It only requests them, and the feed reports those
//! that fail later, so that the page's server never waits for the job.

use std::path::{Component, Path};
use std::sync::{Arc, OnceLock};

use ronde_dash::Command;

use super::Controls;
use super::shared::Shared;
use crate::command::TimelineCommand;

/// Handler of one context.
pub(super) struct Handler {
    /// Set when the job runs.
    pub(super) controls: Arc<OnceLock<Arc<dyn Controls>>>,
    pub(super) shared: Arc<Shared>,
}

impl Handler {
    /// Requests what `command` says; the text says what happens, or why it does not.
    pub(super) fn handle(&self, command: Command) -> Result<String, String> {
        let Some(controls) = self.controls.get() else {
            return Err("the ranks of the job are not connected yet".to_owned());
        };
        let name = command.to_string();
        let (text, ticket) = match command {
            Command::StopTuning => {
                controls.stop_tuning()?;
                return Ok("tuning ends; the settings in force stay".to_owned());
            }
            Command::Set(change) => {
                let ticket = controls.set(change)?;
                self.shared.page_changes_settings();
                ("requested of all ranks".to_owned(), ticket)
            }
            Command::StartTimeline { path } => {
                let start = TimelineCommand::Start {
                    path: new_file(&path)?.to_owned(),
                    mark_cycles: false,
                };
                (format!("requested: {path}"), controls.timeline(start)?)
            }
            Command::StopTimeline => {
                let ticket = controls.timeline(TimelineCommand::Stop)?;
                ("requested".to_owned(), ticket)
            }
        };
        self.shared.follow(name, ticket);
        Ok(text)
    }
}

/// Checks that a timeline in this file replaces no other file and is below the job's folder.
fn new_file(path: &str) -> Result<&Path, String> {
    let file = Path::new(path);
    let is_below = file
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if path.is_empty() || !is_below {
        return Err(format!("{path}: the file must be below the job's folder"));
    }
    match file.symlink_metadata() {
        Ok(_) => Err(format!("{path} exists already; the page replaces no file")),
        Err(_) => Ok(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_is_a_new_file_below_the_jobs_folder() {
        assert!(new_file("timeline.json").is_ok());
        for path in ["", "/tmp/t.json", "../t.json", "a/../../t.json"] {
            let refused = new_file(path).unwrap_err();
            assert!(refused.contains("below the job's folder"), "{refused}");
        }
        let refused = new_file("Cargo.toml").unwrap_err();
        assert!(refused.contains("exists already"), "{refused}");
    }
}
