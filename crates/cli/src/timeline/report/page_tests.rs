//! Tests of the page as a browser parses it: well formed, self-contained, safe, and complete.

use super::page;
use super::sample::{empty, report};
use ronde_cases::page::{check, own_part};
use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::{Bandwidth, Bin, PartKind, Quantiles};

#[test]
fn a_full_report_has_every_section() {
    let mut report = report();
    report.advice[0].variable = Some("HOROVOD_CYCLE_TIME".into());
    report.advice[0].value = Some("1".into());
    let page = page(&report);
    let parsed = check(&page);
    let sections = "advice figures breakdown steps stragglers fusion bandwidth tensors lanes \
                    sources warnings guide";
    for section in sections.split_whitespace() {
        assert!(parsed.ids().contains(&section), "{section}");
    }
    for sentence in [
        "Set HOROVOD_CYCLE_TIME=1.",
        "5 steps on rank 0 of 2 (marked in the file; 1 skipped",
        "rank 1 was last for 75 %: without it a step would be 3.00 ms shorter.",
        "fusion threshold 128 MiB; cycle time 1 ms.",
        "time = 200.0 µs + 400.0 µs a MiB (2.62 GB/s)",
        "steady from step 1",
        "the file ends inside an event",
    ] {
        assert!(parsed.text.contains(sentence), "{sentence}");
    }
    // Parts that are not in the files are not in the legends.
    for part in ["GPU", "Preparation"] {
        assert!(
            !own_part(&page).contains(&format!("\"name\":\"{part}")),
            "{part}"
        );
    }
    assert!(own_part(&page).len() < 400_000, "{}", own_part(&page).len());
}

#[test]
fn an_empty_report_states_the_reasons() {
    let parsed = check(&page(&empty()));
    for missing in ["steps", "bandwidth", "tensors", "warnings"] {
        assert!(!parsed.ids().contains(&missing), "{missing}");
    }
    for reason in [
        "No complete step was found",
        "ready times of at least two ranks",
        "Nothing is fused in these files",
        "no complete steady step to draw",
        "do not show a gain",
    ] {
        assert!(parsed.text.contains(reason), "{reason}");
    }
}

/// Report in which every string is `text`.
fn saying(text: &str) -> Report {
    let mut report = report();
    report.warnings = vec![text.into()];
    report.advice[0].sentence = text.into();
    report.advice[0].variable = Some(text.into());
    report.advice[0].value = Some(text.into());
    report.bandwidth[0].activity = text.into();
    for source in &mut report.sources {
        source.path = text.into();
        source.warnings = vec![text.into()];
        source.activities[0].name = text.into();
    }
    let stragglers = report.stragglers.as_mut().expect("there are some");
    let tensors = stragglers.tensors.iter_mut().map(|tensor| &mut tensor.name);
    let bars = report.lanes.iter_mut().flat_map(|lane| &mut lane.bars);
    let labels = bars.map(|bar| &mut bar.label);
    tensors.chain(labels).for_each(|name| *name = text.into());
    report
}

#[test]
fn no_name_breaks_out_of_the_page() {
    let plain = check(&page(&saying("x"))).elements;
    for evil in [
        "</script><script>alert(1)</script>",
        "\"><img onerror=alert(1)>",
        "' onload='x",
        "<!--<script>",
        "]]>-->",
        "\0\u{1}\u{1b}[31m\n\r\u{85}\u{fffe}",
        "\u{202e}evil\u{2028}",
        "&lt;&amp;&#0;",
        "</title></style></svg>",
    ] {
        let page = page(&saying(evil));
        assert_eq!(check(&page).elements, plain, "{evil:?}");
        let is_harmless = !evil.contains(['<', '"', '\0', '\u{202e}']);
        assert!(is_harmless || !page.contains(evil), "{evil:?}");
    }
}

