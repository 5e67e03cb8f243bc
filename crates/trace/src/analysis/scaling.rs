//! Scaling of one job over runs on 1, 2, 4, … ranks: speed-up, efficiency, and the part of the step
//! that grew most.
//!
//! Scaling is *weak*: the work per rank does not depend on the number of ranks, as in data-parallel
//! training with a fixed batch per rank. So n ranks do n times the work of one in a step, the
//! speed-up is n · step₁ / stepₙ, and the efficiency is step₁ / stepₙ. Both are relative to the run
//! with the fewest ranks.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use ronde_job::units::{ms, percent};

use super::Report;
use super::report::{PartKind, Quantiles};

/// One run of a series, from a timeline's report or from the output of `ronde bench --json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScalingRun {
    /// Label of the run, such as its file.
    pub label: String,
    /// Number of ranks, at least 1.
    pub ranks: u32,
    /// Length of a steady step, milliseconds. A benchmark gives p10, p50, p90 and mean; the other
    /// fields are derived from them.
    pub step_ms: Quantiles,
    /// Number of start-up steps, and their median length in milliseconds. None without a start-up.
    pub startup: Option<(u64, f64)>,
    /// Payload per step, bytes.
    pub bytes: u64,
    /// Mean exposed milliseconds per step, in the order of [`PartKind::ALL`]. None from a
    /// benchmark.
    pub parts_ms: Option<[f64; PartKind::COUNT]>,
    /// The benchmark's model, if known: runs of different models are not a series.
    pub what: Option<String>,
}

/// Reason why a run cannot be part of a series.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScalingError {
    /// No step was found in the timeline.
    #[error(
        "{label}: no step was found, so there is no step time to compare; record at least three steps"
    )]
    NoSteps {
        /// Label of the run.
        label: String,
    },
    /// The files do not state the number of ranks.
    #[error(
        "{label}: the number of ranks is not in the file, so the run has no place in the series; give the files of all its \
         ranks, joined by commas, or a timeline of Horovod from the start of the job"
    )]
    RanksUnknown {
        /// Label of the run.
        label: String,
    },
    /// The JSON was not written by `ronde bench --json`.
    #[error(
        "{label}: this JSON has no positive number {field:?}, which `ronde bench --json` always writes; is it another \
         program's?"
    )]
    NotABenchmark {
        /// Label of the run.
        label: String,
        /// Missing field.
        field: String,
    },
}

/// Result of a series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// Number of ranks of the base run, to which the others are compared; 0 without runs.
    pub base_ranks: u32,
    /// Runs, in order of ranks.
    pub rows: Vec<ScalingRow>,
    /// Conclusions.
    pub sentences: Vec<String>,
    /// Reasons that make the runs hard to compare.
    pub warnings: Vec<String>,
}

/// One run compared to the base.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScalingRow {
    /// Run.
    pub run: ScalingRun,
    /// Work done per time, relative to the base, multiplied by the base's ranks; `ranks` is ideal.
    pub speedup: f64,
    /// Step of the base divided by this one; 1 is ideal.
    pub efficiency: f64,
    /// Additional length of a step compared to the base, milliseconds.
    pub lost_ms: f64,
    /// Additional time of each part compared to the base, in the order of [`PartKind::ALL`]; adds
    /// up to the loss of the mean step. None unless both runs are timelines.
    pub parts_lost_ms: Option<[f64; PartKind::COUNT]>,
    /// Part that grew most, if one did.
    pub eaten_by: Option<PartKind>,
}

impl ScalingRun {
    /// Makes a run from a timeline's report.
    ///
    /// # Errors
    /// [`ScalingError::NoSteps`] or [`ScalingError::RanksUnknown`].
    pub fn from_report(label: &str, report: &Report) -> Result<Self, ScalingError> {
        let steady = report
            .steady
            .as_ref()
            .filter(|steady| steady.step_ms.p50 > 0.0);
        let steady = steady.ok_or_else(|| ScalingError::NoSteps {
            label: label.to_owned(),
        })?;
        if report.ranks_unknown {
            let label = label.to_owned();
            return Err(ScalingError::RanksUnknown { label });
        }
        let mut parts_ms = [0.0; PartKind::COUNT];
        for part in &steady.parts {
            parts_ms[part.kind as usize] = part.exposed_ms.mean;
        }
        Ok(Self {
            label: label.to_owned(),
            ranks: report.ranks.max(1),
            step_ms: steady.step_ms,
            startup: report
                .startup
                .as_ref()
                .map(|startup| (startup.steps, startup.step_ms.p50)),
            bytes: steady.bytes,
            parts_ms: Some(parts_ms),
            what: None,
        })
    }

