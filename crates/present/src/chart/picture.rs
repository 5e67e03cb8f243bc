//! Charts as SVG and PNG files: plotters draws the SVG, and resvg converts it to PNG, so that both
//! show the same picture.
//!
//! The text of a PNG uses a font in the binary (`assets/fonts/`), because a server may have no
//! fonts.

use maud::{PreEscaped, html};
use plotters::coord::CoordTranslate;
use plotters::coord::Shift;
use plotters::coord::combinators::LogCoord;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use resvg::{tiny_skia, usvg};
use std::sync::{Arc, LazyLock};

use super::scale::{self, Key, round_values, tick};
use super::{Axis, Chart, Data, Point, Rect, Rule, Series, Shape, Unit};
use crate::html::STYLE;
use crate::html::text::{Foreign, shortened, visible};
use crate::{units as number, wrapped};

/// Error of drawing a picture.
#[derive(Debug, thiserror::Error)]
pub enum PictureError {
    /// The plot library failed.
    #[error("cannot draw the chart \"{title}\": {reason}")]
    Draw {
        /// Title of the chart.
        title: String,
        /// Error text of the library.
        reason: String,
    },
    /// The SVG could not be converted to PNG.
    #[error("cannot make a PNG of the chart \"{title}\": {reason}; its SVG may still be written")]
    Png {
        /// Title of the picture.
        title: String,
        /// Error text of the library.
        reason: String,
    },
}

/// Width in plotters' pixels. The SVG states half of it, so that the whole pixels to which plotters
/// rounds are half pixels on the screen.
const WIDTH: u32 = 1520;
const MARGIN: i32 = 28;
const FONT: &str = "Liberation Sans, Arial, Helvetica, sans-serif";
const TITLE: i32 = 40;
const TEXT: i32 = 29;
const LINE: i32 = 36;
/// Height of the colour scale's legend.
const KEY: i32 = 110;
/// Approximate width of a character of size [`TEXT`].
const CHARACTER: f64 = 12.6;

const INK: RGBColor = RGBColor(0x1a, 0x1f, 0x24);
const SOFT: RGBColor = RGBColor(0x55, 0x60, 0x6b);
const GRID: RGBColor = RGBColor(0xd5, 0xdb, 0xe1);

/// Black or white, whichever is more readable on this colour over a white background (relative
/// luminance of WCAG 2.2).
fn readable_on(RGBAColor(red, green, blue, alpha): RGBAColor) -> RGBColor {
    let linear = |part: u8| match (f64::from(part) * alpha + 255.0 * (1.0 - alpha)) / 255.0 {
        part if part <= 0.04045 => part / 12.92,
        part => ((part + 0.055) / 1.055).powf(2.4),
    };
    if 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue) > 0.18 {
        RGBColor(0x10, 0x15, 0x1a)
    } else {
        RGBColor(0xfa, 0xfc, 0xfd)
    }
}

/// Returns the colour of a hexadecimal value, or of a variable of the common style in the light
/// scheme, which comes first there.
fn rgb(colour: &str) -> RGBAColor {
    let value = match STYLE.split_once(&format!("{colour}: ")) {
        Some((_, value)) => value.split(';').next().unwrap_or(value),
        None => colour,
    };
    let part = |at: usize| u8::from_str_radix(value.get(at..at + 2)?, 16).ok();
    let [red, green, blue] = [1, 3, 5].map(|at| part(at).unwrap_or(0));
    let alpha = part(7).map_or(1.0, |alpha| f64::from(alpha) / 255.0);
    RGBAColor(red, green, blue, alpha)
}

