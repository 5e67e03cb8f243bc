//! Pages of text: titled sections of lines.

use super::{Look, harmless, wrapped};

/// Joins the non-empty sections to a text that ends with a newline.
pub(crate) fn page(sections: impl IntoIterator<Item = Vec<String>>, look: &Look) -> String {
    let sections: Vec<String> = sections
        .into_iter()
        .filter(|section| !section.is_empty())
        .map(|section| section.join("\n"))
        .collect();
    look.shown(&(sections.join("\n\n") + "\n"))
}

/// Section with a title; empty if there are no lines.
pub(crate) fn titled(title: &str, lines: Vec<String>, look: &Look) -> Vec<String> {
    if lines.is_empty() {
        return lines;
    }
    std::iter::once(look.title(title)).chain(lines).collect()
}

/// Section of warnings about the measurements.
pub(crate) fn warnings(warnings: &[String], look: &Look) -> Vec<String> {
    let lines = warnings
        .iter()
        .flat_map(|warning| wrapped("  ! ", &harmless(warning), look.width));
    let lines: Vec<String> = lines.map(|line| look.warn(&line)).collect();
    titled("Warnings", lines, look)
}
