//! A map of all combinations of two knobs, a cell each: what a sweep found.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::canvas::{Anchor, Area, Canvas, Lettering, Stroke};
use super::colour::{ON_BRIGHT, ON_DARK, SOFT, Scale, Shades, readable_on, shade};
use super::frame::{below, beside, beside_width, hatched};
use super::legend::Symbol;
use super::marks::{Ground, Kind};
use super::sheet::{Around, Sheet};
use super::spacing::{AxisValues, tick};
use super::{Figure, FigureError, font};

/// What every combination of two knobs brought: one cell each, its colour the value, best and default marked.
#[derive(Clone, Debug)]
pub(crate) struct HeatMap {
    /// What it shows, in a few words.
    pub(crate) title: String,
    /// What else is worth knowing (workload, machine, repeats); may be empty.
    pub(crate) subtitle: String,
    /// The knob from left to right.
    pub(crate) x: AxisValues,
    /// The knob from bottom to top.
    pub(crate) y: AxisValues,
    /// Cells in any order; combinations without one stay blank.
    pub(crate) cells: Vec<Cell>,
    /// Cells that stand out.
    pub(crate) marks: Vec<Mark>,
    /// What the colour says.
    pub(crate) scale: Scale,
}

/// One combination of the two knobs.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    /// Which of the x values; a cell off the map is not drawn.
    pub(crate) x: usize,
    /// Which of the y values.
    pub(crate) y: usize,
    /// What was measured; none (or no number) if it has no result, and the cell is hatched.
    pub(crate) value: Option<f64>,
    /// What stands in the cell, where it is large enough: the value with few digits, or why there is none ("failed").
    pub(crate) text: String,
}

/// A cell that stands out, and its name in the legend.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    /// Which of the x values.
    pub(crate) x: usize,
    /// Which of the y values.
    pub(crate) y: usize,
    /// Its shape.
    pub(crate) kind: Kind,
    /// What the legend says, such as "best: 16 MB, 2.5 ms"; once, where several have the same kind and name.
    pub(crate) name: String,
}

/// What a cell would like to have, and what all of them may have together.
const COLUMN: f64 = 78.0;
const ROW: f64 = 46.0;
const PLOT_WIDTH: (f64, f64) = (340.0, 660.0);
const PLOT_HEIGHT: (f64, f64) = (60.0, 500.0);

/// Sizes that the text in cells may have; below the last there is none.
const TEXT_SIZES: [f64; 4] = [13.0, 12.0, 11.0, 9.5];

/// Where everything is.
struct Layout {
    sheet: Sheet,
    columns: Vec<(f64, f64)>,
    rows: Vec<(f64, f64)>,
}

impl HeatMap {
    fn layout(&self) -> Layout {
        let side =
            |count: usize, each: f64, (least, most): (f64, f64)| (count as f64 * each).clamp(least, most);
        let plot_width = side(self.x.values.len(), COLUMN, PLOT_WIDTH);
        let plot_height = side(self.y.values.len(), ROW, PLOT_HEIGHT);
        let rows = self.y.bands(plot_height);
        let around = Around::scaled(beside_width(&middles(&rows, &self.y.values)));
        Layout {
            sheet: Sheet::new(
                (&self.title, &self.subtitle),
                (plot_width, plot_height),
                around,
                self.legend(),
            ),
            columns: self.x.bands(plot_width),
            rows,
        }
    }

    fn legend(&self) -> Vec<(Symbol, String)> {
        let mut marks: Vec<&Mark> = self.marks.iter().collect();
        marks.sort_by_key(|mark| Reverse(mark.kind));
        let mut entries: Vec<_> = marks
            .into_iter()
            .map(|mark| (Symbol::Mark(mark.kind, Ground::Shade), mark.name.clone()))
            .collect();
        // Marks of one name are explained once.
        entries.dedup();
        if self.cells.iter().any(|cell| number(cell).is_none()) {
            entries.push((Symbol::Hatched, "no result".to_owned()));
        }
        entries
    }

