//! Tables: rows of cells under headings, as text that fits the width of the terminal, as Markdown,
//! or as HTML.

use std::borrow::Cow;

use console::{measure_text_width, strip_ansi_codes, truncate_str};
use maud::{Markup, html};
use ronde_trace::analysis::report::PartKind;

use super::part::{appearance, cells};
use super::terminal::{gauge, harmless};
use crate::html::text::Foreign;
use crate::html::{cell_bar, folded, swatch, wide};

/// Space between two columns.
const GAP: &str = "  ";

/// Smallest width of a column of names.
const NAME_WIDTH_MIN: usize = 12;

/// Default width of a bar of length 1 in characters.
const BAR_WIDTH: usize = 24;

/// Number of rows of a table on a page that are not folded.
const ROWS_SHOWN: usize = 16;

/// Table whose columns of bars and names are shortened if the width does not suffice.
pub(crate) struct Table {
    headings: Vec<Heading>,
    rows: Vec<Vec<Cell>>,
    indent: usize,
    /// Width of a bar of length 1 in characters.
    bar_width: usize,
    /// Number of leading columns that are repeated if the table is split.
    keys: usize,
}

struct Heading {
    text: String,
    align: Align,
}

/// Alignment of a column's cells, which also decides how they are shortened.
#[derive(Clone, Copy, PartialEq, Eq)]
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

/// Content of a cell.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    Text(String),
    /// Text with colours for the terminal.
    Styled(String),
    /// Bar with this length, from 0 to 1.
    Bar(f64),
    /// Mark of a part of a step.
    Part(PartKind),
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell::Text(text)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Cell::Text(text.to_owned())
    }
}

impl Cell {
    /// Text of the cell on the terminal.
    fn shown(&self, bar_width: usize) -> String {
        match self {
            Cell::Text(text) => harmless(text),
            Cell::Styled(text) => text.clone(),
            Cell::Bar(share) => format!("{:<bar_width$}", gauge(*share, bar_width)),
            Cell::Part(kind) => cells(*kind, 1),
        }
    }

    /// Text without bars and marks.
    fn words(&self) -> Cow<'_, str> {
        match self {
            Cell::Text(text) => text.into(),
            Cell::Styled(text) => strip_ansi_codes(text),
            Cell::Bar(_) | Cell::Part(_) => "".into(),
        }
    }

    /// Data cell of an HTML table.
    fn html(&self, align: Align) -> Markup {
        match self {
            Cell::Bar(share) => html! { td.bar { (cell_bar(*share, "plain")) } },
            Cell::Part(kind) => html! { td { (swatch(appearance(*kind).class())) } },
            text => html! { td.n[align == Align::Right] { (Foreign(&text.words())) } },
        }
    }
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
            bar_width: BAR_WIDTH,
            keys: 1,
        }
    }

    /// Sets the number of spaces before each line; the default is two.
    pub(crate) fn indented(self, indent: usize) -> Self {
        Self { indent, ..self }
    }

    /// Sets the width of a bar of length 1; the default is 24.
    pub(crate) fn with_bars(self, bar_width: usize) -> Self {
        Self { bar_width, ..self }
    }

    /// Adds a row; it has as many cells as there are headings.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = impl Into<Cell>>) {
        let cells: Vec<Cell> = cells.into_iter().map(Into::into).collect();
        debug_assert_eq!(cells.len(), self.headings.len());
        self.rows.push(cells);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
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
        let headings = self.headings.iter().map(|heading| heading.text.clone());
        let headings: Vec<String> = headings.collect();
        let shown = |row: &Vec<Cell>| row.iter().map(|cell| cell.shown(self.bar_width)).collect();
        let mut rows: Vec<Vec<String>> = self.rows.iter().map(shown).collect();
        if headings.iter().any(|text| !text.is_empty()) {
            rows.insert(0, headings);
        }
        let widths = self.widths(&rows, width);
        let block = |columns: &Vec<usize>| {
            rows.iter()
                .map(|row| self.line(row, columns, &widths))
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
        let headings = || {
            let headings = self.headings.iter().enumerate();
            headings.filter(|(_, heading)| heading.align != Align::Bar)
        };
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let rules = headings().map(|(_, heading)| match heading.align {
            Align::Right => "---:",
            _ => "---",
        });
        let mut text = line(
            headings()
                .map(|(_, heading)| plain(&heading.text))
                .collect(),
        );
        text += &format!("|{}|\n", rules.collect::<Vec<_>>().join("|"));
        for row in &self.rows {
            let cells = headings().map(|(column, _)| plain(&row[column].words()));
            text += &line(cells.collect());
        }
        text
    }

    /// Returns the table in HTML, named `label` for screen readers; `None` without rows. Rows after
    /// the first 16 are folded.
    pub(crate) fn html(&self, label: &str) -> Option<Markup> {
        let (shown, more) = self.rows.split_at(self.rows.len().min(ROWS_SHOWN));
        (!shown.is_empty()).then(|| {
            html! {
                (wide(label, &self.element(shown)))
                @if !more.is_empty() {
                    (folded(&format!("{} more rows", more.len()), &wide(label, &self.element(more))))
                }
            }
        })
    }

    fn element(&self, rows: &[Vec<Cell>]) -> Markup {
        // The first column of names has the headings of the rows.
        let names = self.headings.iter().position(|heading| {
            matches!(heading.align, Align::Left | Align::Whole) && !heading.text.is_empty()
        });
        html! {
            table {
                thead {
                    tr {
                        @for heading in &self.headings {
                            th.n[heading.align == Align::Right] scope="col" { (heading.text) }
                        }
                    }
                }
                tbody {
                    @for row in rows {
                        tr {
                            @for (column, cell) in row.iter().enumerate() {
                                @if Some(column) == names {
                                    th scope="row" { (Foreign(&cell.words())) }
                                } @else {
                                    (cell.html(self.headings[column].align))
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    /// Widths of the columns; names are cut, the widest first.
    fn widths(&self, rows: &[Vec<String>], width: usize) -> Vec<usize> {
        let natural = |column: usize| {
            let cells = rows.iter().map(|row| measure_text_width(&row[column]));
            cells.max().unwrap_or(0)
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
