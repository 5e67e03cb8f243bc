use proptest::prelude::*;
use std::fs;
use std::path::PathBuf;

use super::samples::*;
use super::*;
use crate::html::{Document, section};
use maud::{Markup, html};

/// What is drawn: name of each element, its attributes, its text.
struct Element {
    name: String,
    attributes: Vec<(String, String)>,
    text: String,
}

impl Element {
    fn number(&self, attribute: &str) -> f64 {
        self.get(attribute).parse().unwrap()
    }

    fn get(&self, attribute: &str) -> &str {
        let found = self.attributes.iter().find(|(name, _)| name == attribute);
        found.map_or("", |(_, value)| value)
    }
}

/// Reads an SVG as XML: fails where it is not well formed.
fn elements(svg: &str) -> Vec<Element> {
    let document = roxmltree::Document::parse(svg).unwrap();
    let read = |node: roxmltree::Node| Element {
        name: node.tag_name().name().to_owned(),
        attributes: node
            .attributes()
            .map(|a| (a.name().to_owned(), a.value().to_owned()))
            .collect(),
        text: node.text().unwrap_or_default().trim().to_owned(),
    };
    document
        .descendants()
        .filter(roxmltree::Node::is_element)
        .map(read)
        .collect()
}

fn drawn(figure: &impl Figure) -> Vec<Element> {
    elements(&svg(figure).unwrap())
}

/// Width and height that a PNG states (its IHDR), and whether all of it can be decoded.
fn decoded(png: &[u8]) -> (u32, u32) {
    let pixels = resvg::tiny_skia::Pixmap::decode_png(png).unwrap();
    (pixels.width(), pixels.height())
}

/// All text lies within the picture, and nothing has a place that is no number.
fn assert_in_bounds(figure: &impl Figure) {
    let (width, height) = figure.size();
    let svg = svg(figure).unwrap();
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}", figure.title());
    let unit = 10.0;
    for element in elements(&svg).iter().filter(|element| element.name == "text") {
        let size = element.number("font-size") / unit;
        let wide = font::width(&element.text, size, element.get("font-weight") == "bold");
        let (x, y) = (element.number("x") / unit, element.number("y") / unit);
        let (from, to) = match element.get("text-anchor") {
            "start" => (0.0, wide),
            "end" => (-wide, 0.0),
            _ => (-wide / 2.0, wide / 2.0),
        };
        let half = size / 2.0;
        let (left, right, top, bottom) = match element.get("transform") {
            "" => (x + from, x + to, y - half, y + half),
            _ => (x - half, x + half, y + from, y + to),
        };
        assert!(
            left >= 0.0 && top >= 0.0 && right <= f64::from(width) && bottom <= f64::from(height),
            "{:?} at {left}..{right}, {top}..{bottom} of {width} × {height} in {}",
            element.text,
            figure.title()
        );
    }
}

fn fills(elements: &[Element], name: &str, colour: &str) -> usize {
    let of = |element: &&Element| element.name == name && element.get("fill") == colour;
    elements.iter().filter(of).count()
}

#[test]
fn a_map_draws_every_cell_and_mark_once() {
    let map = sweep();
    let elements = drawn(&map);
    let (mut texts, mut names) = (0, 0);
    for element in elements.iter().filter(|element| element.name == "text") {
        texts += usize::from(map.cells.iter().any(|cell| cell.text == element.text));
        names += usize::from(map.marks.iter().any(|mark| mark.name == element.text));
    }
    // 42 cells, each with its text: of the axes' names, 0.5, 5, 10 … none is written like a value.
    assert_eq!((texts, names), (42, 3));
    // On the map and in the legend: a star, a triangle and a diamond, white.
    assert_eq!(fills(&elements, "polygon", "#FAFCFD"), 6);
    // The best is the brightest colour of the scale, and it is there in the scale itself: no other cell has it.
    assert_eq!(fills(&elements, "rect", "#FEE825"), 1);
    assert!(elements.iter().any(|element| element.text == "no result"));
}

