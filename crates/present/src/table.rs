//! Tables: rows of cells under headings, as text that fits the width of the terminal, as Markdown,
//! or as HTML.

use std::borrow::Cow;

use console::{measure_text_width, strip_ansi_codes, truncate_str};
use maud::{Markup, html};

use super::Appearance;
use super::terminal::{gauge, harmless};
use crate::html::text::Foreign;
use crate::html::{cell_bar, folded, swatch, wide};
use crate::units::NONE;

/// Space between two columns.
const GAP: &str = "  ";

/// Smallest width of a column of names.
const NAME_WIDTH_MIN: usize = 12;

/// Default width of a bar of length 1 in characters.
const BAR_WIDTH: usize = 24;

/// Number of rows of a table on a page that are not folded.
const ROWS_SHOWN: usize = 16;

/// Table whose columns of bars and names are shortened if the width does not suffice.
pub struct Table {
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
pub enum Align {
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
pub enum Cell {
    /// Text, which may come from a file.
    Text(String),
    /// Text with colours for the terminal.
    Styled(String),
    /// Bar with this length, from 0 to 1.
    Bar(f64),
    /// Mark of a category.
    Mark(&'static Appearance),
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
            Cell::Mark(mark) => mark.cells(1),
        }
    }

    /// Text without bars and marks.
    fn words(&self) -> Cow<'_, str> {
        match self {
            Cell::Text(text) => text.into(),
            Cell::Styled(text) => strip_ansi_codes(text),
            Cell::Bar(_) | Cell::Mark(_) => "".into(),
        }
    }

    /// Data cell of an HTML table.
    fn html(&self, align: Align) -> Markup {
        match self {
            Cell::Bar(share) => html! { td.bar { (cell_bar(*share, "plain")) } },
            Cell::Mark(mark) => html! { td { (swatch(mark.class())) } },
            text => html! { td.n[align == Align::Right] { (Foreign(&text.words())) } },
        }
    }
}

impl Table {
    /// Creates a table with the headings in `headings`, which are separated by `; `, as in [`new`].
    ///
    /// [`new`]: Self::new
    pub fn headed(headings: &str) -> Self {
        Self::new(headings.split("; "))
    }

    /// Creates a table with these headings. A prefix of a heading marks the column's type: `<` for
    /// names, `=` for texts that are never cut, `|` for bars; the others are numbers.
    pub fn new(headings: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let heading = |heading: &str| {
            let (align, prefix) = match heading.as_bytes().first() {
                Some(b'<') => (Align::Left, 1),
                Some(b'=') => (Align::Whole, 1),
                Some(b'|') => (Align::Bar, 1),
                _ => (Align::Right, 0),
            };
            let text = heading[prefix..].to_owned();
            Heading { text, align }
        };
        Self {
            headings: headings
                .into_iter()
                .map(|text| heading(text.as_ref()))
                .collect(),
            rows: Vec::new(),
            indent: 2,
            bar_width: BAR_WIDTH,
            keys: 1,
        }
    }

    /// Sets the number of spaces before each line; the default is two.
    pub fn indented(self, indent: usize) -> Self {
        Self { indent, ..self }
    }

    /// Sets the width of a bar of length 1; the default is 24.
    pub fn with_bars(self, bar_width: usize) -> Self {
        Self { bar_width, ..self }
    }

    /// Adds a row; it has as many cells as there are headings.
    pub fn row(&mut self, cells: impl IntoIterator<Item = impl Into<Cell>>) {
        let cells: Vec<Cell> = cells.into_iter().map(Into::into).collect();
        debug_assert_eq!(cells.len(), self.headings.len());
        self.rows.push(cells);
    }

    /// Whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Sets the number of leading columns that are repeated if the table is split; the default is
    /// one.
    pub fn with_keys(self, keys: usize) -> Self {
        Self { keys, ..self }
    }

    /// Removes the columns after the first in which no cell has a text.
    pub fn without_empty(mut self) -> Self {
        let is_empty =
            |cell: &Cell| matches!(cell, Cell::Text(text) if text.is_empty() || text == NONE);
        for column in (1..self.headings.len()).rev() {
            if self.rows.iter().all(|row| is_empty(&row[column])) {
                self.headings.remove(column);
                self.rows
                    .iter_mut()
                    .for_each(|row| drop(row.remove(column)));
                self.keys -= usize::from(column < self.keys);
            }
        }
        self
    }

