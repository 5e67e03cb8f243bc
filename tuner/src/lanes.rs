//! Settings side by side: their free coordinates in blocks of [`LANES`], so that inner loops run over settings and vectorize.

use crate::kernel::Kernel;
use crate::space::Coordinates;

/// Settings handled at a time: eight vector registers of two numbers, half of what the smallest x86-64 has.
pub(crate) const LANES: usize = 16;

/// One number for each setting of a block.
pub(crate) type Lanes = [f64; LANES];

/// A list of settings, by block and then by free parameter.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    len: usize,
    parameters: usize,
    blocks: Vec<Lanes>,
}

impl Columns {
    /// The free coordinates of `points`; places beyond the end repeat the last point.
    pub(crate) fn new(kernel: &Kernel, points: &[Coordinates]) -> Self {
        let parameters = kernel.roles.len();
        let mut blocks = Vec::with_capacity(points.len().div_ceil(LANES) * parameters);
        for block in points.chunks(LANES) {
            for &(index, _) in &kernel.roles {
                blocks.push(std::array::from_fn(|lane| {
                    block[lane.min(block.len() - 1)][index]
                }));
            }
        }
        Self {
            len: points.len(),
            parameters,
            blocks,
        }
    }

    /// Number of settings.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Number of blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.len.div_ceil(LANES)
    }

    /// The coordinates of block `index`, one row per free parameter.
    pub(crate) fn block(&self, index: usize) -> &[Lanes] {
        &self.blocks[index * self.parameters..(index + 1) * self.parameters]
    }
}

/// How far the settings of a list are apart, pair by pair: (0, 0), (1, 0), (1, 1), (2, 0) …, as a lower triangle is stored.
#[derive(Clone, Debug)]
pub(crate) struct Pairs(Columns);

impl Pairs {
    /// Every pair of `points`.
    pub(crate) fn new(kernel: &Kernel, points: &[Coordinates]) -> Self {
        let apart = |i: usize, j: usize| -> Coordinates {
            std::array::from_fn(|parameter| points[i][parameter] - points[j][parameter])
        };
        let pairs: Vec<Coordinates> = (0..points.len())
            .flat_map(|i| (0..=i).map(move |j| apart(i, j)))
            .collect();
        Self(Columns::new(kernel, &pairs))
    }

    /// Number of blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.0.blocks()
    }

    /// The differences of block `index` of the pairs, one row per free parameter.
    pub(crate) fn block(&self, index: usize) -> &[Lanes] {
        self.0.block(index)
    }
}

/// Where row `i` of a lower triangle starts that is stored row by row.
#[inline]
pub(crate) fn row_start(i: usize) -> usize {
    i * (i + 1) / 2
}

/// Subtracts `factor` times `b` from `a`.
#[inline]
pub(crate) fn subtract(a: &mut [f64], factor: f64, b: &[f64]) {
    for (a, b) in a.iter_mut().zip(b) {
        *a -= factor * b;
    }
}

/// The scalar product, in a fixed order that leaves four sums independent.
#[inline]
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 4];
    let (a, b) = (a.chunks_exact(4), b.chunks_exact(4));
    let rest: f64 = a
        .remainder()
        .iter()
        .zip(b.remainder())
        .map(|(x, y)| x * y)
        .sum();
    for (x, y) in a.zip(b) {
        for lane in 0..4 {
            sums[lane] += x[lane] * y[lane];
        }
    }
    (sums[0] + sums[2]) + (sums[1] + sums[3]) + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalar_products_of_every_length() {
        for n in 0..20usize {
            let a: Vec<f64> = (0..n).map(|i| i as f64).collect();
            let squares: usize = (0..n).map(|i| i * i).sum();
            assert_eq!(dot(&a, &a), squares as f64);
        }
    }
}