    /// The largest size in which every value fits its cell.
    fn text_size(&self, layout: &Layout) -> Option<f64> {
        let fits = |size: f64| {
            self.cells
                .iter()
                .filter(|cell| number(cell).is_some())
                .all(|cell| {
                    let Some(area) = layout.cell(cell.x, cell.y) else {
                        return true;
                    };
                    font::width(&cell.text, size, false) + 6.0 <= area.width && size + 4.0 <= area.height
                })
        };
        TEXT_SIZES.into_iter().find(|size| fits(*size))
    }
}

impl Layout {
    /// Where a cell is, its share of the gaps included; none if it is off the map.
    fn cell(&self, x: usize, y: usize) -> Option<Area> {
        let (&(left, width), &(low, height)) = (self.columns.get(x)?, self.rows.get(y)?);
        // Whole, so that neighbours meet without a seam.
        let (from, to) = (left.round(), (left + width).round());
        let (bottom, top) = (low.round(), (low + height).round());
        Some(Area {
            x: self.sheet.plot.x + from,
            y: self.sheet.plot.bottom() - top,
            width: to - from,
            height: top - bottom,
        })
    }

    /// Half of what separates neighbours: nothing if they are so many that gaps would be all there is to see.
    fn gap(&self) -> f64 {
        let narrow = |bands: &[(f64, f64)]| bands.iter().map(|band| band.1).fold(f64::INFINITY, f64::min);
        match narrow(&self.columns).min(narrow(&self.rows)) {
            side if side >= 24.0 => 1.0,
            side if side >= 12.0 => 0.5,
            _ => 0.0,
        }
    }
}

fn number(cell: &Cell) -> Option<f64> {
    cell.value.filter(|value| value.is_finite())
}

fn middles(bands: &[(f64, f64)], values: &[f64]) -> Vec<(f64, String)> {
    bands
        .iter()
        .zip(values)
        .map(|((from, width), value)| (from + width / 2.0, tick(*value)))
        .collect()
}

impl Figure for HeatMap {
    fn title(&self) -> &str {
        &self.title
    }

    fn size(&self) -> (u32, u32) {
        self.layout().sheet.size()
    }

    fn draw(&self, canvas: &Canvas) -> Result<(), FigureError> {
        let layout = self.layout();
        let shades = Shades::new(
            self.cells.iter().filter_map(number),
            self.scale.better,
            self.scale.noise,
        );
        layout.sheet.draw_heading(canvas)?;
        self.draw_cells(canvas, &layout, &shades)?;
        self.draw_marks(canvas, &layout)?;
        let plot = &layout.sheet.plot;
        below(
            canvas,
            plot,
            &middles(&layout.columns, &self.x.values),
            &self.x.name(),
        )?;
        beside(
            canvas,
            plot,
            &middles(&layout.rows, &self.y.values),
            &self.y.name(),
        )?;
        layout.sheet.draw_scale(canvas, &self.scale.label, &shades)?;
        layout.sheet.draw_legend(canvas)
    }
}

impl HeatMap {
    fn draw_cells(&self, canvas: &Canvas, layout: &Layout, shades: &Shades) -> Result<(), FigureError> {
        let size = self.text_size(layout);
        let marks = self.marks_of_cells();
        for cell in &self.cells {
            let Some(area) = layout.cell(cell.x, cell.y) else {
                continue;
            };
            let area = area.inside(layout.gap());
            let (value, marked) = (number(cell), marks.get(&(cell.x, cell.y)).map_or(0, Vec::len));
            let (colour, size, room) = match value {
                Some(value) => {
                    let shade = shade(shades.at(value));
                    canvas.fill(&area, shade)?;
                    (readable_on(shade), size, 0.0)
                }
                None => {
                    hatched(canvas, &area)?;
                    (SOFT, Some(size.unwrap_or(TEXT_SIZES[3]).min(12.0)), 2.0)
                }
            };
            let Some(size) = size else { continue };
            let wide = font::width(&cell.text, size, false);
            if wide + room > area.width || size + room > area.height {
                continue;
            }
            // Out of the way of marks in the corner.
            let (mut x, mut y) = area.centre();
            let corner = corner(&area, marked);
            if marked > 0 && x - wide / 2.0 < corner.right() + 2.0 {
                let half = font::CAPITALS * size / 2.0;
                let (right, low) = (corner.right() + 2.0 + wide / 2.0, corner.bottom() + 2.0 + half);
                if low + half + ABOVE_EDGE > area.bottom() && right + wide / 2.0 + BESIDE_EDGE <= area.right()
                {
                    x = right;
                } else {
                    y = y.max(low).min(area.bottom() - half - ABOVE_EDGE);
                }
            }
            let lettering = Lettering {
                colour,
                size,
                bold: false,
            };
            canvas.centred(&cell.text, (x, y), Anchor::Middle, lettering)?;
        }
        Ok(())
    }

