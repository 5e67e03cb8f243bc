//! Folder of a sweep: its plan, its measurements and its reports.

use std::fs;
use std::path::{Path, PathBuf};

use super::plan::Plan;
use crate::error::Error;
use crate::present::output::save_json;
use ronde_lab::sweep::Row;
use ronde_lab::sweep::store::Store;

const ROWS: &str = "sweep.csv";
const PLAN: &str = "sweep.json";

/// Files in the folder that a sweep reads when it goes on.
pub(super) const INPUTS: [&str; 3] = [ROWS, PLAN, super::replay::PROFILE];

/// Reports in the folder. A new sweep does not overwrite the reports of another sweep.
const REPORTS: [&str; 2] = [SUMMARY, "summary.md"];
const SUMMARY: &str = "summary.json";

/// Folder that only this process writes to.
pub(super) struct Folder {
    path: PathBuf,
    pub(super) store: Store,
}

impl Folder {
    /// Creates the folder `path` for a new sweep.
    ///
    /// # Errors
    /// The folder contains another sweep, is in use, or cannot be created; it is not changed then.
    pub(super) fn create(path: &Path, plan: &Plan) -> Result<Self, Error> {
        fs::create_dir_all(path).map_err(|source| Error::Folder {
            path: path.to_owned(),
            source,
        })?;
        let taken = |found: &'static str| Error::Taken {
            folder: path.to_owned(),
            found,
        };
        let found = [PLAN]
            .into_iter()
            .chain(REPORTS)
            .find(|name| path.join(name).exists());
        if let Some(found) = found {
            return Err(taken(found));
        }
        let store = Store::open(&path.join(ROWS))?;
        // A sweep that was killed between its first and its second file leaves an empty file.
        if !store.is_empty()? {
            return Err(taken(ROWS));
        }
        let mut folder = Self {
            path: path.to_owned(),
            store,
        };
        folder.write_plan(plan)?;
        folder.store.go_on()?;
        Ok(folder)
    }

    /// Opens the folder of an existing sweep and returns its plan and the folder.
    ///
    /// # Errors
    /// There is no sweep, the folder is in use, or a file has invalid contents.
    pub(super) fn open(path: &Path) -> Result<(Plan, Self), Error> {
        let file = path.join(PLAN);
        let text = fs::read_to_string(&file).map_err(|source| Error::NoPlan {
            path: path.to_owned(),
            source,
        })?;
        let plan = Plan::read(&text).map_err(|source| Error::Plan { path: file, source })?;
        let store = Store::open(&path.join(ROWS))?;
        let path = path.to_owned();
        Ok((plan, Self { path, store }))
    }

    /// Returns the measurements so far and prepares the file for more.
    pub(super) fn go_on(&mut self) -> Result<Vec<Row>, Error> {
        Ok(self.store.go_on()?)
    }

    /// Removes the files of a sweep that has not begun, so that another one can be tried.
    pub(super) fn discard(self) {
        // If a file cannot be removed, the next sweep in this folder reports it.
        for name in [PLAN, ROWS] {
            let _ = fs::remove_file(self.path.join(name));
        }
        let _ = fs::remove_dir(&self.path); // unless it has other files
    }

    /// Writes the plan.
    pub(super) fn write_plan(&self, plan: &Plan) -> Result<(), Error> {
        Ok(save_json(&self.path.join(PLAN), plan)?)
    }

    /// Reads `summary.json`, which must have been written.
    pub(super) fn summary(&self) -> Result<Vec<u8>, Error> {
        fs::read(self.path.join(SUMMARY)).map_err(Error::system("read summary.json"))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}
