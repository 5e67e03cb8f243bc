//! Extraction of a profile ([`ronde_job::replay::profile`]) from a report.

use std::collections::HashSet;

use super::Report;
use super::report::{Bandwidth, PartKind, Quantiles, Summary, TensorRow};
use crate::Kind;
use ronde_job::replay::Fit;
use ronde_job::replay::profile::{
    ELEMENTS_MAX, LeftOut, PROFILE_DTYPES, PROFILE_VERSION, Profile, ProfileCosts, ProfileTensor,
    TENSORS_MAX,
};

/// Reason why there is no profile.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProfileError {
    /// The run has no steady step with a tensor.
    #[error("no profile: the steady steps have no tensor")]
    NoTensors,
    /// The benchmark can run none of the tensors.
    #[error(
        "no profile: none of the {count} tensors of a step can be replayed; the first, `{name}`: \
         {why}"
    )]
    NoneUsable {
        /// Number of tensors.
        count: usize,
        /// Name of the first tensor.
        name: String,
        /// Reason why it cannot be run.
        why: String,
    },
    /// A step has more tensors than a profile can have.
    #[error("no profile: a step has {count} tensors; at most {TENSORS_MAX} can be replayed")]
    TooMany {
        /// Number of tensors.
        count: usize,
    },
}

/// Returns the profile of a run whose allreduces are hierarchical or not, and warnings for the user.
///
/// # Errors
/// [`ProfileError`] if no tensor can be replayed, or if there are too many.
pub fn extract(
    report: &Report,
    fit: Option<Fit>,
    is_hierarchical: bool,
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
    let step_ms = report.steady.as_ref().map(|steady| steady.step_ms.p50);
    let fusion = report.fusion.as_ref();
    let stated = fusion.filter(|fusion| fusion.threshold_from_file);
    let profile = Profile {
        ronde_profile: PROFILE_VERSION,
        np: (!report.ranks_unknown).then_some(report.ranks),
        step_ms: step_ms.filter(|ms| ms.is_finite()),
        cycle_time_ms: fusion.and_then(|fusion| fusion.cycle_time_ms),
        fusion_threshold_bytes: stated.and_then(|fusion| fusion.threshold_bytes),
        host_threshold_bytes: stated.and_then(|fusion| fusion.host_threshold_bytes),
        is_hierarchical,
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
        .ok_or("the benchmark does not reduce its type")?;
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
    let since_step = |ready: &Option<f64>| ready.filter(|us| us.is_finite()).map(|us| us.max(0.0));
    let ready: Vec<Option<f64>> = row.ready_us.iter().map(since_step).collect();
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
        "the profile omits `{}`{others}: {}",
        first.name, first.why
    ))
}

fn costs(report: &Report) -> ProfileCosts {
    let fit = line(&report.bandwidth).and_then(|bandwidth| bandwidth.fit);
    let median_us = |ms: Option<Quantiles>| ms.map(|quantiles| quantiles.p50 * 1e3);
    ProfileCosts {
        alpha_us: fit.map(|fit| fit.alpha_us),
        us_per_mib: fit.map(|fit| fit.us_per_mib),
        copy: report.steady.as_ref().and_then(copy_us_per_mib),
        negotiate_cached: median_us(report.negotiate_cached_ms),
        negotiate_uncached: median_us(report.negotiate_uncached_ms),
    }
}

/// Returns the collective with the most batches among those with a fitted line; an allreduce, if an
/// activity has that name.
fn line(bandwidth: &[Bandwidth]) -> Option<&Bandwidth> {
    let allreduce = |bandwidth: &Bandwidth| {
        let name = bandwidth.activity.to_ascii_lowercase();
        name.replace(|c: char| !c.is_ascii_alphanumeric(), "")
            .contains("allreduce")
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
