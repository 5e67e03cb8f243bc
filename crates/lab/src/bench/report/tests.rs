//! Tests of the report in its JSON and text formats.

use super::*;
use ronde::{AutotuneReport, AutotuneVerdict, NotTuned};

const DEFAULT: SettingsReport = SettingsReport {
    fusion_threshold_bytes: 128 << 20,
    cycle_time_ms: 1.0,
    hierarchical_allreduce: false,
    hierarchical_allgather: false,
};

fn report() -> BenchReport {
    BenchReport {
        model: "resnet50".to_owned(),
        np: 2,
        backend: "local".to_owned(),
        link: None,
        compute_ms: 0.0,
        compute_kind: "sleep",
        slow_rank: None,
        steps: 50,
        tensors: 161,
        bytes_per_step: 102_228_128,
        settings: DEFAULT,
        step_ms: StepSummary {
            p10: 19.5,
            p50: 20.0,
            p90: 22.25,
            mean: 20.5,
        },
        gb_per_s: Some(gb_per_s(102_228_128, 20.0)),
        memcpy_gb_per_s: 5.5,
        mpi: None,
        autotune: None,
    }
}

#[test]
fn summary_sorts_first() {
    let summary = StepSummary::new(&[16.0, 1.0, 8.0, 2.0, 4.0]).unwrap();
    assert_eq!(
        summary,
        StepSummary {
            p10: 1.4,
            p50: 4.0,
            p90: 12.8,
            mean: 6.2
        }
    );
    assert_eq!(StepSummary::new(&[]), None);
}

#[test]
fn a_gigabyte_is_ten_to_the_nine() {
    assert_eq!(gb_per_s(2_000_000_000, 500.0), 4.0);
}

#[test]
fn json_has_the_promised_keys_in_order() {
    let json = serde_json::to_string(&report()).unwrap();
    assert_eq!(
        json,
        concat!(
            r#"{"model":"resnet50","np":2,"backend":"local","link":null,"compute_ms":0.0,"compute_kind":"sleep","slow_rank":null,"#,
            r#""steps":50,"tensors":161,"bytes_per_step":102228128,"#,
            r#""settings":{"fusion_threshold_bytes":134217728,"cycle_time_ms":1.0,"hierarchical_allreduce":false,"hierarchical_allgather":false},"#,
            r#""step_ms":{"p10":19.5,"p50":20.0,"p90":22.25,"mean":20.5},"#,
            r#""gb_per_s":5.1114064,"memcpy_gb_per_s":5.5,"mpi":null,"autotune":null}"#
        )
    );
}

#[test]
fn summary_for_people() {
    assert_eq!(
        report().to_string(),
        "resnet50: 161 tensors, 97.5 MiB per step, 2 ranks, local backend\n  \
           settings   fusion 128 MiB, cycle 1 ms\n  \
           step       p50 20.000 ms (p10 19.500, p90 22.250, mean 20.500; 50 steps, slowest rank)\n  \
           bandwidth  5.111 GB/s, 0.93 of memcpy (5.500 GB/s)"
    );
}

#[test]
fn every_output_of_a_shaped_run_says_so() {
    let mut shaped = report();
    shaped.link = Some(LinkReport {
        shaped: true,
        alpha_us: 1000.0,
        gb_per_s: 2.5,
    });
    let text = shaped.to_string();
    assert!(
        text.contains("link       shaped: 1000 µs and 2.5 GB/s") && text.contains("GB/s (shaped)"),
        "{text}"
    );
    let json = serde_json::to_value(&shaped).unwrap();
    assert_eq!(json["link"]["shaped"], true);
    assert_eq!(json["link"]["alpha_us"], 1000.0);
}

#[test]
fn what_travels_over_mpi_is_said_where_it_is_used() {
    let mut over_mpi = report();
    over_mpi.mpi = Some(crate::bench::MpiPerStep {
        messages: 202.5,
        bytes: 51_114_064.0,
        collectives: 2.0,
    });
    let text = over_mpi.to_string();
    assert!(
        text.contains("messages   202.5, 48.7 MiB, 2 collective calls per step"),
        "{text}"
    );
    let json = serde_json::to_value(&over_mpi).unwrap();
    assert_eq!(json["mpi"]["messages"], 202.5);
    assert_eq!(json["mpi"]["collectives"], 2.0);
}

