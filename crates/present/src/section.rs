//! Reports as data: sections of paragraphs, lists, tables and charts, from which the text for the
//! terminal and the HTML page are rendered.
//!
//! The crate's documentation has an example.

use std::borrow::Cow;

use maud::{Markup, html};

use super::{Look, Table, harmless, page, plain, titled, wrapped};
use crate::html::text::Foreign;
use crate::html::{folded, section};

/// Section of a report.
pub struct Section<'a> {
    /// Identifier on the page, the target of links.
    id: Cow<'a, str>,
    title: Cow<'a, str>,
    /// Whether the terminal shows the title, and the paragraphs indented below it.
    titled: bool,
    blocks: Vec<Block<'a>>,
}

/// Makes the lines of a block for a terminal.
type Lines<'a> = Box<dyn Fn(&Look) -> Vec<String> + 'a>;

/// Part of a section.
enum Block<'a> {
    /// Paragraph; the text may contain names from files.
    Text(String),
    List(List, Vec<String>),
    Table(Table),
    /// Table for the page only, below a summary that opens it, if there is one.
    PageTable(Option<String>, Table),
    /// Lines to copy, which are not wrapped.
    Code(Vec<String>),
    /// Picture for Markdown only: title and file.
    Picture(String, String),
    /// Lines for the terminal only.
    Terminal(Lines<'a>),
    /// Markup for the page only, such as a chart.
    Page(Markup),
}

/// List of the items of a list on the terminal; on a page, only numbers are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Items with dashes.
    Dashes,
    /// Numbered items.
    Numbered,
    /// Items that need attention.
    Warnings,
}

impl<'a> Section<'a> {
    /// Returns a section without blocks.
    pub fn new(id: impl Into<Cow<'a, str>>, title: impl Into<Cow<'a, str>>) -> Self {
        Section {
            id: id.into(),
            title: title.into(),
            titled: true,
            blocks: Vec::new(),
        }
    }

    /// Adds a number to the identifier, for a page with several reports.
    pub fn numbered(mut self, number: usize) -> Self {
        self.id = format!("{}-{number}", self.id).into();
        self
    }

    /// Omits the title on the terminal.
    pub fn untitled(self) -> Self {
        Section {
            titled: false,
            ..self
        }
    }

    fn with(mut self, block: Block<'a>) -> Self {
        self.blocks.push(block);
        self
    }

    /// Adds a paragraph.
    pub fn text(self, text: impl Into<String>) -> Self {
        self.with(Block::Text(text.into()))
    }

    /// Adds paragraphs.
    pub fn texts(self, texts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        texts.into_iter().fold(self, Section::text)
    }

    /// Adds a table; one without rows is not shown.
    pub fn table(self, table: Table) -> Self {
        self.with(Block::Table(table))
    }

    /// Adds a table for the page only.
    pub fn page_table(self, table: Table) -> Self {
        self.with(Block::PageTable(None, table))
    }

    /// Adds a table for the page only, below a summary that opens it.
    pub fn folded(self, summary: impl Into<String>, table: Table) -> Self {
        self.with(Block::PageTable(Some(summary.into()), table))
    }

    /// Adds a list.
    pub fn list(self, list: List, items: Vec<String>) -> Self {
        self.with(Block::List(list, items))
    }

    /// Adds lines to copy, such as commands.
    pub fn code(self, lines: impl IntoIterator<Item = String>) -> Self {
        self.with(Block::Code(lines.into_iter().collect()))
    }

    /// Adds a picture in a file, for Markdown only.
    pub fn picture(self, title: impl Into<String>, file: impl Into<String>) -> Self {
        self.with(Block::Picture(title.into(), file.into()))
    }

    /// Adds lines for the terminal only.
    pub fn terminal(self, lines: impl Fn(&Look) -> Vec<String> + 'a) -> Self {
        self.with(Block::Terminal(Box::new(lines)))
    }

    /// Adds markup for the page only.
    pub fn page(self, markup: Markup) -> Self {
        self.with(Block::Page(markup))
    }

    /// Adds a paragraph for the page only.
    pub fn page_text(self, text: &str) -> Self {
        self.page(html! { p { (text) } })
    }

    /// Section in Markdown, with a heading of the second level, without the blocks for the terminal
    /// or the page only; empty if all other blocks are empty.
    fn markdown(&self) -> String {
        let blocks = self.blocks.iter().map(|block| match block {
            Block::Text(text) => format!("\n{}\n", plain(text)),
            Block::List(_, items) if !items.is_empty() => {
                let items = items.iter().map(|item| format!("\n- {}", plain(item)));
                format!("{}\n", items.collect::<String>())
            }
            Block::Table(table) if !table.is_empty() => format!("\n{}", table.markdown()),
            Block::Code(lines) if !lines.is_empty() => {
                format!("\n```\n{}\n```\n", lines.join("\n").replace("```", "'''"))
            }
            Block::Picture(title, file) => format!("\n![{}]({file})\n", plain(title)),
            _ => String::new(),
        });
        match blocks.collect::<String>() {
            blocks if blocks.is_empty() || !self.titled => blocks,
            blocks => format!("\n## {}\n{blocks}", plain(&self.title)),
        }
    }

