//! Limit of a run: a run that is clearly slower than the best one so far is stopped early.
//!
//! Figures that a run prints are compared with those that the best run had printed at the same
//! place: the first steps of a training are slower than the later ones, with every setting.

use std::time::Duration;

use ronde_tuner::median;

/// Figures of a run that are kept for the comparison.
pub(crate) const FIGURES_MOST: usize = 100;
/// From so many figures, a run whose median is this multiple of the best run's is stopped.
const RATIOS: [(usize, f64); 3] = [(3, 2.0), (5, 1.5), (10, 1.3)];
/// Without figures while it runs, a run is stopped after this multiple of the best run's duration.
const WALL_RATIO: f64 = 2.0;

/// Limit of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limit {
    /// Figures of the best run so far, and its final figure.
    reference: Option<(Vec<f64>, f64)>,
    /// Duration of the best run so far, if the wall time is the metric.
    wall: Option<Duration>,
    /// Time that the budget of all runs leaves, preparation included.
    budget: Option<Duration>,
}

impl Limit {
    /// No limit.
    pub const NONE: Self = Self {
        reference: None,
        wall: None,
        budget: None,
    };

    /// Limit by the figures of the best run and its final figure.
    pub fn by_figures(figures: &[f64], value: f64) -> Self {
        let reference = Some((figures.to_vec(), value));
        Self {
            reference,
            ..Self::NONE
        }
    }

    /// Limit by the wall time of the best run, which is the metric.
    pub fn by_wall(seconds: f64) -> Self {
        let wall = Duration::try_from_secs_f64(WALL_RATIO * seconds).ok();
        Self { wall, ..Self::NONE }
    }

    /// Returns the limit with the time that the budget of all runs leaves, s.
    #[must_use]
    pub fn within(self, budget_s: Option<f64>) -> Self {
        let budget = budget_s.and_then(|s| Duration::try_from_secs_f64(s.max(0.0)).ok());
        Self { budget, ..self }
    }

    /// Returns the limit of the run after a preparation of this duration.
    #[must_use]
    pub(crate) fn after(self, preparation: Duration) -> Self {
        let budget = self.budget.map(|left| left.saturating_sub(preparation));
        Self { budget, ..self }
    }

    /// Duration after which the budget of all runs is used up.
    pub fn budget(&self) -> Option<Duration> {
        self.budget
    }

    /// Duration after which the run is stopped.
    pub fn wall(&self) -> Option<Duration> {
        self.wall
    }

    /// Estimate of the final figure of a run that has printed `figures`, if it is to be stopped.
    pub fn exceeded(&self, figures: &[f64]) -> Option<f64> {
        let (reference, value) = self.reference.as_ref()?;
        let count = figures.len().min(reference.len());
        let most = RATIOS.iter().rev().find(|(least, _)| count >= *least)?.1;
        let ratio = median(&figures[..count]) / median(&reference[..count]);
        (ratio > most).then_some(value * ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_compared_at_the_same_place() {
        let limit = Limit::by_figures(&[90.0, 30.0, 10.0, 10.0, 10.0, 10.0], 10.0);
        assert_eq!(limit.exceeded(&[200.0, 200.0]), None, "too few figures");
        assert_eq!(limit.exceeded(&[90.0, 31.0, 10.0]), None);
        // Medians 75 and 30.
        assert_eq!(limit.exceeded(&[90.0, 75.0, 60.0]), Some(25.0));
        // From five figures, a factor of 1.5 suffices: medians 16 and 10.
        let slower = [90.0, 30.0, 16.0, 16.0, 16.0];
        assert_eq!(limit.exceeded(&slower), Some(16.0));
        assert_eq!(Limit::NONE.exceeded(&slower), None);
        assert_eq!(Limit::by_wall(1.5).wall(), Some(Duration::from_secs(3)));
    }
}
