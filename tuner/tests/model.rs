//! Searches with a model's belief: right, wrong, and of no use.

use std::sync::Arc;

use ronde_tuner::{
    Belief, Model, Next, Observation, Parameter, Point, Proposal, Space, Tuner, TunerConfig,
    Warning,
};

const START: [f64; 3] = [128.0, 5.0, 0.0];

fn space() -> Space {
    Space::new(vec![
        Parameter::log("fusion_mb", 1.0 / 16.0, 256.0, 16).with_zero(),
        Parameter::log("cycle_ms", 0.1, 100.0, 13),
        Parameter::boolean("hierarchical_allreduce"),
    ])
    .unwrap()
}

/// 100 at 4 MB, 1 ms and on; a cliff of a factor of 160 without fusion.
fn surface(point: &Point) -> f64 {
    let fusion = (point.value(0).max(0.01) / 4.0).ln();
    let cycle = point.value(1).ln();
    let cliff = if point.value(0) == 0.0 { 160.0 } else { 1.0 };
    cliff * (100.0 + 1.5 * fusion * fusion + 2.0 * cycle * cycle + 5.0 * (1.0 - point.value(2)))
}

/// A model whose mean is a formula of the log step times of a setting and of the reference.
struct Formula<F>(F);

impl<F> std::fmt::Debug for Formula<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Formula")
    }
}

impl<F: Fn(&[Point], &Point) -> Option<Belief> + Send + Sync> Model for Formula<F> {
    fn belief(&self, points: &[Point], reference: &Point) -> Option<Belief> {
        (self.0)(points, reference)
    }
}

fn model(
    formula: impl Fn(&[Point], &Point) -> Option<Belief> + Send + Sync + 'static,
) -> Option<Arc<dyn Model>> {
    Some(Arc::new(Formula(formula)))
}

/// The model that believes this multiple of what is true of the logarithms.
fn multiple(factor: f64) -> Option<Arc<dyn Model>> {
    model(move |points, reference| {
        let relative = |point| factor * (surface(point) / surface(reference)).ln();
        Some(Belief {
            mean: points.iter().map(relative).collect(),
            features: Vec::new(),
        })
    })
}

/// Asks and tells until the search stops: all proposals, and the settings measured.
fn search(model: Option<Arc<dyn Model>>) -> (Vec<Proposal>, Vec<Point>) {
    let start = space().point(&START).unwrap();
    let mut tuner = Tuner::new(space(), TunerConfig::default(), start).unwrap();
    let (mut proposals, mut measured) = (Vec::new(), Vec::new());
    loop {
        let job = || match &model {
            Some(model) => tuner.job().with_model(model.clone()),
            None => tuner.job(),
        };
        let [proposal, again] = [job().run(), job().run()];
        let asked = [&proposal, &again].map(|proposal| format!("{proposal:?}"));
        assert_eq!(asked[0], asked[1], "asking changes nothing");
        assert!(tuner.accept(&proposal));
        let next = proposal.next;
        proposals.push(proposal);
        let Next::Sample(point) = next else { break };
        // Noise of 2 % a step, ten steps, in a fixed pattern.
        let noise = 0.006 * (((measured.len() * 37) % 11) as f64 / 5.0 - 1.0);
        let value = surface(&point) * (1.0 + noise);
        measured.push(point);
        let observation = Observation {
            value,
            spread: 0.02 * value,
            steps: 10,
        };
        tuner.tell(point, observation).unwrap();
    }
    (proposals, measured)
}

/// One measurement of which nothing more is known.
fn once(value: f64) -> Observation {
    Observation {
        value,
        spread: 0.0,
        steps: 1,
    }
}

fn ratio(proposals: &[Proposal]) -> f64 {
    surface(&proposals.last().unwrap().incumbent) / 100.0
}

fn warnings(proposals: &[Proposal]) -> Vec<Warning> {
    proposals.iter().flat_map(|p| p.warnings.clone()).collect()
}

#[test]
fn a_model_that_is_right_is_followed() {
    let (proposals, measured) = search(multiple(1.0));
    // The second setting is the model's best, within rounding of the lattice: 4 MB, 1 ms, on.
    assert!(
        (measured[1].value(0) / 4.0).ln().abs() < 0.3,
        "{:?}",
        measured[1]
    );
    assert!((measured[1].value(1)).ln().abs() < 0.3 && measured[1].flag(2));
    assert!(
        ratio(&proposals) < 1.005 && measured.len() <= 5,
        "{measured:?}"
    );
    assert_eq!(warnings(&proposals), []);
    let last = proposals.last().unwrap();
    assert!(last.model_weight.unwrap() > 0.8, "{:?}", last.model_weight);
    let (gain, sd) = last.gain;
    let truth = (surface(&measured[0]) / surface(&last.incumbent)).ln();
    assert!(
        (gain - truth).abs() < 3.0 * sd && (0.001..0.02).contains(&sd),
        "{gain} {sd} {truth}"
    );
    // Where it expects more than a factor of three nobody goes.
    assert!(measured.iter().all(|point| point.value(0) > 0.0));
}

#[test]
fn a_model_that_is_half_right_still_helps() {
    let (proposals, measured) = search(multiple(0.6));
    assert!(
        ratio(&proposals) < 1.01 && measured.len() <= 8,
        "{measured:?}"
    );
}

