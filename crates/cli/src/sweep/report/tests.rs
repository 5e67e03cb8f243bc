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

fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
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
fn the_terminal_gets_the_table_and_the_conclusion_first() {
    let text = text::page(&about(), &verdict(&rows()), Path::new("out"), &LOOK);
    let position = |what: &str| {
        text.find(what)
            .unwrap_or_else(|| panic!("no `{what}` in\n{text}"))
    };
    let order = [
        "resnet50, link shaped",
        "17 measurements of 7 settings (15 complete, 1 cut short as clearly worse, 1 failed) in 3 min 25 s",
        "Interrupted: 4 of 25",
        "against default (95 %)",
        "Fusion 16 MiB, cycle 2.5 ms: 80.2 ms, −20.0 % against the default (95 %:",
        "No other setting ties with it.",
        "HOROVOD_FUSION_THRESHOLD=16777216 HOROVOD_CYCLE_TIME=2.5",
        "horovodrun -np 2 --fusion-threshold-mb 16 --cycle-time-ms 2.5 …",
        "ronde run -np 2 --fusion-threshold-mb 16 --cycle-time-ms 2.5 -- …",
        "fusion threshold",
        "Standard deviation of one measurement: 0.",
        "Cut short as clearly worse, at about these step times: fusion 0 MiB, cycle 1 ms (400 ms).",
        "Fusion 1 MiB, cycle 2.5 ms failed: rank 1 was killed by signal 9",
        "Everything is in out:",
    ];
    let places = order.map(position);
    assert!(places.is_sorted(), "{places:?}\n{text}");
    let best = text
        .lines()
        .find(|line| line.trim_start().starts_with("best "))
        .unwrap();
    assert!(
        best.contains("16") && best.contains("2.5") && best.contains("80.") && best.ends_with(" 3"),
        "{best}"
    );
}

#[test]
fn without_a_gain_there_is_nothing_to_paste() {
    let same: Vec<Row> = (0..3u32)
        .flat_map(|block| {
            let ms = 50.0 + 0.1 * f64::from(block);
            [
                row(Phase::Grid, block, (128, 1.0), ms),
                row(Phase::Grid, block, (16, 1.0), ms - 0.01 * f64::from(block)),
            ]
        })
        .collect();
    let text = text::page(&About::default(), &verdict(&same), Path::new("o"), &LOOK);
    assert!(
        text.contains("Keep the default: no setting is faster"),
        "{text}"
    );
    assert!(!text.contains("HOROVOD_"), "{text}");
}

#[test]
fn one_repeat_supports_no_recommendation() {
    let once: Vec<Row> = rows().into_iter().filter(|row| row.block == 0).collect();
    let verdict = verdict(&once);
    let text = text::page(&about(), &verdict, Path::new("o"), &LOOK);
    let conclusion = text.split_once("Conclusion").unwrap().1;
    let expected =
        "No recommendation: no setting was measured twice, so chance cannot be excluded;";
    assert!(unwrapped(conclusion).starts_with(expected), "{text}");
    assert!(
        text.contains("--repeats 3") && !text.contains("HOROVOD_"),
        "{text}"
    );
    let json = serde_json::to_value(json::Document::new(&about(), &verdict)).unwrap();
    let finding = &json["findings"][0];
    assert!(finding["recommended"].is_null(), "{finding}");
    assert_eq!(finding["withheld"]["reason"], "chance");
}

#[test]
fn a_disturbed_machine_is_not_reported_as_free_of_drift() {
    // One block, in which the default took 157 and then 318 ms.
    let disturbed = [(128, 157.0), (16, 120.0), (128, 318.0)]
        .map(|(fusion_mb, ms)| row(Phase::Grid, 0, (fusion_mb, 1.0), ms));
    let verdict = verdict(&disturbed);
    let text = text::page(&about(), &verdict, Path::new("o"), &LOOK);
    assert!(
        text.contains("The default took 157 ms to 318 ms (2 measurements)."),
        "{text}"
    );
    assert!(!text.contains("Drift") && !text.contains("drift"), "{text}");
    let json = serde_json::to_value(json::Document::new(&about(), &verdict)).unwrap();
    assert!(json["findings"][0]["noise"]["drift_pct"].is_null());
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
fn a_sweep_without_results_says_so() {
    let failed: Vec<Row> = rows()
        .into_iter()
        .filter(|row| row.times.is_none())
        .collect();
    let text = text::page(&about(), &verdict(&failed), Path::new("o"), &LOOK);
    assert!(text.contains("No setting has a result."), "{text}");
    text::page(&about(), &verdict(&[]), Path::new("o"), &LOOK);
}

#[test]
fn the_json_holds_what_is_promised() {
    let verdict = verdict(&rows());
    let json = serde_json::to_value(json::Document::new(&about(), &verdict)).unwrap();
    assert_eq!(json["ronde_sweep"], 1);
    assert_eq!(json["machine"]["cores"], "2");
    assert_eq!(json["measurements"]["cut"], 1);
    let finding = &json["findings"][0];
    assert_eq!(
        (&finding["basis"], &finding["conclusion"]),
        (&Value::from("grid"), &Value::from("faster"))
    );
    assert_eq!(finding["best"]["fusion_threshold_bytes"], 16 << 20);
    assert_eq!(finding["default"]["cycle_time_ms"], 1.0);
    let gain = finding["gain_pct"]["value"].as_f64().unwrap();
    assert!((gain - 20.0).abs() < 0.2, "{gain}");
    assert_eq!(finding["gain_pct"]["interval"].as_array().unwrap().len(), 2);
    assert_eq!(
        finding["recommended"]["flags"],
        "--fusion-threshold-mb 16 --cycle-time-ms 2.5"
    );
    assert_eq!(finding["points"].as_array().unwrap().len(), 7);
    assert_eq!(finding["points"][5]["ending"], "cut");
    assert_eq!(
        finding["points"][6]["reason"],
        "rank 1 was killed by signal 9"
    );
    assert_eq!(finding["knobs"][0]["knob"], "fusion_threshold");
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
    let page = read("summary.md");
    assert!(
        page.starts_with("# Sweep of resnet50\n\nLink shaped to 1000"),
        "{page}"
    );
    assert!(
        page.contains("](heat-cache-on.svg)") && page.contains("| cpu | Some \\| CPU |"),
        "{page}"
    );
    assert!(read("heat-cache-off.svg").contains("failed"));
    serde_json::from_str::<Value>(&read("summary.json")).unwrap();
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

#[test]
fn predictions_and_measurements_stand_side_by_side() {
    let rows = verified([100.0, 76.0, 150.0]);
    let text = text::page(&about(), &verdict(&rows[..3]), Path::new("o"), &LOOK);
    for part in [
        "predicted 76.0 ms, −24.0 % against the default",
        "3 settings predicted",
        "--verify 3",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let text = text::page(&about(), &verdict(&rows), Path::new("o"), &LOOK);
    let mut lines = text.lines();
    let best = lines.find(|line| line.trim_start().starts_with("best "));
    // The predicted gain: 76 of 80.
    let best = best.unwrap();
    assert!(best.contains("−5.0 %") && best.contains("76.0"), "{best}");
}

#[test]
fn a_job_that_is_not_the_recorded_one_is_noticed() {
    let rows = verified([50.0, 40.0, 90.0]);
    let text = text::page(&about(), &verdict(&rows), Path::new("o"), &LOOK);
    let text = unwrapped(&text);
    for part in [
        "Replay was off by −50.0 %.",
        "is not the recorded one",
        "3 settings predicted; 8 measurements of 2 settings in",
    ] {
        assert!(text.contains(part), "{text}");
    }
}
