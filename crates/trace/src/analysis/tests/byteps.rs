//! Tests of reports on BytePS's traces.

use super::gate::report;

/// Rows of three steps of 60 ms: one tensor is coordinated for 40 ms, then reduced for 10 ms.
fn steps() -> String {
    let row = |stage: &str, tid: &str, ms: u64, duration: u64| {
        format!(
            r#"{{"ph": "X", "pid": "Comm.g", "name": "Comm.g{stage}", "tid": "{tid}", "ts": {}, "dur": {}, "args": {{"name": "Comm.g"}}}}"#,
            1_000 * ms,
            1_000 * duration
        )
    };
    let rows: Vec<String> = (0..4)
        .flat_map(|step| {
            let began = 60 * step;
            [
                row("", "total", began, 50),
                row(".COORDINATE_REDUCE", "0", began, 40),
                row(".REDUCE", "0", began + 40, 10),
            ]
        })
        .collect();
    format!(
        "{{\"traceEvents\": [{}], \"displayTimeUnit\": \"ms\"}}",
        rows.join(",")
    )
}

#[test]
fn stages_before_the_execution_are_stages_too() {
    let report = report(&steps());
    let stages: Vec<_> = report
        .stages
        .iter()
        .map(|stage| (stage.name.as_str(), stage.rows, stage.total_ms))
        .collect();
    assert_eq!(
        stages,
        [("COORDINATE_REDUCE", 1.0, 40.0), ("REDUCE", 1.0, 10.0)]
    );
}

#[test]
fn a_single_file_without_a_rank_states_no_number_of_ranks() {
    let report = report(&steps());
    assert_eq!(report.sources[0].rank, None);
    assert!(report.ranks_unknown);
}
