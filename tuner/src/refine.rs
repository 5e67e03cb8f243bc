//! A draw of the hyper-parameters moved towards the maximum of likelihood times prior, by argmin's Nelder–Mead.

use argmin::core::{CostFunction, Executor, State};
use argmin::solver::neldermead::NelderMead;
use argmin_math::{ArgminAdd, ArgminMul, ArgminSub};

use crate::Warning;
use crate::draws::Scores;
use crate::gp::{Gp, Scene};

/// Most iterations; each costs one or two likelihoods.
const ITERATIONS_MAX: u64 = 60;
/// Iterations times observations: a likelihood's cost grows with these, and what is left to gain falls.
const WORK_MAX: u64 = 600;
/// The refinement stops when the log posterior varies by less than this over the simplex.
const TOLERANCE: f64 = 1e-2;
/// The simplex's first edges, in standard deviations of the prior, towards its middle.
const EDGE: f64 = 0.7;
/// Cost of a point at which the process cannot be conditioned: worse than any that can, and still a number.
const COST_UNUSABLE: f64 = 1e12;

// The three operations that the simplex needs: argmin's for `Vec` come with a second `rand`.
impl ArgminAdd<Scores, Scores> for Scores {
    fn add(&self, other: &Scores) -> Scores {
        Scores(self.0.iter().zip(&other.0).map(|(a, b)| a + b).collect())
    }
}

impl ArgminSub<Scores, Scores> for Scores {
    fn sub(&self, other: &Scores) -> Scores {
        Scores(self.0.iter().zip(&other.0).map(|(a, b)| a - b).collect())
    }
}

impl ArgminMul<f64, Scores> for Scores {
    fn mul(&self, factor: &f64) -> Scores {
        Scores(self.0.iter().map(|a| a * factor).collect())
    }
}

/// The negative log posterior of the scores under a hypothesis, up to a constant.
pub(crate) struct Objective<'a> {
    pub(crate) scene: &'a Scene<'a>,
    pub(crate) hypothesis: usize,
}

impl<'a> Objective<'a> {
    /// The process of these scores, conditioned on everything.
    pub(crate) fn gp(&self, scores: &Scores) -> Option<Gp<'a>> {
        let signal = self.scene.hypothesis(self.hypothesis).signal;
        let hyper = scores.hyperparameters(self.scene.kernel, signal);
        Gp::new(self.scene, self.hypothesis, hyper).conditioned(self.scene.observed.len())
    }
}

impl CostFunction for Objective<'_> {
    type Param = Scores;
    type Output = f64;

    fn cost(&self, scores: &Scores) -> Result<f64, argmin::core::Error> {
        let likelihood = self.gp(scores).map(|gp| gp.log_likelihood);
        Ok(likelihood.map_or(COST_UNUSABLE, |likelihood| scores.cost() - likelihood))
    }
}

/// The scores of a posterior mode near `scores`.
///
/// # Errors
/// [`Warning::RefinementFailed`].
pub(crate) fn refine(objective: Objective, scores: &Scores) -> Result<Scores, Warning> {
    let observations = objective.scene.observed.len();
    let failed = |message: String| Warning::RefinementFailed {
        observations,
        message,
    };
    let mut simplex = vec![scores.clone()];
    for dimension in 0..scores.0.len() {
        let mut vertex = scores.clone();
        vertex.0[dimension] += if vertex.0[dimension] > 0.0 {
            -EDGE
        } else {
            EDGE
        };
        simplex.push(vertex);
    }
    let solver = NelderMead::new(simplex)
        .with_sd_tolerance(TOLERANCE)
        .map_err(|error| failed(error.to_string()))?;
    let iterations = (WORK_MAX / observations.max(1) as u64).min(ITERATIONS_MAX);
    let result = Executor::new(objective, solver)
        .configure(|state| state.max_iters(iterations))
        .timer(false)
        .run()
        .map_err(|error| failed(error.to_string()))?;
    match result.state().get_best_param() {
        Some(best) if best.0.iter().all(|s| s.is_finite()) => Ok(best.clone()),
        _ => Err(failed("no finite optimum".into())),
    }
}
