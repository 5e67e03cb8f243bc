//! Tests of the reports of small sweeps, in all formats.

use serde_json::Value;

use super::*;
use ronde_lab::sweep::{Point, Row, store, verdict};

const LOOK: Look = Look {
    width: 100,
    unicode: true,
    ..Look::PLAIN
};

/// Three by two settings in three blocks: 16 MiB with 2.5 ms is best; one is cut short, one fails.
fn rows() -> Vec<Row> {
    store::read(&ronde_cases::path("sweep.csv")).unwrap()
}

/// Verdict on lines of `sweep.csv`, which has a header already.
fn verdict_on(lines: &str) -> Verdict {
    let header = std::fs::read_to_string(ronde_cases::path("sweep.csv")).unwrap();
    let header = header.lines().next().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{header}\n{lines}\n")).unwrap();
    verdict(&store::read(file.path()).unwrap())
}

fn about() -> About {
    About {
        job: "resnet50".into(),
        how: "link shaped to 1000 µs and 2.5 GB/s".into(),
        command: "ronde sweep --model resnet50".into(),
        machine: vec![
            ("cpu".into(), "Some | CPU".into()),
            ("cores".into(), "2".into()),
        ],
        unfinished: Some("Interrupted: 4 of 25 measurements are missing; --resume goes on.".into()),
        warnings: vec!["the machine was busy".into()],
    }
}

#[test]
fn reports_of_small_sweeps_as_text() {
    ronde_cases::check("sweeps.txt", |lines| {
        screen(&about(), &verdict_on(lines), Path::new("out"), &LOOK)
    });
}

#[test]
fn a_sweep_of_one_block_as_json() {
    let lines = "grid,0,2,134217728,1,true,false,done,20,150,157,160,157,5,\n\
                 grid,0,2,16777216,1,true,false,done,20,110,120,130,120,5,\n\
                 grid,0,2,134217728,1,true,false,done,20,310,318,330,318,5,";
    let (about, verdict) = (about(), verdict_on(lines));
    let document = json::Document::new(&about, &verdict);
    ronde_cases::json("sweep_unproven.json", &document);
}

#[test]
fn text_and_tables_fit_the_terminal() {
    for width in [60, 80, 100] {
        let look = Look { width, ..LOOK };
        let text = screen(&about(), &verdict(&rows()), Path::new("out"), &look);
        // Lines to paste stay whole.
        for line in text.lines().filter(|line| !line.starts_with("    ")) {
            assert!(
                console::measure_text_width(line) <= width,
                "{width}: {line}"
            );
        }
    }
}

#[test]
fn the_folder_holds_summaries_and_pictures() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = rows();
    rows.extend(rows.clone().into_iter().map(|mut row| {
        row.point.cache = false;
        row
    }));
    report(&about(), &verdict(&rows), folder.path(), &LOOK).unwrap();
    let mut names: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected = [
        "heat-cache-off.png",
        "heat-cache-off.svg",
        "heat-cache-on.png",
        "heat-cache-on.svg",
        "summary.json",
        "summary.md",
    ];
    assert_eq!(names, expected);
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    ronde_cases::document("sweep.md", &read("summary.md"));
    let summary: Value = serde_json::from_str(&read("summary.json")).unwrap();
    ronde_cases::json("sweep.json", &summary);
    assert!(read("heat-cache-off.svg").contains("failed"));
}

#[test]
fn thresholds_that_horovodrun_cannot_have_are_set_by_variable_alone() {
    let point = Point {
        fusion_threshold_bytes: 64 << 10,
        cache: false,
        ..Point::default_of(2)
    };
    assert_eq!(super::super::words::flags(&point), None);
    let expected = "HOROVOD_FUSION_THRESHOLD=65536 HOROVOD_CYCLE_TIME=1 HOROVOD_CACHE_CAPACITY=0";
    assert_eq!(super::super::words::environment(&point), expected);
}
