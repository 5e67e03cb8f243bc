//! Figures one below the other, as one picture: for whoever wants one file.

use super::canvas::Canvas;
use super::{Figure, FigureError};

/// Between two figures, beside the margins that they have.
const GAP: u32 = 12;

/// Figures one below the other.
pub(crate) struct Stack<'a> {
    /// What all of them together are about; it is nowhere drawn.
    pub(crate) title: String,
    /// From the top.
    pub(crate) figures: Vec<&'a dyn Figure>,
}

impl Figure for Stack<'_> {
    fn title(&self) -> &str {
        &self.title
    }

    fn size(&self) -> (u32, u32) {
        let sizes = || self.figures.iter().map(|figure| figure.size());
        let gaps = GAP * self.figures.len().saturating_sub(1) as u32;
        let height = sizes().map(|size| size.1).sum::<u32>() + gaps;
        // A picture without anything in it is still one.
        (sizes().map(|size| size.0).max().unwrap_or(1), height.max(1))
    }

    fn draw(&self, canvas: &Canvas) -> Result<(), FigureError> {
        let mut down = 0;
        for figure in &self.figures {
            figure.draw(&canvas.below(f64::from(down), figure.title()))?;
            down += figure.size().1 + GAP;
        }
        Ok(())
    }
}
