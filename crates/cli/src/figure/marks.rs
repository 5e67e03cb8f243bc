//! The shapes by which measurements and settings are told apart.

use plotters::style::RGBAColor;
use std::f64::consts::{FRAC_PI_2, PI};

use super::FigureError;
use super::canvas::{At, Canvas, Stroke};
use super::colour::{ON_BRIGHT, ON_DARK, PAPER, SERIES};

/// What a measurement or a setting is among the others; each has its own shape, so that colour alone tells nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// One of the tried: a dot.
    Sample,
    /// The default, measured again in turns with the candidate: a hollow diamond.
    AbDefault,
    /// The candidate, measured in turns with the default: a hollow square.
    AbCandidate,
    /// Worth naming for another reason: a triangle.
    Other,
    /// The setting that was in force before: a diamond.
    Default,
    /// The winner: a star.
    Best,
}

/// What a shape is drawn on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Ground {
    /// The page: each kind has its colour.
    Page,
    /// A colour of the scale: all are white with a dark edge.
    Shade,
}

impl Kind {
    /// What all of a kind are called in a legend.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Sample => "sample",
            Kind::AbDefault => "default, in turns with the candidate",
            Kind::AbCandidate => "candidate, in turns with the default",
            Kind::Other => "other",
            Kind::Default => "default",
            Kind::Best => "best",
        }
    }

    /// Its colour on the page.
    pub(super) fn colour(self) -> RGBAColor {
        match self {
            Kind::Sample => SERIES[0],
            Kind::AbDefault | Kind::Default => SERIES[1],
            Kind::AbCandidate | Kind::Best => SERIES[2],
            Kind::Other => SERIES[3],
        }
    }

    /// Draws its shape as large as a circle of that radius looks.
    pub(super) fn draw(
        self,
        canvas: &Canvas,
        at: At,
        radius: f64,
        ground: Ground,
    ) -> Result<(), FigureError> {
        let (fill, edge) = match ground {
            Ground::Page => (self.colour(), PAPER),
            Ground::Shade => (ON_DARK, ON_BRIGHT),
        };
        let thick = Stroke {
            colour: if ground == Ground::Page { fill } else { edge },
            width: (radius * 0.4).max(1.2),
        };
        let thin = Stroke {
            colour: edge,
            width: if ground == Ground::Page { 0.8 } else { 1.3 },
        };
        match self {
            Kind::Sample => {
                canvas.disc(at, radius, fill)?;
                canvas.ring(at, radius, thin)
            }
            Kind::AbDefault | Kind::AbCandidate => {
                canvas.polygon(
                    self.outline(at, radius),
                    if ground == Ground::Page { PAPER } else { fill },
                )?;
                canvas.line(closed(self.outline(at, radius * 0.9)), thick)
            }
            Kind::Other | Kind::Default | Kind::Best => {
                canvas.polygon(self.outline(at, radius), fill)?;
                canvas.line(closed(self.outline(at, radius)), thin)
            }
        }
    }

    /// Its corners.
    fn outline(self, at: At, radius: f64) -> Vec<At> {
        let corner = |angle: f64, far: f64| (at.0 + far * angle.cos(), at.1 - far * angle.sin());
        match self {
            Kind::AbCandidate => (0..4)
                .map(|i| corner(PI / 4.0 + f64::from(i) * FRAC_PI_2, radius * 1.25))
                .collect(),
            Kind::AbDefault | Kind::Default => (0..4)
                .map(|i| corner(f64::from(i) * FRAC_PI_2, radius * 1.3))
                .collect(),
            Kind::Other => (0..3)
                .map(|i| corner(FRAC_PI_2 + f64::from(i) * 2.0 * PI / 3.0, radius * 1.3))
                .collect(),
            Kind::Best => (0..10)
                .map(|i| {
                    let far = if i % 2 == 0 { radius * 1.5 } else { radius * 0.65 };
                    corner(FRAC_PI_2 + f64::from(i) * PI / 5.0, far)
                })
                .collect(),
            Kind::Sample => Vec::new(), // no corners
        }
    }
}

fn closed(mut corners: Vec<At>) -> Vec<At> {
    // One edge more, so that the last corner is as sharp as the others.
    let again: Vec<At> = corners.iter().take(2).copied().collect();
    corners.extend(again);
    corners
}
