//! Pages that stand alone: one HTML file with its style, its pictures and its script inside, which asks no network for
//! anything and forbids itself to.
//!
//! What comes from a file or a user goes through [`Foreign`](text::Foreign) into text and through
//! [`embedded_json`](text::embedded_json) into scripts, never otherwise.

pub(crate) mod chart;
pub(crate) mod number;
pub(crate) mod text;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use text::Foreign;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Nothing may be loaded, whatever a trace has smuggled in.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; \
                      form-action 'none'";

/// One page.
pub(crate) struct Document<'a> {
    /// Its title, in the window and at its top.
    pub(crate) title: &'a str,
    /// Style besides the common one. Ours, not foreign.
    pub(crate) style: &'a str,
    /// Scripts besides the common one. Ours, not foreign.
    pub(crate) script: &'a str,
    /// Everything below the title.
    pub(crate) body: Markup,
}

impl Document<'_> {
    /// The whole file.
    pub(crate) fn render(&self) -> String {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    meta name="generator" content=(concat!("ronde ", env!("CARGO_PKG_VERSION")));
                    title { (Foreign(self.title)) }
                    style { (PreEscaped(STYLE)) (PreEscaped(self.style)) }
                }
                body {
                    main {
                        h1 { (Foreign(self.title)) }
                        (self.body)
                    }
                    script { (PreEscaped(SCRIPT)) (PreEscaped(self.script)) }
                }
            }
        }
        .into_string()
    }
}

/// A section with its heading, to which `#id` leads.
pub(crate) fn section(id: &str, heading: &str, body: &Markup) -> Markup {
    html! {
        section id=(id) aria-labelledby={ (id) "-heading" } {
            h2 id={ (id) "-heading" } { (heading) }
            (body)
        }
    }
}

/// A table that scrolls sideways within itself where the page is too narrow.
pub(crate) fn wide(label: &str, table: &Markup) -> Markup {
    html! {
        div.wide role="region" aria-label=(label) tabindex="0" { (table) }
    }
}

/// What opens when asked to (and in print).
pub(crate) fn folded(summary: &str, body: &Markup) -> Markup {
    html! {
        details { summary { (Foreign(summary)) } (body) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn style_and_script_cannot_end_their_elements() {
        for text in [STYLE, SCRIPT] {
            assert!(!text.contains("</") && !text.contains("<!--"));
        }
    }

    #[test]
    fn a_document_names_itself_safely() {
        let page = Document {
            title: "<i>",
            style: "",
            script: "",
            body: section("a", "A", &html! { p { "x" } }),
        };
        let page = page.render();
        assert!(page.starts_with("<!DOCTYPE html><html lang=\"en\">"));
        assert!(page.contains("<title>&lt;i&gt;</title>") && page.contains("<h1>&lt;i&gt;</h1>"));
        assert!(page.contains(
            "<section id=\"a\" aria-labelledby=\"a-heading\"><h2 id=\"a-heading\">A</h2><p>x</p></section>"
        ));
    }
}
