//! Tests of reviews of whole logs.

use ronde_tuner::read_log;

use super::*;
use crate::review::trial::tests::{HOROVOD, RONDE};

/// Returns the review of a log that has one search.
pub(super) fn reviewed(header: &str, rows: &str) -> Review {
    reviewed_with(header, rows, &Known::default())
}

pub(super) fn reviewed_with(header: &str, rows: &str, known: &Known) -> Review {
    let log = read_log(&format!("{header}{rows}")).unwrap();
    let mut reviews = review(&log, "a.csv", known);
    assert_eq!(reviews.len(), 1);
    reviews.remove(0)
}

#[test]
fn a_header_alone_is_a_review_without_trials() {
    for header in [HOROVOD, RONDE] {
        let review = reviewed(header, "");
        assert!(review.tried.is_none() && review.best.is_none() && review.next.is_none());
        assert!(review.knobs.is_empty() && review.trail.is_empty() && !review.ending.finished);
        assert!(serde_json::to_value(&review).is_ok());
    }
}

#[test]
fn equal_settings_show_only_noise() {
    // Horovod with both numbers fixed: the same setting, 21 times.
    let rows: String = (0..21)
        .map(|i| format!("0,0,0, 1,1,32,{}\n", 300 + 10 * (i * 7 % 11)))
        .collect();
    let review = reviewed(HOROVOD, &rows);
    let tried = review.tried.unwrap();
    assert_eq!((tried.trials, tried.settings), (21, 1));
    let Scatter {
        sd, differences, ..
    } = review.noise.replicates.unwrap();
    assert!(differences == 20 && (0.06..0.13).contains(&sd), "{sd}");
    let best = review.best.unwrap();
    assert!(best.ties.is_empty() && best.luck > 0.05, "{best:?}");
    assert_eq!(best.choice.probability_best, 1.0);
    let mut importances = review.knobs.iter().map(|effect| effect.importance);
    assert!(importances.all(|importance| importance == Importance::Fixed));
}

#[test]
fn rondes_search_after_a_drift_is_a_second_one() {
    let rows = "0,0,0,1,1,128,500,default,0,10,61,1,,\n0,0,0,1,1,128,500,final,,10,61,,,\n\
                0,0,0,1,1,128,400,default,0,10,75,1,,\n0,0,0,1,1,128,400,best,0,10,75,1,,\n";
    let log = read_log(&format!("{RONDE}{rows}")).unwrap();
    let reviews = review(&log, "a.csv", &Known::default());
    let of = |review: &Review| (review.source.clone(), review.ending.finished);
    let expected = [("a.csv, search 1", true), ("a.csv, search 2", false)];
    let expected = expected.map(|(source, finished)| (source.to_owned(), finished));
    assert_eq!(reviews.iter().map(of).collect::<Vec<_>>(), expected);
}

#[test]
fn settings_that_no_job_can_have_are_ignored() {
    let review = reviewed(
        HOROVOD,
        "0,0,0, 1,5,4,100\n0,0,0, 1,0,0,100\n0,0,0, 1,1e300,4,100\n0,0,0, 1,5,4,1e308\n0,0,0, 1,5,1e-300,5\n",
    );
    assert_eq!(review.tried.as_ref().unwrap().trials, 4);
    assert!(
        review.warnings[0].contains("1 row without"),
        "{:?}",
        review.warnings
    );
    let text = serde_json::to_string(&review).unwrap();
    assert!(!text.contains("null,null,null"), "{text}");
}

#[test]
fn the_public_log_of_2020() {
    let package = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = package
        .ancestors()
        .map(|folder| folder.join("tests/fixtures/horovod-autotune.csv"));
    let path = paths.find(|path| path.exists()).unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    let review = &review(&read_log(&text).unwrap(), "public", &Known::default())[0];
    assert!(!review.ending.finished && review.gain.default.is_none());
    let tried = review.tried.as_ref().unwrap();
    assert_eq!((tried.trials, tried.combinations), (37, 1));
    // Four trials within 1 % of 17.5 ms and 19.66 MB, with scores from 517 to 559; two at 25.1 ms
    // and 14.8 MB, with 549 and 480.
    let replicates = review.noise.replicates.unwrap();
    assert!((0.03..0.08).contains(&replicates.sd), "{replicates:?}");
    let best = review.best.as_ref().unwrap();
    assert_eq!(best.choice.measured, 585.899);
    assert!(
        best.luck > 0.05 && best.choice.probability_best < 0.5 && best.ties.len() > 5,
        "{best:?}"
    );
}
