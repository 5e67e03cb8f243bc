//! Sections of a report: a heading with sentences and a table, the same for every format.
//!
//! This module renders them as text and as Markdown, [`crate::html`] as parts of a page.

use super::{Look, Table, harmless, plain, titled, wrapped};

/// Part of a report. Without sentences and rows it is left out.
#[derive(Default)]
pub(crate) struct Section {
    /// Identifier in a page.
    pub(crate) id: &'static str,
    pub(crate) title: String,
    pub(crate) sentences: Vec<String>,
    /// Below the sentences.
    pub(crate) table: Option<Table>,
}

impl Section {
    /// Creates a section of sentences.
    pub(crate) fn new(id: &'static str, title: impl Into<String>, sentences: Vec<String>) -> Self {
        Self {
            id,
            title: title.into(),
            sentences,
            table: None,
        }
    }

    /// Adds a table; one without rows is left out.
    pub(crate) fn with(self, table: Table) -> Self {
        Self {
            table: Some(table).filter(|table| !table.is_empty()),
            ..self
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sentences.is_empty() && self.table.is_none()
    }

    /// Returns the lines of the section for a terminal.
    pub(crate) fn lines(&self, look: &Look) -> Vec<String> {
        let mut lines = prose("  ", &self.sentences, look);
        if let Some(table) = &self.table {
            lines.extend(table.lines(look.width));
        }
        titled(&self.title, lines, look)
    }

    /// Returns the section as Markdown, with a heading of the third level.
    pub(crate) fn markdown(&self) -> String {
        if self.is_empty() {
            return String::new();
        }
        let mut text = format!("\n### {}\n", plain(&self.title));
        for sentence in &self.sentences {
            text += &format!("\n{}\n", plain(sentence));
        }
        if let Some(table) = &self.table {
            text += &format!("\n{}", table.markdown());
        }
        text
    }
}

/// Wraps each sentence into lines that begin with `indent`.
pub(crate) fn prose(indent: &str, sentences: &[String], look: &Look) -> Vec<String> {
    sentences
        .iter()
        .flat_map(|sentence| wrapped(indent, &harmless(sentence), look.width))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_the_same_in_text_and_markdown() {
        let look = Look {
            width: 60,
            colours: false,
            unicode: true,
            tensors: 0,
        };
        let mut table = Table::new(&["<from", "n"]);
        table.row(["trials".to_owned(), "3".to_owned()]);
        let section = Section::new("a", "Noise", vec!["It is <b>.".to_owned()]).with(table);
        let expected = ["Noise", "  It is <b>.", "  from    n", "  trials  3"];
        assert_eq!(section.lines(&look), expected);
        let expected =
            "\n### Noise\n\nIt is \\<b\\>.\n\n| from | n |\n|---|---:|\n| trials | 3 |\n";
        assert_eq!(section.markdown(), expected);
        let empty = Section::new("a", "Noise", Vec::new()).with(Table::new(&["n"]));
        assert!(empty.is_empty() && empty.lines(&look).is_empty() && empty.markdown().is_empty());
    }
}
