//! Extraction of a profile ([`ronde_job::replay::profile`]) from a report.

use std::collections::HashSet;

use ronde_job::replay::Fit;
use ronde_job::replay::profile::PROFILE_DTYPES;
use ronde_job::replay::profile::{ELEMENTS_MAX, PROFILE_VERSION, TENSORS_MAX};
use ronde_job::replay::profile::{LeftOut, Profile, ProfileCosts, ProfileTensor};
use ronde_trace::Kind;
use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::{Bandwidth, PartKind, Summary, TensorRow};

/// Reason why there is no profile.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ProfileError {
    #[error("no profile: no tensor travelled in a steady step")]
    NoTensors,
    #[error(
        "no profile: none of the {count} tensors of a step can be replayed; the first, `{name}`: {why}"
    )]
    NoneUsable {
        count: usize,
        name: String,
        why: String,
    },
    #[error("no profile: a step has {count} tensors; at most {TENSORS_MAX} can be replayed")]
    TooMany { count: usize },
}

/// Returns the profile of a run, and warnings for the user.
///
/// # Errors
/// [`ProfileError`] if no tensor can be replayed, or if there are too many.
pub(crate) fn extract(
    report: &Report,
    fit: Option<Fit>,
) -> Result<(Profile, Vec<String>), ProfileError> {
    let (mut tensors, mut left_out) = (Vec::new(), Vec::new());
    let mut names = HashSet::new();
    for row in &report.tensors {
        match tensor(row, report.reference_rank, &mut names) {
            Ok(tensor) => tensors.push(tensor),
            Err(why) => left_out.push(LeftOut {
                name: row.name.clone(),
                op: row.kind.name().to_ascii_lowercase(),
                why: why.to_owned(),
            }),
        }
    }
    match (&left_out[..], tensors.len()) {
        ([], 0) => return Err(ProfileError::NoTensors),
        ([first, ..], 0) => {
            return Err(ProfileError::NoneUsable {
                count: left_out.len(),
                name: first.name.clone(),
                why: first.why.clone(),
            });
        }
        (_, count) if count > TENSORS_MAX => return Err(ProfileError::TooMany { count }),
        _ => {}
    }
    let warnings = [warning_of_left_out(&left_out), order(&mut tensors)];
    let steady = report.steady.as_ref();
    let fusion = report.fusion.as_ref();
    let profile = Profile {
        ronde_profile: PROFILE_VERSION,
        np: Some(report.ranks),
        step_ms: steady
            .map(|steady| steady.step_ms.p50)
            .filter(|ms| ms.is_finite()),
        cycle_time_ms: fusion.and_then(|fusion| fusion.cycle_time_ms),
        fusion_threshold_bytes: fusion
            .filter(|fusion| fusion.threshold_from_file)
            .and_then(|fusion| fusion.threshold_bytes),
        tensors,
        costs: costs(report),
        left_out,
        replay: fit,
        withheld: report.withheld.clone(),
    };
    Ok((profile, warnings.into_iter().flatten().collect()))
}

/// Returns a tensor in the form of the profile, or the reason why it is left out.
fn tensor(
    row: &TensorRow,
    reference_rank: u32,
    names: &mut HashSet<String>,
) -> Result<ProfileTensor, &'static str> {
    if row.kind != Kind::Allreduce {
        return Err("not an allreduce");
    }
    let dtype = row.dtype.as_deref().ok_or("its type is not in the file")?;
    let dtype = PROFILE_DTYPES
        .into_iter()
        .find(|known| known.name() == dtype)
        .ok_or("its type is one that the benchmark does not reduce")?;
    let elements = row
        .elements
        .ok_or("its number of elements is not in the file")?;
    if !(1..=ELEMENTS_MAX).contains(&elements) {
        return Err("it is empty or too large");
    }
    if row.name.is_empty() {
        return Err("it has no name");
    }
    if !names.insert(row.name.clone()) {
        return Err("another tensor has its name");
    }
    // A tensor may be ready before the step begins, since a step begins at the end of the step
    // before. A benchmark cannot reproduce that.
    let ready: Vec<Option<f64>> = row
        .ready_us
        .iter()
        .map(|ready| ready.filter(|us| us.is_finite()).map(|us| us.max(0.0)))
        .collect();
    let here = ready.get(reference_rank as usize).copied().flatten();
    Ok(ProfileTensor {
        name: row.name.clone(),
        op: Some(row.kind.name().to_ascii_lowercase()),
        dtype: dtype.name().to_owned(),
        elements,
        ready_us: here.or_else(|| ready.iter().copied().flatten().next()),
        ready_us_by_rank: ready,
        ready_jitter_us: row.ready_jitter_us,
    })
}

/// Sorts the tensors by ready time. If some have none, removes the ready times of all and returns a
/// warning.
fn order(tensors: &mut [ProfileTensor]) -> Option<String> {
    if let Some(without) = tensors.iter().find(|tensor| tensor.ready_us.is_none()) {
        let warning = format!(
            "the profile has no ready times: the files do not say when `{}` was ready",
            without.name
        );
        tensors.iter_mut().for_each(|tensor| tensor.ready_us = None);
        return Some(warning);
    }
    let ready = |tensor: &ProfileTensor| tensor.ready_us.unwrap_or(0.0);
    tensors.sort_by(|left, right| ready(left).total_cmp(&ready(right)));
    None
}

fn warning_of_left_out(left_out: &[LeftOut]) -> Option<String> {
    let first = left_out.first()?;
    let others = match left_out.len() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    Some(format!(
        "the profile is without `{}`{others}: {}",
        first.name, first.why
    ))
}

