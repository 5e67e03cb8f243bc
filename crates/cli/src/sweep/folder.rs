//! The folder of a sweep: whose it is, and what is in it.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::Error;
use super::plan::Plan;
use crate::present::output::Output;
use crate::timeline::write_json;
use ronde_lab::sweep::Row;
use ronde_lab::sweep::store::Store;

const ROWS: &str = "sweep.csv";
const PLAN: &str = "sweep.json";

/// What a sweep leaves in its folder besides: reports of before are not overwritten by another sweep.
const REPORTS: [&str; 2] = [SUMMARY, "summary.md"];
const SUMMARY: &str = "summary.json";

/// A folder that this process alone writes to.
pub(super) struct Folder {
    path: PathBuf,
    pub(super) store: Store,
}

impl Folder {
    /// Makes `path` the folder of a new sweep.
    ///
    /// # Errors
    /// It holds another one, is being written to, or cannot be made; nothing is changed then.
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
        // Where a sweep was killed between its first file and its second, there is an empty one.
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

    /// Opens the folder of a sweep that was begun: its plan, the folder, and what was measured.
    ///
    /// # Errors
    /// There is none, it is being written to, or a file is not what a sweep writes.
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

    /// What was measured so far; the file is then ready for more.
    ///
    /// # Errors
    /// Lines that no sweep writes.
    pub(super) fn go_on(&mut self) -> Result<Vec<Row>, Error> {
        Ok(self.store.go_on()?)
    }

    /// Writes the plan.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write_plan(&self, plan: &Plan) -> Result<(), Error> {
        let output = Output::open(&self.path.join(PLAN))?;
        output.finish(|sink| write_json(sink, plan))?;
        Ok(())
    }

    /// The report for programs, which has been written.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn summary(&self) -> Result<Vec<u8>, Error> {
        fs::read(self.path.join(SUMMARY)).map_err(Error::system("read summary.json"))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}
