//! Test files in the folder `cases/` of a crate: inputs with the answers to them, and whole
//! documents; the check of a [`page`], and of documented [`fields`]. For tests only.
//!
//! ```text
//! # A comment.
//! > the lines of an input
//! > begin like this
//! the answer, up to the next comment or input
//! ```
//!
//! `UPDATE_EXPECT=1 cargo test` writes the answers and documents of this build to the files.

pub mod page;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use expect_test::expect_file;
use serde::Serialize;
use serde_json::Value;

/// Path of a file of the crate whose tests run.
///
/// # Panics
/// If Cargo does not run the tests, so that their crate is not known.
pub fn path(name: &str) -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
    PathBuf::from(package).join("cases").join(name)
}

/// Checks that `answer` gives the answers of the file to its inputs.
///
/// # Panics
/// If it does not, or there is no such file.
pub fn check(name: &str, answer: impl Fn(&str) -> String) {
    let file = std::fs::read_to_string(path(name)).expect("the file is there");
    document(name, &answered(&file, answer));
}

/// Text of a file with other answers.
fn answered(file: &str, answer: impl Fn(&str) -> String) -> String {
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
    text
}

/// Checks that the file has this text.
///
/// # Panics
/// If it has not.
pub fn document(name: &str, text: &str) {
    expect_file![path(name)].assert_eq(text);
}

/// Checks that the file has this value as JSON, with rounded numbers.
///
/// # Panics
/// If it has not.
pub fn json(name: &str, value: &impl Serialize) {
    document(name, &format!("{:#}\n", rounded(value)));
}

/// Value with numbers of five digits, since more may differ between machines; numbers below 10⁻¹²
/// are rounding errors and become 0.
///
/// # Panics
/// If the value cannot be written as JSON.
pub fn rounded(value: &impl Serialize) -> Value {
    fn round(value: &mut Value) {
        match value {
            Value::Array(values) => values.iter_mut().for_each(round),
            Value::Object(fields) => fields.values_mut().for_each(round),
            Value::Number(number) if number.is_f64() => {
                let number = number.as_f64().unwrap_or(f64::NAN);
                let number = if number.abs() < 1e-12 { 0.0 } else { number };
                let digits = format!("{number:.4e}");
                *value = serde_json::from_str(&digits).expect("it is a number");
            }
            _ => {}
        }
    }
    let mut value = serde_json::to_value(value).expect("it can be written");
    round(&mut value);
    value
}

/// Checks that a page of `docs/` names every field of a value in backquotes, under this heading or a
/// smaller one. What is in the fields `open` has names of the user's.
///
/// # Panics
/// If it does not, or there is no such heading.
pub fn fields(page: &str, heading: &str, value: &impl Serialize, open: &[&str]) {
    fn collect(value: &Value, open: &[&str], into: &mut BTreeSet<String>) {
        match value {
            Value::Array(values) => values.iter().for_each(|value| collect(value, open, into)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    into.insert(name.clone());
                    if !open.contains(&&**name) {
                        collect(value, open, into);
                    }
                }
            }
            _ => {}
        }
    }
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let text = std::fs::read_to_string(docs.join(page)).expect("the page is there");
    let (_, section) = text.split_once(heading).expect("the heading is there");
    let section = section.split("\n## ").next().unwrap_or(section);
    let mut names = BTreeSet::new();
    let value = serde_json::to_value(value).expect("it can be written");
    collect(&value, open, &mut names);
    names.retain(|name| !section.contains(&format!("`{name}`")));
    assert!(names.is_empty(), "not in {page}: {names:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_and_comments_stay_and_answers_are_new() {
        let file = "# One.\n> a\n>\n>  b\nold\nlines\n\n> c\n# Two.\n";
        let expected = "# One.\n> a\n>\n>  b\n5 bytes\n\n> c\n1 bytes\n\n# Two.\n";
        let answer = |input: &str| format!("{} bytes\n", input.len());
        assert_eq!(answered(file, answer), expected);
    }

    #[test]
    fn numbers_have_five_digits() {
        let value = serde_json::json!({"a": [1.0 / 3.0, 100_000, "x", -1e-17]});
        assert_eq!(
            rounded(&value).to_string(),
            r#"{"a":[0.33333,100000,"x",0.0]}"#
        );
    }
}