/// Renders the charts, one below the other, as an SVG with this title.
///
/// # Errors
/// [`PictureError::Draw`] if the plot library fails.
pub fn svg(title: &str, charts: &[&Chart]) -> Result<String, PictureError> {
    let height = charts
        .iter()
        .map(|chart| chart.picture_height())
        .sum::<u32>();
    let height = height.max(1);
    let mut text = String::new();
    let mut rest = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
    for chart in charts {
        let (area, below) = rest.split_vertically(chart.picture_height());
        chart.draw(&area).map_err(|reason| PictureError::Draw {
            title: chart.title.clone(),
            reason: reason.to_string(),
        })?;
        rest = below;
    }
    drop(rest);
    // Replace the root element: the new one has a title and half the size.
    let inside = text.find('>').map_or("", |end| &text[end + 1..]);
    let inside = inside.trim().strip_suffix("</svg>").unwrap_or(inside);
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(WIDTH / 2) height=(height / 2)
            viewBox=(format!("0 0 {WIDTH} {height}"))
            role="img" aria-labelledby="title" stroke-linejoin="round" {
            title id="title" { (Foreign(title)) }
            rect width="100%" height="100%" fill="#FFFFFF" {}
            (PreEscaped(inside))
        }
    };
    Ok(picture.into_string() + "\n")
}

/// Renders the charts, one below the other, as a PNG with this title.
///
/// # Errors
/// [`PictureError`] if the plot library fails or the image cannot be made.
pub fn png(title: &str, charts: &[&Chart]) -> Result<Vec<u8>, PictureError> {
    let failed = |reason: String| PictureError::Png {
        title: title.to_owned(),
        reason,
    };
    let options = usvg::Options {
        fontdb: Arc::clone(&FONTS),
        ..usvg::Options::default()
    };
    let svg = svg(title, charts)?;
    let tree = usvg::Tree::from_str(&svg, &options).map_err(|error| failed(error.to_string()))?;
    let (width, height) = (2.0 * tree.size().width(), 2.0 * tree.size().height());
    let mut pixels = tiny_skia::Pixmap::new(width as u32, height as u32).ok_or_else(|| {
        failed(format!(
            "{width} × {height} pixels are not a size of an image"
        ))
    })?;
    let scale = tiny_skia::Transform::from_scale(2.0, 2.0);
    resvg::render(&tree, scale, &mut pixels.as_mut());
    pixels
        .encode_png()
        .map_err(|error| failed(error.to_string()))
}

/// Licence of the font in the binary.
pub const FONT_LICENCE: &str = include_str!("../../assets/fonts/LICENSE-OFL");

/// Font database with the font in the binary as the only sans-serif font. Fonts of the machine are
/// not used, so that a PNG is the same everywhere.
static FONTS: LazyLock<Arc<usvg::fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_font_data(include_bytes!("../../assets/fonts/RondeFigures-Regular.ttf").to_vec());
    fonts.load_font_data(include_bytes!("../../assets/fonts/RondeFigures-Bold.ttf").to_vec());
    let names = fonts.faces().flat_map(|face| &face.families);
    let name = names.map(|(name, _)| name.clone()).next();
    fonts.set_sans_serif_family(name.unwrap_or_default());
    Arc::new(fonts)
});

impl Axis {
    /// Position of a value on the axis in linear coordinates: its logarithm if the axis is
    /// logarithmic.
    fn place(&self, value: f64) -> f64 {
        let value = value.clamp(self.from, self.to);
        if self.log { value.log10() } else { value }
    }

    /// Labelled values, by default those that plotters chooses.
    fn labelled(&self) -> Vec<(f64, String)> {
        if !self.ticks.is_empty() {
            return self.ticks.clone();
        }
        let values = if self.log {
            LogCoord::from((self.from..self.to).log_scale()).key_points(12)
        } else {
            round_values(self.from, self.to, 10)
        };
        let is_shown = |value: &f64| self.unit != Unit::Count || value.fract() == 0.0;
        let values = values.into_iter().filter(is_shown);
        let named = values.map(|value| match self.unit {
            Unit::Bytes => (value, number::bytes(value as u64)),
            _ => (value, tick(value)),
        });
        named.collect()
    }

    fn title(&self) -> String {
        match self.unit {
            Unit::Ms => format!("{}, ms", self.label),
            _ => self.label.clone(),
        }
    }
}

