//! What all figures have around what they show: title, axes, the scale of colours.

use super::FigureError;
use super::canvas::{Anchor, Area, At, Canvas, Lettering, Stroke};
use super::colour::{INK, LINE, ON_BRIGHT, PANEL, SERIES, SOFT, Shades, shade, thin};
use super::font::{self, fitted, lines};

/// Between a figure's edge and whatever is in it.
pub(super) const MARGIN: f64 = 16.0;

/// The figure's name.
const TITLE: Lettering = Lettering {
    colour: INK,
    size: 16.0,
    bold: true,
};
/// What else there is to know.
const SUBTITLE: Lettering = Lettering {
    colour: SOFT,
    size: 12.0,
    bold: false,
};
/// Names of axes.
pub(super) const LABEL: Lettering = Lettering {
    colour: SOFT,
    size: 12.0,
    bold: false,
};
/// Values on axes.
pub(super) const TICK: Lettering = Lettering {
    colour: SOFT,
    size: 11.5,
    bold: false,
};

/// Lines along a plot's edges.
pub(super) const AXIS: Stroke = Stroke {
    colour: SOFT,
    width: 1.0,
};
/// Lines across a plot.
pub(super) const GRID: Stroke = Stroke {
    colour: LINE,
    width: 1.0,
};

const TITLE_LINE: f64 = 20.0;
const SUBTITLE_LINE: f64 = 16.0;

/// Title and subtitle, broken into lines.
#[derive(Clone, Debug)]
pub(super) struct Heading {
    title: Vec<String>,
    subtitle: Vec<String>,
}

impl Heading {
    pub(super) fn new(title: &str, subtitle: &str, width: f64) -> Self {
        Heading {
            title: lines(title, TITLE.size, TITLE.bold, width, 2),
            subtitle: lines(subtitle, SUBTITLE.size, SUBTITLE.bold, width, 3),
        }
    }

    pub(super) fn height(&self) -> f64 {
        self.title.len() as f64 * TITLE_LINE + self.subtitle.len() as f64 * SUBTITLE_LINE + 6.0
    }

    pub(super) fn draw(&self, canvas: &Canvas, at: At) -> Result<(), FigureError> {
        let mut y = at.1;
        for line in &self.title {
            canvas.text(line, (at.0, y + 15.0), Anchor::Start, TITLE)?;
            y += TITLE_LINE;
        }
        for line in &self.subtitle {
            canvas.text(line, (at.0, y + 12.0), Anchor::Start, SUBTITLE)?;
            y += SUBTITLE_LINE;
        }
        Ok(())
    }
}

/// How much of what is behind a band is not seen.
pub(super) const BAND: f64 = 0.2;
/// What a model made of the measurements.
pub(super) const FITTED: Stroke = Stroke {
    colour: SERIES[5],
    width: 1.6,
};
/// Levels across a plot.
pub(super) const REFERENCE: Stroke = Stroke {
    colour: INK,
    width: 1.2,
};

/// A box without a value.
pub(super) fn hatched(canvas: &Canvas, area: &Area) -> Result<(), FigureError> {
    const APART: f64 = 7.0;
    let hatch = Stroke {
        colour: LINE,
        width: 1.2,
    };
    canvas.fill(area, PANEL)?;
    // Lines from the lower left to the upper right: x + y is the same all along each.
    let (from, to) = (area.x + area.y, area.right() + area.bottom());
    let first = (from / APART).floor() as i64 + 1;
    for i in first..first + 2000 {
        let sum = APART * i as f64;
        if sum >= to {
            break;
        }
        let low = (sum - area.bottom()).max(area.x);
        let high = (sum - area.y).min(area.right());
        canvas.line(vec![(low, sum - low), (high, sum - high)], hatch)?;
    }
    canvas.frame(area, hatch)
}

