use super::*;
use crate::Parameter;

fn space() -> Space {
    Space::new(vec![
        Parameter::linear("x", 0.0, 1.0, 11),
        Parameter::linear("y", 0.0, 1.0, 11),
        Parameter::boolean("b"),
    ])
    .unwrap()
}

/// 80 settings of a bowl in x that knows nothing of y, 5 % faster with b; `noise` is normal.
fn bowl(noise: f64) -> Vec<Seen> {
    let normal = Normal::standard();
    let mut rng = generator(3, 0);
    let mut uniform = || rng.random::<f64>();
    (0..80)
        .map(|_| {
            let (x, y, b) = (uniform(), uniform(), f64::from(u8::from(uniform() > 0.5)));
            let truth = 3.0 + 0.5 * (x - 0.6) * (x - 0.6) - 0.05 * b;
            Seen {
                point: space().point(&[x, y, b]).unwrap(),
                log_time: truth + noise * normal.inverse_cdf(uniform()),
                variance: 0.0,
            }
        })
        .collect()
}

fn at(posterior: &Posterior, values: [f64; 3]) -> Expectation {
    posterior.at(&[posterior.space().point(&values).unwrap()])[0]
}

#[test]
fn the_noise_and_the_surface_are_found() {
    for noise in [0.01, 0.05] {
        let (truth, seen) = (bowl(0.0), bowl(noise));
        // What these eighty happen to scatter by.
        let squares = truth
            .iter()
            .zip(&seen)
            .map(|(truth, seen)| (seen.log_time - truth.log_time).powi(2));
        let drawn = (squares.sum::<f64>() / 80.0).sqrt();
        let posterior = Posterior::fit(space(), &seen).unwrap();
        let found = posterior.noise();
        assert!(
            found.low < drawn && drawn < found.high,
            "{drawn}: {found:?}"
        );
        assert!(
            (0.8..1.25).contains(&(found.sd / drawn)),
            "{drawn}: {found:?}"
        );
        let bottom = at(&posterior, [0.6, 0.5, 1.0]);
        assert!(
            (bottom.mean - 2.95).abs() < 3.0 * bottom.sd.max(0.005),
            "{bottom:?}"
        );
        assert!(
            bottom.sd < noise,
            "the mean of many is better than one: {bottom:?}"
        );
    }
}

#[test]
fn draws_have_the_moments_of_the_posterior() {
    let posterior = Posterior::fit(space(), &bowl(0.03)).unwrap();
    let values = [[0.6, 0.5, 1.0], [0.0, 0.2, 0.0], [0.6, 0.5, 1.0]];
    let points = values.map(|values| posterior.space().point(&values).unwrap());
    let draws = posterior.draws(&points, 4000, 1);
    assert_eq!((draws.len(), draws[0].len()), (4000, 3));
    for (index, expected) in posterior.at(&points).into_iter().enumerate() {
        let mean = draws.iter().map(|draw| draw[index]).sum::<f64>() / 4000.0;
        let square = draws
            .iter()
            .map(|draw| (draw[index] - mean).powi(2))
            .sum::<f64>();
        let sd = (square / 4000.0).sqrt();
        assert!(
            (mean - expected.mean).abs() < 0.1 * expected.sd,
            "{mean} {expected:?}"
        );
        assert!((sd / expected.sd - 1.0).abs() < 0.1, "{sd} {expected:?}");
    }
    // One setting, two names: one value in each surface.
    assert!(draws.iter().all(|draw| (draw[0] - draw[2]).abs() < 1e-5));
    assert_eq!(draws, posterior.draws(&points, 4000, 1));
}

#[test]
fn known_noise_leaves_little_to_find() {
    let mut seen = bowl(0.05);
    seen.iter_mut().for_each(|seen| seen.variance = 0.05 * 0.05);
    let noise = Posterior::fit(space(), &seen).unwrap().noise();
    assert!(noise.sd < 0.015, "{noise:?}");
}

#[test]
fn few_equal_or_unusable_measurements() {
    let point = space().point(&[0.5, 0.5, 0.0]).unwrap();
    let seen = |log_time| Seen {
        point,
        log_time,
        variance: 0.0,
    };
    assert!(Posterior::fit(space(), &[]).is_none());
    assert!(Posterior::fit(space(), &[seen(f64::NAN)]).is_none());
    let one = Posterior::fit(space(), &[seen(4.0)]).unwrap();
    let expected = one.at(&[point])[0];
    assert!(
        (expected.mean - 4.0).abs() < 1e-9 && expected.sd < 0.1,
        "{expected:?}"
    );
    let equal = Posterior::fit(space(), &vec![seen(4.0); 30]).unwrap();
    assert!(equal.noise().sd < 0.005 && equal.at(&[point])[0].sd < 0.01);
    // Everything fixed: nothing but noise.
    let fixed = Space::new(vec![Parameter::linear("x", 0.0, 1.0, 3).fixed(0.5)]).unwrap();
    let point = fixed.point(&[0.5]).unwrap();
    let rows = [1.0, 1.1, 0.9, 1.05].map(|log_time| Seen {
        point,
        log_time,
        variance: 0.0,
    });
    let posterior = Posterior::fit(fixed, &rows).unwrap();
    assert!(
        (0.03..0.2).contains(&posterior.noise().sd),
        "{:?}",
        posterior.noise()
    );
    assert_eq!(posterior.draws(&[point], 10, 0).len(), 10);
}

#[test]
fn a_cliff_is_not_a_signal() {
    let mut seen = bowl(0.01);
    seen[0].log_time = 1e300;
    let posterior = Posterior::fit(space(), &seen).unwrap();
    let bottom = at(&posterior, [0.6, 0.5, 1.0]);
    assert!((bottom.mean - 2.95).abs() < 0.1, "{bottom:?}");
}

#[test]
fn indices_come_as_often_as_their_shares_say() {
    let chosen = resampled(&[0.5, 0.0, 0.25, 0.25]);
    let count = |index| chosen.iter().filter(|&&chosen| chosen == index).count();
    assert_eq!([0, 1, 2, 3].map(count), [16, 0, 8, 8]);
    assert_eq!(chosen.len(), PARTS);
    assert!(resampled(&[f64::NAN]).is_empty());
}
