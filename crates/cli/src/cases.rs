//! Test files in `cases/`: inputs with the answers to them, and whole documents. `UPDATE_EXPECT=1`
//! writes the answers and documents of this build to the files.
//!
//! ```text
//! # A comment.
//! > the lines of an input
//! > begin like this
//! the answer, up to the next comment or input
//! ```

use std::path::{Path, PathBuf};

use expect_test::expect_file;
use serde_json::Value;

fn path(name: &str) -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.join("cases").join(name)
}

/// Checks that `answer` gives the answers of the file to its inputs.
pub(crate) fn check(name: &str, answer: impl Fn(&str) -> String) {
    let file = std::fs::read_to_string(path(name)).expect("the file is there");
    let mark = |line: &str| line.chars().next().filter(|c| "#>".contains(*c));
    let lines: Vec<&str> = file.lines().collect();
    let mut text = String::new();
    for group in lines.chunk_by(|line, next| mark(line) == mark(next)) {
        let kept = group.join("\n");
        match mark(group[0]) {
            Some('>') => {
                let lines = group.iter().map(|line| line.get(2..).unwrap_or(""));
                let input = lines.collect::<Vec<_>>().join("\n");
                text += &format!("{kept}\n{}\n\n", answer(&input).trim_end());
            }
            Some(_) => text += &format!("{kept}\n"),
            None => {}
        }
    }
    document(name, &text);
}

/// Checks that the file has this text.
pub(crate) fn document(name: &str, text: &str) {
    expect_file![path(name)].assert_eq(text);
}

/// Checks that the file has this value as JSON, with numbers of six digits: more may differ between
/// machines.
pub(crate) fn json(name: &str, value: &impl serde::Serialize) {
    fn round(value: &mut Value) {
        match value {
            Value::Array(values) => values.iter_mut().for_each(round),
            Value::Object(fields) => fields.values_mut().for_each(round),
            Value::Number(number) if number.is_f64() => {
                let six = format!("{:.5e}", number.as_f64().unwrap_or(f64::NAN));
                *value = serde_json::from_str(&six).expect("it is a number");
            }
            _ => {}
        }
    }
    let mut value = serde_json::to_value(value).expect("it can be written");
    round(&mut value);
    document(name, &format!("{value:#}\n"));
}
