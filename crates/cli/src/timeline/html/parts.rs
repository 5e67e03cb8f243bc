//! Appearance of the parts of a step: one table of meanings, colours and patterns for all charts of
//! the page.
//!
//! Colours differ in lightness as well as in hue, and neighbouring parts differ in pattern, so that
//! they can be distinguished with colour blindness and on a greyscale print.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

use crate::present::units::capitalized;
use ronde_trace::analysis::report::PartKind;

/// Appearance and meaning of a part.
pub(super) struct Look {
    /// Meaning of the part's time, for the table and the guide.
    pub(super) meaning: &'static str,
    /// CSS class without its prefix `part-`.
    key: &'static str,
    /// CSS variable of the colour.
    pub(super) colour: &'static str,
    light: &'static str,
    dark: &'static str,
    /// Pattern over the colour: an SVG path in a tile of 8 by 8 pixels; may be empty.
    pub(super) hatch: &'static str,
}

/// Returns the appearance of a part.
pub(super) fn look(kind: PartKind) -> &'static Look {
    match kind {
        PartKind::Compute => &Look {
            meaning: "this rank still has tensors to come; communication behind it costs nothing",
            key: "compute",
            colour: "--part-compute",
            light: "#aeb6be",
            dark: "#5d6771",
            hatch: "",
        },
        PartKind::WaitForRanks => &Look {
            meaning: "tensors are ready here, but not on every rank",
            key: "wait",
            colour: "--part-wait",
            light: "#d95f02",
            dark: "#f08a4b",
            hatch: "M-2 2l4 -4M0 8l8 -8M6 10l4 -4",
        },
        PartKind::Negotiation => &Look {
            meaning: "tensors are ready everywhere and do not move: cycle time, agreeing on what comes next, the batch before",
            key: "negotiation",
            colour: "--part-negotiation",
            light: "#e6ab02",
            dark: "#e5bd4f",
            hatch: "M1 2h2M5 6h2",
        },
        PartKind::Prepare => &Look {
            meaning: "waiting for data or the device, making buffers",
            key: "prepare",
            colour: "--part-prepare",
            light: "#b8639f",
            dark: "#d58abb",
            hatch: "M0 0l8 8M8 0l-8 8",
        },
        PartKind::CopyIn => &Look {
            meaning: "into the fusion buffer, shared memory or the host",
            key: "copy-in",
            colour: "--part-copy-in",
            light: "#6bb5e8",
            dark: "#7cc4f2",
            hatch: "M0 2h8M0 6h8",
        },
        PartKind::Collective => &Look {
            meaning: "the operation itself: transfer, combination and waiting for peers inside it",
            key: "collective",
            colour: "--part-collective",
            light: "#0b5fa5",
            dark: "#3b82d0",
            hatch: "",
        },
        PartKind::CopyOut => &Look {
            meaning: "out of there, into the results",
            key: "copy-out",
            colour: "--part-copy-out",
            light: "#1b9e77",
            dark: "#35b58d",
            hatch: "M2 0v8M6 0v8",
        },
        PartKind::GpuIdle => &Look {
            meaning: "no kernel and no copy runs on the GPU (from a profiler's trace only)",
            key: "gpu-idle",
            colour: "--part-gpu-idle",
            light: "#e3e6ea",
            dark: "#3a424b",
            hatch: "M1 1h1M5 5h1",
        },
        PartKind::GpuOther => &Look {
            meaning: "the GPU copies or sets memory, or runs a kernel of unknown type",
            key: "gpu-other",
            colour: "--part-gpu-other",
            light: "#8da0cb",
            dark: "#9fb2dd",
            hatch: "M0 4h8",
        },
    }
}

/// Name of a part as a heading.
pub(super) fn title(kind: PartKind) -> String {
    capitalized(kind.name())
}

impl Look {
    /// CSS class that fills a shape with the part's colour and pattern.
    pub(super) fn class(&self) -> String {
        format!("part-{}", self.key)
    }
}

/// Style sheet: the colours of the light and the dark scheme, and the classes that use them.
pub(super) fn style() -> String {
    let (mut light, mut dark, mut classes) = (String::new(), String::new(), String::new());
    for Look {
        key,
        light: on_light,
        dark: on_dark,
        ..
    } in PartKind::ALL.map(look)
    {
        // Writing to a String cannot fail.
        let _ = write!(light, "--part-{key}:{on_light};");
        let _ = write!(dark, "--part-{key}:{on_dark};");
        let _ = write!(
            classes,
            ".part-{key}{{fill:url(#hatch-{key})}}.flat-{key}{{fill:var(--part-{key})}}"
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
pub(super) fn patterns() -> Markup {
    html! {
        svg width="0" height="0" style="position:absolute" aria-hidden="true" {
            defs {
                @for look in PartKind::ALL.map(look) {
                    pattern id={ "hatch-" (look.key) } width="8" height="8" patternUnits="userSpaceOnUse" {
                        rect class={ "flat-" (look.key) } width="8" height="8" {}
                        @if !look.hatch.is_empty() { path.hatch d=(PreEscaped(look.hatch)) {} }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_has_colours_pattern_and_class_of_its_own() {
        let style = style();
        let patterns = patterns().into_string();
        for (i, kind) in PartKind::ALL.into_iter().enumerate() {
            let a = look(kind);
            assert_eq!(a.colour, format!("--part-{}", a.key));
            assert!(style.contains(&format!("--part-{}:{};", a.key, a.light)));
            assert!(patterns.contains(&format!("id=\"hatch-{}\"", a.key)));
            for other in &PartKind::ALL[i + 1..] {
                let b = look(*other);
                assert!(
                    kind.name() != other.name()
                        && a.key != b.key
                        && a.light != b.light
                        && a.dark != b.dark
                );
            }
        }
        let neighbours: Vec<_> = PartKind::ALL.map(|k| look(k).hatch).to_vec();
        assert!(
            neighbours.windows(2).all(|two| two[0] != two[1]),
            "{neighbours:?}"
        );
    }
}
