//! Charts as SVG and PNG files: plotters draws the SVG, and resvg converts it to PNG, so that both
//! show the same picture.
//!
//! The text of a PNG uses a font in the binary (`assets/fonts/`), because a server may have no
//! fonts.

use maud::{PreEscaped, html};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use resvg::{tiny_skia, usvg};
use std::sync::{Arc, LazyLock};

use super::scale::{self, Key, round_values, tick};
use super::{Axis, Chart, Data, Point, Rect, Rule, Series, Shape, Unit};
use crate::html::text::{Foreign, shortened, visible};
use crate::present::units as number;

/// Error of drawing a picture.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PictureError {
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
/// Approximate width of a character of size [`TEXT`].
const CHARACTER: f64 = 12.6;

const INK: RGBColor = RGBColor(0x1a, 0x1f, 0x24);
const SOFT: RGBColor = RGBColor(0x55, 0x60, 0x6b);
const GRID: RGBColor = RGBColor(0xd5, 0xdb, 0xe1);

/// Returns the colour of a hexadecimal value, or of a variable of `html/page.css` in the light
/// scheme.
fn rgb(colour: &str) -> RGBAColor {
    if let Some(digits) = colour.strip_prefix('#') {
        let part = |at: usize| {
            digits
                .get(at..at + 2)
                .and_then(|part| u8::from_str_radix(part, 16).ok())
        };
        let alpha = part(6).map_or(1.0, |alpha| f64::from(alpha) / 255.0);
        return RGBAColor(
            part(0).unwrap_or(0),
            part(2).unwrap_or(0),
            part(4).unwrap_or(0),
            alpha,
        );
    }
    let RGBColor(red, green, blue) = match colour {
        "--series-0" => RGBColor(0x0b, 0x5f, 0xa5),
        "--series-1" => RGBColor(0xc4, 0x4e, 0x00),
        "--series-2" => RGBColor(0x00, 0x80, 0x5d),
        "--series-3" => RGBColor(0xa0, 0x4a, 0x86),
        "--series-4" => RGBColor(0x8a, 0x61, 0x00),
        "--series-5" => RGBColor(0x47, 0x52, 0x5d),
        "--line" => GRID,
        _ => INK,
    };
    RGBAColor(red, green, blue, 1.0)
}

/// Renders the charts, one below the other, as an SVG with this title.
///
/// # Errors
/// [`PictureError::Draw`] if the plot library fails.
pub(crate) fn svg(title: &str, charts: &[&Chart]) -> Result<String, PictureError> {
    let heights: Vec<u32> = charts.iter().map(|chart| chart.picture_height()).collect();
    let height = heights.iter().sum::<u32>().max(1);
    let mut text = String::new();
    let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
    let mut top = 0;
    for (chart, height) in charts.iter().zip(heights) {
        let area = root.clone().shrink((0, top), (WIDTH, height));
        chart.draw(&area).map_err(|reason| PictureError::Draw {
            title: chart.title.clone(),
            reason: reason.to_string(),
        })?;
        top += height;
    }
    drop(root);
    // Replace the root element: the new one has a title and half the size.
    let inside = text.find('>').map_or("", |end| &text[end + 1..]);
    let inside = inside.trim().strip_suffix("</svg>").unwrap_or(inside);
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(WIDTH / 2) height=(height / 2) viewBox=(format!("0 0 {WIDTH} {height}"))
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
pub(crate) fn png(title: &str, charts: &[&Chart]) -> Result<Vec<u8>, PictureError> {
    let failed = |reason: String| PictureError::Png {
        title: title.to_owned(),
        reason,
    };
    let options = usvg::Options {
        fontdb: Arc::clone(&FONTS),
        ..usvg::Options::default()
    };
    let tree = usvg::Tree::from_str(&svg(title, charts)?, &options)
        .map_err(|error| failed(error.to_string()))?;
    let (width, height) = (
        tree.size().width() as u32 * 2,
        tree.size().height() as u32 * 2,
    );
    let mut pixels = tiny_skia::Pixmap::new(width, height).ok_or_else(|| {
        failed(format!(
            "{width} × {height} pixels are not a size of an image"
        ))
    })?;
    resvg::render(
        &tree,
        tiny_skia::Transform::from_scale(2.0, 2.0),
        &mut pixels.as_mut(),
    );
    pixels
        .encode_png()
        .map_err(|error| failed(error.to_string()))
}

/// Font database with the font in the binary as the only sans-serif font. Fonts of the machine are
/// not used, so that a PNG is the same everywhere.
static FONTS: LazyLock<Arc<usvg::fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_font_data(include_bytes!("../../assets/fonts/RondeFigures-Regular.ttf").to_vec());
    fonts.load_font_data(include_bytes!("../../assets/fonts/RondeFigures-Bold.ttf").to_vec());
    let name = fonts
        .faces()
        .next()
        .and_then(|face| face.families.first().map(|(name, _)| name.clone()));
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

    fn values(&self) -> Vec<(f64, String)> {
        if !self.ticks.is_empty() {
            return self.ticks.clone();
        }
        let inside = |value: &f64| (self.from * 0.999..=self.to * 1.001).contains(value);
        let values: Vec<f64> = if self.log {
            let powers = self.from.log10().floor() as i32..=self.to.log10().ceil() as i32;
            let fine = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(power)));
            fine.filter(inside).collect()
        } else {
            let whole = |value: &f64| self.unit != Unit::Count || value.fract() == 0.0;
            round_values(self.from, self.to, 8).filter(whole).collect()
        };
        let every = values.len().div_ceil(12).max(1);
        let named = values.into_iter().step_by(every).map(|value| {
            let name = match self.unit {
                Unit::Bytes => number::bytes(value as u64),
                _ => tick(value),
            };
            (value, name)
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
    from: f64,
    to: f64,
    ticks: Vec<(f64, String)>,
}

impl Places {
    fn of(axis: &Axis) -> Self {
        let ticks = axis.values().into_iter();
        Places {
            from: axis.place(axis.from),
            to: axis.place(axis.to),
            ticks: ticks
                .map(|(value, name)| (axis.place(value), name))
                .collect(),
        }
    }
}

impl Ranged for Places {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (low, high): (i32, i32)) -> i32 {
        let share = (value - self.from) / (self.to - self.from);
        low + (share * f64::from(high - low)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        let most = hint.max_num_points().max(1);
        let every = self.ticks.len().div_ceil(most).max(1);
        self.ticks
            .iter()
            .step_by(every)
            .map(|(place, _)| *place)
            .collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.from..self.to
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

/// Breaks the text into lines of at most `most` characters.
fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in visible(text).split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(shortened(word, most)),
        }
    }
    lines
}

