//! Tests of predictions and their texts, of a profile written by hand.

use clap::Parser;

use super::*;
use ronde_job::replay::{Fit, Messages};

/// Eight tensors of 1 MB, ready together after 10 ms; a message takes 1 µs + 1 ms per MB. Copying
/// into and out of the fusion buffer makes fusion slower than eight messages.
const FUSED: &str = r#"{"ronde_profile": 1, "np": 4, "step_ms": 30.0, "cycle_time_ms": 1.0, "fusion_threshold_bytes": 67108864,
    "tensors": [TENSORS],
    "costs": {"alpha_us": 1, "us_per_mib": 1048.576, "copy": 500, "negotiate_cached": 100, "negotiate_uncached": 100}}"#;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn args(line: &str) -> Args {
    let words = ["replay", "p.json"].into_iter().chain(line.split(' '));
    Line::parse_from(words).args
}

/// Job of the profile with these costs of a message and of copies.
fn job(alpha_us: u32, copy: u32, threshold_bytes: u32) -> Job {
    let tensor = |name| {
        format!(
            r#"{{"name": "{name}", "dtype": "float32", "elements": 250000, "ready_us": 10000}}"#
        )
    };
    let tensors: Vec<String> = (0..8).map(tensor).collect();
    let profile = FUSED
        .replace("TENSORS", &tensors.join(","))
        .replace("\"alpha_us\": 1,", &format!("\"alpha_us\": {alpha_us},"))
        .replace("\"copy\": 500", &format!("\"copy\": {copy}"))
        .replace("67108864", &threshold_bytes.to_string());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), profile).unwrap();
    Job::read(&Recording {
        paths: &[file.path().to_owned()],
        outputs: &[],
        steps: None,
        ranks_per_host: None,
    })
    .unwrap()
}

fn text(job: &Job, outlook: &Outlook) -> String {
    let look = Look {
        width: 1000,
        ..Look::PLAIN
    };
    report::text(job, outlook, &look)
}

/// The costs of messages do not limit predictions. Those of one recorded message a step do: eight
/// are more than four times as many.
#[test]
fn a_setting_with_far_more_messages_than_recorded_is_not_recommended() {
    let args = args("--fusion-mb 0,2,64 --cycle-ms 1");
    let of_costs = job(1, 500, 64 << 20);
    let unlimited = outlook::outlook(&of_costs, &args).unwrap();
    let line = "HOROVOD_FUSION_THRESHOLD=0 HOROVOD_CYCLE_TIME=1";
    assert!(text(&of_costs, &unlimited).contains(line));

    let recorded = Messages {
        per_step: 1.0,
        largest_bytes: 8e6,
    };
    let job = Job {
        fit: Fit {
            recorded: Some(recorded),
            ..of_costs.fit
        },
        ..of_costs
    };
    let at_once = "8.00 messages a step, the largest 977 KiB; recorded: at most 1.00 and 7.63 MiB) is outside the measured range";
    let alone = [
        "The setting in force is as good as any within the range of the recording",
        "No recommendation: fusion 0 MiB, cycle 1 ms (",
        at_once,
    ];
    // Four messages are like the recorded one.
    let beside = [
        "fusion 2 MiB, cycle 1 ms: ",
        "Not considered: fusion 0 MiB",
        at_once,
    ];
    for (fusion_mb, parts) in [("0,64", alone), ("0,2,64", beside)] {
        let args = self::args(&format!("--fusion-mb {fusion_mb} --cycle-ms 1"));
        let outlook = outlook::outlook(&job, &args).unwrap();
        assert_eq!(outlook.targets[0].outside.unwrap().recorded, recorded);
        let text = text(&job, &outlook);
        for part in parts {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("HOROVOD_FUSION_THRESHOLD=0"), "{text}");
    }
}

/// The recorded setting is predicted with the recorded rule, whatever the rule of the grid.
#[test]
fn the_recorded_rule_of_early_cycles_is_that_of_the_setting_in_force() {
    let job = job(1000, 0, 0);
    for (early, variable) in [("on", false), ("off", true)] {
        let args = args(&format!("--fusion-mb 0,64 --cycle-ms 1 --early {early}"));
        let outlook = outlook::outlook(&job, &args).unwrap();
        let at = &outlook.targets[0];
        assert!((at.current.step_ms - 30.0).abs() < 1e-9 && at.current.early);
        let is_marked = at.cells.iter().any(|cell| cell.is_setting_of(&at.current));
        assert_eq!(is_marked, !variable);
        let text = text(&job, &outlook);
        assert!(text.contains("HOROVOD_FUSION_THRESHOLD=67108864"), "{text}");
        for part in [
            " RONDE_EARLY_CYCLE=0",
            "Predicted step, ms, early cycles off",
        ] {
            assert_eq!(text.contains(part), variable, "{part} in {text}");
        }
    }
}

#[test]
fn a_gain_that_may_be_chance_has_no_line_to_paste() {
    let job = job(1000, 0, 0);
    let mut outlook = outlook::outlook(&job, &args("--fusion-mb 0,64 --cycle-ms 1")).unwrap();
    let choice = outlook.targets[0].choice.as_mut().unwrap();
    choice.change.high = 0.0;
    let text = text(&job, &outlook);
    assert!(text.contains("the difference may be chance"), "{text}");
    assert!(!text.contains("HOROVOD_FUSION_THRESHOLD"), "{text}");
}

/// Four ranks were recorded on one host.
#[test]
fn all_numbers_of_ranks_have_the_same_placement() {
    let job = job(1000, 0, 0);
    let base = "--fusion-mb 0 --cycle-ms 1 --network 25gbe --ranks";
    for (ranks, hosts, assumed) in [
        ("2,4,8", &[1, 1, 2][..], "4 ranks on each host, as recorded"),
        ("2,4", &[2, 4], "One rank on each host"),
        ("8 --ranks-per-host 2", &[4], ""),
    ] {
        let outlook = outlook::outlook(&job, &args(&format!("{base} {ranks}"))).unwrap();
        let of: Vec<u32> = outlook.targets.iter().map(|at| at.hosts).collect();
        assert_eq!(of, hosts, "{ranks}");
        let text = text(&job, &outlook);
        let is_assumed = text.contains("--ranks-per-host changes it");
        assert!(
            text.contains(assumed) && is_assumed != assumed.is_empty(),
            "{text}"
        );
    }
}
