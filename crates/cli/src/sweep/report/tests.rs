//! Tests of the reports of small sweeps, in all formats.

use serde_json::Value;

use super::*;
use ronde_lab::sweep::{Phase, Point, Row, Status, StepTimes, verdict};

const LOOK: Look = Look {
    width: 100,
    colours: false,
    unicode: true,
    tensors: 0,
};

fn row(phase: Phase, block: u32, (fusion_mb, cycle_time_ms): (u64, f64), ms: f64) -> Row {
    Row {
        point: Point {
            fusion_threshold_bytes: fusion_mb << 20,
            cycle_time_ms,
            ..Point::default_of(2)
        },
        phase,
        block,
        status: Status::Done,
        times: Some(StepTimes {
            steps: 20,
            p10: 0.98 * ms,
            p50: ms,
            p90: 1.03 * ms,
            mean: ms,
        }),
        at_s: 100.0 * f64::from(block) + 5.0,
    }
}

/// Three by two settings in three blocks: 16 MiB with 2.5 ms is best; one is cut short, one fails.
fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for block in 0..3u32 {
        let off = [1.0, 1.004, 0.998][block as usize];
        for (i, setting) in [(128, 1.0), (16, 1.0), (1, 1.0), (128, 2.5), (16, 2.5)]
            .into_iter()
            .enumerate()
        {
            let ms = [100.0, 84.0, 120.0, 97.0, 80.0][i];
            let jitter = 1.0 + 0.002 * ((block as usize + i) % 3) as f64;
            rows.push(row(Phase::Grid, block, setting, ms * off * jitter));
        }
    }
    rows.push(Row {
        status: Status::Cut,
        ..row(Phase::Grid, 0, (0, 1.0), 400.0)
    });
    rows.push(Row {
        status: Status::Failed("rank 1 was killed by signal 9".into()),
        times: None,
        ..row(Phase::Grid, 0, (1, 2.5), 1.0)
    });
    rows
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
    let with = |of: &dyn Fn(&Row) -> bool| rows().into_iter().filter(of).collect::<Vec<_>>();
    let same = (0..3u32).flat_map(|block| {
        let ms = 50.0 + 0.1 * f64::from(block);
        let near = ms - 0.01 * f64::from(block);
        [(128, ms), (16, near)].map(|(fusion_mb, ms)| row(Phase::Grid, block, (fusion_mb, 1.0), ms))
    });
    // One block, in which the default took 157 and then 318 ms.
    let disturbed = [(128, 157.0), (16, 120.0), (128, 318.0)]
        .map(|(fusion_mb, ms)| row(Phase::Grid, 0, (fusion_mb, 1.0), ms));
    let mut text = String::new();
    for (case, rows) in [
        ("three repeats, one setting cut short, one failed", rows()),
        ("no setting is faster", same.collect()),
        ("one repeat", with(&|row| row.block == 0)),
        (
            "a disturbed machine, which is not free of drift",
            disturbed.to_vec(),
        ),
        ("only failures", with(&|row| row.times.is_none())),
        ("no measurement", Vec::new()),
        ("predictions", verified([100.0, 76.0, 150.0])[..3].into()),
        (
            "predictions that were measured",
            verified([100.0, 76.0, 150.0]),
        ),
        ("predictions of another job", verified([50.0, 40.0, 90.0])),
    ] {
        let page = text::page(&about(), &verdict(&rows), Path::new("out"), &LOOK);
        text += &format!("=== {case}\n{page}\n");
    }
    ronde_cases::document("sweeps.txt", &text);
    let (about, disturbed) = (about(), verdict(&disturbed));
    ronde_cases::json(
        "sweep_unproven.json",
        &json::Document::new(&about, &disturbed),
    );
}

#[test]
fn text_and_tables_fit_the_terminal() {
    for width in [60, 80, 100] {
        let look = Look { width, ..LOOK };
        let text = text::page(&about(), &verdict(&rows()), Path::new("out"), &look);
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
    ronde_cases::json(
        "sweep.json",
        &serde_json::from_str::<Value>(&read("summary.json")).unwrap(),
    );
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

/// Predictions of three settings, in ms, and measurements of the first two, which take 100 and 80
/// ms.
fn verified(predicted_ms: [f64; 3]) -> Vec<Row> {
    let settings = [(128, 1.0), (16, 2.5), (1, 1.0)].into_iter();
    let predictions = settings
        .zip(predicted_ms)
        .map(|(setting, ms)| row(Phase::Predicted, 0, setting, ms));
    let measurements = (0..4).flat_map(|round| {
        let jitter = 1.0 + 0.001 * f64::from(round % 2);
        [
            row(Phase::Verify, round, (128, 1.0), 100.0 * jitter),
            row(Phase::Verify, round, (16, 2.5), 80.0),
        ]
    });
    predictions.chain(measurements).collect()
}