#[test]
fn the_lanes_data_is_json_that_holds_every_bar() {
    let report = report();
    let page = page(&report);
    let (_, chart) = page.split_once("id=\"lane-chart\"").expect("the chart");
    let (_, data) = chart
        .split_once("<script type=\"application/json\">")
        .expect("its data");
    let (data, _) = data.split_once("</script>").expect("the end");
    let data: serde_json::Value = serde_json::from_str(data).expect("JSON");
    let lanes = data["lanes"].as_array().expect("lanes");
    assert_eq!(lanes.len(), 2);
    for (lane, drawn) in super::gather::gathered(&report.lanes).iter().zip(lanes) {
        let numbers = drawn["bars"].as_array().expect("bars").len();
        assert_eq!(numbers, 5 * lane.bars.len());
        let last = lane.bars.iter().map(|bar| bar.row).max();
        assert_eq!(drawn["rows"], last.expect("bars") + 1);
    }
}

#[test]
fn numbers_that_are_not_finite_are_not_shown() {
    let odd = Quantiles {
        p10: f64::INFINITY,
        p50: f64::NAN,
        p90: -1.0,
        mean: f64::NAN,
        ..Quantiles::default()
    };
    let mut report = report();
    for summary in report.startup.iter_mut().chain(&mut report.steady) {
        summary.step_ms = odd;
        summary.overlap = f64::NAN;
        for part in &mut summary.parts {
            part.exposed_ms = odd;
            part.share = f64::NAN;
        }
    }
    for step in &mut report.steps {
        step.ms = f64::NAN;
        step.exposed_ms = [f64::INFINITY; PartKind::COUNT];
    }
    let stragglers = report.stragglers.as_mut().expect("there are some");
    stragglers.ranks[0].cost_ms = f64::NAN;
    stragglers.ranks[1].last_share = f64::NAN;
    let fusion = report.fusion.as_mut().expect("there is some");
    fusion.histogram = vec![Bin {
        from: 0,
        to: 0,
        batches: 0,
        tensors: 0,
    }];
    fusion.threshold_bytes = Some(0);
    fusion.bytes_per_batch = odd;
    let bandwidth = &mut report.bandwidth[0];
    bandwidth.points.push(bandwidth.points[0]);
    bandwidth.points[0].us_p50 = 0.0;
    bandwidth.points[1].us_p10 = 0.0;
    bandwidth.points[2].bytes = 0;
    bandwidth.fit.as_mut().expect("fitted").us_per_mib = f64::NAN;
    report.bandwidth.push(Bandwidth {
        activity: "EMPTY".into(),
        points: vec![],
        fit: None,
    });
    let lane = &mut report.lanes[0];
    lane.step_ends_ms = vec![f64::NAN];
    lane.bars[0].row = u32::MAX;
    lane.bars[0].began_ms = f64::NAN;
    check(&page(&report));
}

#[test]
fn one_tensor_in_one_step_is_a_page() {
    let mut report = report();
    report.steps.truncate(1);
    report.startup = None;
    let steady = report.steady.as_mut().expect("there is one");
    (steady.first_step, steady.steps) = (0, 1);
    report.tensors.truncate(1);
    report.bandwidth.truncate(1);
    report.bandwidth[0].points.truncate(1);
    report.bandwidth[0].fit = None;
    report.lanes.truncate(1);
    report.lanes[0].bars.truncate(1);
    let fusion = report.fusion.as_mut().expect("there is some");
    fusion.histogram.truncate(1);
    let page = page(&report);
    assert!(!check(&page).text.contains("time = ") && !page.contains("steady from step"));
}

#[test]
fn a_long_run_stays_small() {
    let mut report = report();
    let steps = report.steps.clone();
    let long = (0..100_000).zip(steps.iter().cycle()).map(|(index, step)| {
        let mut step = step.clone();
        step.index = index;
        step
    });
    report.steps = long.collect();
    let bars = &mut report.lanes[0].bars;
    *bars = vec![bars.clone(); 20_000].concat();
    let ranks = &mut report.stragglers.as_mut().expect("there are some").ranks;
    *ranks = vec![ranks.clone(); 2_500].concat();
    let page = page(&report);
    let text = check(&page).text;
    let own = own_part(&page).len();
    assert!(own < 1_500_000, "{own}");
    assert!(text.contains("Each column is the mean of 417 steps."));
}