/// Names below a plot, as many as find room.
pub(super) fn below(
    canvas: &Canvas,
    plot: &Area,
    ticks: &[(f64, String)],
    label: &str,
) -> Result<(), FigureError> {
    let mut end = f64::NEG_INFINITY;
    for (at, name) in ticks {
        let x = plot.x + at;
        let half = font::width(name, TICK.size, TICK.bold) / 2.0;
        canvas.line(vec![(x, plot.bottom()), (x, plot.bottom() + 4.0)], AXIS)?;
        // Long names at the end would go beyond the figure's edge.
        let x = x.min(plot.right() + MARGIN - 1.0 - half);
        if x - half >= end + 5.0 {
            canvas.text(name, (x, plot.bottom() + 16.0), Anchor::Middle, TICK)?;
            end = x + half;
        }
    }
    let label = fitted(label, LABEL.size, LABEL.bold, plot.width.max(200.0));
    canvas.text(
        &label,
        (plot.centre().0, plot.bottom() + 34.0),
        Anchor::Middle,
        LABEL,
    )
}

/// Height of what [`below`] draws.
pub(super) const BELOW: f64 = 40.0;

/// Names left of a plot, as many as find room; their places are counted from its lower edge.
pub(super) fn beside(
    canvas: &Canvas,
    plot: &Area,
    ticks: &[(f64, String)],
    label: &str,
) -> Result<(), FigureError> {
    let mut end = f64::NEG_INFINITY;
    for (at, name) in ticks {
        let y = plot.bottom() - at;
        canvas.line(vec![(plot.x - 4.0, y), (plot.x, y)], AXIS)?;
        if *at >= end + TICK.size + 1.0 {
            canvas.centred(name, (plot.x - 8.0, y), Anchor::End, TICK)?;
            end = *at;
        }
    }
    // Not above the plot, where the title is; below is room.
    let label = fitted(label, LABEL.size, LABEL.bold, plot.height + BELOW);
    let half = font::width(&label, LABEL.size, LABEL.bold) / 2.0;
    let middle = plot.centre().1.max(plot.y + half);
    canvas.upwards(&label, (MARGIN + LABEL.size, middle), LABEL)
}

/// Width of what [`beside`] draws, with the margin.
pub(super) fn beside_width(ticks: &[(f64, String)]) -> f64 {
    // Whole, so that what is drawn from here on has sharp edges.
    (MARGIN + LABEL.size + 10.0 + widest(ticks) + 8.0).ceil()
}

fn widest(ticks: &[(f64, String)]) -> f64 {
    ticks
        .iter()
        .map(|(_, name)| font::width(name, TICK.size, TICK.bold))
        .fold(0.0, f64::max)
}

/// Height of what [`scale_bar`] draws.
pub(super) const SCALE_BAR: f64 = 54.0;

/// The scale's colours with what they say, its label above.
pub(super) fn scale_bar(
    canvas: &Canvas,
    at: At,
    width: f64,
    label: &str,
    shades: &Shades,
) -> Result<(), FigureError> {
    const STEPS: u32 = 100;
    let label = fitted(label, LABEL.size, LABEL.bold, width);
    canvas.text(&label, (at.0, at.1 + 11.0), Anchor::Start, LABEL)?;
    let bar = Area {
        x: at.0,
        y: at.1 + 18.0,
        width,
        height: 12.0,
    };
    for i in 0..STEPS {
        let share = f64::from(i) / f64::from(STEPS);
        let step = Area {
            x: bar.x + share * width,
            // Up to the end, under the steps that follow: no seams.
            width: (1.0 - share) * width,
            ..bar
        };
        canvas.fill(&step, shade((f64::from(i) + 0.5) / f64::from(STEPS)))?;
    }
    let mut end = f64::NEG_INFINITY;
    for (share, name) in shades.ticks() {
        let x = bar.x + share * width;
        let wide = font::width(&name, TICK.size, TICK.bold);
        canvas.line(vec![(x, bar.bottom()), (x, bar.bottom() + 4.0)], AXIS)?;
        let from = (x - wide / 2.0).clamp(bar.x, (bar.right() - wide).max(bar.x));
        if from >= end + 6.0 {
            canvas.text(&name, (from, bar.bottom() + 16.0), Anchor::Start, TICK)?;
            end = from + wide;
        }
    }
    let edge = Stroke {
        colour: thin(ON_BRIGHT, 0.35),
        width: 0.6,
    };
    canvas.frame(&bar, edge)
}
