//! Appearance of the parts of a step: one table of meanings, characters, colours and patterns for
//! the terminal, charts and pages.
//!
//! Colours differ in lightness as well as in hue, and neighbouring parts differ in pattern, so that
//! they can be distinguished with colour blindness and on a greyscale print.

use std::fmt::Write;

use console::{Color, Style};
use maud::{Markup, PreEscaped, html};

use super::units::capitalized;
use ronde_trace::analysis::report::PartKind;

/// Appearance and meaning of a part.
pub(crate) struct Appearance {
    /// Meaning of the part's time, for the guide.
    pub(crate) meaning: &'static str,
    /// CSS variable of the colour.
    pub(crate) colour: &'static str,
    light: &'static str,
    dark: &'static str,
    /// Pattern over the colour: an SVG path in a tile of 8 by 8 pixels; may be empty.
    pub(crate) hatch: &'static str,
    /// Character of the part in a bar on the terminal; it distinguishes the parts without colours.
    cell: char,
    /// Colour on the terminal, of the 256.
    ansi: u8,
}

/// Returns the appearance of a part.
pub(crate) fn appearance(kind: PartKind) -> &'static Appearance {
    match kind {
        PartKind::Compute => &Appearance {
            meaning: "this rank has tensors that are not ready yet; communication that overlaps it costs nothing",
            colour: "--part-compute",
            light: "#aeb6be",
            dark: "#5d6771",
            hatch: "",
            cell: '░',
            ansi: 244,
        },
        PartKind::WaitForRanks => &Appearance {
            meaning: "tensors are ready here, but not on every rank",
            colour: "--part-wait",
            light: "#d95f02",
            dark: "#f08a4b",
            hatch: "M-2 2l4 -4M0 8l8 -8M6 10l4 -4",
            cell: '▚',
            ansi: 160,
        },
        PartKind::Negotiation => &Appearance {
            meaning: "tensors are ready on all ranks and their batch has not begun: cycle time, negotiation, the previous batch",
            colour: "--part-negotiation",
            light: "#e6ab02",
            dark: "#e5bd4f",
            hatch: "M1 2h2M5 6h2",
            cell: '▒',
            ansi: 178,
        },
        PartKind::Prepare => &Appearance {
            meaning: "waiting for data or the device, allocation of buffers",
            colour: "--part-prepare",
            light: "#b8639f",
            dark: "#d58abb",
            hatch: "M0 0l8 8M8 0l-8 8",
            cell: '▞',
            ansi: 133,
        },
        PartKind::CopyIn => &Appearance {
            meaning: "into the fusion buffer, shared memory or the host",
            colour: "--part-copy-in",
            light: "#6bb5e8",
            dark: "#7cc4f2",
            hatch: "M0 2h8M0 6h8",
            cell: '▖',
            ansi: 74,
        },
        PartKind::Collective => &Appearance {
            meaning: "the operation itself: transfer, reduction and waiting for peers",
            colour: "--part-collective",
            light: "#0b5fa5",
            dark: "#3b82d0",
            hatch: "",
            cell: '█',
            ansi: 32,
        },
        PartKind::CopyOut => &Appearance {
            meaning: "from there into the results",
            colour: "--part-copy-out",
            light: "#1b9e77",
            dark: "#35b58d",
            hatch: "M2 0v8M6 0v8",
            cell: '▝',
            ansi: 36,
        },
        PartKind::GpuIdle => &Appearance {
            meaning: "no kernel and no copy runs on the GPU (from a profiler's trace only)",
            colour: "--part-gpu-idle",
            light: "#e3e6ea",
            dark: "#3a424b",
            hatch: "M1 1h1M5 5h1",
            cell: '·',
            ansi: 250,
        },
        PartKind::GpuOther => &Appearance {
            meaning: "the GPU copies or sets memory, or runs a kernel of unknown type",
            colour: "--part-gpu-other",
            light: "#8da0cb",
            dark: "#9fb2dd",
            hatch: "M0 4h8",
            cell: '▘',
            ansi: 108,
        },
    }
}

impl Appearance {
    /// CSS class that fills a shape with the part's colour and pattern.
    pub(crate) fn class(&self) -> &'static str {
        self.colour.trim_start_matches('-')
    }
}

/// Name of a part as a heading.
pub(crate) fn title(kind: PartKind) -> String {
    capitalized(kind.name())
}

/// Bar of `length` characters in the part's colour.
pub(super) fn cells(kind: PartKind, length: usize) -> String {
    let Appearance { cell, ansi, .. } = appearance(kind);
    let style = Style::new().force_styling(true).fg(Color::Color256(*ansi));
    style.apply_to(cell.to_string().repeat(length)).to_string()
}

/// Style sheet: the colours of the light and the dark scheme, and the classes that use them.
pub(crate) fn style() -> String {
    let (mut light, mut dark, mut classes) = (String::new(), String::new(), String::new());
    for part in PartKind::ALL.map(appearance) {
        let (colour, class) = (part.colour, part.class());
        // Writing to a String cannot fail.
        let _ = write!(light, "{colour}:{};", part.light);
        let _ = write!(dark, "{colour}:{};", part.dark);
        let _ = write!(
            classes,
            ".{class}{{fill:url(#hatch-{class})}}.flat-{class}{{fill:var({colour})}}"
        );
    }
    format!(
        ":root{{{light}--hatch:#00000059}}\
         @media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}--hatch:#00000073}}}}\
         :root[data-theme=dark]{{{dark}--hatch:#00000073}}\
         {classes}.hatch{{stroke:var(--hatch);stroke-width:1.1px;fill:none}}"
    )
}

/// SVG patterns to which the classes refer; the element itself is not visible.
pub(crate) fn patterns() -> Markup {
    html! {
        svg width="0" height="0" style="position:absolute" aria-hidden="true" {
            defs {
                @for part in PartKind::ALL.map(appearance) {
                    pattern id={ "hatch-" (part.class()) } width="8" height="8" patternUnits="userSpaceOnUse" {
                        rect class={ "flat-" (part.class()) } width="8" height="8" {}
                        @if !part.hatch.is_empty() { path.hatch d=(PreEscaped(part.hatch)) {} }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Look;
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_part_has_colours_pattern_and_characters_of_its_own() {
        let (style, patterns) = (style(), patterns().into_string());
        for part in PartKind::ALL.map(appearance) {
            assert!(style.contains(&format!("{}:{};", part.colour, part.light)));
            assert!(patterns.contains(&format!("id=\"hatch-{}\"", part.class())));
        }
        let distinct = |of: &dyn Fn(&Appearance) -> String| {
            let values: HashSet<String> = PartKind::ALL.map(|kind| of(appearance(kind))).into();
            assert_eq!(values.len(), PartKind::COUNT, "{values:?}");
            values
        };
        distinct(&|part| part.colour.to_owned());
        distinct(&|part| part.light.to_owned());
        distinct(&|part| part.dark.to_owned());
        distinct(&|part| part.cell.to_string());
        let plain = distinct(&|part| Look::PLAIN.shown(&part.cell.to_string()));
        assert!(plain.iter().all(|cell| cell.is_ascii() && cell != "?"));
        let hatches = PartKind::ALL.map(|kind| appearance(kind).hatch);
        assert!(
            hatches.windows(2).all(|two| two[0] != two[1]),
            "{hatches:?}"
        );
    }
}
