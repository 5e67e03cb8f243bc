//! Comparison of the report of `ronde timeline` on `tests/fixtures` with a second, simple reader of
//! the same JSON: everything in memory, a stack for each bar, no repair but the closing bracket.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use serde_json::Value;

mod byteps;
mod horovod;
mod kineto;

use crate::support::fixture::fixture;
use crate::support::program::ronde;

/// Returns the report of `ronde timeline` on the files.
fn report(paths: &[&Path]) -> Value {
    let output = ronde()
        .arg("timeline")
        .args(paths)
        .args(["--json", "-"])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Bars of one name: their number, and the sum of their lengths in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Bars {
    count: u64,
    total_ms: f64,
}

/// Asserts that the report's first file has exactly these bars.
fn assert_activities(report: &Value, expected: &BTreeMap<String, Bars>) {
    let rows = report["sources"][0]["activities"].as_array().unwrap();
    let found: HashMap<&str, (u64, f64)> = rows
        .iter()
        .map(|row| {
            let numbers = (
                row["count"].as_u64().unwrap(),
                row["total_ms"].as_f64().unwrap(),
            );
            (row["name"].as_str().unwrap(), numbers)
        })
        .collect();
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (name, bars) in expected {
        let Some(&(count, total_ms)) = found.get(name.as_str()) else {
            panic!("no {name} in {found:?}");
        };
        assert_eq!(count, bars.count, "{name}");
        assert!(
            (total_ms - bars.total_ms).abs() < 1e-3,
            "{name}: {total_ms} {bars:?}"
        );
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        (values[middle - 1] + values[middle]) / 2.0
    } else {
        values[middle]
    }
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}
