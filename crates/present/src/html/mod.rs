//! Self-contained HTML pages: one file includes its style, charts and scripts. A content security
//! policy forbids it to load anything from the network.
//!
//! Text from files and users is written through [`Foreign`] into markup and through
//! [`embedded_json`](text::embedded_json) into scripts, without exception.

pub mod text;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use ronde_charts::{CHARTS_SCRIPT, ECHARTS, PRINT_SCRIPT};
use text::Foreign;

pub use ronde_charts::ECHARTS_LICENCES;
pub(crate) use ronde_charts::STYLE;

/// Content security policy: the page may load nothing, whatever text a trace contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      base-uri 'none'; form-action 'none'";

/// One HTML page.
pub struct Document<'a> {
    /// Title, for the window and the top of the page.
    pub title: &'a str,
    /// Style in addition to the common style. It must not contain text from files or users.
    pub style: &'a str,
    /// Content below the title.
    pub body: Markup,
}

impl Document<'_> {
    /// Renders the complete file.
    pub fn render(&self) -> String {
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
                        button #theme type="button" hidden title="switch between light and dark" {
                            "light / dark"
                        }
                        h1 { (Foreign(self.title)) }
                        noscript {
                            p.note {
                                "The charts need JavaScript. The tables have the same numbers."
                            }
                        }
                        (self.body)
                        details #licences {
                            summary { "Licences" }
                            p.note {
                                "The charts are drawn by Apache ECharts, which is part of this file."
                            }
                            pre { (ECHARTS_LICENCES) }
                        }
                    }
                    script #echarts { (PreEscaped(ECHARTS)) }
                    script { (PreEscaped(CHARTS_SCRIPT)) (PreEscaped(PRINT_SCRIPT)) }
                }
            }
        }
        .into_string()
    }
}

/// Section with a heading, the target of links to `#id`.
pub fn section(id: &str, heading: &str, body: &Markup) -> Markup {
    html! {
        section id=(id) aria-labelledby={ (id) "-heading" } {
            h2 id={ (id) "-heading" } { (heading) }
            (body)
        }
    }
}

/// Table that scrolls horizontally within its own box if the page is too narrow.
pub fn wide(label: &str, table: &Markup) -> Markup {
    html! {
        div.wide role="region" aria-label=(Foreign(label)) tabindex="0" { (table) }
    }
}

/// Tile with a key figure, for a `dl.tiles`.
pub fn tile(name: &str, value: &str, detail: &str) -> Markup {
    html! {
        div {
            dt { (name) }
            dd { (value) }
            @if !detail.is_empty() { dd.detail { (Foreign(detail)) } }
        }
    }
}

/// Small box with the fill of a series, hidden from screen readers.
pub fn swatch(class: &str) -> Markup {
    html! {
        svg.swatch width="18" height="12" aria-hidden="true" {
            rect class=(class) width="18" height="12" {}
        }
    }
}

/// Bar in a table cell, with a length of `share` times the cell's width. The number stands beside
/// it.
pub fn cell_bar(share: f64, class: &str) -> Markup {
    let percent = if share.is_finite() {
        100.0 * share.clamp(0.0, 1.0)
    } else {
        0.0
    };
    html! {
        svg.cell-bar width="100%" height="10" aria-hidden="true" {
            rect class=(class) width=(format!("{percent:.2}%")) height="10" {}
        }
    }
}

/// Folded content, which opens on a click and for printing.
pub fn folded(summary: &str, body: &Markup) -> Markup {
    html! {
        details { summary { (Foreign(summary)) } (body) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_in_cells_stay_in_them() {
        for (share, width) in [(0.5, "50.00%"), (7.0, "100.00%"), (f64::NAN, "0.00%")] {
            assert!(cell_bar(share, "a").into_string().contains(width));
        }
    }

    #[test]
    fn a_document_names_itself_safely() {
        let page = Document {
            title: "<i>",
            style: "",
            body: section("a", "A", &html! { p { "x" } }),
        };
        let page = page.render();
        assert!(page.starts_with("<!DOCTYPE html><html lang=\"en\">"));
        assert!(page.contains("<title>&lt;i&gt;</title>") && page.contains("<h1>&lt;i&gt;</h1>"));
        assert!(page.contains(
            "<section id=\"a\" aria-labelledby=\"a-heading\"><h2 id=\"a-heading\">A</h2><p>x</p>\
             </section>"
        ));
    }
}
