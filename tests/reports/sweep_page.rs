//! Tests of the page that `scripts/bench-sweeps --page` makes of summaries: its texts fit the signs
//! of the gains. Skipped without Python.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

/// Point with its step time and its change against the default, in percent.
fn point(fusion_mb: u64, step_ms: f64, against: Value) -> Value {
    json!({
        "fusion_threshold_bytes": fusion_mb << 20, "cycle_time_ms": 1.0, "cache": true, "hierarchical_allreduce": false,
        "step_ms": step_ms, "against_default_pct": against,
    })
}

/// Summary in which 16 MiB with 50 ms is best, if `best` is true, and else the default with 50.4
/// ms.
fn summary(conclusion: &str, best: bool, gain: Value) -> Value {
    let told = conclusion == "faster";
    let sixteen = point(16, 50.0, json!({"value": 1.0, "interval": [-1.1, 3.0]}));
    let default = point(128, 50.4, Value::Null);
    let best = if best { &sixteen } else { &default };
    json!({
        "command": "ronde sweep --model resnet50", "machine": {"cores": "2"},
        "findings": [{
            "np": 2, "conclusion": conclusion, "best": best, "default": default, "gain_pct": gain, "ties": [best, default],
            "noise": {"sd_pct": 0.8}, "knobs": [{"knob": "fusion_threshold", "share": 0.71, "levels": [{"tied": !told}]}], "points": [sixteen, default],
        }],
    })
}

/// Page of these summaries, by job; `None` without Python.
fn page(folder: &Path, summaries: &[(&str, Value)]) -> Option<String> {
    for (job, summary) in summaries {
        fs::create_dir(folder.join(job)).unwrap();
        fs::write(folder.join(job).join("summary.json"), summary.to_string()).unwrap();
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/bench-sweeps");
    let output = Command::new("python3")
        .arg(script)
        .arg("--page")
        .env("OUT", folder)
        .output();
    let output = match output {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: there is no python3");
            return None;
        }
        output => output.unwrap(),
    };
    assert!(output.status.success(), "{output:?}");
    Some(fs::read_to_string(folder.join("README.md")).unwrap())
}

#[test]
fn every_conclusion_has_its_words() {
    let folder = tempfile::tempdir().unwrap();
    let gain = |value: f64, low: f64, high: f64| json!({"value": value, "interval": [low, high]});
    let nothing = json!({
        "command": "", "machine": {}, "findings": [{
            "np": 2, "conclusion": "nothing", "best": null, "default": null, "gain_pct": null, "ties": [], "noise": null, "knobs": [],
            "points": [{"step_ms": null, "against_default_pct": null}],
        }],
    });
    let summaries = [
        (
            "resnet50-bare",
            summary("faster", true, gain(12.4, 11.0, 13.8)),
        ),
        (
            "resnet50-compute",
            summary("faster", true, gain(0.4, 0.1, 0.7)),
        ),
        (
            "resnet50-link",
            summary("default-as-good", true, gain(-2.0, -4.5, 0.6)),
        ),
        (
            "vgg16-bare",
            summary("default-as-good", true, gain(-2.0, -4.0, -0.2)),
        ),
        (
            "vgg16-compute",
            summary("default-as-good", false, Value::Null),
        ),
        (
            "resnet50-far",
            summary("default-as-good", true, gain(-0.5, -21.6, 16.9)),
        ),
        (
            "vgg16-link",
            summary("unproven", true, json!({"value": 0.8, "interval": null})),
        ),
        (
            "bert-base-bare",
            summary("unproven", true, json!({"value": -0.8, "interval": null})),
        ),
        (
            "bert-base-compute",
            summary("no-default", true, Value::Null),
        ),
        ("bert-base-link", nothing),
    ];
    let Some(page) = page(folder.path(), &summaries) else {
        return;
    };
    for (job, said) in [
        (
            "resnet50-bare",
            "| 50.40 | 50.00 | 1.0 × | **16 MiB, 1 ms** saves 12.4 % (11.0 to 13.8) | 1 | 0.8 % | fusion threshold 71% |",
        ),
        (
            "resnet50-compute",
            " saves 0.4 % (0.1 to 0.7), too little to matter |",
        ),
        (
            "resnet50-link",
            "| no setting is faster than the default: none saves more than 0.6 % | 1 | 0.8 % | no effect beyond chance |",
        ),
        ("vgg16-bare", "| no setting is faster than the default |"),
        (
            "vgg16-compute",
            "| no setting is faster than the default: none saves more than 1.1 % |",
        ),
        (
            "resnet50-far",
            "| no difference from the default was found; savings of up to 16.9 % are not excluded |",
        ),
        (
            "vgg16-link",
            "| 16 MiB, 1 ms saves 0.8 %, measured once: that may be chance |",
        ),
        (
            "bert-base-bare",
            "| no setting is faster than the default, measured once |",
        ),
        (
            "bert-base-compute",
            "| 16 MiB, 1 ms is the fastest; the default has no result |",
        ),
        (
            "bert-base-link",
            "| – | – | – | no setting has a result | 0 | – | – |",
        ),
    ] {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| [{job}]")));
        let row = row.unwrap_or_else(|| panic!("no row of {job} in\n{page}"));
        assert!(row.contains(said), "{job}: {row}");
    }
    assert!(
        page.contains("a step of resnet50 takes **12 % less time** (11.0 to 13.8, 95 %)"),
        "{page}"
    );
    assert!(
        page.contains(
            "In 2 of 10 jobs a setting is faster than the default; in 4 none is shown to be"
        ),
        "{page}"
    );
}
