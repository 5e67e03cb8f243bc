//! Minimiser of functions of two variables: BFGS, to which L-BFGS is equivalent in two dimensions,
//! with gradients from forward differences and backtracking.

/// Step of the forward differences.
const DIFFERENCE: f64 = 1e-8;
/// Converged when the gradient is this much shorter than the point, or than 1.
const TOLERANCE: f64 = 1e-5;
const ITERATIONS_MOST: u32 = 100;
/// Halvings of a step, and the least share of the expected decrease.
const HALVINGS_MOST: u32 = 20;
const ARMIJO: f64 = 1e-4;

type Pair = [f64; 2];

fn dot(a: Pair, b: Pair) -> f64 {
    a[0] * b[0] + a[1] * b[1]
}

/// Descends from `start`; returns the best point and its value. Values that are not finite count as
/// infinite.
pub(super) fn minimize(start: Pair, mut value: impl FnMut(Pair) -> f64) -> (Pair, f64) {
    let mut at = start;
    let mut height = value(at);
    let mut slope = gradient(at, height, &mut value);
    let mut inverse: [Pair; 2] = [[1.0, 0.0], [0.0, 1.0]];
    for _ in 0..ITERATIONS_MOST {
        let long = dot(slope, slope).sqrt();
        if !long.is_finite() || long <= TOLERANCE * dot(at, at).sqrt().max(1.0) {
            break;
        }
        let mut direction = [-dot(inverse[0], slope), -dot(inverse[1], slope)];
        if dot(direction, slope) >= 0.0 {
            inverse = [[1.0, 0.0], [0.0, 1.0]];
            direction = [-slope[0], -slope[1]];
        }
        let promised = dot(direction, slope);
        let trial = |length: f64| [at[0] + length * direction[0], at[1] + length * direction[1]];
        let found = (0..HALVINGS_MOST).find_map(|halvings| {
            let length = 0.5f64.powi(halvings as i32);
            let found = value(trial(length));
            (found <= height + ARMIJO * length * promised).then(|| (trial(length), found))
        });
        let Some((next, lower)) = found else {
            break;
        };
        let next_slope = gradient(next, lower, &mut value);
        let moved = [next[0] - at[0], next[1] - at[1]];
        let turned = [next_slope[0] - slope[0], next_slope[1] - slope[1]];
        update(&mut inverse, moved, turned);
        (at, height, slope) = (next, lower, next_slope);
    }
    (at, height)
}

fn gradient(at: Pair, height: f64, value: &mut impl FnMut(Pair) -> f64) -> Pair {
    let first = value([at[0] + DIFFERENCE, at[1]]);
    let second = value([at[0], at[1] + DIFFERENCE]);
    [
        (first - height) / DIFFERENCE,
        (second - height) / DIFFERENCE,
    ]
}

/// BFGS update of an inverse Hessian (Nocedal and Wright 2006, eq. 6.17).
fn update(inverse: &mut [Pair; 2], moved: Pair, turned: Pair) {
    let curvature = dot(moved, turned);
    if curvature.is_nan() || curvature <= 1e-12 {
        return;
    }
    let image = [dot(inverse[0], turned), dot(inverse[1], turned)];
    let outer = (1.0 + dot(turned, image) / curvature) / curvature;
    for row in 0..2 {
        for column in 0..2 {
            inverse[row][column] += outer * moved[row] * moved[column]
                - (image[row] * moved[column] + moved[row] * image[column]) / curvature;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_bottom_of_a_bent_valley() {
        let rosenbrock = |[x, y]: Pair| (1.0 - x).powi(2) + 100.0 * (y - x * x).powi(2);
        let (at, height) = minimize([-1.2, 1.0], rosenbrock);
        assert!(height < 1e-6, "{height}");
        assert!(
            (at[0] - 1.0).abs() < 1e-2 && (at[1] - 1.0).abs() < 1e-2,
            "{at:?}"
        );
    }

    #[test]
    fn stops_at_a_wall() {
        let walled = |[x, y]: Pair| if x < 0.0 { f64::INFINITY } else { x + y * y };
        let (at, _) = minimize([1.0, 1.0], walled);
        assert!(at[0] >= 0.0 && at[0] < 1.0, "{at:?}");
        let (at, height) = minimize([1.0, 1.0], |_| f64::NAN);
        assert!(at == [1.0, 1.0] && height.is_nan());
    }
}
