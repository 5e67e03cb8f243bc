//! Appearance of a category, such as a part of a step: characters, colours and pattern for the
//! terminal, charts and pages.
//!
//! Colours differ in lightness as well as in hue, and neighbours differ in pattern, so that they
//! can be distinguished with colour blindness and on a greyscale print.

use std::fmt::Write;

use console::{Color, Style};
use maud::{Markup, PreEscaped, html};

/// Appearance and meaning of a category.
#[derive(Clone, Copy, Debug)]
pub struct Appearance {
    /// Meaning, for the guide of a page.
    pub meaning: &'static str,
    /// CSS variable of the colour.
    pub colour: &'static str,
    /// Colour in the light scheme, `#rrggbb`.
    pub light: &'static str,
    /// Colour in the dark scheme, `#rrggbb`.
    pub dark: &'static str,
    /// Pattern over the colour: an SVG path in a tile of 8 by 8 pixels; may be empty.
    pub hatch: &'static str,
    /// Character in a bar on the terminal; it distinguishes categories without colours.
    pub cell: char,
    /// Colour on the terminal, of the 256.
    pub ansi: u8,
}

impl Appearance {
    /// CSS class that fills a shape with the colour and pattern.
    pub fn class(&self) -> &'static str {
        self.colour.trim_start_matches('-')
    }

    /// Bar of `length` characters in the colour.
    pub fn cells(&self, length: usize) -> String {
        let style = Style::new()
            .force_styling(true)
            .fg(Color::Color256(self.ansi));
        style
            .apply_to(self.cell.to_string().repeat(length))
            .to_string()
    }
}

/// Style sheet: the colours of the light and the dark scheme, and the classes that use them.
pub fn style(appearances: &[&Appearance]) -> String {
    let (mut light, mut dark, mut classes) = (String::new(), String::new(), String::new());
    for one in appearances {
        let (colour, class) = (one.colour, one.class());
        // Writing to a String cannot fail.
        let _ = write!(light, "{colour}:{};", one.light);
        let _ = write!(dark, "{colour}:{};", one.dark);
        let rule = format!("{{fill:url(#hatch-{class})}}.flat-{class}{{fill:var({colour})}}");
        let _ = write!(classes, ".{class}{rule}");
    }
    light += "--hatch:#00000059";
    dark += "--hatch:#00000073";
    format!(
        ":root{{{light}}}@media screen and (prefers-color-scheme:dark){{\
         :root:not([data-theme=light]){{{dark}}}}}:root[data-theme=dark]{{{dark}}}\
         {classes}.hatch{{stroke:var(--hatch);stroke-width:1.1px;fill:none}}"
    )
}

/// SVG patterns to which the classes refer; the element itself is not visible.
pub fn patterns(appearances: &[&Appearance]) -> Markup {
    html! {
        svg width="0" height="0" style="position:absolute" aria-hidden="true" {
            defs {
                @for one in appearances {
                    pattern id={ "hatch-" (one.class()) } width="8" height="8"
                        patternUnits="userSpaceOnUse" {
                        rect class={ "flat-" (one.class()) } width="8" height="8" {}
                        @if !one.hatch.is_empty() { path.hatch d=(PreEscaped(one.hatch)) {} }
                    }
                }
            }
        }
    }
}