    /// Returns the table in lines of at most `width` columns; no lines without rows. Bars and names
    /// are shortened first. If that does not suffice, the columns are split into several tables
    /// with the same leading columns.
    pub fn lines(&self, width: usize) -> Vec<String> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let shown = |row: &Vec<Cell>| row.iter().map(|cell| cell.shown(self.bar_width)).collect();
        let mut rows: Vec<Vec<String>> = self.rows.iter().map(shown).collect();
        if self.headings.iter().any(|heading| !heading.text.is_empty()) {
            let headings = self.headings.iter().map(|heading| heading.text.clone());
            rows.insert(0, headings.collect());
        }
        let widths = self.widths(&rows, width);
        let block = |columns: Vec<usize>| -> Vec<String> {
            let lines = rows.iter().map(|row| self.line(row, &columns, &widths));
            lines.collect()
        };
        let blocks = self.blocks(&widths, width).into_iter().map(block);
        blocks.collect::<Vec<_>>().join(&String::new())
    }

    /// Columns of each of the tables that the table is split into, leading columns included.
    fn blocks(&self, widths: &[usize], width: usize) -> Vec<Vec<usize>> {
        let keys: Vec<usize> = (0..self.keys.min(widths.len())).collect();
        let space = |column: &usize| match self.is_gone(*column, widths) {
            true => 0,
            false => widths[*column] + GAP.len(),
        };
        let mut blocks = vec![keys.clone()];
        let mut taken = self.indent + keys.iter().map(space).sum::<usize>();
        for (column, own) in widths.iter().enumerate().skip(keys.len()) {
            let last = blocks.last_mut().expect("there is a first block");
            if taken + own > width && last.len() > keys.len() {
                taken = self.indent + keys.iter().map(space).sum::<usize>();
                blocks.push(keys.clone());
            }
            taken += space(&column);
            blocks
                .last_mut()
                .expect("there is a first block")
                .push(column);
        }
        blocks
    }

    /// Whether a column of bars has been shortened to nothing.
    fn is_gone(&self, column: usize, widths: &[usize]) -> bool {
        widths[column] == 0 && self.headings[column].align == Align::Bar
    }

    /// Returns the table in Markdown, without bars; empty without rows.
    pub fn markdown(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let shown: Vec<(usize, &Heading)> = self.headings.iter().enumerate().collect();
        let shown = || {
            shown
                .iter()
                .filter(|(_, heading)| heading.align != Align::Bar)
        };
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let rules = shown().map(|(_, heading)| match heading.align {
            Align::Right => "---:",
            _ => "---",
        });
        let headings = shown().map(|(_, heading)| plain(&heading.text));
        let mut text = line(headings.collect());
        text += &format!("|{}|\n", rules.collect::<Vec<_>>().join("|"));
        for row in &self.rows {
            let cells = shown().map(|(column, _)| plain(&row[*column].words()));
            text += &line(cells.collect());
        }
        text
    }

    /// Returns the table in HTML, named `label` for screen readers; `None` without rows. Rows after
    /// the first 16 are folded.
    pub fn html(&self, label: &str) -> Option<Markup> {
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
        let mut names: Vec<&mut usize> = widths
            .iter_mut()
            .zip(&self.headings)
            .filter(|(_, heading)| heading.align == Align::Left)
            .map(|(width, _)| width)
            .collect();
        while excess > 0 {
            match names.iter_mut().max() {
                Some(widest) if **widest > NAME_WIDTH_MIN => **widest -= 1,
                _ => break,
            }
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
            let align = self.headings[column].align;
            let cell = match align {
                Align::Left => shortened(cell, width),
                Align::Whole | Align::Right | Align::Bar => truncate_str(cell, width, ""),
            };
            let padding = " ".repeat(width.saturating_sub(measure_text_width(&cell)));
            line += &match align {
                Align::Left | Align::Whole | Align::Bar => format!("{cell}{padding}"),
                Align::Right => format!("{padding}{cell}"),
            };
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
pub fn wrapped(first: &str, text: &str, width: usize) -> Vec<String> {
    let indent = " ".repeat(measure_text_width(first));
    let (mut lines, mut line, mut is_empty) = (Vec::new(), first.to_owned(), true);
    // Keeps a number and its unit on one line.
    let mut text = text.to_owned();
    for unit in ["%", "ms", "MiB"] {
        text = text.replace(&format!(" {unit}"), &format!("\u{a0}{unit}"));
    }
    for word in text.split([' ', '\n']).filter(|word| !word.is_empty()) {
        let needed = measure_text_width(&line) + 1 + measure_text_width(word);
        if !is_empty && needed > width {
            lines.push(std::mem::replace(&mut line, indent.clone()));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    lines.push(line);
    lines
        .iter()
        .map(|line| line.replace('\u{a0}', " "))
        .collect()
}

/// Escapes Markdown in the text and joins its lines, because names of models and reasons come from
/// files.
pub fn plain(text: &str) -> String {
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

    fn table(headings: &[&str], rows: &[&[&str]]) -> Table {
        let mut table = Table::new(headings);
        for row in rows {
            table.row(row.iter().copied());
        }
        table
    }

    #[test]
    fn names_are_shortened_first_and_then_columns_are_split() {
        let rows: [&[&str]; 2] = [&["layer1.weight", "1.25", "0"], &["µ", "10.00", "12"]];
        let table = table(&["<tensor", "ms", "<rank"], &rows);
        let wide = [
            "  tensor            ms  rank",
            "  layer1.weight   1.25  0",
            "  µ              10.00  12",
        ];
        assert_eq!(table.lines(80), wide);
        assert_eq!(table.lines(27)[1], "  laye….weight   1.25  0");
        let split = [
            "  tensor           ms",
            "  laye….weight   1.25",
            "  µ             10.00",
            "",
            "  tensor        rank",
            "  laye….weight  0",
            "  µ             12",
        ];
        assert_eq!(table.lines(20), split);
    }

    #[test]
    fn whole_texts_are_not_cut_and_bars_are_shortened_first() {
        let whole = table(&["=setting", "ms"], &[&["37.27 MiB, 14.5 ms", "12"]]);
        let lines = ["  setting             ms", "  37.27 MiB, 14.5 ms  12"];
        assert_eq!(whole.lines(10), lines);
        let bars = table(&["<a long heading", "|"], &[&["x", "█████"]]);
        assert_eq!(bars.lines(24)[1], "  x               █████");
        assert_eq!(bars.lines(20)[1], "  x               ██");
        assert_eq!(bars.lines(14), ["  a lo…heading", "  x"]);
        let plain = table(&["<", ""], &[&["a", "1"]]);
        assert_eq!(plain.lines(80), ["  a  1"]);
        assert!(table(&["<", ""], &[]).lines(80).is_empty());
    }

    #[test]
    fn a_table_fits_the_terminal() {
        let headings = ["<", "one", "<two", "three", "|", "four and more", "five"];
        let mut table = Table::new(headings).with_keys(2);
        for row in 0..3 {
            table.row((0..7).map(|column| format!("{:>1$}", row, 3 + column)));
        }
        for width in 26..120 {
            let lines = table.lines(width);
            let fits = lines.iter().all(|line| measure_text_width(line) <= width);
            let shown = ["one", "two", "three", "four and more", "five"];
            let has = |heading: &str| lines.iter().any(|line| line.contains(heading));
            assert!(fits && shown.into_iter().all(has), "{width}: {lines:#?}");
        }
        assert_eq!(table.lines(120).len(), 4);
    }

    #[test]
    fn markdown_has_no_bars_and_escapes_markup() {
        assert_eq!(Table::new(["<name"]).markdown(), "");
        let table = table(&["<name", "ms", "|"], &[&["a_b | <i>\n`c`", "1", "██"]]);
        let expected = "| name | ms |\n|---|---:|\n| a\\_b \\| \\<i\\> \\`c\\` | 1 |\n";
        assert_eq!(table.markdown(), expected);
    }

    #[test]
    fn paragraphs_are_wrapped_between_words() {
        let lines = ["1. one two", "   three-and-a-half"];
        assert_eq!(wrapped("1. ", "one two  three-and-a-half", 10), lines);
        assert_eq!(wrapped("- ", "", 10), ["- "]);
        assert_eq!(wrapped("", "saves 12.5 %", 10), ["saves", "12.5 %"]);
    }
}
