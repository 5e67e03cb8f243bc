//! The font of all figures, and how wide its text is.
//!
//! The binary carries a part of Liberation Sans (`assets/fonts/README.md`), which PNGs are drawn with. A viewer of an
//! SVG that has neither it nor Arial takes another font of about the same widths, as Arial's are everybody's measure.

use skrifa::instance::{LocationRef, Size};
use skrifa::{FontRef, MetadataProvider};
use std::sync::LazyLock;

use crate::html::text::shortened;

/// What an SVG asks for, best first.
pub(super) const FAMILY: &str = "Liberation Sans, Arial, Helvetica, sans-serif";

/// The regular face.
pub(super) static REGULAR: &[u8] = include_bytes!("../../assets/fonts/RondeFigures-Regular.ttf");

/// The bold face.
pub(super) static BOLD: &[u8] = include_bytes!("../../assets/fonts/RondeFigures-Bold.ttf");

/// Height of capitals and digits, as a share of the size.
pub(super) const CAPITALS: f64 = 0.72;

static FACES: LazyLock<[Option<FontRef>; 2]> =
    LazyLock::new(|| [REGULAR, BOLD].map(|data| FontRef::new(data).ok()));

/// Width in units of a text set in that size.
pub(super) fn width(text: &str, size: f64, bold: bool) -> f64 {
    let face = FACES[usize::from(bold)].as_ref();
    // Whatever the font does not have, another one sets: ideographs as wide as high, all else about as capitals.
    let other = |c: char| if u32::from(c) >= 0x1100 { 1.0 } else { 0.7 };
    let letters = face.map(|face| {
        (
            face.charmap(),
            face.glyph_metrics(Size::new(1.0), LocationRef::default()),
        )
    });
    let advance = |c: char| {
        let known = letters
            .as_ref()
            .and_then(|(map, metrics)| metrics.advance_width(map.map(c)?));
        known.map_or_else(|| other(c), f64::from)
    };
    size * text.chars().map(advance).sum::<f64>()
}

/// The text, its middle left out where it is wider than that.
pub(super) fn fitted(text: &str, size: f64, bold: bool, most: f64) -> String {
    let fits = |length: usize| width(&shortened(text, length), size, bold) <= most;
    let length = text.chars().count();
    if fits(length) {
        return text.to_owned();
    }
    // The longest that fits; text grows with its length, but for letters of different widths.
    let (mut low, mut high) = (0, length);
    while low + 1 < high {
        let middle = low.midpoint(high);
        if fits(middle) { low = middle } else { high = middle }
    }
    shortened(text, low)
}

/// The text in lines no wider than that, at most so many; the middle of the last is left out where that is too few.
pub(super) fn lines(text: &str, size: f64, bold: bool, widest: f64, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let full = lines.len() == most;
        match lines.last_mut() {
            Some(line) if full || width(&format!("{line} {word}"), size, bold) <= widest => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
        .iter()
        .map(|line| fitted(line, size, bold, widest))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_faces_are_fonts_and_digits_are_equally_wide() {
        for bold in [false, true] {
            assert!(FACES[usize::from(bold)].is_some());
            assert_eq!(width("0000", 10.0, bold), width("1789", 10.0, bold));
            // Arial's digits are 1139/2048 of the size wide.
            assert!((width("0", 2048.0, bold) - 1139.0).abs() < 1.0);
        }
        assert!(width("mm", 12.0, true) > width("mm", 12.0, false));
    }

    #[test]
    fn whatever_is_drawn_has_its_letters() {
        let face = FACES[0].as_ref().unwrap();
        for c in ('!'..='~').chain("µ×±−–—…≥≤≈%·é".chars()) {
            assert!(face.charmap().map(c).is_some(), "{c}");
        }
    }

    #[test]
    fn text_is_fitted_and_broken() {
        assert_eq!(fitted("abc", 12.0, false, 1000.0), "abc");
        let long = "w".repeat(300);
        let short = fitted(&long, 12.0, false, 100.0);
        assert!(
            width(&short, 12.0, false) <= 100.0 && short.contains('…') && short.len() > 8,
            "{short}"
        );
        let broken = lines("one two three four five six", 12.0, false, 60.0, 2);
        assert_eq!(broken.len(), 2);
        assert!(
            broken.iter().all(|line| width(line, 12.0, false) <= 60.0),
            "{broken:?}"
        );
        assert_eq!(lines("one two", 12.0, false, 600.0, 2), ["one two"]);
        assert!(lines(" ", 12.0, false, 600.0, 2).is_empty());
    }
}