#[test]
fn a_trail_draws_every_point() {
    let trail = tuning();
    let elements = drawn(&trail);
    // 18 samples, and one in the legend; a disc with a ring each.
    assert_eq!(fills(&elements, "circle", "#0B5FA5"), 19);
    for text in [
        "default 46.2 ms",
        "best 42.2 ms",
        "step time, ms",
        "sample",
        "best",
        "other",
    ] {
        assert!(elements.iter().any(|element| element.text == text), "{text}");
    }
}

#[test]
fn a_surface_draws_samples_and_landscape() {
    let surface = posterior(false);
    let elements = drawn(&surface);
    assert_eq!(fills(&elements, "circle", "#FAFCFD"), 11); // 10, and one in the legend
    let values = surface
        .samples
        .iter()
        .filter(|sample| elements.iter().any(|e| e.text == sample.text));
    assert!(values.count() >= 10);
    assert!(
        elements
            .iter()
            .filter(|element| element.name == "polygon")
            .count()
            > 20
    );
}

#[test]
fn the_scale_starts_where_the_cells_do() {
    assert_eq!(colour::shade(0.0), plotters::style::RGBAColor(254, 232, 37, 1.0));
}

#[test]
fn the_same_figure_is_the_same_file() {
    assert_eq!(svg(&sweep()).unwrap(), svg(&sweep()).unwrap());
    assert_eq!(png(&posterior(true)).unwrap(), png(&posterior(true)).unwrap());
}

#[test]
fn a_png_is_twice_as_large_as_the_svg_says() {
    let map = sweep();
    let (width, height) = map.size();
    assert_eq!(decoded(&png(&map).unwrap()), (2 * width, 2 * height));
    let elements = drawn(&map);
    assert_eq!(
        (elements[0].get("width"), elements[0].get("height")),
        (&*width.to_string(), &*height.to_string())
    );
    assert_eq!(
        (elements[1].name.as_str(), elements[1].text.as_str()),
        ("title", map.title.as_str())
    );
}

#[test]
fn odd_figures_stay_within_their_edges() {
    assert_in_bounds(&sweep());
    assert_in_bounds(&tuning());
    for zero in [false, true] {
        assert_in_bounds(&posterior(zero));
    }
    for (_, figure) in odd_maps() {
        assert_in_bounds(&figure);
    }
    for (_, figure) in odd_trails() {
        assert_in_bounds(&figure);
    }
    for (_, figure) in odd_surfaces() {
        assert_in_bounds(&figure);
    }
}

#[test]
fn foreign_text_is_text() {
    let mut map = sweep();
    map.title = "</svg><script>alert(1)</script>\0".into();
    map.x.label = "\"'<&>\u{202e}".into();
    let elements = drawn(&map);
    assert!(elements.iter().all(|element| element.name != "script"));
    assert!(
        elements
            .iter()
            .any(|element| element.text.contains("\"'<&>\u{fffd}"))
    );
    let page = inline(&map, "a \"label\" <b>").unwrap().into_string();
    assert!(!page.contains("<script") && page.contains("a &quot;label&quot; &lt;b&gt;"));
}

#[test]
fn every_colour_of_the_page_follows_it() {
    let mut figures = vec![inline(&sweep(), "a").unwrap(), inline(&tuning(), "b").unwrap()];
    figures.push(inline(&posterior(true), "c").unwrap());
    let page: String = figures.into_iter().map(Markup::into_string).collect();
    for colour in [
        colour::PAPER,
        colour::PANEL,
        colour::INK,
        colour::SOFT,
        colour::LINE,
        colour::SERIES[0],
        colour::SERIES[1],
        colour::SERIES[2],
        colour::SERIES[5],
    ] {
        let hex = format!("#{:02X}{:02X}{:02X}", colour.0, colour.1, colour.2);
        for attribute in ["fill", "stroke"] {
            let used = page.contains(&format!("{attribute}=\"{hex}\""));
            let styled = STYLE.contains(&format!("[{attribute}=\"{hex}\"]"));
            assert!(styled || !used, "{attribute} {hex}");
        }
    }
}

