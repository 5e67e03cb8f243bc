//! Pages of text: sections of lines under titles.

use super::{Look, harmless, wrapped};

/// Sections of lines, without the empty ones, as text that ends with a line end.
pub(crate) fn page(sections: impl IntoIterator<Item = Vec<String>>, look: &Look) -> String {
    let sections: Vec<String> = sections
        .into_iter()
        .filter(|section| !section.is_empty())
        .map(|section| section.join("\n"))
        .collect();
    look.shown(&(sections.join("\n\n") + "\n"))
}

/// `lines` under a title; nothing if there are none.
pub(crate) fn titled(title: &str, lines: Vec<String>, look: &Look) -> Vec<String> {
    if lines.is_empty() {
        return lines;
    }
    std::iter::once(look.title(title)).chain(lines).collect()
}

/// Reasons to doubt the numbers.
pub(crate) fn warnings(warnings: &[String], look: &Look) -> Vec<String> {
    let lines = warnings
        .iter()
        .flat_map(|warning| wrapped("  ! ", &harmless(warning), look.width));
    let lines: Vec<String> = lines.map(|line| look.warn(&line)).collect();
    titled("Warnings", lines, look)
}