fn costs(report: &Report) -> ProfileCosts {
    let fit = line(&report.bandwidth).and_then(|bandwidth| bandwidth.fit);
    let us = |ms: f64| ms * 1e3;
    ProfileCosts {
        alpha_us: fit.map(|fit| fit.alpha_us),
        us_per_mib: fit.map(|fit| fit.us_per_mib),
        copy: report.steady.as_ref().and_then(copy_us_per_mib),
        negotiate_cached: report
            .negotiate_cached_ms
            .map(|quantiles| us(quantiles.p50)),
        negotiate_uncached: report
            .negotiate_uncached_ms
            .map(|quantiles| us(quantiles.p50)),
    }
}

/// Returns the collective with the most batches among those with a fitted line; an allreduce, if an
/// activity has that name.
fn line(bandwidth: &[Bandwidth]) -> Option<&Bandwidth> {
    let allreduce = |bandwidth: &Bandwidth| {
        let letters = bandwidth
            .activity
            .chars()
            .filter(|c| c.is_ascii_alphanumeric());
        let name: String = letters.map(|c| c.to_ascii_lowercase()).collect();
        name.contains("allreduce")
    };
    let batches = |bandwidth: &Bandwidth| bandwidth.points.iter().map(|point| point.n).sum::<u64>();
    bandwidth
        .iter()
        .filter(|bandwidth| bandwidth.fit.is_some())
        .max_by_key(|bandwidth| (allreduce(bandwidth), batches(bandwidth)))
}

/// Microseconds of copying in and out per MiB of payload, hidden or not: copies outside of the
/// collective and copies measured inside it.
fn copy_us_per_mib(steady: &Summary) -> Option<f64> {
    let mib = steady.bytes as f64 / f64::from(1 << 20);
    let copies = steady
        .parts
        .iter()
        .filter(|part| matches!(part.kind, PartKind::CopyIn | PartKind::CopyOut));
    let outside: f64 = copies.map(|part| part.total_ms.p50).sum();
    let inside = steady
        .streamed_ms
        .map_or(0.0, |[copy_in, _, copy_out, _]| copy_in + copy_out);
    Some((outside + inside) * 1e3 / mib).filter(|us| us.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::report::sample;
    use ronde_lab::bench::profile;

    #[test]
    fn what_is_written_is_read_by_the_benchmark() {
        let report = sample::report();
        let (profile, warnings) = extract(&report, None).unwrap();
        // The third tensor of the sample is an allgather.
        assert_eq!(
            warnings,
            ["the profile is without `metrics`: not an allreduce"]
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.json");
        std::fs::write(&path, serde_json::to_string(&profile).unwrap()).unwrap();
        let workload = profile::load(&path).unwrap();
        let tensors: Vec<_> = workload
            .tensors
            .iter()
            .map(|tensor| {
                (
                    tensor.name.as_str(),
                    tensor.elements(),
                    tensor.ready_fraction,
                )
            })
            .collect();
        // Ready after 5 and 20 ms, as in the sample.
        assert_eq!(
            tensors,
            [("fc.weight", 2_048_000, 0.25), ("conv1.weight", 9408, 1.0)]
        );
        assert_eq!(workload.recorded_backward_ms, Some(20.0));
    }

    #[test]
    fn costs_are_the_measured_ones() {
        let (profile, _) = extract(&sample::report(), None).unwrap();
        let json = serde_json::to_value(&profile).unwrap();
        assert_eq!(json["np"], 2);
        assert_eq!(json["step_ms"], 40.0);
        assert_eq!(json["fusion_threshold_bytes"], 128 << 20);
        assert_eq!(json["costs"]["alpha_us"], 200.0);
        assert_eq!(json["costs"]["us_per_mib"], 400.0);
        assert_eq!(json["costs"]["negotiate_cached"], 50.0);
        assert_eq!(json["costs"]["negotiate_uncached"], 150.0);
        // 8 MiB per step; 0.4 + 0.6 ms in the parts, nothing measured inside the collective.
        assert_eq!(json["costs"]["copy"], 125.0);
        assert_eq!(
            json["tensors"][0]["ready_us_by_rank"],
            serde_json::json!([5000.0, 6000.0])
        );
    }

    #[test]
    fn a_tensor_without_a_size_is_left_out_and_named() {
        let mut report = sample::report();
        report.tensors[0].elements = None;
        let (profile, warnings) = extract(&report, None).unwrap();
        assert_eq!(profile.tensors.len(), 1);
        assert_eq!(
            warnings,
            [
                "the profile is without `conv1.weight` and 1 more: its number of elements is not in the file"
            ]
        );
        report
            .tensors
            .iter_mut()
            .for_each(|tensor| tensor.dtype = None);
        let message = extract(&report, None).unwrap_err().to_string();
        assert!(
            message.contains("`conv1.weight`: its type is not in the file"),
            "{message}"
        );
        report.tensors.clear();
        assert!(matches!(
            extract(&report, None),
            Err(ProfileError::NoTensors)
        ));
    }

    #[test]
    fn ready_times_are_there_for_all_or_none_and_not_negative() {
        let mut report = sample::report();
        report.tensors[0].ready_us[0] = Some(-3.0);
        report.tensors[1].ready_us[0] = None; // rank 1 still has one
        let (profile, _) = extract(&report, None).unwrap();
        let ready: Vec<_> = profile
            .tensors
            .iter()
            .map(|tensor| tensor.ready_us)
            .collect();
        assert_eq!(ready, [Some(0.0), Some(6000.0)]);
        report.tensors[1].ready_us.clear();
        let (profile, warnings) = extract(&report, None).unwrap();
        assert!(
            profile
                .tensors
                .iter()
                .all(|tensor| tensor.ready_us.is_none())
        );
        assert!(
            warnings[1].contains("when `fc.weight` was ready"),
            "{warnings:?}"
        );
    }
}
