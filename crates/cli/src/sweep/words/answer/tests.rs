//! The answer to findings made by hand.

use super::*;
use ronde_lab::sweep::{Estimate, Point};

fn outcome(point: Point, ms: f64) -> Outcome {
    Outcome {
        point,
        ending: Ending::Measured,
        measurements: 9,
        failures: 0,
        step_ms: Some(ms),
        predicted_ms: None,
        above_best: None,
        against_default: None,
        tied: true,
    }
}

/// 16 MiB and 2.5 ms with 50 ms, the default with 50.4 ms; the first saves `gain` of the default's step.
fn finding(conclusion: Conclusion, basis: Basis, gain: f64, interval: Option<[f64; 2]>) -> Finding {
    let best = Point {
        fusion_threshold_bytes: 16 << 20,
        cycle_time_ms: 2.5,
        ..Point::default_of(2)
    };
    Finding {
        np: 2,
        basis,
        conclusion,
        points: vec![outcome(best, 50.0), outcome(Point::default_of(2), 50.4)],
        best: Some(0),
        default: Some(1),
        gain: Some(Estimate {
            value: gain,
            interval,
        }),
        ties_known: true,
        noise: None,
        knobs: Vec::new(),
        interaction: 0.0,
    }
}

fn first(conclusion: Conclusion, basis: Basis, gain: f64, interval: Option<[f64; 2]>) -> String {
    answer(&finding(conclusion, basis, gain, interval))[0].clone()
}

#[test]
fn what_saves_is_said_to_save() {
    let said = first(Conclusion::Faster, Basis::Confirmed, 0.02, Some([0.012, 0.028]));
    assert_eq!(
        said,
        "Fusion 16 MiB, cycle 2.5 ms saves 2.0 % (95 %: 1.2 to 2.8 %): 50.0 ms a step against the default's 50.4 ms."
    );
    let tiny = finding(
        Conclusion::Faster,
        Basis::Confirmed,
        0.0003,
        Some([0.0001, 0.0004]),
    );
    let said = answer(&tiny);
    assert!(said[0].contains(" saves less than 0.1 % (95 %: "), "{said:?}");
    assert!(said[1].contains("too little to matter"), "{said:?}");
}

#[test]
fn what_may_be_chance_names_both_directions() {
    let said = first(
        Conclusion::DefaultAsGood,
        Basis::Confirmed,
        0.01,
        Some([-0.005, 0.025]),
    );
    assert_eq!(
        said,
        "The default is as good as anything here: 50.4 ms a step. Fusion 16 MiB, cycle 2.5 ms took 50.0 ms; measured again \
         beside the default it saves 1.0 % (95 %: between 0.5 % longer and 2.5 % less), which may be chance."
    );
}

#[test]
fn what_did_worse_when_confirmed_saves_nothing() {
    let of = |basis, gain, interval| first(Conclusion::DefaultAsGood, basis, gain, interval);
    assert_eq!(
        of(Basis::Confirmed, -0.02, Some([-0.045, 0.006])),
        "The default is as good as anything here: 50.4 ms a step. Fusion 16 MiB, cycle 2.5 ms was ahead in the grid, but measured \
         again beside the default it takes 2.0 % longer (95 %: between 4.5 % longer and 0.6 % less)."
    );
    assert!(
        of(Basis::Verified, -0.02, Some([-0.045, 0.006]))
            .ends_with("seemed ahead with 50.0 ms, but beside the default it takes 2.0 % longer (95 %: between 4.5 % longer and 0.6 % less).")
    );
    assert!(
        of(Basis::Predicted, -0.004, Some([-0.01, 0.002])).ends_with(
            "is predicted to take 0.4 % longer (80 %: between 1.0 % longer and 0.2 % less) in most of the jobs that would have \
             left this recording."
        )
    );
    assert!(
        of(Basis::Confirmed, 0.0, Some([-0.01, 0.01]))
            .ends_with("takes as long (95 %: between 1.0 % longer and 1.0 % less): 50.0 ms.")
    );
    for share in [-0.3, -0.02, -0.0001, 0.0, 0.0001] {
        for basis in [Basis::Grid, Basis::Confirmed, Basis::Verified, Basis::Predicted] {
            for interval in [None, Some([share - 0.01, share + 0.01])] {
                let said = of(basis, share, interval);
                assert!(!said.contains("save"), "{said}");
            }
        }
    }
}

#[test]
fn no_answer_has_a_negative_saving() {
    let conclusions = [
        Conclusion::Faster,
        Conclusion::Unproven,
        Conclusion::DefaultAsGood,
    ];
    for conclusion in conclusions {
        for gain in [-0.5, -0.02, 0.0, 0.02, 0.5] {
            let said = first(
                conclusion,
                Basis::Confirmed,
                gain,
                Some([gain - 0.03, gain + 0.03]),
            );
            assert!(!said.contains('−'), "a sign where a word should be: {said}");
        }
    }
}

#[test]
fn where_the_default_is_best_the_others_are_bounded() {
    let mut finding = finding(Conclusion::DefaultAsGood, Basis::Grid, 0.0, None);
    (finding.best, finding.gain) = (Some(1), None);
    let against = |low: f64| {
        Some(Estimate {
            value: 0.02,
            interval: Some([low, 0.05]),
        })
    };
    finding.points[0].tied = false;
    finding.points[0].against_default = against(-0.011);
    assert!(answer(&finding)[0].ends_with("No other setting saves more than 1.1 % of it (95 %)."));
    finding.points[0].against_default = against(0.01);
    assert!(answer(&finding)[0].ends_with("No other setting takes less (95 %)."));
}

#[test]
fn of_very_many_ties_the_number_is_what_counts() {
    let mut finding = finding(Conclusion::DefaultAsGood, Basis::Grid, 0.001, None);
    for fusion_mb in 1..=8 {
        let point = Point {
            fusion_threshold_bytes: fusion_mb << 20,
            ..Point::default_of(2)
        };
        finding.points.push(Outcome {
            tied: fusion_mb < 8,
            ..outcome(point, 50.5)
        });
    }
    let said = answer(&finding);
    assert_eq!(
        said[1],
        "8 of the 9 other settings tie with the best, that is, cannot be told from it."
    );
    finding.points.truncate(4);
    let said = answer(&finding);
    assert!(
        said[1].starts_with(
            "3 other settings tie with the best, that is, cannot be told from it: the default; fusion 1 MiB"
        ),
        "{said:?}"
    );
}
