//! What the machine did to a measurement, whatever the point: a level for each block, and a slope in the large ones.

use super::Observation;

/// Observations that a block must have for a slope of its own: a round of the confirmation is over before the machine drifts.
const SLOPED_LEAST: usize = 12;
/// Degrees of freedom that must be there for each slope, so that it costs little certainty.
const FREEDOM_PER_SLOPE: usize = 10;

/// The columns of the design that belong to blocks. The first block is the reference and has no level.
#[derive(Clone, Debug)]
pub(super) struct Nuisance {
    blocks: usize,
    /// Column of each block's slope, with the middle of the block and half its length, s.
    slopes: Vec<Option<(usize, f64, f64)>>,
    columns: usize,
}

/// A row of the design: at most two columns are not 0.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Entries([Option<(usize, f64)>; 2]);

impl Entries {
    /// Columns and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, f64)> {
        self.0.into_iter().flatten()
    }

    /// The product with a vector.
    pub(super) fn dot(&self, vector: &[f64]) -> f64 {
        self.iter().map(|(column, value)| value * vector[column]).sum()
    }
}

impl Nuisance {
    /// For `observations` of so many different points.
    pub(super) fn new(observations: &[Observation], points: usize) -> Self {
        let blocks = observations.iter().map(|o| o.block + 1).max().unwrap_or(0);
        let mut spans = vec![(0usize, f64::INFINITY, f64::NEG_INFINITY); blocks];
        for observation in observations {
            let (count, from, to) = &mut spans[observation.block];
            *count += 1;
            *from = from.min(observation.at_s);
            *to = to.max(observation.at_s);
        }
        let levels = blocks.saturating_sub(1);
        let slopable = |&(count, from, to): &(usize, f64, f64)| count >= SLOPED_LEAST && to > from;
        let wanted = spans.iter().filter(|span| slopable(span)).count();
        let freedom = observations.len().saturating_sub(points + levels);
        let sloped = wanted > 0 && freedom >= (FREEDOM_PER_SLOPE + 1) * wanted;
        let mut columns = levels;
        let slopes = spans.iter().map(|span| {
            (sloped && slopable(span)).then(|| {
                columns += 1;
                (columns - 1, (span.1 + span.2) / 2.0, (span.2 - span.1) / 2.0)
            })
        });
        let slopes = slopes.collect();
        Self {
            blocks,
            slopes,
            columns,
        }
    }

    /// Number of columns.
    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// Whether blocks have slopes.
    pub(super) fn sloped(&self) -> bool {
        self.columns > self.blocks.saturating_sub(1)
    }

    /// The row of the design for `observation`.
    pub(super) fn entries(&self, observation: &Observation) -> Entries {
        let level = observation.block.checked_sub(1).map(|column| (column, 1.0));
        let slope = self.slopes[observation.block]
            .map(|(column, middle, half)| (column, (observation.at_s - middle) / half));
        Entries([level, slope])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(points: usize, blocks: usize) -> Vec<Observation> {
        (0..blocks * points)
            .map(|i| Observation {
                point: i % points,
                block: i / points,
                at_s: i as f64,
                ln_ms: 0.0,
            })
            .collect()
    }

    #[test]
    fn large_blocks_have_slopes_and_small_ones_levels_alone() {
        // 3 × 20 observations, 20 points: 60 − 20 − 2 = 38 degrees of freedom for 3 slopes.
        let nuisance = Nuisance::new(&rounds(20, 3), 20);
        assert!(nuisance.sloped());
        assert_eq!(nuisance.columns(), 2 + 3);
        let last = nuisance.entries(&rounds(20, 3)[59]);
        assert_eq!(last.iter().collect::<Vec<_>>(), [(1, 1.0), (4, 1.0)]);
        let first = nuisance.entries(&rounds(20, 3)[0]);
        assert_eq!(first.iter().collect::<Vec<_>>(), [(2, -1.0)]);

        for (points, blocks, levels) in [(6, 5, 4), (20, 2, 1), (5, 1, 0), (0, 0, 0)] {
            let nuisance = Nuisance::new(&rounds(points, blocks), points);
            assert!(!nuisance.sloped());
            assert_eq!(nuisance.columns(), levels, "{points} points in {blocks} blocks");
        }
    }
}
