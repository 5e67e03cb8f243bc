//! Files that support no recommendation: truncated files and files of different jobs. Also BytePS's
//! stages, whatever the order of the files.

use std::fs;
use std::io::{Read, Write};

use super::trace::Job;
use super::*;
use crate::support::fixture::fixture;
use crate::support::output::unwrapped;

fn compressed(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn uncompressed(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut decoder = flate2::read::GzDecoder::new(bytes);
    decoder.read_to_end(&mut text).unwrap();
    text
}

/// Texts of a timeline in each format.
fn texts_of_formats() -> Vec<(&'static str, Vec<u8>)> {
    let read = |name: &str| fs::read(fixture(name)).unwrap();
    vec![
        ("ronde", Job::default().ronde(0).into_bytes()),
        ("horovod", read("horovod-timeline.4-ranks.json")),
        ("byteps", read("byteps-comm.non-root.json")),
        ("kineto", uncompressed(&read("kineto-ddp.rank0.json.gz"))),
    ]
}

/// Asserts that the report on `file` withholds recommendations because the file is truncated.
fn assert_truncated(folder: &Path, file: &str) {
    let output = timeline(folder, &[file, "--json", "r.json"]);
    if !output.status.success() {
        // Nothing of the file could be read.
        assert_fails(&output, 1, &[file]);
        return;
    }
    let text = unwrapped(&stdout(&output));
    let reason = format!("No recommendation: {file} is truncated or damaged");
    assert!(text.contains(&reason), "{text}");
    let report = json(&folder.join("r.json"));
    assert_eq!(report["withheld"]["reason"], "incomplete", "{text}");
    for advice in report["advice"].as_array().unwrap() {
        assert!(
            advice["variable"].is_null() && advice["gain_ms"].is_null(),
            "{advice}"
        );
    }
    assert!(!text.contains("no setting can gain"), "{text}");
}

#[test]
fn truncated_files_support_no_recommendation() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in texts_of_formats() {
        let compressed = compressed(&text);
        let (plain, packed) = (format!("{name}.json"), format!("{name}.json.gz"));
        for share in [3, 9, 14, 19] {
            // Horovod's file of this fixture has no end: cut off within an event.
            let end = text.len() * share / 20;
            let end = (0..end).rev().find(|&end| text[end] == b':').unwrap();
            fs::write(folder.path().join(&plain), &text[..end]).unwrap();
            assert_truncated(folder.path(), &plain);
            let end = compressed.len() * share / 20;
            fs::write(folder.path().join(&packed), &compressed[..end]).unwrap();
            assert_truncated(folder.path(), &packed);
        }
        // Only the checksum is missing.
        let end = compressed.len() - 4;
        fs::write(folder.path().join(&packed), &compressed[..end]).unwrap();
        assert_truncated(folder.path(), &packed);
    }
}

/// A profile of a truncated file must not be the base of a recommendation either.
#[test]
fn the_profile_of_a_truncated_file_supports_no_recommendation() {
    let folder = tempfile::tempdir().unwrap();
    let text = Job::default().ronde(0);
    fs::write(folder.path().join("cut.json"), &text[..text.len() * 3 / 4]).unwrap();
    stdout(&timeline(
        folder.path(),
        &["cut.json", "--profile", "p.json"],
    ));
    let mut replay = ronde(folder.path());
    let replay = replay
        .args(["replay", "p.json", "--json", "r.json"])
        .output();
    let text = unwrapped(&stdout(&replay.unwrap()));
    assert!(
        text.contains("No recommendation: cut.json is truncated"),
        "{text}"
    );
    let outlook = json(&folder.path().join("r.json"));
    assert_eq!(outlook["withheld"]["reason"], "incomplete");
    assert!(outlook["targets"][0].get("best").is_none());
    for recording in ["cut.json", "p.json"] {
        let mut sweep = ronde(folder.path());
        sweep.args([
            "sweep",
            "--replay",
            recording,
            "--out",
            &format!("{recording}.sweep"),
        ]);
        let text = unwrapped(&texts(&sweep.output().unwrap()).0);
        assert!(
            text.contains("No recommendation: cut.json is truncated"),
            "{text}"
        );
        assert!(!text.contains("HOROVOD_FUSION_THRESHOLD="), "{text}");
    }
}

#[test]
fn files_of_different_jobs_are_refused_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let job = Job::default();
    let three = Job { ranks: 3, ..job };
    for (name, text) in texts_of_formats() {
        fs::write(folder.path().join(format!("{name}.json")), text).unwrap();
    }
    fs::write(folder.path().join("three.json"), three.ronde(1)).unwrap();
    let later = job.ronde(1).replace("1700000", "1700009");
    fs::write(folder.path().join("later.json"), later).unwrap();
    let larger = job.ronde(1).replace("[250000]", "[900000]");
    fs::write(folder.path().join("larger.json"), larger).unwrap();
    for (one, other, part) in [
        ("ronde.json", "horovod.json", "Horovod"),
        ("horovod.json", "byteps.json", "BytePS"),
        ("kineto.json", "byteps.json", "profiler"),
        ("ronde.json", "three.json", "3"),
        ("ronde.json", "later.json", "before the other began"),
        ("ronde.json", "larger.json", "another size"),
    ] {
        let errors = [[one, other], [other, one]].map(|files| {
            let output = timeline(folder.path(), &files);
            assert_fails(&output, 1, &[one, other, part]);
            assert!(output.stdout.is_empty());
            texts(&output).1
        });
        assert_eq!(errors[0], errors[1]);
        let mut replay = ronde(folder.path());
        let replay = replay.args(["replay", one, other]).output().unwrap();
        assert_eq!(replay.status.code(), Some(1), "{replay:?}");
    }
}

#[test]
fn stages_have_a_table_with_overlap_whatever_the_order_of_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = fixture("byteps-comm.non-root.json");
    let text = fs::read_to_string(path).unwrap();
    // Stages of a root: push, pull, reduction and copies.
    let text = text
        .replace(".COORDINATE_PUSH\"", ".PUSH\"")
        .replace(".COORDINATE_BROADCAST\"", ".PULL\"");
    for rank in ["0", "1"] {
        fs::create_dir(folder.path().join(rank)).unwrap();
        fs::write(folder.path().join(rank).join("comm.json"), &text).unwrap();
    }
    let run = |files: [&str; 2]| {
        let [first, second] = files;
        let printed = stdout(&timeline(
            folder.path(),
            &[first, second, "--json", "r.json"],
        ));
        (printed, json(&folder.path().join("r.json")))
    };
    let (printed, report) = run(["0/comm.json", "1/comm.json"]);
    assert_eq!(
        (printed.clone(), report.clone()),
        run(["1/comm.json", "0/comm.json"])
    );
    let stages = report["stages"].as_array().unwrap();
    for name in ["PUSH", "PULL", "REDUCE", "COPYD2H", "COPYH2D"] {
        let row = stages.iter().find(|row| row["name"] == name);
        let row = row.unwrap_or_else(|| panic!("{name} in {stages:?}"));
        let number = |field: &str| row[field].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&number("overlap")), "{row}");
        assert!(number("under_way_ms") <= number("total_ms") + 1e-9, "{row}");
        assert!(printed.contains(name), "{printed}");
    }
    // Another stage runs during half of the copies' time, and rarely during that of REDUCE.
    let overlap = |name: &str| {
        let row = stages.iter().find(|row| row["name"] == name).unwrap();
        row["overlap"].as_f64().unwrap()
    };
    assert!(overlap("COPYD2H") > 10.0 * overlap("REDUCE"), "{stages:?}");
}
