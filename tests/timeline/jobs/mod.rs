//! Tests of the analysis of real jobs: `ronde bench` records, and `ronde timeline` reads the files
//! and reports the cause.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Mutex;

use serde_json::Value;

mod causes;
mod files;

use crate::support::program::ronde;

/// Runs one job at a time, because their times are measured.
static ALONE: Mutex<()> = Mutex::new(());

/// Folder for recordings, with a model of 40 tensors (8 MB) of two sizes that runs fast even
/// without optimization.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("model.txt"), "99000\n1000\n".repeat(20)).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the benchmark on two ranks with additional `arguments`, under `variables`.
    fn run(&self, arguments: &str, variables: &[(&str, &str)]) {
        let _alone = ALONE
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut command = ronde();
        command
            .current_dir(self.folder.path())
            .args([
                "bench",
                "--profile",
                "model.txt",
                "-np",
                "2",
                "--json",
                "bench.json",
            ])
            .args(arguments.split_whitespace())
            .envs(variables.iter().copied());
        success(&command.output().unwrap());
    }

    /// Runs the benchmark with rank 0's timeline on; returns the report of `ronde timeline` on it.
    fn recorded(&self, arguments: &str, variables: &[(&str, &str)]) -> Value {
        let timeline = [("HOROVOD_TIMELINE", "t.json")];
        self.run(arguments, &[&timeline, variables].concat());
        analysis(&[&self.path("t.json")], &[])
    }
}

/// Returns the report of `ronde timeline` on the files.
fn analysis(paths: &[&Path], arguments: &[&str]) -> Value {
    let output = timeline(paths, &[arguments, &["--json", "-"]].concat());
    serde_json::from_str(&success(&output)).unwrap()
}

fn timeline(paths: &[&Path], arguments: &[&str]) -> Output {
    ronde()
        .arg("timeline")
        .args(paths)
        .args(arguments)
        .output()
        .unwrap()
}

fn success(output: &Output) -> String {
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}