#[test]
fn a_model_that_is_wrong_loses_its_weight_and_says_so_once() {
    let (proposals, measured) = search(multiple(-3.0));
    let doubts: Vec<_> = warnings(&proposals);
    assert!(
        matches!(
            doubts[..],
            [Warning::ModelDoubted {
                weight_percent: 0..50,
                ..
            }]
        ),
        "{doubts:?}"
    );
    let doubted = proposals
        .iter()
        .position(|p| p.model_weight.is_some_and(|w| w < 0.5));
    assert!(
        doubted.unwrap() <= 4,
        "contradicted by two or three residuals: {doubted:?}"
    );
    assert!(proposals.last().unwrap().model_weight.unwrap() < 0.05);
    assert!(
        ratio(&proposals) < 1.02,
        "{} {measured:?}",
        ratio(&proposals)
    );
}

#[test]
fn a_doubted_model_is_still_heeded_where_it_warns_of_disaster() {
    for level in [1, 3, 9] {
        // Upside down but for the disaster, which it sees from the level up to which it reaches.
        let reach = space().parameters()[0].levels()[level];
        let wrong = model(move |points, reference| {
            let relative = |point: &Point| match point.value(0) <= reach {
                true => 5.0,
                false => -3.0 * (surface(point) / surface(reference)).ln(),
            };
            Some(Belief {
                mean: points.iter().map(relative).collect(),
                features: Vec::new(),
            })
        });
        let (proposals, measured) = search(wrong);
        assert!(proposals.last().unwrap().model_weight.unwrap() < 0.5);
        assert!(
            measured.iter().all(|point| point.value(0) > reach),
            "{measured:?}"
        );
    }
}

#[test]
fn a_model_of_no_use_is_a_warning_and_then_nothing() {
    let (cold, measured) = search(None);
    assert_eq!((warnings(&cold), cold[1].model_weight), (vec![], None));
    assert!(ratio(&cold) < 1.02, "{}", ratio(&cold));
    let nothing = model(|_, _| None);
    let short = model(|points, _| {
        Some(Belief {
            mean: vec![0.0; points.len() - 1],
            features: Vec::new(),
        })
    });
    let nan = model(|points, _| {
        Some(Belief {
            mean: vec![f64::NAN; points.len()],
            features: Vec::new(),
        })
    });
    let uneven = model(|points, _| {
        Some(Belief {
            mean: vec![0.0; points.len()],
            features: (0..points.len()).map(|i| vec![0.0; i % 2]).collect(),
        })
    });
    for useless in [nothing, short, nan, uneven] {
        let (proposals, same) = search(useless);
        assert_eq!(same, measured);
        assert!(matches!(
            warnings(&proposals)[..],
            [Warning::ModelUnusable { .. }]
        ));
    }
}

#[test]
fn a_job_hears_its_model_with_the_candidates_and_what_is_measured() {
    let start = space().point(&START).unwrap();
    let other = space().point(&[1.0, 1.0, 1.0]).unwrap();
    let mut tuner = Tuner::new(space(), TunerConfig::default(), start).unwrap();
    for (point, log_time) in [(other, 4.98f64), (start, 5.0)] {
        tuner.tell(point, once(log_time.exp())).unwrap();
    }
    let lattice = space().lattice(&start);
    let heard = model(move |points, reference| {
        assert_eq!(*reference, start, "whatever was measured first");
        // The lattice, and the measured settings beside it.
        assert!(points.starts_with(&lattice) && points.ends_with(&[start, other]));
        Some(Belief {
            mean: vec![0.0; points.len()],
            features: vec![vec![]; points.len()],
        })
    });
    let proposal = tuner.job().with_model(heard.unwrap()).run();
    assert!(proposal.model_weight.is_some() && proposal.warnings.is_empty());
    assert_eq!(proposal.incumbent, other);
    assert!(
        tuner.ask().model_weight.is_none(),
        "the job's model is the job's alone"
    );
}

/// Reports ten steps at a point.
fn tell(tuner: &mut Tuner, point: Point) {
    let value = surface(&point);
    let observation = Observation {
        value,
        spread: 0.02 * value,
        steps: 10,
    };
    tuner.tell(point, observation).unwrap();
}

#[test]
fn nobody_goes_where_the_cliff_was_seen() {
    // Without fusion everything is 160 times slower, and no model says so: once it was seen, it is
    // left alone.
    let start = space().point(&START).unwrap();
    let cliff = space().point(&[0.0, 1.0, 0.0]).unwrap();
    let mut tuner = Tuner::new(space(), TunerConfig::default(), start).unwrap();
    for point in [start, cliff] {
        tell(&mut tuner, point);
    }
    for _ in 0..15 {
        let Next::Sample(point) = tuner.ask().next else {
            break;
        };
        assert!(point.value(0) > 0.0, "{point:?}");
        tell(&mut tuner, point);
    }
}

#[test]
fn constant_scores_stop_early_at_the_start() {
    let start = space().point(&START).unwrap();
    let mut tuner = Tuner::new(space(), TunerConfig::default(), start).unwrap();
    let mut asks = 0;
    let last = loop {
        let proposal = tuner.ask();
        let Next::Sample(point) = proposal.next else {
            break proposal;
        };
        asks += 1;
        tuner.tell(point, once(1.0)).unwrap();
    };
    assert!(asks <= 12, "{asks}");
    assert!(last.gain.0.abs() < 1e-3, "{:?}", last.gain);
}

#[test]
fn what_is_no_measurement_is_refused_and_forgotten() {
    let start = space().point(&START).unwrap();
    let mut tuner = Tuner::new(space(), TunerConfig::default(), start).unwrap();
    for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(tuner.tell(start, once(value)).is_err());
    }
    assert!(tuner.samples().is_empty());
    assert_eq!(tuner.ask().next, Next::Sample(start));
}
