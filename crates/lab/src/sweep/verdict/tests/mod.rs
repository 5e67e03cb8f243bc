//! Verdicts on rows whose result can be computed by hand.

mod properties;
mod simulated;

use super::*;
use crate::sweep::{Phase, Status, StepTimes, testing};

/// A point with this threshold in MiB, at the default's cycle time.
fn point(fusion_mb: u64) -> Point {
    Point {
        fusion_threshold_bytes: fusion_mb << 20,
        ..Point::default_of(2)
    }
}

/// The default threshold is 128 MiB.
const DEFAULT: u64 = 128;

fn times(ms: f64) -> StepTimes {
    testing::row(point(0), ms).times.expect("it is measured")
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
fn measurements(line: &str) -> Vec<Row> {
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
        row.point.cycle_time_ms = cycle_ms.parse().unwrap();
        row.times = row.times.filter(|_| !matches!(status, Status::Failed(_)));
        Row { status, ..row }
    };
    cells.split(' ').map(cell).collect()
}

/// Findings from measurements.
fn answer(input: &str) -> String {
    let rows: Vec<Row> = input.lines().flat_map(measurements).collect();
    let verdict = verdict(&rows);
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

#[test]
fn numbers_of_ranks_are_not_compared() {
    let mut rows = measurements("grid 0: 128=100 16=80 128=101 16=80.5");
    rows.extend(rows.clone().into_iter().map(|mut row| {
        row.point.np = 4;
        row.times = row.times.map(|old| times(old.p50 / 2.0));
        row
    }));
    let [two, four] = <[Finding; 2]>::try_from(verdict(&rows).findings).unwrap();
    assert_eq!((two.np, four.np), (2, 4));
    assert!((two.gain.unwrap().value - four.gain.unwrap().value).abs() < 1e-9);
}

#[test]
fn predictions_are_compared_job_by_job() {
    let points = [point(128), point(16), point(1)];
    let predicted = [(128, 100.0), (16, 90.0), (1, 99.0)]
        .map(|(fusion_mb, ms)| row(Phase::Predicted, 0, fusion_mb, ms));
    assert_eq!(only(verdict(&predicted)).conclusion, Conclusion::Unproven);
    // Jobs from 80 to 120: all gain a tenth with 16 MiB; with 1 MiB some are faster and some
    // slower.
    let jobs: Vec<f64> = (0..=10).map(|job| 80.0 + 4.0 * f64::from(job)).collect();
    let tenth = jobs.iter().map(|ms| 0.9 * ms).collect();
    let factor = |job: usize| if job.is_multiple_of(2) { 0.88 } else { 1.1 };
    let mixed = jobs
        .iter()
        .enumerate()
        .map(|(job, ms)| factor(job) * ms)
        .collect();
    let times = [jobs, tenth, mixed];
    let of = |recording| {
        let jobs = Jobs {
            points: &points,
            times: &times,
            recording,
        };
        only(verdict_with(&predicted, &jobs))
    };
    let model = |modelled_ms| Evidence {
        model: Some([100.0, modelled_ms]),
        ..Evidence::default()
    };
    let finding = of(model(104.0));
    assert_eq!(
        (finding.basis, finding.conclusion),
        (Basis::Predicted, Conclusion::Faster)
    );
    let Estimate { value, interval } = finding.gain.unwrap();
    let ends = interval.unwrap();
    assert!(
        [value, ends[0], ends[1]]
            .iter()
            .all(|gain| (gain - 0.1).abs() < 1e-9)
    );
    let ties = finding.ties().map(|tie| tie.point.fusion_mb());
    assert_eq!(ties.collect::<Vec<_>>(), [16.0, 1.0]);
    assert_eq!(finding.recommended().unwrap().point, point(16));
    // A model that misses the recorded step by half supports no recommendation.
    let off = of(model(150.0));
    assert!(matches!(off.withheld(), Some(Withheld::ModelOff { .. })));
    assert_eq!(off.recommended(), None);
    // Neither does a truncated recording.
    let cut = of(Evidence {
        incomplete: Some("t.json".to_owned()),
        ..model(104.0)
    });
    assert!(matches!(cut.withheld(), Some(Withheld::Incomplete { .. })));
    assert_eq!(cut.recommended(), None);
}
