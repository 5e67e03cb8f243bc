//! Handler: carries out the commands of the page. It only requests them, and the feed reports those
//! that fail later, so that the page's server never waits for the job.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use ronde_dash::Command;

use super::shared::Shared;
use crate::command::TimelineCommand;
use crate::dash::Controls;
use crate::timeline::files::{of_rank, older};

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
                // Before they may be in force.
                self.shared.page_changes_settings(true);
                let set = controls.set(change);
                let ticket = set.inspect_err(|_| self.shared.page_changes_settings(false))?;
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

/// Checks that a timeline can be written to this file and replaces no other file, also where all
/// ranks record and where files have a largest size. A start that failed later would end the
/// recording that runs.
fn new_file(path: &str) -> Result<&Path, String> {
    let file = Path::new(path);
    let of_rank_1 = of_rank(file, 1);
    for file in [file, &older(file), &of_rank_1, &older(&of_rank_1)] {
        if file.symlink_metadata().is_ok() {
            let file = file.display();
            return Err(format!("{file} exists already; the page replaces no file"));
        }
    }
    match file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
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
        let refused = |path: &str| new_file(path).unwrap_err();
        assert_eq!(
            refused("Cargo.toml"),
            "Cargo.toml exists already; the page replaces no file"
        );
        assert_eq!(
            refused("no/such/t.json"),
            "the folder no/such does not exist"
        );
        // Files of a job whose rank 0 wrote elsewhere, or that were rotated.
        let folder = tempfile::tempdir().unwrap();
        for other in ["t.rank1.json", "t.old.json"] {
            let other = folder.path().join(other);
            std::fs::write(&other, "[").unwrap();
            let file = folder.path().join("t.json").display().to_string();
            assert!(refused(&file).starts_with(&other.display().to_string()));
            std::fs::remove_file(&other).unwrap();
        }
    }
}