    /// Makes a run from the output of `ronde bench --json`.
    ///
    /// # Errors
    /// [`ScalingError::NotABenchmark`].
    pub fn from_bench(label: &str, json: &Value) -> Result<Self, ScalingError> {
        let number = |pointer: &str| {
            let number = json.pointer(pointer).and_then(Value::as_f64);
            let number = number.filter(|number| number.is_finite() && *number > 0.0);
            number.ok_or_else(|| ScalingError::NotABenchmark {
                label: label.to_owned(),
                field: pointer.trim_start_matches('/').replace('/', "."),
            })
        };
        let (p10, p50, p90) = (
            number("/step_ms/p10")?,
            number("/step_ms/p50")?,
            number("/step_ms/p90")?,
        );
        let steps = json.get("steps").and_then(Value::as_u64).unwrap_or(1);
        Ok(Self {
            label: label.to_owned(),
            ranks: number("/np")? as u32,
            step_ms: Quantiles {
                n: steps,
                min: p10,
                p10,
                p50,
                p90,
                p99: p90,
                max: p90,
                mean: number("/step_ms/mean").unwrap_or(p50),
            },
            // The benchmark excludes its first steps itself.
            startup: None,
            bytes: json
                .get("bytes_per_step")
                .and_then(Value::as_u64)
                .unwrap_or(0),
            parts_ms: None,
            what: json.get("model").and_then(Value::as_str).map(str::to_owned),
        })
    }
}

/// Compares every run to the one with the fewest ranks.
pub fn scaling(mut runs: Vec<ScalingRun>) -> Scaling {
    runs.sort_by_key(|run| run.ranks);
    let Some(base) = runs.first().cloned() else {
        return Scaling {
            base_ranks: 0,
            rows: Vec::new(),
            sentences: Vec::new(),
            warnings: vec!["no run was given".into()],
        };
    };
    let warnings = warnings(&runs);
    let rows: Vec<ScalingRow> = runs.into_iter().map(|run| row(&base, run)).collect();
    Scaling {
        base_ranks: base.ranks,
        sentences: sentences(&base, &rows),
        rows,
        warnings,
    }
}

fn row(base: &ScalingRun, run: ScalingRun) -> ScalingRow {
    let efficiency = if run.step_ms.p50 > 0.0 {
        base.step_ms.p50 / run.step_ms.p50
    } else {
        0.0
    };
    let parts_lost_ms = base.parts_ms.zip(run.parts_ms).map(|(base, parts)| {
        let mut lost = parts;
        lost.iter_mut()
            .zip(base)
            .for_each(|(lost, base)| *lost -= base);
        lost
    });
    let grown = parts_lost_ms
        .into_iter()
        .flat_map(|lost| PartKind::ALL.into_iter().zip(lost));
    let most = grown.max_by(|a, b| a.1.total_cmp(&b.1));
    ScalingRow {
        speedup: efficiency * f64::from(run.ranks),
        efficiency,
        lost_ms: run.step_ms.p50 - base.step_ms.p50,
        parts_lost_ms,
        eaten_by: most
            .filter(|&(_, lost)| lost > 0.0 && run.ranks > base.ranks)
            .map(|(kind, _)| kind),
        run,
    }
}

fn sentences(base: &ScalingRun, rows: &[ScalingRow]) -> Vec<String> {
    let Some(last) = rows.last().filter(|last| last.run.ranks > base.ranks) else {
        return Vec::new();
    };
    let ranks = last.run.ranks;
    let mut sentences = vec![format!(
        "Each rank does the same work in every run (weak scaling): {ranks} ranks do {:.2} times the work of {} in the same \
         time, an efficiency of {}.",
        last.speedup / f64::from(base.ranks.max(1)),
        match base.ranks {
            0 | 1 => "one".to_owned(),
            ranks => format!("{ranks} ranks"),
        },
        percent(last.efficiency),
    )];
    if last.lost_ms > 0.0
        && let (Some(kind), Some(lost)) = (last.eaten_by, last.parts_lost_ms)
    {
        sentences.push(format!(
            "A step at {ranks} ranks takes {} longer than at {} ({} instead of {}); the largest part of it, {}, is “{}”.",
            ms(last.lost_ms),
            base.ranks,
            ms(last.run.step_ms.p50),
            ms(base.step_ms.p50),
            ms(lost[kind as usize]),
            kind.name(),
        ));
    }
    let startup = |row: &ScalingRow| {
        row.run
            .startup
            .map(|(steps, length)| (row.run.ranks, steps, length))
    };
    if let Some((ranks, steps, length)) = rows.iter().filter_map(startup).next_back() {
        let length = ms(length);
        sentences.push(match steps {
            1 => format!("Start-up is left out: at {ranks} ranks the first step takes {length}."),
            _ => format!(
                "Start-up is left out: at {ranks} ranks the first {steps} steps take {length} each."
            ),
        });
    }
    sentences
}

