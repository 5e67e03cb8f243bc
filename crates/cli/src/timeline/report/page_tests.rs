//! Tests of the page as a browser parses it: well formed, self-contained, safe, and complete.

use html5gum::emitters::default::DefaultEmitter;
use html5gum::{Token, Tokenizer};

use super::page;
use super::sample::{empty, report};
use crate::html::own_part;
use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::{Bandwidth, Bin, LaneBar, PartKind, Quantiles};

/// Elements without an end tag.
const VOID: [&str; 2] = ["meta", "br"];

/// Name and attributes of an element.
type Element = (String, Vec<(String, String)>);

/// Returns the page's elements and its text; panics on a parse error.
fn parsed(page: &str) -> (Vec<Element>, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let (mut elements, mut open, mut words) = (Vec::new(), Vec::new(), String::new());
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true); // the text of scripts is not markup
    for token in Tokenizer::new_with_emitter(page, emitter) {
        match token.expect("a string is always read") {
            Token::StartTag(tag) => {
                let name = text(&tag.name);
                if !tag.self_closing && !VOID.contains(&name.as_str()) {
                    open.push(name.clone());
                }
                elements.push((
                    name,
                    tag.attributes
                        .iter()
                        .map(|(k, v)| (text(k), text(v)))
                        .collect(),
                ));
            }
            Token::EndTag(tag) => {
                assert_eq!(open.pop(), Some(text(&tag.name)), "not closed in order")
            }
            Token::String(string) => words.push_str(&text(&string)),
            Token::Error(error) => panic!("the page is not well formed: {error:?}"),
            Token::Doctype(_) | Token::Comment(_) => {}
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    (elements, words)
}

fn ids(page: &str) -> Vec<String> {
    let (elements, _) = parsed(page);
    elements
        .into_iter()
        .flat_map(|(_, attributes)| attributes)
        .filter(|(k, _)| k == "id")
        .map(|(_, v)| v)
        .collect()
}

/// Checks that the page is well formed, identifiers are unique, references resolve, nothing is
/// loaded from elsewhere, and every number is finite.
fn check(page: &str) {
    let page = &own_part(page);
    let (elements, _) = parsed(page);
    let ids = ids(page);
    let mut unique = ids.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), ids.len(), "identifiers twice: {ids:?}");
    for (name, attributes) in &elements {
        for (key, value) in attributes {
            match key.as_str() {
                "href" => assert!(
                    value
                        .strip_prefix('#')
                        .is_some_and(|id| ids.iter().any(|i| i == id)),
                    "{value}"
                ),
                "aria-labelledby" | "aria-describedby" => assert!(ids.contains(value), "{value}"),
                "src" | "srcset" | "data" | "action" | "poster" => {
                    panic!("<{name} {key}={value}> loads")
                }
                key => assert!(!key.starts_with("on"), "<{name} {key}>"),
            }
            assert!(
                !value.contains("NaN") && !value.contains("inf"),
                "<{name} {key}={value}>"
            );
        }
    }
    for elsewhere in [
        "http://",
        "https://",
        "//fonts",
        "@import",
        "url(//",
        "fetch(",
        "XMLHttpRequest",
    ] {
        assert!(!page.contains(elsewhere), "{elsewhere}");
    }
    assert!(!elements.iter().any(|(name, _)| matches!(
        name.as_str(),
        "link" | "img" | "iframe" | "object" | "embed"
    )));
    assert!(!page.contains("NaN"));
}

#[test]
fn a_full_report_has_every_section() {
    let mut report = report();
    report.advice[0].variable = Some("HOROVOD_CYCLE_TIME".into());
    report.advice[0].value = Some("1".into());
    let page = page(&report);
    check(&page);
    let ids = ids(&page);
    let sections = "advice figures breakdown steps stragglers fusion bandwidth tensors lanes sources \
                    warnings guide";
    for section in sections.split_whitespace() {
        assert!(ids.iter().any(|id| id == section), "{section}");
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
        assert!(parsed(&page).1.contains(sentence), "{sentence}");
    }
    assert!(own_part(&page).len() < 400_000, "{}", own_part(&page).len());
}

#[test]
fn an_empty_report_says_why_it_is_empty() {
    let page = page(&empty());
    check(&page);
    let ids = ids(&page);
    for missing in ["steps", "bandwidth", "tensors", "warnings"] {
        assert!(!ids.iter().any(|id| id == missing), "{missing}");
    }
    let (_, text) = parsed(&page);
    for reason in [
        "No complete step was found",
        "ready times of at least two ranks",
        "Nothing is fused in these files",
        "no complete steady step to draw",
        "do not show a gain",
    ] {
        assert!(text.contains(reason), "{reason}");
    }
}

