use super::*;

use console::{measure_text_width, strip_ansi_codes};
use ronde_job::gate::Withheld;
use ronde_trace::Kind;
use ronde_trace::analysis::report::{Quantiles, StageRow, StragglerGroup, StragglerRank};

const LOOK: Look = Look {
    unicode: true,
    ..Look::PLAIN
};

fn both_ranks() -> StragglerGroup {
    StragglerGroup {
        ranks: vec![0, 1],
        last_share: 1.0,
        lag_ms: Quantiles::default(),
        step_ms_without: 40.0,
        cost_ms: 12.0,
    }
}

#[test]
fn the_whole_report_in_which_colours_change_nothing_else() {
    let plain = text(&sample::report(), &LOOK);
    ronde_cases::document("timeline.txt", &plain);
    let colours = Look {
        colours: true,
        ..LOOK
    };
    let shown = text(&sample::report(), &colours);
    assert_ne!(shown, plain);
    assert_eq!(strip_ansi_codes(&shown), plain);
}

#[test]
fn the_fields_of_the_json_are_documented() {
    // The JSON omits unknown fields, so the sample gets values for them.
    let mut report = sample::report();
    report.withheld = Some(Withheld::Tuning);
    report.stages = vec![StageRow {
        name: "PUSH".to_owned(),
        rows: 2.0,
        total_ms: 8.0,
        under_way_ms: 6.0,
        overlap: 0.5,
    }];
    report.fusion.as_mut().unwrap().host_threshold_bytes = Some(128 << 20);
    report.steady.as_mut().unwrap().exposed_by_kind_ms = vec![(Kind::Allreduce, 10.0)];
    report.stragglers.as_mut().unwrap().slowest_group = Some(both_ranks());
    ronde_cases::fields("TIMELINE.md", "## Fields of the JSON", &report, &[]);
}

#[test]
fn a_small_terminal_without_unicode_will_do() {
    let small = Look {
        width: 72,
        unicode: false,
        ..LOOK
    };
    let shown = text(&sample::report(), &small);
    assert!(shown.is_ascii(), "{shown}");
    let widest = shown.lines().map(measure_text_width).max().unwrap();
    assert!(widest <= 72, "{shown}");
}

#[test]
fn what_is_not_there_is_left_out() {
    ronde_cases::document("timeline_empty.txt", &text(&sample::empty(), &LOOK));
}

#[test]
fn unknown_ranks_are_not_invented() {
    let mut unknown = sample::report();
    (unknown.ranks, unknown.ranks_unknown) = (1, true);
    let shown = text(&unknown, &LOOK);
    assert!(
        shown.contains("5 steps on rank 0, number of ranks unknown ("),
        "{shown}"
    );
    unknown.sources[0].rank = None;
    let shown = text(&unknown, &LOOK);
    assert!(
        shown.contains("5 steps on an unknown rank, number of ranks unknown ("),
        "{shown}"
    );
}

#[test]
fn two_late_ranks_and_computation_that_includes_waiting_are_named() {
    let mut report = sample::report();
    report.compute_includes_waiting = true;
    let stragglers = report.stragglers.as_mut().unwrap();
    stragglers.slowest = None;
    stragglers.slowest_group = Some(both_ranks());
    // On one line each, whatever the width.
    let shown = text(&report, &LOOK).replace("\n  ", " ");
    for part in [
        "ranks 0 and 1 were the last 2 for 100 %: without them a step would be 12.0 ms shorter",
        "computation and waiting",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
}

#[test]
fn a_name_cannot_command_the_terminal() {
    let mut evil = sample::report();
    evil.tensors[1].name = "fc\x1b[2J\n".to_owned();
    evil.sources[0].path = "\x07.json".to_owned();
    evil.advice[0].sentence = "Look at \x1b]0;x".to_owned();
    evil.warnings[0].push('\r');
    evil.bandwidth[0].activity.push('\x08');
    let shown = text(&evil, &LOOK);
    assert!(
        !shown.chars().any(|c| c.is_control() && c != '\n'),
        "{shown:?}"
    );
}

#[test]
fn of_many_ranks_those_that_cost_most_are_shown() {
    let mut large = sample::report();
    let stragglers = large.stragglers.as_mut().unwrap();
    let rank = stragglers.ranks[0].clone();
    stragglers.ranks = (0..20)
        .map(|number| StragglerRank {
            rank: number,
            cost_ms: f64::from(number),
            ..rank.clone()
        })
        .collect();
    let shown = text(&large, &LOOK);
    let rows: Vec<u32> = shown
        .lines()
        .skip_while(|line| *line != "Stragglers")
        .skip(2)
        .map_while(|line| line.split_whitespace().next()?.parse().ok())
        .collect();
    assert_eq!(rows, (8..20).collect::<Vec<_>>());
    assert!(shown.contains("… and 8 ranks that cost less"), "{shown}");
}
