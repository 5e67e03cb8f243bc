//! Pages of text: titled sections of lines.

use super::Look;

/// Joins the non-empty sections to a text that ends with a newline.
pub fn page(sections: impl IntoIterator<Item = Vec<String>>, look: &Look) -> String {
    let sections: Vec<String> = sections
        .into_iter()
        .filter(|section| !section.is_empty())
        .map(|section| section.join("\n"))
        .collect();
    look.shown(&(sections.join("\n\n") + "\n"))
}

/// Section with a title; empty if there are no lines.
pub fn titled(title: &str, lines: Vec<String>, look: &Look) -> Vec<String> {
    if lines.is_empty() {
        return lines;
    }
    std::iter::once(look.title(title)).chain(lines).collect()
}