    /// What stands out in each cell, the most important first.
    fn marks_of_cells(&self) -> BTreeMap<(usize, usize), Vec<Kind>> {
        let mut marks: BTreeMap<(usize, usize), Vec<Kind>> = BTreeMap::new();
        for mark in &self.marks {
            marks.entry((mark.x, mark.y)).or_default().push(mark.kind);
        }
        for kinds in marks.values_mut() {
            kinds.sort_by_key(|kind| Reverse(*kind));
            kinds.dedup();
        }
        marks
    }

    fn draw_marks(&self, canvas: &Canvas, layout: &Layout) -> Result<(), FigureError> {
        let text = self.text_size(layout).is_some();
        for ((x, y), kinds) in self.marks_of_cells() {
            let Some(area) = layout.cell(x, y) else { continue };
            let area = area.inside(layout.gap());
            let small = area.width.min(area.height) < 16.0;
            if let Some(kind) = kinds.first().filter(|kind| **kind != Kind::Other && !small) {
                edge(canvas, &area, *kind)?;
            }
            for (i, kind) in kinds.iter().enumerate() {
                let along = i as f64 * MARK_APART;
                let at = match text {
                    true => (area.x + CORNER + along, area.y + CORNER),
                    false => (area.centre().0 + along, area.centre().1),
                };
                kind.draw(canvas, at, MARK, Ground::Shade)?;
            }
        }
        Ok(())
    }
}

/// Between a value that makes way for a mark and the cell's edge, which may be marked too.
const BESIDE_EDGE: f64 = 4.0;
const ABOVE_EDGE: f64 = 3.0;

/// Size of marks, distance of the first from the edges, and of one from the next.
const MARK: f64 = 4.4;
const CORNER: f64 = 10.5;
const MARK_APART: f64 = 14.0;

/// What so many marks take of a cell's upper left corner.
fn corner(area: &Area, marks: usize) -> Area {
    let reach = CORNER + 1.4 * MARK;
    Area {
        x: area.x,
        y: area.y,
        width: reach + MARK_APART * marks.saturating_sub(1) as f64,
        height: reach,
    }
}

/// A cell's edge, seen on every colour: dark outside, bright inside; of the best without a gap, of others in dashes.
fn edge(canvas: &Canvas, area: &Area, kind: Kind) -> Result<(), FigureError> {
    let width = if area.width.min(area.height) >= 18.0 {
        2.0
    } else {
        1.2
    };
    let dark = Stroke {
        colour: ON_BRIGHT,
        width,
    };
    let bright = Stroke {
        colour: ON_DARK,
        ..dark
    };
    if kind == Kind::Best {
        canvas.frame(area, dark)?;
        return canvas.frame(
            &area.inside(width),
            Stroke {
                width: width * 0.7,
                ..bright
            },
        );
    }
    canvas.frame(area, bright)?;
    let corners = area.inside(width / 2.0).corners();
    for i in 0..4 {
        canvas.dashes(corners[i], corners[(i + 1) % 4], dark, 2.5 * width)?;
    }
    Ok(())
}