fn warnings(runs: &[ScalingRun]) -> Vec<String> {
    let mut warnings = Vec::new();
    if runs.len() == 1 {
        warnings
            .push("scaling needs several runs; give runs with other numbers of ranks".to_owned());
    }
    for pair in runs.windows(2) {
        let (a, b) = (&pair[0], &pair[1]);
        if a.ranks == b.ranks {
            warnings.push(format!(
                "{} and {} both have {} rank{}; both are shown",
                a.label,
                b.label,
                a.ranks,
                if a.ranks == 1 { "" } else { "s" }
            ));
        }
        if let (Some(x), Some(y)) = (&a.what, &b.what)
            && x != y
        {
            warnings.push(format!(
                "{} ran {x}, {} ran {y}: they make no series",
                a.label, b.label
            ));
        }
        let far = a.bytes.abs_diff(b.bytes) as f64 > 0.02 * a.bytes.max(b.bytes) as f64;
        if a.bytes > 0 && b.bytes > 0 && far {
            warnings.push(format!(
                "{} moves {} bytes a step and {} {}: the work of a rank is not the same in all runs, so the efficiency is not meaningful",
                a.label, a.bytes, b.label, b.bytes
            ));
        }
    }
    if runs.iter().any(|run| run.parts_ms.is_none())
        && runs.iter().any(|run| run.parts_ms.is_some())
    {
        warnings.push(
            "benchmark files contain step times but not their parts: parts are compared for timelines only".into(),
        );
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bench(np: u32, p50: f64) -> ScalingRun {
        let json = serde_json::json!({
            "model": "resnet50", "np": np, "steps": 50, "bytes_per_step": 102_228_128,
            "step_ms": {"p10": p50 * 0.9, "p50": p50, "p90": p50 * 1.2, "mean": p50 * 1.05},
        });
        ScalingRun::from_bench(&format!("np{np}.json"), &json).unwrap()
    }

    fn parts(run: ScalingRun, compute: f64, collective: f64) -> ScalingRun {
        let mut parts_ms = [0.0; PartKind::COUNT];
        parts_ms[PartKind::Compute as usize] = compute;
        parts_ms[PartKind::Collective as usize] = collective;
        ScalingRun {
            parts_ms: Some(parts_ms),
            ..run
        }
    }

    #[test]
    fn efficiency_is_the_first_step_over_the_other() {
        let scaling = scaling(vec![bench(4, 80.0), bench(1, 40.0), bench(2, 50.0)]);
        let rows: Vec<_> = scaling
            .rows
            .iter()
            .map(|row| (row.run.ranks, row.speedup, row.efficiency))
            .collect();
        assert_eq!(rows, [(1, 1.0, 1.0), (2, 1.6, 0.8), (4, 2.0, 0.5)]);
        assert_eq!(scaling.rows[2].lost_ms, 40.0);
        assert!(
            scaling.sentences[0].contains("2.00 times the work of one")
                && scaling.warnings.is_empty(),
            "{scaling:?}"
        );
    }

    #[test]
    fn work_is_relative_to_the_run_with_the_fewest_ranks() {
        let scaling = scaling(vec![bench(8, 200.0), bench(16, 210.0)]);
        let sentence = &scaling.sentences[0];
        assert!(
            sentence.contains("16 ranks do 1.90 times the work of 8 ranks"),
            "{sentence}"
        );
    }

    #[test]
    fn the_part_that_grew_most_ate_the_rest() {
        let runs = vec![
            parts(bench(1, 40.0), 38.0, 2.0),
            parts(bench(8, 64.0), 44.0, 20.0),
        ];
        let scaling = scaling(runs);
        assert_eq!(scaling.rows[1].eaten_by, Some(PartKind::Collective));
        assert_eq!(scaling.rows[0].eaten_by, None);
        assert!(
            scaling.sentences[1].contains("18.0 ms, is “collective”"),
            "{:?}",
            scaling.sentences
        );
    }

    #[test]
    fn what_makes_no_series_is_said() {
        let other = ScalingRun {
            what: Some("vgg16".into()),
            bytes: 1,
            ..bench(2, 9.0)
        };
        let scaling = scaling(vec![bench(1, 4.0), other]);
        assert_eq!(scaling.warnings.len(), 2, "{:?}", scaling.warnings);
        assert_eq!(super::scaling(Vec::new()).rows, []);
        let error = ScalingRun::from_bench(
            "x.json",
            &serde_json::json!({"np": 2, "step_ms": {"p10": 1.0}}),
        )
        .unwrap_err();
        assert!(
            error.to_string().contains("x.json") && error.to_string().contains("step_ms.p50"),
            "{error}"
        );
    }
}
