//! Groups of measurements: those of one setting, and of near settings where there are too many.
//!
//! A product of normals N(y_i; f, s_i²) is one normal of their weighted mean ȳ, with variance S² =
//! 1 / Σ s_i⁻², times what the scatter about that mean says of the noise: ln C = −½ Σ [ln s_i² +
//! (y_i − ȳ)² / s_i²] + ½ ln S². So nothing is lost by grouping repeated settings.

use std::collections::HashMap;

use crate::space::{Coordinates, PARAMETERS_MAX, Space};
use crate::tuner::sample::Seen;

/// Most groups: a process costs the cube of them.
const GROUPS_MAX: usize = 120;
/// Steps of the lattice, in coordinates, to which settings are rounded where they are too many,
/// finest first. The first is far below what any log resolves.
const STEPS: [f64; 6] = [
    1e-9,
    1.0 / 64.0,
    1.0 / 32.0,
    1.0 / 16.0,
    1.0 / 8.0,
    1.0 / 4.0,
];

/// The measurements by setting, in the order in which settings were first seen.
pub(super) struct Groups {
    groups: Vec<Group>,
}

struct Group {
    /// Mean of the members' coordinates.
    x: Coordinates,
    /// Value less the level, and known variance.
    members: Vec<(f64, f64)>,
}

impl Groups {
    /// The groups of `seen`, of whose values `level` is subtracted.
    pub(super) fn new(space: &Space, seen: &[Seen], level: f64) -> Self {
        let places: Vec<Coordinates> = seen
            .iter()
            .map(|seen| space.coordinates(&seen.point))
            .collect();
        let keys = STEPS.map(|step| keys(&places, step));
        let fine = keys.iter().find(|(_, count)| *count <= GROUPS_MAX);
        // The coarsest lattice has few places, unless there are many parameters: then the first
        // groups have to do.
        let (of_seen, _) = fine.unwrap_or(&keys[STEPS.len() - 1]);
        let mut groups: Vec<Group> = Vec::new();
        for ((seen, place), &group) in seen.iter().zip(&places).zip(of_seen) {
            if group >= GROUPS_MAX {
                continue;
            }
            if group == groups.len() {
                groups.push(Group {
                    x: Coordinates::default(),
                    members: Vec::new(),
                });
            }
            let Group { x, members } = &mut groups[group];
            members.push((seen.log_time - level, seen.variance.max(0.0)));
            let share = 1.0 / members.len() as f64;
            for (mean, value) in x.iter_mut().zip(place) {
                *mean += (value - *mean) * share;
            }
        }
        Self { groups }
    }

    /// Number of groups.
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether most measurements state their own noise.
    pub(super) fn noise_is_known(&self) -> bool {
        let all = || self.groups.iter().flat_map(|group| &group.members);
        2 * all().filter(|member| member.1 > 0.0).count() > all().count()
    }

    /// Mean coordinates of the groups.
    pub(super) fn places(&self) -> Vec<Coordinates> {
        self.groups.iter().map(|group| group.x).collect()
    }

    /// Values and variances, one per group, if `noise` is the variance in addition to each member's
    /// own; and the log likelihood of the scatter inside the groups, up to a constant.
    pub(super) fn observations(&self, noise: f64) -> (Values, f64) {
        let mut values = Values::default();
        let mut scatter = 0.0;
        for Group { members, .. } in &self.groups {
            let (mut sum, mut precision) = (0.0, 0.0);
            for (value, known) in members {
                sum += value / (known + noise);
                precision += 1.0 / (known + noise);
            }
            let mean = sum / precision;
            for (value, known) in members {
                let variance = known + noise;
                scatter -= 0.5 * (variance.ln() + (value - mean) * (value - mean) / variance);
            }
            scatter -= 0.5 * precision.ln();
            values.y.push(mean);
            values.variance.push(1.0 / precision);
        }
        (values, scatter)
    }
}

/// One value per group, and its variance.
#[derive(Clone, Debug, Default)]
pub(super) struct Values {
    pub(super) y: Vec<f64>,
    pub(super) variance: Vec<f64>,
}

/// The group of each place on a lattice of this step, counted from 0 in the order in which they
/// come, and how many there are.
fn keys(places: &[Coordinates], step: f64) -> (Vec<usize>, usize) {
    let mut known: HashMap<[i64; PARAMETERS_MAX], usize> = HashMap::new();
    let key = |place: &Coordinates| {
        let next = known.len();
        *known
            .entry(place.map(|x| (x / step).round() as i64))
            .or_insert(next)
    };
    let groups = places.iter().map(key).collect();
    (groups, known.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Parameter;

    fn space() -> Space {
        Space::new(vec![Parameter::linear("x", 0.0, 1.0, 11)]).unwrap()
    }

    fn seen(x: f64, log_time: f64, variance: f64) -> Seen {
        Seen {
            point: space().point(&[x]).unwrap(),
            log_time,
            variance,
        }
    }

    #[test]
    fn a_group_by_hand() {
        // Own variances 1 and 3, noise 1: s² of 2 and 4; precision 3/4, mean (1/2 · 3 + 1/4 · 0) /
        // (3/4) = 2.
        let groups = Groups::new(
            &space(),
            &[
                seen(0.5, 4.0, 1.0),
                seen(0.2, 0.0, 1.0),
                seen(0.5, 1.0, 3.0),
            ],
            1.0,
        );
        let (observations, scatter) = groups.observations(1.0);
        let places = groups.places();
        assert_eq!((places[0][0], places[1][0]), (0.5, 0.2));
        assert!(
            (observations.y[0] - 2.0).abs() < 1e-12
                && (observations.variance[0] - 4.0 / 3.0).abs() < 1e-12
        );
        assert!(
            (observations.y[1] + 1.0).abs() < 1e-12
                && (observations.variance[1] - 2.0).abs() < 1e-12
        );
        // −½ (ln 2 + 1/2 + ln 4 + 4/4) − ½ ln 3/4; alone: −½ ln 2 + ½ ln 2.
        let expected = -0.5 * (2f64.ln() + 0.5 + 4f64.ln() + 1.0) - 0.5 * 0.75f64.ln();
        assert!((scatter - expected).abs() < 1e-12, "{scatter} {expected}");
        assert!(groups.noise_is_known());
    }

    #[test]
    fn many_settings_are_merged_with_their_neighbours() {
        let many: Vec<Seen> = (0..10_000)
            .map(|i| seen(f64::from(i) / 1e4, 1.0, 0.0))
            .collect();
        let groups = Groups::new(&space(), &many, 0.0);
        let (observations, _) = groups.observations(0.01);
        // The step of 1/64 is fine enough.
        assert_eq!(observations.y.len(), 65);
        assert!(!groups.noise_is_known());
        let members: usize = groups.groups.iter().map(|group| group.members.len()).sum();
        assert_eq!(members, 10_000);
    }
}