/// Report in which every string is `text`.
fn saying(text: &str) -> Report {
    let mut report = report();
    let all = |report: &mut Report| {
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
        for tensor in &mut report.stragglers.as_mut().expect("there are some").tensors {
            tensor.name = text.into();
        }
        for lane in &mut report.lanes {
            for bar in &mut lane.bars {
                bar.label = text.into();
            }
        }
    };
    all(&mut report);
    report
}

#[test]
fn no_name_breaks_out_of_the_page() {
    let plain: Vec<String> = parsed(&page(&saying("x")))
        .0
        .into_iter()
        .map(|(name, _)| name)
        .collect();
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
        check(&page);
        let elements: Vec<String> = parsed(&page).0.into_iter().map(|(name, _)| name).collect();
        assert!(
            elements == plain,
            "{evil:?} changes what the page is made of"
        );
        assert!(
            !page.contains(evil) || !evil.contains(['<', '"', '\0', '\u{202e}']),
            "{evil:?} stands there as it was"
        );
    }
}

#[test]
fn the_lanes_data_is_json_that_holds_every_bar() {
    let report = report();
    let page = page(&report);
    let (_, rest) = page
        .split_once("<div class=\"chart\" id=\"lane-chart\"")
        .and_then(|(_, rest)| rest.split_once("<script type=\"application/json\">"))
        .expect("the data");
    let data: serde_json::Value =
        serde_json::from_str(rest.split_once("</script>").expect("its end").0).expect("JSON");
    let lanes = data["lanes"].as_array().expect("lanes");
    assert_eq!(lanes.len(), 2);
    for (lane, told) in super::gather::gathered(&report.lanes).iter().zip(lanes) {
        assert_eq!(
            told["bars"].as_array().expect("bars").len(),
            5 * lane.bars.len()
        );
        assert_eq!(
            told["rows"],
            lane.bars.iter().map(|bar| bar.row).max().expect("bars") + 1
        );
    }
}

#[test]
fn odd_numbers_leave_no_trace() {
    let odd = Quantiles {
        n: 0,
        min: f64::NAN,
        p10: f64::INFINITY,
        p50: f64::NAN,
        p90: -1.0,
        p99: 0.0,
        max: 0.0,
        mean: f64::NAN,
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
    let point = report.bandwidth[0].points[0];
    report.bandwidth[0].points.push(point);
    report.bandwidth[0].points[0].us_p50 = 0.0;
    report.bandwidth[0].points[1].us_p10 = 0.0;
    report.bandwidth[0].points[2].bytes = 0;
    report.bandwidth[0].fit.as_mut().expect("fitted").us_per_mib = f64::NAN;
    report.bandwidth.push(Bandwidth {
        activity: "EMPTY".into(),
        points: vec![],
        fit: None,
    });
    report.lanes[0].step_ends_ms = vec![f64::NAN];
    report.lanes[0].bars.push(LaneBar {
        label: "odd".into(),
        part: PartKind::Compute,
        row: u32::MAX,
        began_ms: f64::NAN,
        ended_ms: 1.0,
    });
    check(&page(&report));
}

#[test]
fn one_tensor_in_one_step_is_a_page() {
    let mut report = report();
    report.steps.truncate(1);
    report.startup = None;
    report.steady = report
        .steady
        .map(|steady| ronde_trace::analysis::report::Summary {
            first_step: 0,
            steps: 1,
            ..steady
        });
    report.tensors.truncate(1);
    report.bandwidth.truncate(1);
    report.bandwidth[0].points.truncate(1);
    report.bandwidth[0].fit = None;
    report.lanes.truncate(1);
    report.lanes[0].bars.truncate(1);
    let fusion = report.fusion.as_mut().expect("there is some");
    fusion.histogram.truncate(1);
    let page = page(&report);
    check(&page);
    assert!(!parsed(&page).1.contains("time = ") && !page.contains("steady from step"));
}

#[test]
fn a_long_run_stays_small() {
    let mut report = report();
    let steps = report.steps.clone();
    report.steps = (0..100_000u64)
        .map(|index| ronde_trace::analysis::report::Step {
            index,
            ..steps[(index % 5) as usize].clone()
        })
        .collect();
    let bars = report.lanes[0].bars.clone();
    report.lanes[0].bars = (0..20_000).flat_map(|_| bars.clone()).collect();
    let ranks = &mut report.stragglers.as_mut().expect("there are some").ranks;
    *ranks = (0..5_000)
        .map(|rank| ronde_trace::analysis::report::StragglerRank {
            rank,
            ..ranks[0].clone()
        })
        .collect();
    let page = page(&report);
    check(&page);
    assert!(
        own_part(&page).len() < 1_500_000,
        "{}",
        own_part(&page).len()
    );
    assert!(
        parsed(&page)
            .1
            .contains("Each column is the mean of 417 steps.")
    );
}