    /// Lines of the section on the terminal; none if all blocks are empty.
    fn lines(&self, look: &Look) -> Vec<String> {
        let indent = if self.titled { "  " } else { "" };
        let mut lines = Vec::new();
        for block in &self.blocks {
            lines.extend(match block {
                Block::Text(text) => wrapped(indent, &harmless(text), look.width),
                Block::List(marker, items) => marker.lines(items, look),
                Block::Table(table) => table.lines(look.width),
                Block::Code(code) => {
                    let gap = (!code.is_empty() && !lines.is_empty()).then(String::new);
                    let code = code.iter().map(|line| format!("    {}", harmless(line)));
                    gap.into_iter().chain(code).collect()
                }
                Block::Terminal(lines) => lines(look),
                Block::PageTable(..) | Block::Picture(..) | Block::Page(_) => Vec::new(),
            });
        }
        if self.titled {
            titled(&self.title, lines, look)
        } else {
            lines
        }
    }

    /// Content of the section on a page; `None` if there is nothing to show.
    fn markup(&self) -> Option<Markup> {
        let label = self.title.as_ref();
        let parts = self.blocks.iter().filter_map(|block| match block {
            Block::Text(text) => Some(html! { p { (Foreign(text)) } }),
            Block::List(_, items) if items.is_empty() => None,
            Block::List(List::Numbered, items) => {
                Some(html! { ol.advice { @for item in items { li { (Foreign(item)) } } } })
            }
            Block::List(_, items) => {
                Some(html! { ul { @for item in items { li { (Foreign(item)) } } } })
            }
            Block::Table(table) => table.html(label),
            Block::PageTable(None, table) => table.html(label),
            Block::PageTable(Some(summary), table) => {
                table.html(summary).map(|table| folded(summary, &table))
            }
            Block::Code(lines) if lines.is_empty() => None,
            Block::Code(lines) => {
                Some(html! { pre.paste { @for line in lines { (Foreign(line)) "\n" } } })
            }
            Block::Page(markup) => Some(markup.clone()),
            Block::Picture(..) | Block::Terminal(_) => None,
        });
        let parts: Vec<Markup> = parts.collect();
        (!parts.is_empty()).then(|| html! { @for part in parts { (part) } })
    }
}

impl List {
    fn lines(self, items: &[String], look: &Look) -> Vec<String> {
        let lines = items.iter().zip(1..).flat_map(|(item, number)| {
            let marker = match self {
                List::Dashes => "  - ".to_owned(),
                List::Numbered => format!("  {number}. "),
                List::Warnings => "  ! ".to_owned(),
            };
            wrapped(&marker, &harmless(item), look.width)
        });
        match self {
            List::Warnings => lines.map(|line| look.warn(&line)).collect(),
            List::Dashes | List::Numbered => lines.collect(),
        }
    }
}

/// Renders the sections as text that ends with a newline. Sections without lines are omitted.
pub fn text<'a>(sections: impl IntoIterator<Item = &'a Section<'a>>, look: &Look) -> String {
    page(
        sections.into_iter().map(|section| section.lines(look)),
        look,
    )
}

/// Renders the sections as a page of Markdown with this title.
pub fn markdown<'a>(title: &str, sections: impl IntoIterator<Item = &'a Section<'a>>) -> String {
    let sections = sections.into_iter().map(Section::markdown);
    format!("# {}\n{}", plain(title), sections.collect::<String>())
}

/// Renders the sections for a page, with links to them before the first. Sections without content
/// are omitted.
pub fn markup(sections: &[Section]) -> Markup {
    let shown = sections
        .iter()
        .filter_map(|section| Some((&*section.id, &*section.title, section.markup()?)));
    let shown: Vec<(&str, &str, Markup)> = shown.collect();
    html! {
        nav aria-label="Sections" {
            @for (id, title, _) in &shown { a href={ "#" (id) } { (Foreign(title)) } " " }
        }
        @for (id, title, body) in &shown { (section(id, title, body)) }
    }
}

/// Wraps each sentence into lines that begin with `indent`.
pub fn prose(indent: &str, sentences: &[String], look: &Look) -> Vec<String> {
    sentences
        .iter()
        .flat_map(|sentence| wrapped(indent, &harmless(sentence), look.width))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_the_same_in_every_format() {
        let mut table = Table::new(["<from", "n"]);
        table.row(["trials", "3"]);
        let items = vec!["one".to_owned(), "two".to_owned()];
        let section = Section::new("a", "Noise").text("It is <b>.");
        let section = section.list(List::Dashes, items).table(table).numbered(1);
        let expected = [
            "Noise",
            "  It is <b>.",
            "  - one",
            "  - two",
            "  from    n",
            "  trials  3",
        ];
        assert_eq!(section.lines(&Look::PLAIN), expected);
        assert_eq!(
            section.markdown(),
            "\n## Noise\n\nIt is \\<b\\>.\n\n- one\n- two\n\n\
             | from | n |\n|---|---:|\n| trials | 3 |\n"
        );
        let page = markup(&[section]).into_string();
        assert!(
            page.contains("<section id=\"a-1\"")
                && page.contains("<p>It is &lt;b&gt;.</p><ul><li>one</li>")
        );
        let empty = Section::new("a", "Noise").table(Table::new(["n"]));
        assert!(empty.lines(&Look::PLAIN).is_empty() && empty.markdown().is_empty());
    }
}
