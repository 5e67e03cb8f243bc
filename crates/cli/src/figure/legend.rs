//! Symbols and what they mean, below a figure.

use super::FigureError;
use super::canvas::{Anchor, Area, At, Canvas, Lettering};
use super::colour::{INK, SERIES, shade, thin};
use super::font::{self, fitted};
use super::frame::{BAND, FITTED, hatched};
use super::marks::{Ground, Kind};

/// Names in legends.
const NAME: Lettering = Lettering {
    colour: INK,
    size: 12.0,
    bold: false,
};
const LINE_HEIGHT: f64 = 19.0;
/// Room of a symbol before its name, and after a name.
const SYMBOL: f64 = 20.0;
const AFTER_NAME: f64 = 18.0;

/// What a legend's symbol looks like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Symbol {
    /// A shape on that ground.
    Mark(Kind, Ground),
    /// A hatched box: no result.
    Hatched,
    /// A line with its band.
    Line,
    /// Colours that fade.
    Faded,
}

/// Symbols and their names, in rows.
#[derive(Clone, Debug)]
pub(super) struct Legend {
    rows: Vec<Vec<(Symbol, String)>>,
}

impl Legend {
    pub(super) fn new(entries: Vec<(Symbol, String)>, width: f64) -> Self {
        let mut rows: Vec<Vec<(Symbol, String)>> = Vec::new();
        let mut used = 0.0;
        for (symbol, name) in entries {
            let name = fitted(&name, NAME.size, NAME.bold, width - SYMBOL);
            let wide = entry_width(&name);
            match rows.last_mut() {
                Some(row) if used + wide - AFTER_NAME <= width => {
                    row.push((symbol, name));
                    used += wide;
                }
                _ => {
                    rows.push(vec![(symbol, name)]);
                    used = wide;
                }
            }
        }
        Legend { rows }
    }

    pub(super) fn height(&self) -> f64 {
        self.rows.len() as f64 * LINE_HEIGHT
    }

    pub(super) fn draw(&self, canvas: &Canvas, at: At) -> Result<(), FigureError> {
        for (row, entries) in self.rows.iter().enumerate() {
            let y = at.1 + (row as f64 + 0.5) * LINE_HEIGHT;
            let mut x = at.0;
            for (symbol, name) in entries {
                symbol.draw(canvas, (x + 7.0, y))?;
                canvas.centred(name, (x + SYMBOL, y), Anchor::Start, NAME)?;
                x += entry_width(name);
            }
        }
        Ok(())
    }
}

fn entry_width(name: &str) -> f64 {
    SYMBOL + font::width(name, NAME.size, NAME.bold) + AFTER_NAME
}

impl Symbol {
    fn draw(self, canvas: &Canvas, at: At) -> Result<(), FigureError> {
        let area = Area {
            x: at.0 - 7.0,
            y: at.1 - 5.0,
            width: 14.0,
            height: 10.0,
        };
        match self {
            Symbol::Mark(kind, ground) => kind.draw(canvas, at, 5.0, ground),
            Symbol::Hatched => hatched(canvas, &area),
            Symbol::Line => {
                canvas.fill(&area, thin(SERIES[5], BAND))?;
                canvas.line(vec![(area.x, at.1), (area.right(), at.1)], FITTED)
            }
            Symbol::Faded => {
                for i in 0..4 {
                    let part = Area {
                        x: area.x + 3.5 * f64::from(i),
                        width: 3.5,
                        ..area
                    };
                    canvas.fill(&part, thin(shade(0.35), 1.0 - 0.24 * f64::from(i)))?;
                }
                Ok(())
            }
        }
    }
}
