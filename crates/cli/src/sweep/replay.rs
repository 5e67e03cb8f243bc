//! Predictions for a sweep: simulates the step times of the grid from a recording, and writes the
//! job that verifies the best settings.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::error::Error;
use crate::present::output::save_json;
use crate::present::units as number;
use crate::present::units::bytes;
use crate::replay::job::{Job, Recording};
use ronde::knobs::Link;
use ronde_job::replay::network::{Target, Topology};
use ronde_job::replay::{Collective, Forecast};
use ronde_lab::sweep::{
    Conclusion, Jobs, Phase, Point, PointKey, Row, Status, StepSummary, Verdict, verdict_with,
};

/// Most predictions of one sweep; each simulates two dozen jobs.
const PREDICTIONS_MOST: usize = 1 << 16;
/// Smallest share of the step after its last result, which the benchmark does not reproduce, that
/// is reported.
const TAIL_TOLD: f64 = 0.01;
/// Range of plausible bandwidths of a link, 10⁹ bytes a second.
const GB_PER_S: RangeInclusive<f64> = 0.001..=2000.0;
/// Name of the profile in the folder, for the benchmark.
pub(super) const PROFILE: &str = "profile.json";

/// Predictions of a grid from a recording.
pub(super) struct Predictions {
    job: Job,
    /// For each point, the step times in ms of all jobs that fit the recording.
    jobs: Vec<(Point, Vec<f64>)>,
    /// Points whose messages are far beyond those of the recording.
    outside: HashSet<PointKey>,
    rows: Vec<Row>,
}

/// Recorded job, converted for the benchmark.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reenacted {
    /// The profile with its tensors and their ready times.
    pub(super) profile: PathBuf,
    /// Length of the backward pass, in ms.
    pub(super) compute_ms: f64,
    /// Link with the cost of the recorded allreduces.
    pub(super) link: Option<Link>,
    /// Description of the job.
    pub(super) words: String,
    /// Differences from the recorded job.
    pub(super) warnings: Vec<String>,
}

/// Reads the recording in `paths`, to which a sweep never writes.
pub(super) fn read(paths: &[PathBuf]) -> Result<Job, Error> {
    Job::read(&Recording {
        paths,
        outputs: &[],
        steps: None,
        ranks_per_host: None,
    })
}

impl Predictions {
    /// Predicts the step time of `job` at each of `points`.
    ///
    /// # Errors
    /// [`Error::TooManyPredictions`]; [`Error::Project`] if ranks would be on hosts that were not
    /// measured.
    pub(super) fn new(mut job: Job, points: Vec<Point>) -> Result<Self, Error> {
        if points.len() > PREDICTIONS_MOST {
            return Err(Error::TooManyPredictions {
                settings: points.len(),
                targets: 1,
                most: PREDICTIONS_MOST,
            });
        }
        let began = Instant::now();
        let rules = job.fit.rules;
        let is_outside = |point: &&Point| job.fit.is_outside(rules, &point.setting());
        let outside: HashSet<PointKey> = points.iter().filter(is_outside).map(Point::key).collect();
        let (mut jobs, mut rows) = (Vec::new(), Vec::new());
        // The points of a number of ranks follow each other.
        for points in points.chunk_by(|a, b| a.np == b.np) {
            let target = target(&job, points[0].np);
            let mut forecast = Forecast::new(&job.fit, &target, rules)?;
            for point in points {
                let steps = forecast.steps_us(&point.setting());
                let steps: Vec<f64> = steps.iter().map(|us| us / 1e3).collect();
                rows.push(row(*point, &steps, began.elapsed().as_secs_f64()));
                jobs.push((*point, steps));
            }
        }
        job.warnings.extend(extrapolated(outside.len() as u64));
        Ok(Self {
            job,
            jobs,
            outside,
            rows,
        })
    }

    /// Predictions as rows of `sweep.csv`.
    pub(super) fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Verdict on `rows`: the predictions, and the measurements that verify them.
    pub(super) fn verdict(&self, rows: &[Row]) -> Verdict {
        let jobs = Jobs {
            times: &self.jobs,
            withheld: self.job.withheld(),
            outside: self.outside.clone(),
        };
        verdict_with(rows, &jobs)
    }

    /// File name of the recording, without its folder.
    pub(super) fn name(&self) -> String {
        let name = Path::new(&self.job.name).file_name();
        name.map_or_else(
            || self.job.name.clone(),
            |name| name.to_string_lossy().into_owned(),
        )
    }

    /// Short description of the recorded job.
    pub(super) fn how(&self) -> String {
        let fit = &self.job.fit;
        format!(
            "replayed: {} of {} a step, recorded on {}",
            number::counted(fit.workload.tensors.len() as u64, "tensor"),
            bytes(fit.workload.bytes()),
            number::counted(fit.place.ranks.into(), "rank"),
        )
    }

    /// Warnings about the accuracy of the predictions.
    pub(super) fn warnings(&self) -> &[String] {
        &self.job.warnings
    }

    /// The `most` best predicted points for each number of ranks, each followed by the default.
    pub(super) fn candidates(&self, most: usize) -> Vec<Point> {
        let verdict = self.verdict(&self.rows);
        let mut candidates = Vec::new();
        for finding in &verdict.findings {
            let sound = finding.conclusion != Conclusion::Nothing;
            let others = finding
                .points
                .iter()
                .map(|outcome| outcome.point)
                .filter(|point| !point.is_default());
            candidates.extend(others.take(most).filter(|_| sound));
            candidates.extend(finding.default().map(|default| default.point));
        }
        candidates
    }

