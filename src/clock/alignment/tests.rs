use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000_000;

/// True relation of rank 0's clock to this rank's, which the estimator has to find.
#[derive(Clone, Copy, Debug)]
struct Truth {
    offset_ns: i64,
    drift_ppb: i64,
}

impl Truth {
    fn reference(&self, own: Nanos) -> Nanos {
        let grown = i128::from(own.0) * i128::from(self.drift_ppb);
        nanos(i128::from(own.0) + i128::from(self.offset_ns) + grown.div_euclid(BILLION))
    }

    /// A round that begins at `sent`; its messages take `out` and `back`, ns.
    fn round(&self, sent: Nanos, (out, back): (u64, u64)) -> Round {
        let stamped = sent + Duration::from_nanos(out);
        Round {
            sent,
            stamp: self.reference(stamped),
            received: stamped + Duration::from_nanos(back),
        }
    }
}

fn round(sent: u64, stamp: u64, received: u64) -> Round {
    let [sent, stamp, received] = [sent, stamp, received].map(Nanos);
    Round {
        sent,
        stamp,
        received,
    }
}

#[test]
fn the_shortest_round_counts_and_its_error_is_at_most_half_its_time() {
    let mut estimator = Estimator::default();
    // Rank 0 is 1000 ns ahead. The messages of the second round took 20 and 40 ns, the others
    // longer.
    let rounds = [
        round(100, 1150, 300),
        round(500, 1520, 560),
        round(700, 1800, 900),
    ];
    let alignment = estimator.measured(&rounds).expect("three rounds");
    assert_eq!((alignment.at, alignment.offset_ns), (Nanos(530), 990));
    assert_eq!(alignment.error_ns, 30 + 1);
    assert_eq!(
        (alignment.drift_ppb, alignment.drift_error_ppb),
        (0, 1_001_000)
    ); // nothing known of it
    assert_eq!(alignment.to_reference(Nanos(530)), Nanos(1520));
    assert_eq!(alignment.to_own(Nanos(1520)), Nanos(530));
    // A second later it may have drifted by 1001 µs either way.
    assert_eq!(
        alignment.error_at(Nanos(530 + SECOND)),
        Duration::from_nanos(1_001_031)
    );
}

#[test]
fn drift_is_stated_when_it_exceeds_what_the_measurements_leave_open() {
    let mut estimator = Estimator::default();
    let at = |second: u64, offset: u64| {
        round(
            second * SECOND - 500,
            second * SECOND + offset,
            second * SECOND + 500,
        )
    };
    estimator.measured(&[at(1, 0)]);
    // 1 µs a second, known to 1 µs: it may be none.
    let early = estimator.measured(&[at(2, 1_000)]).expect("a round");
    assert_eq!(early.drift_ppb, 0);
    assert!((2_000..4_000).contains(&early.drift_error_ppb), "{early:?}");
    // 100 µs in 100 s, known to 1 µs: 10 ppb.
    let late = estimator.measured(&[at(101, 100_000)]).expect("a round");
    assert!((late.drift_ppb - 1_000).abs() <= 1, "{late:?}");
    assert_eq!(
        late.drift_error_ppb - WANDER_PPB,
        11,
        "1002 ns over 100 s, rounded up"
    );
    assert_eq!(
        late.to_reference(Nanos(111 * SECOND)),
        Nanos(111 * SECOND + 110_000)
    );
}

#[test]
fn after_a_clock_was_set_only_what_came_since_counts() {
    let mut estimator = Estimator::default();
    let before = Truth {
        offset_ns: 5_000,
        drift_ppb: 20_000,
    };
    let after = Truth {
        offset_ns: -80_000_000_000,
        drift_ppb: -30_000,
    };
    let mut measure = |truth: Truth, second: u64| {
        let round = truth.round(Nanos((1_000 + second) * SECOND), (10_000, 30_000));
        estimator.measured(&[round]).expect("a round")
    };
    let steady = (1..6).map(|minute| measure(before, 60 * minute)).last();
    assert_eq!(
        steady.map(|alignment| (alignment.drift_ppb - 20_000).abs() < 500),
        Some(true)
    );
    let set = measure(after, 400);
    assert_eq!((set.drift_ppb, set.drift_error_ppb), (0, 1_001_000));
    let steady = (7..12).map(|minute| measure(after, 60 * minute)).last();
    assert_eq!(
        steady.map(|alignment| (alignment.drift_ppb + 30_000).abs() < 500),
        Some(true)
    );
}

