//! Handler: carries out the commands of the page. It only requests them, and the feed reports those
//! that fail later, so that the page's server never waits for the job.

use std::path::Path;
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

/// Checks that a timeline can be written to this file and replaces no other file. A start that
/// failed later would end the recording that runs.
fn new_file(path: &str) -> Result<&Path, String> {
    let file = Path::new(path);
    if file.symlink_metadata().is_ok() {
        return Err(format!("{path} exists already; the page replaces no file"));
    }
    match file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) if !folder.is_dir() => {
            Err(format!("the folder {} does not exist", folder.display()))
        }
        _ => Ok(file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_is_a_new_file_in_a_folder_that_exists() {
        assert!(new_file("timeline.json").is_ok() && new_file("src/timeline.json").is_ok());
        let refused = |path| new_file(path).unwrap_err();
        assert_eq!(
            refused("Cargo.toml"),
            "Cargo.toml exists already; the page replaces no file"
        );
        assert_eq!(refused("no/such/t.json"), "the folder no/such does not exist");
    }
}
