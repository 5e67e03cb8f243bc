//! Where figures are drawn: lines, areas and text in units, by plotters, as SVG.

use plotters::backend::SVGBackend;
use plotters::coord::CoordTranslate;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{
    Circle, CoordMapper, Drawable, PathElement, PointCollection, Polygon, Rectangle, Text,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontDesc, FontFamily, FontStyle, FontTransform, RGBAColor, ShapeStyle};

use super::{Figure, FigureError, font};
use crate::html::text::visible;

/// plotters counts in whole pixels: a unit is so many of them, so that nothing jumps to the next one.
pub(super) const PER_UNIT: u32 = 10;

/// A place, in units from the left and from the top.
pub(super) type At = (f64, f64);

/// Draws one figure.
pub(crate) struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Units>,
    title: String,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stroke {
    /// Its colour.
    pub(super) colour: RGBAColor,
    /// Its width in units.
    pub(super) width: f64,
}

/// How text is set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lettering {
    /// Its colour.
    pub(super) colour: RGBAColor,
    /// Size of the font in units.
    pub(super) size: f64,
    /// Heavy or not.
    pub(super) bold: bool,
}

/// Which part of a text stands at its place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Anchor {
    /// Its beginning.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// Units to plotters' pixels, so many units further down.
struct Units {
    down: f64,
}

impl CoordTranslate for Units {
    type From = At;

    fn translate(&self, from: &At) -> (i32, i32) {
        let pixels = |units: f64| (units * f64::from(PER_UNIT)).round() as i32;
        (pixels(from.0), pixels(from.1 + self.down))
    }
}

impl<'a> Canvas<'a> {
    /// Draws the figure and gives the elements that it consists of.
    pub(super) fn record<F: Figure>(figure: &'a F) -> Result<String, FigureError> {
        let (width, height) = figure.size();
        let mut text = String::new();
        let backend = SVGBackend::with_string(&mut text, (width * PER_UNIT, height * PER_UNIT));
        let canvas = Canvas {
            area: backend.into_drawing_area().apply_coord_spec(Units { down: 0.0 }),
            title: figure.title().to_owned(),
        };
        figure.draw(&canvas)?;
        canvas.area.present().map_err(|error| canvas.failed(&error))?;
        drop(canvas);
        // The root element is `render`'s: it has the size in units, the name and the font.
        let inside = text.find('>').map(|end| &text[end + 1..]);
        let inside = inside.and_then(|rest| rest.rfind("</svg>").map(|end| rest[..end].trim()));
        Ok(inside.unwrap_or_default().to_owned())
    }