#[test]
fn verdict_of_the_tuner() {
    let cut = AutotuneSummary {
        state: "sample".to_owned(),
        default_step_ms: None,
        chosen_step_ms: None,
        gain_pct: None,
        kept_default: None,
        steps_active: 60,
        steps_lost: None,
        budget_steps: None,
        payback_step: None,
        settings: DEFAULT,
        not_tuned: Vec::new(),
        verdict_text: None,
    };
    assert_eq!(
        cut.to_string(),
        "no verdict after 60 steps (in phase sample); give it more --steps"
    );
    let done = AutotuneSummary {
        state: "final".to_owned(),
        default_step_ms: Some(60.0),
        chosen_step_ms: Some(48.0),
        gain_pct: Some([18.0, 21.5]),
        kept_default: Some(false),
        steps_active: 240,
        steps_lost: Some(6.5),
        budget_steps: Some(20.0),
        payback_step: Some(280),
        settings: SettingsReport {
            fusion_threshold_bytes: 8 << 20,
            cycle_time_ms: 2.5,
            hierarchical_allreduce: true,
            ..DEFAULT
        },
        not_tuned: vec![NotTuned {
            knob: "cache",
            because: "its capacity is 0",
        }],
        verdict_text: Some("chose 8 MB".to_owned()),
    };
    let mut tuned = report();
    tuned.autotune = Some(done.clone());
    let text = tuned.to_string();
    assert!(
        text.ends_with("\n  autotune   chose 8 MB\n  not tuned  cache (its capacity is 0)"),
        "{text}"
    );
    assert_eq!(
        serde_json::to_string(&done).unwrap(),
        concat!(
            r#"{"state":"final","default_step_ms":60.0,"chosen_step_ms":48.0,"gain_pct":[18.0,21.5],"#,
            r#""kept_default":false,"steps_active":240,"steps_lost":6.5,"budget_steps":20.0,"payback_step":280,"#,
            r#""settings":{"fusion_threshold_bytes":8388608,"cycle_time_ms":2.5,"hierarchical_allreduce":true,"hierarchical_allgather":false},"#,
            r#""not_tuned":[{"knob":"cache","because":"its capacity is 0"}]}"#
        )
    );
}

#[test]
fn the_fields_of_the_json_are_documented() {
    let settings = ronde::settings::Settings::default();
    let autotune = AutotuneReport {
        phase: ronde_tuner::Phase::Final,
        sample: 3,
        settings,
        step_ms: Some(48.0),
        best: Some((settings, 48.0)),
        steps_left: 0,
        not_tuned: vec![NotTuned {
            knob: "cache",
            because: "its capacity is 0",
        }],
        verdict: Some(AutotuneVerdict {
            kept_default: false,
            settings,
            reverted: false,
            default_step_ms: 60.0,
            chosen_step_ms: 48.0,
            gain_pct: [18.0, 21.5],
            steps_active: 240,
            steps_lost: 6.5,
            budget_steps: 20.0,
            budget_kept: true,
            payback_step: Some(280),
            reason: "faster".to_owned(),
            retuned: None,
        }),
    };
    ronde_cases::fields(
        "AUTOTUNE.md",
        "## The report of a running job",
        &autotune,
        &[],
    );
    let whole = BenchReport {
        link: Some(LinkReport {
            shaped: true,
            alpha_us: 1000.0,
            gb_per_s: 2.5,
        }),
        slow_rank: Some(SlowRankReport { rank: 1, ms: 5.0 }),
        mpi: Some(crate::bench::MpiPerStep {
            messages: 202.5,
            bytes: 51_114_064.0,
            collectives: 2.0,
        }),
        autotune: Some(AutotuneSummary::new(autotune, 240)),
        ..report()
    };
    ronde_cases::fields("BENCH.md", "## Fields of the JSON", &whole, &[]);
}

#[test]
fn no_fusion_is_said_in_words() {
    let settings = SettingsReport {
        fusion_threshold_bytes: 0,
        cycle_time_ms: 0.5,
        ..DEFAULT
    };
    assert_eq!(settings.to_string(), "no fusion, cycle 0.5 ms");
    let hierarchical = SettingsReport {
        hierarchical_allreduce: true,
        ..settings
    };
    assert_eq!(
        hierarchical.to_string(),
        "no fusion, cycle 0.5 ms, hierarchical allreduce"
    );
}