/// Axis in the form that plotters requires: linear coordinates, and the labelled positions.
struct Places {
    range: std::ops::Range<f64>,
    ticks: Vec<(f64, String)>,
}

impl Places {
    fn of(axis: &Axis) -> Self {
        let ticks = axis.labelled().into_iter();
        Places {
            range: axis.place(axis.from)..axis.place(axis.to),
            ticks: ticks
                .map(|(value, name)| (axis.place(value), name))
                .collect(),
        }
    }
}

impl Ranged for Places {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.range.clone()).map(value, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let every = self
            .ticks
            .len()
            .div_ceil(hint.max_num_points().max(1))
            .max(1);
        let ticks = self.ticks.iter().step_by(every);
        ticks.map(|(place, _)| *place).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Places {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|(place, _)| place == value);
        tick.map_or_else(String::new, |(_, name)| name.clone())
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn font<'a>(size: i32, colour: &'a impl Color) -> TextStyle<'a> {
    (FONT, size).into_text_style(&(1000, 1000)).color(colour)
}

/// Style of a text on the right of its position.
fn beside(size: i32) -> TextStyle<'static> {
    font(size, &INK).pos(Pos::new(HPos::Left, VPos::Center))
}

/// Approximate width of a text in pixels.
fn width(text: &str) -> i32 {
    (text.chars().count() as f64 * CHARACTER) as i32
}

impl Chart {
    fn heading(&self) -> Vec<(String, i32)> {
        let lines = |text: &str, size: i32| {
            let most = (f64::from(WIDTH) - 60.0) / CHARACTER * f64::from(TEXT) / f64::from(size);
            let lines = wrapped("", &visible(text), most as usize).into_iter();
            let lines = lines.filter(|line| !line.is_empty());
            lines.map(move |line| (shortened(&line, most as usize), size))
        };
        let title = lines(&self.title, TITLE);
        title.chain(lines(&self.description, TEXT)).collect()
    }

    /// Entries of the legend in rows: series, name and width in pixels.
    fn legend(&self) -> Vec<Vec<(&Series, String, i32)>> {
        let mut left = 0;
        let mut rows: Vec<Vec<(&Series, String, i32)>> = Vec::new();
        for series in self.series.iter().filter(|series| !series.name.is_empty()) {
            let name = shortened(&visible(&series.name), 105);
            let width = width(&name) + 80;
            if rows.is_empty() || width > left {
                rows.push(Vec::new());
                left = WIDTH as i32 - 2 * MARGIN - 100;
            }
            left -= width;
            rows.last_mut()
                .expect("there is a row")
                .push((series, name, width));
        }
        rows
    }

    fn picture_height(&self) -> u32 {
        let heading: i32 = self.heading().iter().map(|(_, size)| size + 8).sum();
        let key = if self.scale.is_some() { KEY } else { 0 };
        let legend = self.legend().len() as i32 * LINE;
        (heading + 2 * self.height_px as i32 + key + legend + 3 * MARGIN) as u32
    }

    fn draw(&self, area: &Area) -> Drawn {
        let mut top = MARGIN;
        for (line, size) in self.heading() {
            let colour = if size == TITLE { INK } else { SOFT };
            area.draw_text(&line, &font(size, &colour), (MARGIN, top))?;
            top += size + 8;
        }
        let (width, _) = area.dim_in_pixel();
        let plot = area.clone().shrink((0, top), (width, 2 * self.height_px));
        self.draw_plot(&plot)?;
        top += 2 * self.height_px as i32;
        if let Some(key) = &self.scale {
            draw_key(&area.clone().shrink((0, top), (width, KEY as u32)), key)?;
            top += KEY;
        }
        top += 8;
        for row in self.legend() {
            let mut x = MARGIN + 100;
            for (series, name, width) in row {
                draw_sample(area, series, (x, top + LINE / 2))?;
                area.draw_text(&name, &beside(TEXT), (x + 30, top + LINE / 2))?;
                x += width;
            }
            top += LINE;
        }
        Ok(())
    }

