//! Tables: rows of cells under headings, as text that fits the width of the terminal, or as
//! Markdown.

use std::borrow::Cow;

use console::{measure_text_width, truncate_str};

/// Space between two columns.
const GAP: &str = "  ";

/// Smallest width of a column of names.
const NAME_WIDTH_MIN: usize = 12;

/// Table whose columns of bars and names are shortened if the width does not suffice.
pub(crate) struct Table {
    headings: Vec<Heading>,
    rows: Vec<Vec<String>>,
    indent: usize,
    /// Number of leading columns that are repeated if the table is split.
    keys: usize,
}

struct Heading {
    text: String,
    align: Align,
}

/// Alignment of a column's cells, which also decides how they are shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Names, left-aligned.
    Left,
    /// Texts that are never cut.
    Whole,
    /// Numbers, right-aligned.
    Right,
    /// Bars, which are shortened first.
    Bar,
}

impl Table {
    /// Creates a table with these headings. A prefix of a heading marks the column's type: `<` for
    /// names, `=` for texts that are never cut, `|` for bars; the others are numbers.
    pub(crate) fn new(headings: &[&str]) -> Self {
        let heading = |heading: &&str| {
            let (align, text) = match heading.as_bytes().first() {
                Some(b'<') => (Align::Left, &heading[1..]),
                Some(b'=') => (Align::Whole, &heading[1..]),
                Some(b'|') => (Align::Bar, &heading[1..]),
                _ => (Align::Right, *heading),
            };
            let text = text.to_owned();
            Heading { text, align }
        };
        Self {
            headings: headings.iter().map(heading).collect(),
            rows: Vec::new(),
            indent: 2,
            keys: 1,
        }
    }

    /// Sets the number of spaces before each line; the default is two.
    pub(crate) fn indented(self, indent: usize) -> Self {
        Self { indent, ..self }
    }

    /// Adds a row; it has as many cells as there are headings.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        debug_assert_eq!(cells.len(), self.headings.len());
        self.rows.push(cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the headings with their columns' types.
    pub(crate) fn headings(&self) -> impl Iterator<Item = (&str, Align)> {
        let headings = self.headings.iter();
        headings.map(|heading| (heading.text.as_str(), heading.align))
    }

    /// Returns the cells of each row.
    pub(crate) fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// Sets the number of leading columns that are repeated if the table is split; the default is
    /// one.
    pub(crate) fn with_keys(self, keys: usize) -> Self {
        Self { keys, ..self }
    }

    /// Returns the table in lines of at most `width` columns; no lines without rows. Bars and names
    /// are shortened first. If that does not suffice, the columns are split into several tables
    /// with the same leading columns.
    pub(crate) fn lines(&self, width: usize) -> Vec<String> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let widths = self.widths(width);
        let headings: Vec<String> = self
            .headings
            .iter()
            .map(|heading| heading.text.clone())
            .collect();
        let headings = Some(&headings).filter(|row| row.iter().any(|text| !text.is_empty()));
        let block = |columns: &Vec<usize>| {
            let rows = headings.into_iter().chain(&self.rows);
            rows.map(|row| self.line(row, columns, &widths))
                .collect::<Vec<_>>()
        };
        let blocks: Vec<Vec<String>> = self.blocks(&widths, width).iter().map(block).collect();
        blocks.join(&String::new())
    }

    /// Columns of each of the tables that the table is split into, leading columns included.
    fn blocks(&self, widths: &[usize], width: usize) -> Vec<Vec<usize>> {
        let keys: Vec<usize> = (0..self.keys.min(widths.len())).collect();
        let taken = |columns: &[usize]| {
            let shown = columns
                .iter()
                .filter(|column| !self.is_gone(**column, widths));
            shown
                .map(|column| widths[*column] + GAP.len())
                .sum::<usize>()
                + self.indent
        };
        let mut blocks = vec![keys.clone()];
        for (column, own) in widths.iter().enumerate().skip(keys.len()) {
            let last = blocks.len() - 1;
            if taken(&blocks[last]) + own > width && blocks[last].len() > keys.len() {
                blocks.push(keys.clone());
            }
            let last = blocks.len() - 1;
            blocks[last].push(column);
        }
        blocks
    }

