//! Tests of configuration files: files of horovodrun's users, and invalid files.

use super::*;
use proptest::prelude::*;
use ronde::knobs::KNOBS;

fn read(text: &str) -> Result<String, String> {
    let file = ConfigFile::parse(text, "x.yaml").map_err(|error| error.to_string())?;
    let show = |(knob, value): (&Knob, &OsStr)| format!("{}={}", knob.env, value.to_str().unwrap());
    Ok(file.settings().map(show).collect::<Vec<_>>().join(" "))
}

/// Example file of the documentation.
fn documented() -> &'static str {
    let text = include_str!("../../../../docs/KNOBS.md");
    let (_, rest) = text.split_once("```yaml\n").unwrap();
    rest.split_once("```").unwrap().0
}

#[test]
fn files_set_horovods_variables_or_are_refused_with_line_key_and_remedy() {
    let answer = |text: &str| read(text).unwrap_or_else(|error| error);
    ronde_cases::check("config_file.txt", answer);
    assert!(read(&"[".repeat(30_000)).is_err()); // the parser's own limit
}

#[test]
fn files_that_cannot_be_are_refused_by_name() {
    let missing = ConfigFile::read("/nowhere/x.yaml").unwrap_err().to_string();
    assert!(
        missing.starts_with("/nowhere/x.yaml: cannot read it: "),
        "{missing}"
    );
    let endless = ConfigFile::read("/dev/zero").unwrap_err().to_string();
    assert!(endless.contains("more than 65536 bytes"), "{endless}");
    let folder = tempfile::tempdir().unwrap();
    assert!(ConfigFile::read(folder.path()).is_err());
}

#[test]
fn the_documented_file_sets_every_key_that_there_is() {
    let file = ConfigFile::parse(documented(), "docs/KNOBS.md").unwrap();
    let set: Vec<&str> = file.settings().map(|(knob, _)| knob.env).collect();
    for knob in KNOBS.iter().filter(|knob| knob.flag.is_some()) {
        assert!(set.contains(&knob.env), "{} is missing", knob.env);
    }
}

proptest! {
    #[test]
    fn no_text_makes_reading_panic(text in "\\PC{0,80}|([a-z_]{1,9}[:,\\[{\\]}&*#'\"\n -]{1,4}){0,12}") {
        let _ = read(&text);
    }

    #[test]
    fn no_change_to_a_good_file_makes_reading_panic(at in 0..600usize, with in "[\\x00-\\x7f]{0,3}") {
        let good = documented();
        let at = (0..=at.min(good.len())).rev().find(|at| good.is_char_boundary(*at)).unwrap_or(0);
        let mut text = good.to_owned();
        text.insert_str(at, &with);
        let _ = read(&text);
    }
}