/// A figure of whatever type.
trait Shown {
    fn inline(&self) -> Markup;
    fn files(&self) -> (String, Vec<u8>);
}

impl<F: Figure> Shown for F {
    fn inline(&self) -> Markup {
        inline(self, "a figure").unwrap()
    }

    fn files(&self) -> (String, Vec<u8>) {
        (svg(self).unwrap(), png(self).unwrap())
    }
}

/// Puts all figures into a page; with `RONDE_FIGURES=dir` leaves it there, with each as SVG and PNG, to be looked at.
#[test]
fn the_gallery_renders() {
    let folder = std::env::var_os("RONDE_FIGURES").map(PathBuf::from);
    let mut body = Vec::new();
    let mut show = |name: &str, figure: &dyn Shown| {
        if let Some(folder) = &folder {
            let (svg, png) = figure.files();
            fs::write(folder.join(format!("{name}.svg")), svg).unwrap();
            fs::write(folder.join(format!("{name}.png")), png).unwrap();
        }
        body.push(section(name, name, &figure.inline()));
    };
    show("sweep", &sweep());
    show("tuning", &tuning());
    show("posterior", &posterior(false));
    show("posterior-zero", &posterior(true));
    for (name, figure) in odd_maps() {
        show(&format!("map-{name}"), &figure);
    }
    for (name, figure) in odd_trails() {
        show(&format!("trail-{name}"), &figure);
    }
    for (name, figure) in odd_surfaces() {
        show(&format!("surface-{name}"), &figure);
    }
    let page = Document {
        title: "Figures",
        style: STYLE,
        script: "",
        body: html! { @for part in &body { (part) } },
    }
    .render();
    for token in html5gum::Tokenizer::new(&page).flatten() {
        assert!(!matches!(token, html5gum::Token::Error(_)), "{token:?}");
    }
    if let Some(folder) = &folder {
        fs::write(folder.join("figures.html"), page).unwrap();
    }
}

fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>(), 1e-3..1e3, Just(0.0), Just(f64::NAN)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_map_is_drawn(
        xs in prop::collection::vec(any_value(), 0..5),
        ys in prop::collection::vec(any_value(), 0..5),
        values in prop::collection::vec(prop::option::of(any_value()), 25),
        at in (0usize..6, 0usize..6),
    ) {
        let mut map = map(&xs, &ys, |x, y| values[5 * y + x]);
        map.marks = vec![mark(at.0, at.1, Kind::Best, "best"), mark(at.1, at.0, Kind::Default, "default")];
        assert_in_bounds(&map);
    }

    #[test]
    fn any_trail_is_drawn(values in prop::collection::vec((any_value(), any_value(), any_value(), any_value()), 0..9), level in any_value()) {
        let mut trail = tuning();
        let point = |&(x, value, low, high): &(f64, f64, f64, f64)| TrailPoint { x, value, low, high, kind: Kind::Sample };
        trail.points = values.iter().map(point).collect();
        let place = |&(x, mean, low, high): &(f64, f64, f64, f64)| TrailLinePoint { x, mean, low, high };
        trail.line = Some(TrailLine { name: "line".into(), points: values.iter().map(place).collect() });
        trail.references[0].value = level;
        assert_in_bounds(&trail);
    }

    #[test]
    fn any_surface_is_drawn(
        xs in prop::collection::vec(any_value(), 0..6),
        ys in prop::collection::vec(any_value(), 0..6),
        values in prop::collection::vec((any_value(), any_value()), 0..36),
    ) {
        let mut surface = posterior(false);
        surface.x.values = xs;
        surface.y.values = ys;
        surface.mean = values.iter().map(|value| value.0).collect();
        surface.sd = values.iter().map(|value| value.1).collect();
        for (sample, value) in surface.samples.iter_mut().zip(&values) {
            (sample.x, sample.y) = *value;
        }
        assert_in_bounds(&surface);
    }
}