    fn draw_plot(&self, area: &Area) -> Drawn {
        let (x, y) = (Places::of(&self.x), Places::of(&self.y));
        let (columns, rows) = (x.ticks.len().max(1), y.ticks.len().max(1));
        let widest = y.ticks.iter().map(|(_, name)| width(name)).max();
        let mut context = ChartBuilder::on(area)
            .margin(MARGIN)
            .x_label_area_size(84)
            .y_label_area_size(70 + widest.unwrap_or(0))
            .build_cartesian_2d(x, y)?;
        let cells = self.scale.is_some();
        let mut mesh = context.configure_mesh();
        mesh.x_labels(columns)
            .y_labels(rows)
            .disable_x_mesh()
            .bold_line_style(if cells { WHITE } else { GRID })
            .light_line_style(TRANSPARENT)
            .axis_style(SOFT)
            .label_style(font(TEXT, &SOFT))
            .axis_desc_style(font(TEXT, &SOFT))
            .x_desc(self.x.title())
            .y_desc(self.y.title());
        mesh.draw()?;
        let plane = context.plotting_area();
        for series in &self.series {
            self.draw_series(plane, series)?;
        }
        self.rules
            .iter()
            .try_for_each(|rule| self.draw_rule(plane, rule))
    }

    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (self.x.place(x), self.y.place(y))
    }

    fn draw_series(&self, plane: &Plane, series: &Series) -> Drawn {
        let colour = rgb(series.colour);
        match &series.data {
            Data::Line { points, dashed } => {
                let is_finite = |point: &&[f64; 4]| point.iter().all(|v| v.is_finite());
                let points: Vec<&[f64; 4]> = points.iter().filter(is_finite).collect();
                let low = points.iter().map(|[x, _, low, _]| self.at(*x, *low));
                let high = points.iter().map(|[x, .., high]| self.at(*x, *high));
                let band: Vec<(f64, f64)> = low.chain(high.rev()).collect();
                plane.draw(&Polygon::new(band, colour.mix(0.2)))?;
                let line = points.iter().map(|[x, y, ..]| self.at(*x, *y));
                let style = colour.stroke_width(if *dashed { 2 } else { 4 });
                plane.draw(&PathElement::new(line.collect::<Vec<_>>(), style))
            }
            Data::Points { shape, points } => self.draw_points(plane, *shape, points, colour),
            Data::Boxes { boxes } => boxes
                .iter()
                .try_for_each(|rect| self.draw_box(plane, rect, colour)),
            // Columns are not stacked here: only pages have stacks.
            Data::Columns { columns } => columns.iter().try_for_each(|column| {
                let [left, right] = column.x;
                let corners = [self.at(left, 0.0), self.at(right, column.height)];
                plane.draw(&Rectangle::new(corners, colour.filled()))
            }),
        }
    }

    fn draw_points(
        &self,
        plane: &Plane,
        shape: Shape,
        points: &[Point],
        colour: RGBAColor,
    ) -> Drawn {
        /// Above this number of points, error bars are left out and symbols are small.
        const CROWD: usize = 250;
        let is_finite = |point: &&Point| point.x.is_finite() && point.y.is_finite();
        let points: Vec<&Point> = points.iter().filter(is_finite).collect();
        let is_crowd = points.len() > CROWD;
        let size = if is_crowd { 5 } else { 9 };
        for point in points
            .iter()
            .filter(|point| point.low < point.high && !is_crowd)
        {
            let bar = vec![self.at(point.x, point.low), self.at(point.x, point.high)];
            plane.draw(&PathElement::new(bar, colour.mix(0.75).stroke_width(2)))?;
        }
        for point in points {
            let at = self.at(point.x, point.y);
            draw_symbol(plane, at, shape, size, colour)?;
            if !point.label.is_empty() {
                let right = (f64::from(width(&point.label)) * 0.9) as i32 + size + 8;
                let corners = [(size + 4, -14), (right, 14)];
                let back = Rectangle::new(corners, WHITE.mix(0.7).filled());
                let text = Text::new(visible(&point.label), (size + 6, 0), beside(24));
                plane.draw(&(EmptyElement::at(at) + back + text))?;
            }
        }
        Ok(())
    }

    fn draw_box(&self, plane: &Plane, rect: &Rect, colour: RGBAColor) -> Drawn {
        let colour = match rect.colour.as_str() {
            "" => colour,
            own => rgb(own),
        };
        let (low, high) = (self.at(rect.x[0], rect.y[0]), self.at(rect.x[1], rect.y[1]));
        plane.draw(&Rectangle::new([low, high], colour.filled()))?;
        let [(left, bottom), (right, top)] = [low, high].map(|place| plane.map_coordinate(&place));
        let (width, height) = (right - left, bottom - top);
        let fitting = (width - 8) * TEXT / self::width(&rect.label).max(1);
        let size = fitting.min(TEXT).min(height - 6);
        if rect.label.is_empty() || size < 17 {
            return Ok(());
        }
        let ink = readable_on(colour);
        let style = font(size, &ink).pos(Pos::new(HPos::Center, VPos::Center));
        let middle = ((low.0 + high.0) / 2.0, (low.1 + high.1) / 2.0);
        plane.draw(&Text::new(visible(&rect.label), middle, style))
    }

    fn draw_rule(&self, plane: &Plane, rule: &Rule) -> Drawn {
        let (from, to) = if rule.upright {
            (self.at(rule.at, self.y.from), self.at(rule.at, self.y.to))
        } else {
            (self.at(self.x.from, rule.at), self.at(self.x.to, rule.at))
        };
        let style = INK.mix(0.7).stroke_width(2);
        plane.draw(&PathElement::new(vec![from, to], style))?;
        let style = font(TEXT, &INK).pos(Pos::new(HPos::Right, VPos::Bottom));
        plane.draw(&(EmptyElement::at(to) + Text::new(visible(&rule.name), (-8, -4), style)))
    }
}