    /// Whether a column of bars has been shortened to nothing.
    fn is_gone(&self, column: usize, widths: &[usize]) -> bool {
        widths[column] == 0 && self.headings[column].align == Align::Bar
    }

    /// Returns the table in Markdown, without bars; empty without rows.
    pub(crate) fn markdown(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let line = |cells: &mut dyn Iterator<Item = &String>| {
            let shown = self
                .headings
                .iter()
                .zip(cells)
                .filter(|(heading, _)| heading.align != Align::Bar);
            let cells: Vec<String> = shown.map(|(_, cell)| plain(cell)).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let rules = self
            .headings
            .iter()
            .filter_map(|heading| match heading.align {
                Align::Left | Align::Whole => Some("---"),
                Align::Right => Some("---:"),
                Align::Bar => None,
            });
        let mut text = line(&mut self.headings.iter().map(|heading| &heading.text));
        text += &format!("|{}|\n", rules.collect::<Vec<_>>().join("|"));
        self.rows
            .iter()
            .for_each(|row| text += &line(&mut row.iter()));
        text
    }

    /// Widths of the columns; names are cut, the widest first.
    fn widths(&self, width: usize) -> Vec<usize> {
        let natural = |column: usize| {
            let cells = self.rows.iter().map(|row| measure_text_width(&row[column]));
            let heading = measure_text_width(&self.headings[column].text);
            cells.chain([heading]).max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..self.headings.len()).map(natural).collect();
        let gaps = self.indent + GAP.len() * widths.len().saturating_sub(1);
        let mut excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(width);
        for (width, heading) in widths.iter_mut().zip(&self.headings) {
            if heading.align == Align::Bar {
                let less = excess.min(*width);
                *width -= less;
                excess -= less;
            }
        }
        while excess > 0 {
            let names =
                (0..widths.len()).filter(|column| self.headings[*column].align == Align::Left);
            let Some(widest) = names.max_by_key(|column| widths[*column]) else {
                break;
            };
            if widths[widest] <= NAME_WIDTH_MIN {
                break;
            }
            widths[widest] -= 1;
            excess -= 1;
        }
        widths
    }

    fn line(&self, row: &[String], columns: &[usize], widths: &[usize]) -> String {
        let mut line = " ".repeat(self.indent);
        for (place, &column) in columns.iter().enumerate() {
            let (cell, width) = (&row[column], widths[column]);
            if self.is_gone(column, widths) {
                continue;
            }
            if place > 0 {
                line += GAP;
            }
            let cell = match self.headings[column].align {
                Align::Left => shortened(cell, width),
                Align::Whole | Align::Right | Align::Bar => truncate_str(cell, width, ""),
            };
            let padding = " ".repeat(width.saturating_sub(measure_text_width(&cell)));
            match self.headings[column].align {
                Align::Left | Align::Whole | Align::Bar => line += &format!("{cell}{padding}"),
                Align::Right => line += &format!("{padding}{cell}"),
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Shortens a name in the middle and keeps more of its end: names of tensors begin alike and differ
/// at their ends.
fn shortened(name: &str, width: usize) -> Cow<'_, str> {
    let excess = measure_text_width(name).saturating_sub(width);
    // Coloured text is short. A cut in its middle would remove the escape sequence that ends the
    // colour.
    if excess == 0 || name.contains('\x1b') {
        return truncate_str(name, width, "…");
    }
    let head = truncate_str(name, width / 3, "");
    let skipped = name.chars().count().saturating_sub(width - width / 3 - 1);
    let tail: String = name.chars().skip(skipped).collect();
    format!("{head}…{tail}").into()
}

/// Wraps `text` into lines of at most `width` columns: the first begins with `first`, the others
/// are indented by its width.
pub(crate) fn wrapped(first: &str, text: &str, width: usize) -> Vec<String> {
    let indent = " ".repeat(measure_text_width(first));
    let mut lines = vec![first.to_owned()];
    let mut empty = true;
    // Keeps a number and its unit on one line.
    let text = text
        .replace(" %", "\u{a0}%")
        .replace(" ms", "\u{a0}ms")
        .replace(" MiB", "\u{a0}MiB");
    for word in text.split([' ', '\n']).filter(|word| !word.is_empty()) {
        let line = lines.last_mut().expect("there is a first line");
        let needed = measure_text_width(line) + usize::from(!empty) + measure_text_width(word);
        if needed > width && !empty {
            lines.push(format!("{indent}{word}"));
        } else {
            if !empty {
                line.push(' ');
            }
            line.push_str(word);
        }
        empty = false;
    }
    lines
        .iter()
        .map(|line| line.replace('\u{a0}', " "))
        .collect()
}

/// Escapes Markdown in the text and joins its lines, because names of models and reasons come from
/// files.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_control() => plain.push(' '),
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '|' => plain.extend(['\\', c]),
            c => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_in_line_and_names_give_way() {
        let mut table = Table::new(&["<tensor", "ms", "<rank"]);
        table.row([
            "layer1.weight".to_owned(),
            "1.25".to_owned(),
            "0".to_owned(),
        ]);
        table.row(["µ".to_owned(), "10.00".to_owned(), "12".to_owned()]);
        assert_eq!(
            table.lines(80),
            [
                "  tensor            ms  rank",
                "  layer1.weight   1.25  0",
                "  µ              10.00  12"
            ]
        );
        assert_eq!(table.lines(27)[1], "  laye….weight   1.25  0");
        // Names are not shortened further; the columns are split.
        assert_eq!(
            table.lines(20)[..4],
            [
                "  tensor           ms",
                "  laye….weight   1.25",
                "  µ             10.00",
                ""
            ]
        );
        assert_eq!(
            table.lines(20)[4..],
            [
                "  tensor        rank",
                "  laye….weight  0",
                "  µ             12"
            ]
        );
    }

    #[test]
    fn whole_texts_are_not_cut() {
        let mut table = Table::new(&["=setting", "ms"]);
        table.row(["37.27 MiB, 14.5 ms".to_owned(), "12".to_owned()]);
        assert_eq!(
            table.lines(10),
            ["  setting             ms", "  37.27 MiB, 14.5 ms  12"]
        );
    }

    #[test]
    fn bars_give_way_first() {
        let mut table = Table::new(&["<a long heading", "|"]);
        table.row(["x".to_owned(), "█████".to_owned()]);
        assert_eq!(table.lines(24)[1], "  x               █████");
        assert_eq!(table.lines(20)[1], "  x               ██");
        assert_eq!(table.lines(14), ["  a lo…heading", "  x"]);
    }

    #[test]
    fn a_table_fits_the_terminal() {
        let headings = ["<", "one", "<two", "three", "|", "four and more", "five"];
        let mut table = Table::new(&headings).with_keys(2);
        for row in 0..3 {
            table.row((0..7).map(|column| format!("{:>1$}", row, 3 + column)));
        }
        for width in 26..120 {
            let lines = table.lines(width);
            assert!(
                lines.iter().all(|line| measure_text_width(line) <= width),
                "{width}: {lines:#?}"
            );
            for heading in ["one", "two", "three", "four and more", "five"] {
                assert!(
                    lines.iter().any(|line| line.contains(heading)),
                    "{width}: {lines:#?}"
                );
            }
        }
        assert_eq!(table.lines(120).len(), 4);
    }

    #[test]
    fn a_table_without_headings_has_none() {
        let mut table = Table::new(&["<", ""]);
        assert!(table.lines(80).is_empty());
        table.row(["a".to_owned(), "1".to_owned()]);
        assert_eq!(table.lines(80), ["  a  1"]);
    }

    #[test]
    fn markdown_has_no_bars_and_no_foreign_markup() {
        let mut table = Table::new(&["<name", "ms", "|"]);
        assert_eq!(table.markdown(), "");
        table.row(["a_b | <i>\n`c`".to_owned(), "1".to_owned(), "██".to_owned()]);
        assert_eq!(
            table.markdown(),
            "| name | ms |\n|---|---:|\n| a\\_b \\| \\<i\\> \\`c\\` | 1 |\n"
        );
    }

    #[test]
    fn prose_is_wrapped_between_words() {
        assert_eq!(
            wrapped("1. ", "one two  three-and-a-half", 10),
            ["1. one two", "   three-and-a-half"]
        );
        assert_eq!(wrapped("- ", "", 10), ["- "]);
        assert_eq!(wrapped("", "saves 12.5 %", 10), ["saves", "12.5 %"]);
    }
}
