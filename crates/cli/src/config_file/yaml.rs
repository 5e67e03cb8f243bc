//! Reader of the part of YAML that configuration files need: one document of mappings and scalars,
//! each with its line.
//!
//! Anchors and aliases are errors, so that a small file cannot expand to a large one. Sequences are
//! skipped, so that the error can name the key.

use super::error::Problem;
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, StrInput};
use std::fmt;

/// Deepest nesting. Settings need 2; the limit keeps a file from overflowing the stack.
const DEPTH_MAX: usize = 16;

/// Most characters of a value that an error quotes.
const SHOWN_MAX: usize = 60;

/// Key with its value, and the line of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) line: usize,
    pub(super) node: Node,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Scalar(Scalar),
    Mapping(Vec<Entry>),
    Sequence,
}

/// Single value; the caller decides its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scalar {
    pub(super) text: String,
    /// Whether the text is neither quoted nor tagged, so that it may be a number, a boolean or
    /// null.
    pub(super) plain: bool,
}

impl Node {
    /// Whether the node is YAML's null, which means no value.
    pub(super) fn is_null(&self) -> bool {
        match self {
            Node::Scalar(Scalar { text, plain: true }) => {
                matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL")
            }
            _ => false,
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Node::Mapping(_) => f.write_str("a mapping"),
            Node::Sequence => f.write_str("a list"),
            Node::Scalar(scalar) => {
                let cut = scalar.text.chars().nth(SHOWN_MAX).map_or("", |_| "…");
                let text: String = scalar.text.chars().take(SHOWN_MAX).collect();
                // Quotes show why "64" is not a number, and escape control characters.
                if scalar.plain && text.chars().all(|c| c.is_ascii_graphic()) {
                    write!(f, "{text}{cut}")
                } else {
                    write!(f, "{text:?}{cut}")
                }
            }
        }
    }
}

type Located<T> = Result<T, (usize, Problem)>;

/// Reads the entries of the document's mapping; an empty document has none.
///
/// # Errors
/// The line, from 1, and the problem.
pub(super) fn read(text: &str) -> Located<Vec<Entry>> {
    let mut reader = Reader {
        parser: Parser::new_from_str(text),
        line: 1,
    };
    // Without a document, the stream ends here.
    if !reader.skip_to_document()? {
        return Ok(Vec::new());
    }
    let event = reader.next()?;
    let line = reader.line;
    let root = reader.node(event, 0)?;
    if reader.skip_to_document()? {
        return Err((
            reader.line,
            yaml("a second document begins here; use one document"),
        ));
    }
    match root {
        Node::Mapping(entries) => Ok(entries),
        root if root.is_null() => Ok(Vec::new()),
        root => Err((
            line,
            yaml(format!("{root} instead of sections such as `params:`")),
        )),
    }
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    line: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Located<Event<'a>> {
        match self.parser.next_event() {
            None => Ok(Event::StreamEnd),
            Some(Ok((event, span))) => {
                self.line = span.start.line();
                Ok(event)
            }
            Some(Err(error)) => Err((error.marker().line(), not_yaml(&error))),
        }
    }

    /// Skips to the next document; returns whether there is one.
    fn skip_to_document(&mut self) -> Located<bool> {
        loop {
            match self.next()? {
                Event::DocumentStart(_) => return Ok(true),
                Event::StreamEnd => return Ok(false),
                _ => {} // start of the stream, or end of the previous document
            }
        }
    }

    /// Reads the node that begins with `event`.
    fn node(&mut self, event: Event<'a>, depth: usize) -> Located<Node> {
        if depth > DEPTH_MAX {
            return Err((self.line, yaml("this is nested too deeply for settings")));
        }
        match event {
            Event::Scalar(text, style, 0, tag) => Ok(Node::Scalar(Scalar {
                text: text.into_owned(),
                plain: style == ScalarStyle::Plain && tag.is_none(),
            })),
            Event::MappingStart(0, _) => self.mapping(depth),
            Event::SequenceStart(0, _) => loop {
                match self.next()? {
                    Event::SequenceEnd => return Ok(Node::Sequence),
                    event => self.node(event, depth + 1)?,
                };
            },
            _ => Err((
                self.line,
                yaml("anchors (&) and aliases (*) are not supported; write the value itself"),
            )),
        }
    }

    fn mapping(&mut self, depth: usize) -> Located<Node> {
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let event = self.next()?;
            if event == Event::MappingEnd {
                return Ok(Node::Mapping(entries));
            }
            let line = self.line;
            let key = match self.node(event, depth + 1)? {
                Node::Scalar(scalar) => scalar.text,
                node => return Err((line, yaml(format!("{node} instead of a key")))),
            };
            if let Some(first) = entries.iter().find(|first| first.key == key) {
                let first_line = first.line;
                let first_key = key.clone();
                return Err((
                    line,
                    Problem::Twice {
                        key,
                        first_key,
                        first_line,
                    },
                ));
            }
            let event = self.next()?;
            let node = self.node(event, depth + 1)?;
            entries.push(Entry { key, line, node });
        }
    }
}

fn yaml(what: impl Into<String>) -> Problem {
    Problem::Yaml { what: what.into() }
}

fn not_yaml(error: &ScanError) -> Problem {
    yaml(format!(
        "this is not YAML: {} (column {})",
        error.info(),
        error.marker().col() + 1
    ))
}