    /// Writes the recorded job to `folder` as a profile for the benchmark. The link has the cost of
    /// the recorded allreduces.
    ///
    /// # Errors
    /// If the recording has no tensors that the benchmark can run, or the file
    /// cannot be written.
    pub(super) fn reenacted(&self, folder: &Path) -> Result<Reenacted, Error> {
        let profile = match &self.job.profile {
            Ok(profile) => profile,
            Err(error) => return Err(error.clone().into()),
        };
        let path = folder.join(PROFILE);
        save_json(&path, profile)?;
        let ready = profile.tensors.iter().filter_map(|tensor| tensor.ready_us);
        let compute_ms = ready.fold(0.0, f64::max) / 1e3;
        let link = self.job.fit.costs.flat.first().and_then(link);
        let mut words = format!(
            "the tensors of {}, ready over {} as recorded",
            self.name(),
            number::ms(compute_ms)
        );
        if let Some(link) = link {
            words += &format!(
                ", link shaped to the time of its allreduces ({} µs and {} GB/s)",
                number::digits(link.alpha_us),
                number::digits(link.gb_per_s)
            );
        }
        Ok(Reenacted {
            profile: path,
            compute_ms,
            link,
            words,
            warnings: self.differences(profile.left_out.len()),
        })
    }

    /// Differences between the benchmark and the recorded job.
    fn differences(&self, left_out: usize) -> Vec<String> {
        let fit = &self.job.fit;
        let mut differences = Vec::new();
        if fit.costs.flat.first().and_then(link).is_none() {
            differences.push(
                "the recorded allreduces do not determine a bandwidth, so the benchmark's link is not shaped".to_owned(),
            );
        }
        if fit.workload.tail_us > TAIL_TOLD * fit.measured_us {
            differences.push(format!(
                "the recorded step continues for {} after its last result (mostly the optimizer), which the benchmark does not \
                 reproduce: measured steps are shorter than predicted ones by that time",
                number::ms(fit.workload.tail_us / 1e3)
            ));
        }
        if left_out > 0 {
            differences.push(format!(
                "the benchmark runs without {} that it cannot reduce",
                number::counted(left_out as u64, "tensor")
            ));
        }
        differences
    }
}

/// States that the predictions of this number of settings are extrapolations.
fn extrapolated(settings: u64) -> Option<String> {
    (settings > 0).then(|| {
        format!(
            "{} need many more or far larger messages than the recording has: the predictions are extrapolations, and no such \
             setting is recommended unless --verify measures it",
            number::counted(settings, "setting")
        )
    })
}

/// Link with the cost of a collective; `None` if its bandwidth is not that of existing hardware,
/// because the recording does not determine it.
fn link(cost: &Collective) -> Option<Link> {
    let gb_per_s = 1e-3 / cost.us_per_byte;
    GB_PER_S.contains(&gb_per_s).then(|| Link {
        alpha_us: cost.alpha_us.max(0.0),
        gb_per_s,
    })
}

/// Placement of `np` ranks like that of the job: on one host if the job was on one.
fn target(job: &Job, np: u32) -> Target {
    let place = &job.fit.place;
    let same = Target::same(place);
    if np == place.ranks {
        return same;
    }
    let one_host = place.ranks <= place.ranks_per_host;
    Target {
        topology: Topology::new(np, if one_host { np } else { place.ranks_per_host }),
        ..same
    }
}

fn row(point: Point, jobs: &[f64], at_s: f64) -> Row {
    Row {
        point,
        phase: Phase::Predicted,
        block: 0,
        status: Status::Done,
        steps: 0,
        times: StepSummary::new(jobs),
        at_s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ronde_job::gate::Withheld;

    /// The model of a recording without the settings in force assumes them, so its predictions
    /// support no recommendation, as in `ronde replay`.
    #[test]
    fn unknown_settings_of_the_recording_support_no_recommendation() {
        let profile = |stated: &str| {
            format!(
                r#"{{"ronde_profile": 1, "np": 2, "step_ms": 20.0, {stated} "tensors": [
                {{"name": "a", "dtype": "float32", "elements": 250000, "ready_us": 10000}},
                {{"name": "b", "dtype": "float32", "elements": 250000, "ready_us": 10000}}]}}"#
            )
        };
        let withheld = |stated: &str| {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), profile(stated)).unwrap();
            let job = read(&[file.path().to_owned()]).unwrap();
            let predictions = Predictions::new(job, vec![Point::default_of(2)]).unwrap();
            let verdict = predictions.verdict(predictions.rows());
            verdict.findings[0].withheld()
        };
        let settings = vec!["fusion threshold".to_owned()];
        assert_eq!(
            withheld(r#""cycle_time_ms": 1.0,"#),
            Some(Withheld::UnknownSettings { settings })
        );
        let stated = r#""cycle_time_ms": 1.0, "fusion_threshold_bytes": 134217728,"#;
        assert_eq!(withheld(stated), None);
    }

    #[test]
    fn a_link_has_a_plausible_bandwidth() {
        let of = |alpha_us, us_per_byte| {
            link(&Collective {
                alpha_us,
                us_per_byte,
            })
        };
        let expected = Link {
            alpha_us: 0.0,
            gb_per_s: 2.5,
        };
        assert_eq!(of(-1.0, 4e-4), Some(expected));
        // 18,874 GB/s, no time per byte, and 100 kB/s.
        for us_per_byte in [1e-3 / 18_874.0, 0.0, -1e-6, f64::NAN, 10.0] {
            assert_eq!(of(10.0, us_per_byte), None);
        }
    }
}
