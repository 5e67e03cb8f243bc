//! Verdicts on rows whose result can be computed by hand.

mod properties;
mod simulated;

use super::*;
use crate::sweep::{Phase, Status, testing};

/// A point with this threshold in MiB, at the default's cycle time.
fn point(fusion_mb: u64) -> Point {
    Point {
        fusion_threshold_bytes: fusion_mb << 20,
        ..Point::default_of(2)
    }
}

fn row(phase: Phase, block: u32, fusion_mb: u64, ms: f64) -> Row {
    Row {
        phase,
        block,
        at_s: f64::from(block) * 10.0,
        ..testing::row(point(fusion_mb), ms)
    }
}

fn only(verdict: Verdict) -> Finding {
    let [finding] = <[Finding; 1]>::try_from(verdict.findings).expect("one number of ranks");
    finding
}

/// Measurements of one line: `grid 0: 128=100 16@2.5=80 4=failed 0=400/cut`, thresholds in MiB with
/// the cycle times that are not 1 ms, and step times.
fn measurements(line: &str, np: u32) -> Vec<Row> {
    let (block, cells) = line.split_once(": ").unwrap();
    let (phase, block) = block.split_once(' ').unwrap();
    let phase: Phase = serde_json::from_value(phase.into()).unwrap();
    let cell = |cell: &str| {
        let (setting, ms) = cell.split_once('=').unwrap();
        let (fusion_mb, cycle_ms) = setting.split_once('@').unwrap_or((setting, "1"));
        let (ms, status) = match ms.split_once('/') {
            Some((ms, _)) => (ms, Status::Cut),
            None if ms == "failed" => ("1", Status::Failed("rank 1 died".to_owned())),
            None => (ms, Status::Done),
        };
        let (block, ms) = (block.parse().unwrap(), ms.parse().unwrap());
        let mut row = row(phase, block, fusion_mb.parse().unwrap(), ms);
        (row.point.np, row.point.cycle_time_ms) = (np, cycle_ms.parse().unwrap());
        row.times = row.times.filter(|_| !matches!(status, Status::Failed(_)));
        Row { status, ..row }
    };
    cells.split(' ').map(cell).collect()
}

/// Findings from measurements, which are on two ranks before the first line `np`. Lines that begin
/// with `jobs` have the step times of each job that fits the recording, and those that begin with
/// `outside` a threshold outside of its range; `model` is the modelled time of the recorded step,
/// which took 100 ms.
fn answer(input: &str) -> String {
    let (mut rows, mut recording) = (Vec::new(), Evidence::default());
    let (mut times, mut np) = (Vec::new(), 2);
    let mut outside = HashSet::new();
    for line in input.lines() {
        match line.split_once(' ').unwrap() {
            ("jobs", cells) => {
                for (fusion_mb, ms) in cells.split(' ').filter_map(|cell| cell.split_once('=')) {
                    let ms = ms.split(',').map(|ms| ms.parse().unwrap());
                    times.push((point(fusion_mb.parse().unwrap()), ms.collect()));
                }
            }
            ("model", ms) => recording.model = Some([100.0, ms.parse().unwrap()]),
            ("incomplete", file) => recording.incomplete = Some(file.to_owned()),
            ("outside", fusion_mb) => {
                outside.insert(point(fusion_mb.parse().unwrap()).key());
            }
            ("np", ranks) => np = ranks.parse().unwrap(),
            _ => rows.extend(measurements(line, np)),
        }
    }
    let jobs = Jobs {
        times: &times,
        withheld: recording.check().err(),
        outside,
    };
    let verdict = verdict_with(&rows, &jobs);
    let mut answer = format!("{:?}\n", verdict.measurements);
    for finding in &verdict.findings {
        let named = |outcome: Option<&Outcome>| outcome.map(|found| found.point.fusion_mb());
        let [best, default, recommended] =
            [finding.best(), finding.default(), finding.recommended()].map(named);
        answer += &format!("best {best:?}, default {default:?}, recommended {recommended:?}\n");
        let withheld = ronde_cases::rounded(&finding.withheld());
        answer += &format!("withheld {withheld}, ties known: {}\n", finding.ties_known);
        let mut fields = ronde_cases::rounded(finding);
        let points = fields["points"].take();
        answer += &format!("{fields}\n");
        let points = points.as_array().unwrap().iter();
        answer += &points.map(|point| format!("{point}\n")).collect::<String>();
    }
    answer
}

#[test]
fn verdicts_on_small_sweeps() {
    ronde_cases::check("verdicts.txt", answer);
}
