//! The first settings where no model says where to look: scrambled Sobol over the levels, booleans
//! at random. The first goes a part of the way from the start setting, since settings far from it
//! may be beyond a cliff. The second is the start setting with other booleans and choices: beside
//! other changes, a cliff would hide their effect, and a value whose effect is unknown risks too
//! much.

use rand::RngExt;
use rand::seq::SliceRandom;

use crate::random::generator;
use crate::space::parameter::{Parameter, Scale};
use crate::space::{Point, Space};

/// Settings tried before the surrogate chooses.
pub(crate) const DESIGN_POINTS: usize = 5;
/// Share of the way from the start setting to the Sobol point that the first setting goes.
const REACH_FIRST: f64 = 0.7;
/// Share of each axis, at either end, that the design stays clear of: that is where cliffs are, one
/// step beyond which may cost more than the whole search may.
const MARGIN: f64 = 0.3;
/// Sobol indices looked at for settings that are neither tried nor too risky.
const DESIGN_TRIES: u32 = 64;

/// The settings of the design around `start`, in order; more than are needed, as some are passed
/// over.
pub(crate) fn design(space: &Space, start: &Point, seed: u64) -> impl Iterator<Item = Point> {
    let sobol_seed = (seed ^ (seed >> 32)) as u32;
    let is_free_switch = |p: &Parameter| p.is_switch() && p.fixed_value().is_none();
    let has_switch = space.parameters().iter().any(is_free_switch);
    (0..DESIGN_TRIES).map(move |index| {
        let mut rng = generator(seed, u64::from(index));
        let mut first_rng = generator(seed, 0);
        let mut dimension = 0;
        let reach = match index {
            0 => REACH_FIRST,
            1 if has_switch => 0.0,
            _ => 1.0,
        };
        let parameters = space.parameters().iter().zip(start.values());
        let values = parameters.map(|(parameter, &start)| {
            let levels = parameter.levels();
            if levels.len() == 1 {
                return levels[0];
            }
            if parameter.scale() == Scale::Boolean {
                let (drawn, first) = (rng.random::<bool>(), first_rng.random::<bool>());
                let start = start == levels[1];
                // If the first setting has the start's value, the second has the other one.
                let value = if index == 1 && first == start {
                    !start
                } else {
                    drawn
                };
                return levels[usize::from(value)];
            }
            if parameter.scale() == Scale::Choice {
                // The first settings have each other value once, in random order.
                let mut order = levels.clone();
                order.retain(|level| *level != start);
                order.shuffle(&mut first_rng);
                let each = order.get(index as usize).copied();
                return each.unwrap_or_else(|| levels[rng.random_range(0..levels.len())]);
            }
            let sobol = f64::from(sobol_burley::sample(index, dimension, sobol_seed));
            let uniform = MARGIN + (1.0 - 2.0 * MARGIN) * sobol;
            dimension += 1;
            let far = uniform * levels.len() as f64;
            let near = nearest(parameter, &levels, start) as f64 + 0.5;
            levels[((near + reach * (far - near)) as usize).min(levels.len() - 1)]
        });
        Point::new(&values.collect::<Vec<f64>>())
    })
}

/// Index of the level that lies nearest to `value`.
fn nearest(parameter: &Parameter, levels: &[f64], value: f64) -> usize {
    let coordinate = parameter.coordinate(value);
    let distance = |level: &f64| (parameter.coordinate(*level) - coordinate).abs();
    let nearest =
        (0..levels.len()).min_by(|&a, &b| distance(&levels[a]).total_cmp(&distance(&levels[b])));
    nearest.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_design_begins_near_the_start() {
        let space = Space::new(vec![Parameter::linear("x", 0.0, 1.0, 101)]).unwrap();
        let start = space.point(&[1.0]).unwrap();
        for seed in 0..20 {
            let x: Vec<f64> = design(&space, &start, seed)
                .take(3)
                .map(|p| p.value(0))
                .collect();
            // All of the way ends in the middle 40 % of the axis.
            assert!(x[0] >= 1.0 - 0.7 * 0.71, "{x:?}");
            assert!(x[1..].iter().all(|x| (0.29..0.71).contains(x)), "{x:?}");
        }
        let x = Parameter::linear("x", 0.0, 1.0, 101);
        let space = Space::new(vec![x, Parameter::boolean("b")]).unwrap();
        let start = space.point(&[1.0, 0.0]).unwrap();
        for seed in 0..20 {
            let first: Vec<Point> = design(&space, &start, seed).take(2).collect();
            assert_eq!(first[1].value(0), 1.0);
            assert!(first.iter().any(|point| point.flag(1)), "{first:?}");
        }
        let space = Space::new(vec![Parameter::choice("c", 4)]).unwrap();
        let start = space.point(&[1.0]).unwrap();
        let mut first: Vec<f64> = design(&space, &start, 3)
            .take(3)
            .map(|p| p.value(0))
            .collect();
        first.sort_by(f64::total_cmp);
        assert_eq!(first, [0.0, 2.0, 3.0], "each other value once");
        // A start between two levels counts as the nearer one.
        let x = Parameter::linear("x", 0.0, 1.0, 101);
        assert_eq!(nearest(&x, &[0.0, 0.5, 1.0], 0.7), 1);
    }
}