#[test]
fn a_clock_that_went_back_says_nothing() {
    let mut estimator = Estimator::default();
    assert_eq!(estimator.measured(&[round(500, 600, 400)]), None);
    assert_eq!(estimator.measured(&[]), None);
    assert!(
        estimator
            .measured(&[round(500, 600, 400), round(500, 600, 500)])
            .is_some()
    );
}

#[test]
fn the_same_clock_is_the_identity() {
    let same = Alignment::default();
    for own in [0, 1, u64::MAX] {
        assert_eq!(
            (same.to_reference(Nanos(own)), same.to_own(Nanos(own))),
            (Nanos(own), Nanos(own))
        );
        assert_eq!(same.error_at(Nanos(own)), Duration::ZERO);
    }
    // Before rank 0's machine was started there is no time.
    let later = Alignment {
        offset_ns: -1_000,
        ..same
    };
    assert_eq!(later.to_reference(Nanos(400)), Nanos(0));
}

#[test]
fn clocks_are_compared_at_once_soon_again_and_then_every_half_minute() {
    let mut schedule = Schedule::new();
    let mut times = Vec::new();
    for second in 7..150 {
        let now = Nanos(second * SECOND);
        if schedule.is_due(now) {
            times.push(second - 7);
            schedule.done(now);
        }
    }
    assert_eq!(times, [0, 1, 3, 7, 15, 31, 61, 91, 121]);
}

/// Delays of a message there and back, ns: mostly quick, now and then slow.
fn delays() -> impl Strategy<Value = (u64, u64)> {
    let delay = || prop_oneof![4 => 1_000_u64..100_000, 1 => 0_u64..50_000_000];
    (delay(), delay())
}

fn truths() -> impl Strategy<Value = Truth> {
    let offset_ns = -1_000 * SECOND as i64..1_000 * SECOND as i64;
    (offset_ns, -500_000_i64..500_000).prop_map(|(offset_ns, drift_ppb)| Truth {
        offset_ns,
        drift_ppb,
    })
}

proptest! {
    /// Whatever the delays, the truth is within what is stated: at the measurement and until the
    /// next one.
    #[test]
    fn the_true_offset_is_always_within_the_bound(
        truth in truths(),
        measurements in prop::collection::vec((1_u64..60_000, prop::collection::vec(delays(), 1..ROUNDS)), 1..40),
    ) {
        let mut estimator = Estimator::default();
        let mut now = Nanos(2_000 * SECOND);
        for (pause_ms, delays) in measurements {
            let mut rounds = Vec::new();
            for delay in delays {
                let round = truth.round(now, delay);
                now = round.received;
                rounds.push(round);
            }
            let alignment = estimator.measured(&rounds).expect("clocks that go forward");
            let next = now + Duration::from_millis(pause_ms);
            for own in [alignment.at, now, next] {
                let off = truth.reference(own).0.abs_diff(alignment.to_reference(own).0);
                // Rounding to whole nanoseconds, here and there.
                prop_assert!(
                    u128::from(off) <= alignment.error_at(own).as_nanos() + 2,
                    "{} ns off at {:?} by {:?}", off, own, alignment
                );
                prop_assert!(alignment.to_own(alignment.to_reference(own)).0.abs_diff(own.0) <= 2);
            }
            let drift_off = truth.drift_ppb.abs_diff(alignment.drift_ppb);
            prop_assert!(drift_off <= alignment.drift_error_ppb, "{:?}", alignment);
            now = next;
        }
    }

    /// With messages of 0.1 ms, drift is known to a few millionths after five minutes.
    #[test]
    fn drift_is_recovered(
        truth in truths(),
        delays in prop::collection::vec((0_u64..100_000, 0_u64..100_000), 11),
    ) {
        let mut estimator = Estimator::default();
        let measured = delays.into_iter().enumerate().map(|(half_minute, delay)| {
            let sent = Nanos((2_000 + 30 * half_minute as u64) * SECOND);
            estimator.measured(&[truth.round(sent, delay)])
        });
        let last = measured.last().flatten().expect("eleven rounds");
        prop_assert!(last.drift_error_ppb < 2_000, "{:?}", last);
        let stated = if last.drift_ppb == 0 { truth.drift_ppb.abs() < 1_000 } else { true };
        prop_assert!(stated && truth.drift_ppb.abs_diff(last.drift_ppb) < 1_000, "{:?}", last);
    }
}
