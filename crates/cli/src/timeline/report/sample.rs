//! Report for tests, with numbers that can be checked by mental arithmetic: five steps on two ranks,
//! of 80 ms and then 40 ms; the first is start-up, the last is incomplete. Two tensors are reduced
//! and one is gathered.

use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::StepsFoundBy;

/// The report, as `ronde timeline --json` writes it.
pub(super) fn report() -> Report {
    serde_json::from_str(include_str!("sample.json")).expect("the sample is a report")
}

/// The report of the same files without operations.
pub(super) fn empty() -> Report {
    let mut report = report();
    report.sources.truncate(1);
    report.sources[0].operations = 0;
    report.sources[0].tensors = 0;
    Report {
        ranks: 1,
        steps_found_by: StepsFoundBy::Nothing,
        steps: Vec::new(),
        startup: None,
        steady: None,
        stragglers: None,
        fusion: None,
        bandwidth: Vec::new(),
        tensors: Vec::new(),
        advice: Vec::new(),
        lanes: Vec::new(),
        warnings: Vec::new(),
        ..report
    }
}
