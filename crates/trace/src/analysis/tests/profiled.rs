//! Tests of the profile.

use super::job::Job;
use super::report;
use crate::analysis::profile::{ProfileError, extract};

#[test]
fn a_profile_has_the_tensors_and_the_measured_costs() {
    let job = Job {
        threshold: 8 << 20,
        ..Job::default()
    };
    let report = report(&job);
    let (profile, warnings) = extract(&report, None, false).unwrap();
    assert_eq!(warnings, [""; 0]);
    assert_eq!((profile.np, profile.tensors.len()), (Some(2), 40));
    assert_eq!(profile.fusion_threshold_bytes, Some(8 << 20));
    assert_eq!(profile.cycle_time_ms, Some(1.0));
    let bytes = profile.tensors.iter().map(|tensor| 4 * tensor.elements);
    let expected: u64 = job.tensors.iter().sum();
    assert_eq!(bytes.sum::<u64>(), expected);
    // Ready evenly over 40 ms after the forward pass of 10 ms, as far as the jitter allows.
    let ready: Vec<f64> = profile.tensors.iter().filter_map(|t| t.ready_us).collect();
    assert!(ready.len() == 40 && ready.is_sorted());
    assert!(
        (ready[39] - ready[0] - 39_000.0).abs() < 1_000.0,
        "{ready:?}"
    );
    let fit = report.bandwidth[0].fit.unwrap();
    assert_eq!(profile.costs.alpha_us, Some(fit.alpha_us));
    assert_eq!(profile.costs.us_per_mib, Some(fit.us_per_mib));
    let cached = report
        .negotiate_cached_ms
        .map(|quantiles| 1e3 * quantiles.p50);
    assert_eq!(profile.costs.negotiate_cached, cached);
}

#[test]
fn a_tensor_that_cannot_be_replayed_is_left_out_with_a_warning() {
    let mut report = report(&Job::default());
    let name = report.tensors[0].name.clone();
    report.tensors[0].elements = None;
    report.tensors[1].kind = crate::Kind::Allgather;
    let (profile, warnings) = extract(&report, None, false).unwrap();
    assert_eq!((profile.tensors.len(), profile.left_out.len()), (38, 2));
    let expected =
        format!("the profile omits `{name}` and 1 more: its number of elements is not in the file");
    assert_eq!(warnings, [expected]);
    report
        .tensors
        .iter_mut()
        .for_each(|tensor| tensor.dtype = None);
    let message = extract(&report, None, false).unwrap_err().to_string();
    assert!(
        message.contains(&format!("`{name}`: its type is not in the file")),
        "{message}"
    );
    report.tensors.clear();
    let empty = extract(&report, None, false);
    assert!(matches!(empty, Err(ProfileError::NoTensors)));
}

#[test]
fn ready_times_are_known_for_all_tensors_or_for_none_and_not_negative() {
    let mut report = report(&Job::default());
    report.tensors[0].ready_us[0] = Some(-3.0);
    report.tensors[1].ready_us = vec![None, Some(6000.0)];
    let (profile, _) = extract(&report, None, false).unwrap();
    let ready = |name: &str| {
        profile
            .tensors
            .iter()
            .find(|t| t.name == name)
            .unwrap()
            .ready_us
    };
    assert_eq!(ready(&report.tensors[0].name), Some(0.0));
    assert_eq!(ready(&report.tensors[1].name), Some(6000.0));
    report.tensors[1].ready_us.clear();
    let (profile, warnings) = extract(&report, None, false).unwrap();
    assert!(
        profile
            .tensors
            .iter()
            .all(|tensor| tensor.ready_us.is_none())
    );
    assert!(warnings[0].contains("was ready"), "{warnings:?}");
}