impl Chart {
    fn heading(&self) -> Vec<(String, i32)> {
        let lines = |text: &str, size: i32| {
            let most = (f64::from(WIDTH) - 60.0) / CHARACTER * f64::from(TEXT) / f64::from(size);
            wrapped(text, most as usize)
                .into_iter()
                .map(move |line| (line, size))
        };
        lines(&self.title, TITLE)
            .chain(lines(&self.description, TEXT))
            .collect()
    }

    /// Entries of the legend in rows: series, name and width in pixels.
    fn legend(&self) -> Vec<Vec<(&Series, String, i32)>> {
        let room = WIDTH as i32 - 2 * MARGIN - 100;
        let mut rows: Vec<Vec<(&Series, String, i32)>> = Vec::new();
        let mut used = 0;
        for series in self.series.iter().filter(|series| !series.name.is_empty()) {
            let name = shortened(&visible(&series.name), 105);
            let width = (name.chars().count() as f64 * CHARACTER) as i32 + 80;
            if rows.is_empty() || used + width > room {
                rows.push(Vec::new());
                used = 0;
            }
            used += width;
            if let Some(row) = rows.last_mut() {
                row.push((series, name, width));
            }
        }
        rows
    }

    fn picture_height(&self) -> u32 {
        let heading: i32 = self.heading().iter().map(|(_, size)| size + 8).sum();
        let key = if self.scale.is_some() { 110 } else { 0 };
        (heading + 2 * self.height_px as i32 + key + self.legend().len() as i32 * LINE + 3 * MARGIN)
            as u32
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
            draw_key(&area.clone().shrink((0, top), (width, 110)), key)?;
            top += 110;
        }
        top += 8;
        for row in self.legend() {
            let mut x = MARGIN + 100;
            for (series, name, width) in row {
                draw_symbol(area, series, (x, top + LINE / 2))?;
                let style = font(TEXT, &INK).pos(Pos::new(HPos::Left, VPos::Center));
                area.draw_text(&name, &style, (x + 30, top + LINE / 2))?;
                x += width;
            }
            top += LINE;
        }
        Ok(())
    }

    fn draw_plot(&self, area: &Area) -> Drawn {
        let (x, y) = (Places::of(&self.x), Places::of(&self.y));
        let (columns, rows) = (x.ticks.len().max(1), y.ticks.len().max(1));
        let widest = y.ticks.iter().map(|(_, name)| name.chars().count()).max();
        let widest = widest.unwrap_or(1);
        let mut context = ChartBuilder::on(area)
            .margin(MARGIN)
            .x_label_area_size(84)
            .y_label_area_size(70 + (widest as f64 * CHARACTER) as i32)
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
                let points: Vec<&[f64; 4]> = points
                    .iter()
                    .filter(|point| point.iter().all(|v| v.is_finite()))
                    .collect();
                let band = points.iter().map(|[x, _, low, _]| self.at(*x, *low));
                let band = band.chain(
                    points
                        .iter()
                        .rev()
                        .map(|[x, _, _, high]| self.at(*x, *high)),
                );
                plane.draw(&Polygon::new(band.collect::<Vec<_>>(), colour.mix(0.2)))?;
                let line: Vec<(f64, f64)> =
                    points.iter().map(|[x, y, ..]| self.at(*x, *y)).collect();
                let style = colour.stroke_width(if *dashed { 2 } else { 4 });
                plane.draw(&PathElement::new(line, style))
            }
            Data::Points { shape, points } => self.draw_points(plane, *shape, points, colour),
            Data::Boxes { boxes } => boxes
                .iter()
                .try_for_each(|rect| self.draw_box(plane, rect, colour)),
            // Columns are not stacked here: only pages have stacks.
            Data::Columns { columns } => columns.iter().try_for_each(|column| {
                let corners = [
                    self.at(column.x[0], 0.0),
                    self.at(column.x[1], column.height),
                ];
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
        let points: Vec<&Point> = points
            .iter()
            .filter(|p| p.x.is_finite() && p.y.is_finite())
            .collect();
        let size = if points.len() > CROWD { 5 } else { 9 };
        for point in points
            .iter()
            .filter(|point| point.low < point.high && points.len() <= CROWD)
        {
            let bar = vec![self.at(point.x, point.low), self.at(point.x, point.high)];
            plane.draw(&PathElement::new(bar, colour.mix(0.75).stroke_width(2)))?;
        }
        for point in points {
            let at = self.at(point.x, point.y);
            let symbol = symbol(shape, size);
            plane.draw(&(EmptyElement::at(at) + Polygon::new(symbol.clone(), WHITE.filled())))?;
            let edge = closed(&symbol);
            if shape == Shape::Hollow {
                plane.draw(
                    &(EmptyElement::at(at) + PathElement::new(edge, colour.stroke_width(3))),
                )?;
            } else {
                plane.draw(&(EmptyElement::at(at) + Polygon::new(symbol, colour.filled())))?;
                plane.draw(
                    &(EmptyElement::at(at) + PathElement::new(edge, WHITE.stroke_width(2))),
                )?;
            }
            if !point.label.is_empty() {
                let style = font(24, &INK).pos(Pos::new(HPos::Left, VPos::Center));
                let wide = (point.label.chars().count() as f64 * CHARACTER * 0.9) as i32;
                let back = Rectangle::new(
                    [(size + 4, -14), (size + 8 + wide, 14)],
                    WHITE.mix(0.7).filled(),
                );
                plane.draw(&(EmptyElement::at(at) + back))?;
                plane.draw(
                    &(EmptyElement::at(at)
                        + Text::new(visible(&point.label), (size + 6, 0), style)),
                )?;
            }
        }
        Ok(())
    }

    fn draw_box(&self, plane: &Plane, rect: &Rect, colour: RGBAColor) -> Drawn {
        let colour = if rect.colour.is_empty() {
            colour
        } else {
            rgb(&rect.colour)
        };
        let (low, high) = (self.at(rect.x[0], rect.y[0]), self.at(rect.x[1], rect.y[1]));
        plane.draw(&Rectangle::new([low, high], colour.filled()))?;
        let [(left, bottom), (right, top)] = [low, high].map(|place| plane.map_coordinate(&place));
        let (width, height) = (right - left, bottom - top);
        let room = f64::from(width - 8)
            / (rect.label.chars().count().max(1) as f64 * CHARACTER / f64::from(TEXT));
        let size = (room as i32).min(TEXT).min(height - 6);
        if rect.label.is_empty() || size < 17 {
            return Ok(());
        }
        let ink = scale::readable_on(colour);
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
        plane.draw(&PathElement::new(
            vec![from, to],
            INK.mix(0.7).stroke_width(2),
        ))?;
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

fn closed(corners: &[(i32, i32)]) -> Vec<(i32, i32)> {
    // Repeat the first edge, so that the last corner is as sharp as the others.
    corners
        .iter()
        .chain(corners.iter().take(2))
        .copied()
        .collect()
}

fn draw_symbol(area: &Area, series: &Series, at: (i32, i32)) -> Drawn {
    let colour = rgb(series.colour);
    match &series.data {
        Data::Points { shape, .. } => {
            let symbol = symbol(*shape, 9);
            if *shape == Shape::Hollow {
                area.draw(
                    &(EmptyElement::at(at)
                        + PathElement::new(closed(&symbol), colour.stroke_width(3))),
                )
            } else {
                area.draw(&(EmptyElement::at(at) + Polygon::new(symbol, colour.filled())))
            }
        }
        Data::Line { .. } => area.draw(&PathElement::new(
            vec![(at.0 - 18, at.1), (at.0 + 18, at.1)],
            colour.stroke_width(4),
        )),
        _ => area.draw(&Rectangle::new(
            [(at.0 - 14, at.1 - 10), (at.0 + 14, at.1 + 10)],
            colour.filled(),
        )),
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
        area.draw(&Rectangle::new(
            [(x(share), 40), (x(1.0), 60)],
            colour.filled(),
        ))?;
    }
    let mut end = i32::MIN;
    for (share, name) in &key.ticks {
        let wide = (name.chars().count() as f64 * CHARACTER) as i32;
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
        let star = Data::Points {
            shape: Shape::Star,
            points,
        };
        Chart {
            description: "two & two".into(),
            x: Axis::places("threshold", ["1", "64"].map(String::from)),
            y: Axis::places("cycle time", ["0.5", "5"].map(String::from)),
            series: vec![
                Series::new("", "--line", Data::Boxes { boxes }),
                Series::new("best", "--ink", star),
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
        let line = Data::Line {
            points: line,
            dashed: false,
        };
        let points = Data::Points {
            shape: Shape::Hollow,
            points,
        };
        Chart {
            x: Axis::linear("trial", Unit::Count, 0.5, 40.5),
            y: Axis::log("step time", Unit::Ms, 1.0, 200.0),
            series: vec![
                Series::new("expected", "--series-5", line),
                Series::new("sample", "--series-0", points),
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
        let words: Vec<&str> = tree
            .descendants()
            .filter_map(|node| node.text())
            .map(str::trim)
            .collect();
        for word in [
            "a < b",
            "two & two",
            "40",
            "80",
            "failed",
            "64",
            "0.5",
            "threshold",
            "above the best",
            "best",
            "+10 %",
            "trials",
            "step time, ms",
            "default 50",
            "seven",
            "expected",
            "20",
            "100",
            "</svg> of ␛ all",
        ] {
            assert!(words.contains(&word), "{word} in {words:?}");
        }
        assert!(!svg.contains("NaN"));
        let (width, height) = (
            tree.root_element().attribute("width"),
            tree.root_element().attribute("height"),
        );
        assert_eq!(width, Some("760"));
        assert!(height.unwrap().parse::<u32>().unwrap() > 600);
    }

    #[test]
    fn nothing_is_drawn_outside_of_the_picture() {
        let svg = svg("t", &[&heat_map(), &trail()]).unwrap();
        let tree = roxmltree::Document::parse(&svg).unwrap();
        let height: f64 = 2.0
            * tree
                .root_element()
                .attribute("height")
                .unwrap()
                .parse::<f64>()
                .unwrap();
        for node in tree.descendants().filter(|node| node.has_tag_name("text")) {
            let at = |name: &str| node.attribute(name).unwrap().parse::<f64>().unwrap();
            assert!(
                (0.0..=f64::from(WIDTH)).contains(&at("x")) && (0.0..=height).contains(&at("y")),
                "{node:?}"
            );
        }
    }

    #[test]
    fn a_png_shows_the_cells_in_their_colours_and_letters() {
        let png = png("t", &[&heat_map()]).unwrap();
        let pixels = tiny_skia::Pixmap::decode_png(&png).unwrap();
        assert_eq!(pixels.width(), WIDTH);
        let count = |wanted: [u8; 3]| {
            let pixels = pixels.pixels().iter();
            pixels
                .filter(|p| [p.red(), p.green(), p.blue()] == wanted)
                .count()
        };
        // The best and the worst colour of the scale, and the letters of the title.
        assert!(count([0xfe, 0xe8, 0x25]) > 10_000 && count([0x44, 0x01, 0x54]) > 10_000);
        assert!(count([INK.0, INK.1, INK.2]) > 300);
    }

    #[test]
    fn axes_name_round_values() {
        let names = |axis: &Axis| {
            axis.values()
                .into_iter()
                .map(|(_, name)| name)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names(&Axis::linear("", Unit::Count, 0.5, 4.5)),
            ["1", "2", "3", "4"]
        );
        assert_eq!(
            names(&Axis::log("", Unit::Ms, 3.0, 60.0)),
            ["5", "10", "20", "50"]
        );
        assert_eq!(Axis::linear("", Unit::Ms, 0.0, 10.0).place(1e9), 10.0);
    }
}
