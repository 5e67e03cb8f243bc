//! Grid of a heat map: a cell for each combination of two values, and marks in corners of cells.

use super::scale::tick;
use super::{Axis, Point, Rect};

/// Distinct values of two quantities, ascending.
#[derive(Clone, Debug)]
pub struct Grid {
    x: Vec<f64>,
    y: Vec<f64>,
}

impl Grid {
    /// Returns the grid that has a cell for each of these pairs.
    pub fn new(pairs: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let (mut x, mut y): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        for values in [&mut x, &mut y] {
            values.sort_by(f64::total_cmp);
            values.dedup();
        }
        Self { x, y }
    }

    /// Number of values on the vertical axis.
    pub fn rows(&self) -> usize {
        self.y.len()
    }

    /// Axes with these labels, on which each value has a place.
    pub fn axes(&self, x: &str, y: &str) -> [Axis; 2] {
        [(x, &self.x), (y, &self.y)]
            .map(|(label, values)| Axis::places(label, values.iter().map(|value| tick(*value))))
    }

    /// Cell of a pair.
    pub fn cell(&self, pair: (f64, f64), colour: String, label: String, text: String) -> Rect {
        let (x, y) = self.place(pair);
        Rect {
            x: [x - 0.49, x + 0.49],
            y: [y - 0.49, y + 0.49],
            colour,
            text,
            label,
        }
    }

    /// Mark in an upper corner of a pair's cell, beside the cell's label; the right corner if
    /// `right` is true.
    pub fn mark(&self, pair: (f64, f64), right: bool, text: impl Into<String>) -> Point {
        let (x, y) = self.place(pair);
        Point::new(x + if right { 0.37 } else { -0.37 }, y + 0.3, text)
    }

    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let index = |values: &[f64], wanted: f64| values.partition_point(|value| *value < wanted);
        (index(&self.x, x) as f64, index(&self.y, y) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_has_its_cell() {
        let grid = Grid::new([(4.0, 1.0), (0.0, 5.0), (4.0, 5.0), (1.0, 1.0)]);
        assert_eq!(grid.rows(), 2);
        let cell = grid.cell((4.0, 5.0), String::new(), String::new(), String::new());
        assert_eq!((cell.x, cell.y), ([1.51, 2.49], [0.51, 1.49]));
        let mark = grid.mark((0.0, 1.0), true, "best");
        assert_eq!((mark.x, mark.y), (0.37, 0.3));
        let [x, _] = grid.axes("MiB", "ms");
        let ticks: Vec<&str> = x.ticks.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(ticks, ["0", "1", "4"]);
    }
}