type Plane<'a> = DrawingArea<SVGBackend<'a>, Cartesian2d<Places, Places>>;

/// Corners of a symbol around the origin.
fn symbol(shape: Shape, size: i32) -> Vec<(i32, i32)> {
    let corners = |count: u32, turn: f64, far: &dyn Fn(u32) -> f64| {
        (0..count)
            .map(|i| {
                let angle = turn + f64::from(i) * std::f64::consts::TAU / f64::from(count);
                let far = f64::from(size) * far(i);
                (
                    (far * angle.cos()).round() as i32,
                    (-far * angle.sin()).round() as i32,
                )
            })
            .collect()
    };
    let up = std::f64::consts::FRAC_PI_2;
    match shape {
        Shape::Circle => corners(20, 0.0, &|_| 1.0),
        Shape::Square => corners(4, up / 2.0, &|_| 1.25),
        Shape::Triangle => corners(3, up, &|_| 1.3),
        Shape::Diamond | Shape::Hollow => corners(4, up, &|_| 1.3),
        Shape::Star => corners(10, up, &|i| if i % 2 == 0 { 1.8 } else { 0.75 }),
    }
}

/// Draws a symbol with an edge that separates it from those below it.
fn draw_symbol<C: CoordTranslate<From: Clone>>(
    area: &DrawingArea<SVGBackend, C>,
    at: C::From,
    shape: Shape,
    size: i32,
    colour: RGBAColor,
) -> Drawn {
    let white = WHITE.to_rgba();
    let (fill, edge, width) = match shape {
        Shape::Hollow => (white, colour, 3),
        _ => (colour, white, 2),
    };
    let symbol = symbol(shape, size);
    // Repeat the first edge, so that the last corner is as sharp as the others.
    let closed = symbol.iter().chain(symbol.iter().take(2)).copied();
    let edge = PathElement::new(closed.collect::<Vec<_>>(), edge.stroke_width(width));
    area.draw(&(EmptyElement::at(at) + Polygon::new(symbol, fill.filled()) + edge))
}

