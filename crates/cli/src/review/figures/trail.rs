//! The trials one after the other.

use super::measured;
use crate::figure::{Better, Kind, Reference, Trail, TrailLine, TrailLinePoint, TrailPoint};
use ronde_lab::review::words::number;
use ronde_lab::review::{Phase, Review, Setting, Trial, Writer};

/// Trials through which the model's line is drawn; of more, evenly chosen ones.
pub(super) const LINE_MOST: usize = 600;

/// The picture of a review's trials.
pub(super) fn trail(review: &Review) -> Trail {
    let (y_label, y_unit, better) = measured(review.measure);
    let noise = review.noise.sd().unwrap_or(0.0);
    let point = |(index, trial): (usize, &Trial)| {
        // What the log does not tell, the scatter of all trials does.
        let half = trial.ci95.unwrap_or(1.96 * noise * trial.value);
        TrailPoint {
            x: (index + 1) as f64,
            value: trial.value,
            low: (trial.value - half).max(0.0),
            high: trial.value + half,
            kind: kind(review, trial),
        }
    };
    let subtitle = match better {
        Better::Higher => "Higher is better. Bars: 95 % of what one trial scatters by.",
        Better::Lower => "Lower is better. Bars: 95 % intervals.",
    };
    Trail {
        title: format!("{y_label} of each trial"),
        subtitle: subtitle.to_owned(),
        x_label: "trial".to_owned(),
        y_label: y_label.to_owned(),
        y_unit: y_unit.to_owned(),
        points: review.trials.iter().enumerate().map(point).collect(),
        // Windows that alternate make a line through them a saw.
        line: line(review).filter(|_| review.writer == Writer::Horovod),
        references: references(review),
    }
}

fn kind(review: &Review, trial: &Trial) -> Kind {
    let is = |setting: Option<&Setting>| setting.is_some_and(|setting| setting.is_near(&trial.setting));
    let is_default = is(review.gain.default.as_ref());
    match trial.phase {
        Phase::Ab if is_default => Kind::AbDefault,
        Phase::Ab => Kind::AbCandidate,
        _ if is_default => Kind::Default,
        _ if is(review.best.as_ref().map(|best| &best.choice.setting)) => Kind::Best,
        _ => Kind::Sample,
    }
}

/// What all trials together say of each one's setting.
fn line(review: &Review) -> Option<TrailLine> {
    let every = review.trials.len().div_ceil(LINE_MOST).max(1);
    let chosen: Vec<(usize, &Trial)> = review.trials.iter().enumerate().step_by(every).collect();
    let settings: Vec<Setting> = chosen.iter().map(|(_, trial)| trial.setting).collect();
    let expected = review.surface.as_ref()?.at(&settings);
    let place = |((index, _), expected): (&(usize, &Trial), ronde_tuner::Expectation)| {
        let ends = [-1.96, 1.96].map(|scores| review.measure.value(expected.mean + scores * expected.sd));
        TrailLinePoint {
            x: (index + 1) as f64,
            mean: review.measure.value(expected.mean),
            low: ends[0].min(ends[1]),
            high: ends[0].max(ends[1]),
        }
    };
    Some(TrailLine {
        name: "expected by all trials together, 95 %".to_owned(),
        points: chosen.iter().zip(expected).map(place).collect(),
    })
}

fn references(review: &Review) -> Vec<Reference> {
    let Some((best, surface)) = review.best.as_ref().zip(review.surface.as_ref()) else {
        return Vec::new();
    };
    let reference = |name: &str, value: f64| Reference {
        name: format!("{name} {}", number(value)),
        value,
    };
    let mut references = vec![reference("choice, expected", best.choice.expected.value)];
    if let Some(default) = &review.gain.default
        && !default.is_near(&best.choice.setting)
        && let Some(expected) = surface.at(&[*default]).first()
    {
        references.push(reference(
            "default, expected",
            review.measure.value(expected.mean),
        ));
    }
    references
}