    /// The canvas of a figure that begins so far down on this one.
    pub(super) fn below(&self, down: f64, title: &str) -> Canvas<'a> {
        let down = self.area.as_coord_spec().down + down;
        Canvas {
            area: self.area.strip_coord_spec().apply_coord_spec(Units { down }),
            title: title.to_owned(),
        }
    }

    /// A filled box.
    pub(super) fn fill(&self, area: &Area, colour: RGBAColor) -> Result<(), FigureError> {
        let corners = [(area.x, area.y), (area.x + area.width, area.y + area.height)];
        self.draw(&Rectangle::new(corners, filled(colour)))
    }

    /// The edge of a box, drawn on its inside.
    pub(super) fn frame(&self, area: &Area, stroke: Stroke) -> Result<(), FigureError> {
        let corners = area.inside(stroke.width / 2.0).corners();
        // One more edge than a box has, so that the last corner is as sharp as the others.
        let path = corners.into_iter().chain([corners[0], corners[1]]).collect();
        self.line(path, stroke)
    }

    /// A line through all the places.
    pub(super) fn line(&self, places: Vec<At>, stroke: Stroke) -> Result<(), FigureError> {
        self.draw(&PathElement::new(places, lined(stroke)))
    }

    /// A line of dashes and gaps, so long each.
    pub(super) fn dashes(&self, from: At, to: At, stroke: Stroke, dash: f64) -> Result<(), FigureError> {
        let length = (to.0 - from.0).hypot(to.1 - from.1);
        let count = ((length / dash / 2.0).ceil().max(1.0) as usize).min(1000);
        let place = |at: f64| {
            let share = if length > 0.0 { (at / length).min(1.0) } else { 0.0 };
            (from.0 + share * (to.0 - from.0), from.1 + share * (to.1 - from.1))
        };
        for i in 0..count {
            let start = 2.0 * dash * i as f64;
            self.line(vec![place(start), place(start + dash)], stroke)?;
        }
        Ok(())
    }

    /// A filled area.
    pub(super) fn polygon(&self, places: Vec<At>, colour: RGBAColor) -> Result<(), FigureError> {
        self.draw(&Polygon::new(places, filled(colour)))
    }

    /// A filled circle.
    pub(super) fn disc(&self, centre: At, radius: f64, colour: RGBAColor) -> Result<(), FigureError> {
        self.draw(&Circle::new(centre, pixels(radius) as i32, filled(colour)))
    }

    /// The edge of a circle.
    pub(super) fn ring(&self, centre: At, radius: f64, stroke: Stroke) -> Result<(), FigureError> {
        self.draw(&Circle::new(centre, pixels(radius) as i32, lined(stroke)))
    }

    /// Text on a base line.
    pub(super) fn text(
        &self,
        text: &str,
        at: At,
        anchor: Anchor,
        lettering: Lettering,
    ) -> Result<(), FigureError> {
        self.letters(
            text,
            (at.0, at.1 - BASE * lettering.size),
            anchor,
            lettering,
            FontTransform::None,
        )
    }

    /// Text whose capitals and digits are centred at a height.
    pub(super) fn centred(
        &self,
        text: &str,
        at: At,
        anchor: Anchor,
        lettering: Lettering,
    ) -> Result<(), FigureError> {
        let at = (at.0, at.1 + font::CAPITALS / 2.0 * lettering.size);
        self.text(text, at, anchor, lettering)
    }

    /// Text that is read upwards, centred at a height, its base line at `at.0`.
    pub(super) fn upwards(&self, text: &str, at: At, lettering: Lettering) -> Result<(), FigureError> {
        let at = (at.0 - BASE * lettering.size, at.1);
        self.letters(text, at, Anchor::Middle, lettering, FontTransform::Rotate270)
    }

    fn letters(
        &self,
        text: &str,
        at: At,
        anchor: Anchor,
        lettering: Lettering,
        transform: FontTransform,
    ) -> Result<(), FigureError> {
        let style = if lettering.bold {
            FontStyle::Bold
        } else {
            FontStyle::Normal
        };
        let size = lettering.size * f64::from(PER_UNIT) * HEIGHT_PER_SIZE;
        let font = FontDesc::new(FontFamily::Name(font::FAMILY), size, style).transform(transform);
        let along = match anchor {
            Anchor::Start => HPos::Left,
            Anchor::Middle => HPos::Center,
            Anchor::End => HPos::Right,
        };
        let style = font.color(&lettering.colour).pos(Pos::new(along, VPos::Center));
        self.draw(&Text::new(visible(text), at, style))
    }

    fn draw<'e, E, M>(&self, element: &'e E) -> Result<(), FigureError>
    where
        M: CoordMapper,
        &'e E: PointCollection<'e, At, M>,
        E: Drawable<SVGBackend<'a>, M>,
    {
        self.area.draw(element).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &impl std::error::Error) -> FigureError {
        FigureError::Draw {
            title: self.title.clone(),
            reason: error.to_string(),
        }
    }
}

/// plotters' size of a font is the height of its line, and its SVG divides by this.
const HEIGHT_PER_SIZE: f64 = 1.24;

/// plotters' SVG puts the middle of a text half an x-height above the base line: so much of a size.
const BASE: f64 = 0.26;

/// A box in units.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Area {
    /// Left edge.
    pub(super) x: f64,
    /// Upper edge.
    pub(super) y: f64,
    /// From left to right.
    pub(super) width: f64,
    /// From top to bottom.
    pub(super) height: f64,
}

impl Area {
    /// The box that is smaller by so much on each side.
    pub(super) fn inside(&self, by: f64) -> Area {
        Area {
            x: self.x + by,
            y: self.y + by,
            width: (self.width - 2.0 * by).max(0.0),
            height: (self.height - 2.0 * by).max(0.0),
        }
    }

    /// Right edge.
    pub(super) fn right(&self) -> f64 {
        self.x + self.width
    }

    /// Lower edge.
    pub(super) fn bottom(&self) -> f64 {
        self.y + self.height
    }

    /// Its middle.
    pub(super) fn centre(&self) -> At {
        (self.x + self.width / 2.0, self.y + self.height / 2.0)
    }

    /// From the upper left all around.
    pub(super) fn corners(&self) -> [At; 4] {
        [
            (self.x, self.y),
            (self.right(), self.y),
            (self.right(), self.bottom()),
            (self.x, self.bottom()),
        ]
    }

    /// Whether two boxes share more than an edge.
    pub(super) fn overlaps(&self, other: &Area) -> bool {
        self.x < other.right() && other.x < self.right() && self.y < other.bottom() && other.y < self.bottom()
    }

    /// Whether the other box lies within.
    pub(super) fn holds(&self, other: &Area) -> bool {
        self.x <= other.x
            && self.y <= other.y
            && other.right() <= self.right()
            && other.bottom() <= self.bottom()
    }
}

fn pixels(units: f64) -> u32 {
    (units * f64::from(PER_UNIT)).round() as u32
}

fn filled(colour: RGBAColor) -> ShapeStyle {
    ShapeStyle {
        color: colour,
        filled: true,
        stroke_width: 0,
    }
}

fn lined(stroke: Stroke) -> ShapeStyle {
    ShapeStyle {
        color: stroke.colour,
        filled: false,
        stroke_width: pixels(stroke.width),
    }
}