/// Draws the sample of a series in the legend.
fn draw_sample(area: &Area, series: &Series, at: (i32, i32)) -> Drawn {
    let colour = rgb(series.colour);
    match &series.data {
        Data::Points { shape, .. } => draw_symbol(area, at, *shape, 9, colour),
        Data::Line { .. } => {
            let line = vec![(at.0 - 18, at.1), (at.0 + 18, at.1)];
            area.draw(&PathElement::new(line, colour.stroke_width(4)))
        }
        Data::Boxes { .. } | Data::Columns { .. } => {
            let corners = [(at.0 - 14, at.1 - 10), (at.0 + 14, at.1 + 10)];
            area.draw(&Rectangle::new(corners, colour.filled()))
        }
    }
}

/// Draws the colour scale with its label above and its ticks below.
fn draw_key(area: &Area, key: &Key) -> Drawn {
    const STEPS: i32 = 100;
    let left = MARGIN + 100;
    let width = WIDTH as i32 - left - MARGIN;
    let x = |share: f64| left + (share * f64::from(width)) as i32;
    area.draw_text(&visible(&key.label), &font(TEXT, &SOFT), (left, 4))?;
    for step in 0..STEPS {
        let share = f64::from(step) / f64::from(STEPS);
        let colour = rgb(&scale::colour(share + 0.5 / f64::from(STEPS)));
        // Extend each step to the end, below the steps that follow, so that no seams are
        // visible.
        let corners = [(x(share), 40), (x(1.0), 60)];
        area.draw(&Rectangle::new(corners, colour.filled()))?;
    }
    let mut end = i32::MIN;
    for (share, name) in &key.ticks {
        let wide = self::width(name);
        let from = (x(*share) - wide / 2).clamp(left, x(1.0) - wide);
        if from > end {
            area.draw_text(name, &font(TEXT, &SOFT), (from, 66))?;
            end = from + wide + 12;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::scale::{Better, Shades};

    /// Heat map of two by two cells: one has no value, one has a mark, and the title contains
    /// markup.
    fn heat_map() -> Chart {
        let shades = Shades::new([40.0, 44.0, 80.0], Better::Lower, 0.0);
        let rect = |(i, value): (usize, Option<f64>)| {
            let (x, y) = ((i % 2) as f64, (i / 2) as f64);
            Rect {
                x: [x - 0.5, x + 0.5],
                y: [y - 0.5, y + 0.5],
                colour: value.map_or_else(String::new, |value| scale::colour(shades.at(value))),
                text: String::new(),
                label: value.map_or_else(|| "failed".into(), |value| format!("{value}")),
            }
        };
        let values = [Some(40.0), Some(44.0), Some(80.0), None];
        let boxes = values.into_iter().enumerate().map(rect).collect();
        let points = vec![
            Point::new(0.0, 0.0, "best"),
            Point::new(f64::NAN, 0.0, "nowhere"),
        ];
        Chart {
            description: "two & two".into(),
            x: Axis::places("threshold", ["1", "64"].map(String::from)),
            y: Axis::places("cycle time", ["0.5", "5"].map(String::from)),
            series: vec![
                Series::boxes("", "--line", boxes),
                Series::points("best", "--ink", Shape::Star, points),
            ],
            scale: Some(shades.key("above the best".into())),
            ..Chart::new("heat", "</svg> of \u{1b} all")
        }
    }

    /// Line with a band, error bars and a reference line on a logarithmic axis.
    fn trail() -> Chart {
        let line = (1..=40).map(|i| [f64::from(i), 50.0, 45.0, 60.0]).collect();
        let points = (1..=40)
            .map(|i| Point {
                low: f64::from(i),
                high: 3.0 * f64::from(i),
                label: if i == 7 {
                    "seven".into()
                } else {
                    String::new()
                },
                ..Point::new(f64::from(i), 2.0 * f64::from(i), "")
            })
            .collect();
        Chart {
            x: Axis::linear("trial", Unit::Count, 0.5, 40.5),
            y: Axis::log("step time", Unit::Ms, 1.0, 200.0),
            series: vec![
                Series::line("expected", "--series-5", false, line),
                Series::points("sample", "--series-0", Shape::Hollow, points),
            ],
            rules: vec![Rule {
                upright: false,
                at: 50.0,
                name: "default 50".into(),
            }],
            ..Chart::new("trail", "trials")
        }
    }

    #[test]
    fn an_svg_is_well_formed_and_says_what_the_chart_says() {
        let svg = svg("a < b", &[&heat_map(), &trail()]).unwrap();
        let tree = roxmltree::Document::parse(&svg).unwrap();
        let words = tree.descendants().filter_map(|node| node.text());
        let words: Vec<&str> = words.map(str::trim).collect();
        for word in
            "a < b|two & two|40|80|failed|64|0.5|threshold|above the best|best|+10 %|trials|\
                     step time, ms|default 50|seven|expected|20|100|</svg> of ␛ all"
                .split('|')
        {
            assert!(words.contains(&word), "{word} in {words:?}");
        }
        assert!(!svg.contains("NaN"));
        let size = ["width", "height"].map(|name| tree.root_element().attribute(name));
        assert_eq!(size[0], Some("760"));
        assert!(size[1].unwrap().parse::<u32>().unwrap() > 600);
    }

    #[test]
    fn nothing_is_drawn_outside_of_the_picture() {
        let svg = svg("t", &[&heat_map(), &trail()]).unwrap();
        let tree = roxmltree::Document::parse(&svg).unwrap();
        let height = tree.root_element().attribute("height").unwrap();
        let height = 2.0 * height.parse::<f64>().unwrap();
        for node in tree.descendants().filter(|node| node.has_tag_name("text")) {
            let at = |name: &str| node.attribute(name).unwrap().parse::<f64>().unwrap();
            let is_inside = (0.0..=f64::from(WIDTH)).contains(&at("x"));
            assert!(is_inside && (0.0..=height).contains(&at("y")), "{node:?}");
        }
    }

    #[test]
    fn a_png_shows_the_cells_in_their_colours_and_letters() {
        let png = png("t", &[&heat_map()]).unwrap();
        let pixels = tiny_skia::Pixmap::decode_png(&png).unwrap();
        assert_eq!(pixels.width(), WIDTH);
        let rgb =
            |pixel: &tiny_skia::PremultipliedColorU8| [pixel.red(), pixel.green(), pixel.blue()];
        let count = |wanted| pixels.pixels().iter().filter(|p| rgb(p) == wanted).count();
        // The best and the worst colour of the scale, and the letters of the title.
        assert!(count([0xfe, 0xe8, 0x25]) > 10_000 && count([0x44, 0x01, 0x54]) > 10_000);
        assert!(count([INK.0, INK.1, INK.2]) > 300);
    }

    #[test]
    fn axes_have_round_values() {
        let names = |axis: &Axis| {
            let named = axis.labelled().into_iter().map(|(_, name)| name);
            named.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(&Axis::linear("", Unit::Count, 0.5, 4.5)), "1 2 3 4");
        let log = names(&Axis::log("", Unit::Ms, 3.0, 600.0));
        assert!(log.contains("10 ") && log.contains("100"), "{log}");
        assert_eq!(Axis::linear("", Unit::Ms, 0.0, 10.0).place(1e9), 10.0);
    }

    #[test]
    fn colours_are_those_of_the_page() {
        assert_eq!(rgb("--series-1"), RGBAColor(0xc4, 0x4e, 0x00, 1.0));
        assert_eq!(rgb("--ink"), INK.to_rgba());
        assert_eq!(rgb("#01020380"), RGBAColor(1, 2, 3, 128.0 / 255.0));
    }
}
