//! Pages that stand alone: one HTML file with its style, its pictures and its script inside, which asks no network for
//! anything and forbids itself to.
//!
//! What comes from a file or a user goes through [`Foreign`](text::Foreign) into text and through
//! [`embedded_json`](text::embedded_json) into scripts, never otherwise.

pub(crate) mod number;
pub(crate) mod text;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use text::Foreign;

const STYLE: &str = include_str!("page.css");
const SCRIPTS: [&str; 2] = [include_str!("charts.js"), include_str!("page.js")];
/// Apache ECharts, as scripts/build-charts builds it.
const ECHARTS: &str = include_str!("../../charts/echarts.js");
/// Notice and licences of [`ECHARTS`].
pub(crate) const ECHARTS_LICENCES: &str = include_str!("../../charts/LICENSES.txt");

/// Nothing may be loaded, whatever a trace has smuggled in.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; \
                      form-action 'none'";

/// One page.
pub(crate) struct Document<'a> {
    /// Its title, in the window and at its top.
    pub(crate) title: &'a str,
    /// Style besides the common one. Ours, not foreign.
    pub(crate) style: &'a str,
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
                        button #theme type="button" hidden title="switch between light and dark" { "light / dark" }
                        h1 { (Foreign(self.title)) }
                        noscript { p.note { "The charts need JavaScript. The tables have the same numbers." } }
                        (self.body)
                        details #licences {
                            summary { "Licences" }
                            p.note { "The charts are drawn by Apache ECharts, which is part of this file." }
                            pre { (ECHARTS_LICENCES) }
                        }
                    }
                    script #echarts { (PreEscaped(ECHARTS)) }
                    script { @for script in SCRIPTS { (PreEscaped(script)) } }
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

/// A small box in the series' filling; says nothing itself.
pub(crate) fn swatch(class: &str) -> Markup {
    html! {
        svg.swatch width="18" height="12" aria-hidden="true" { rect class=(class) width="18" height="12" {} }
    }
}

/// A bar in a table's cell, `share` of the cell's width long. The number stands beside it.
pub(crate) fn cell_bar(share: f64, class: &str) -> Markup {
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

/// What opens when asked to (and in print).
pub(crate) fn folded(summary: &str, body: &Markup) -> Markup {
    html! {
        details { summary { (Foreign(summary)) } (body) }
    }
}

/// A page without ECharts and its licences, for tests of what else it holds.
#[cfg(test)]
pub(crate) fn own_part(page: &str) -> String {
    let cut = |page: &str, from: &str, to: &str| {
        let (before, rest) = page.split_once(from).expect("the part begins");
        let (_, after) = rest.split_once(to).expect("the part ends");
        format!("{before}{after}")
    };
    let page = cut(page, "<script id=\"echarts\">", "</script>");
    cut(&page, "<details id=\"licences\">", "</details>")
}

/// Where a browser would have to guess. The text of scripts is not markup.
#[cfg(test)]
pub(crate) fn errors(page: &str) -> Vec<String> {
    let mut emitter = html5gum::emitters::default::DefaultEmitter::<()>::default();
    emitter.naively_switch_states(true);
    let tokens = html5gum::Tokenizer::new_with_emitter(page, emitter);
    tokens
        .filter_map(|token| match token {
            Ok(html5gum::Token::Error(error)) => Some(format!("{error:?}")),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn style_and_script_cannot_end_their_elements() {
        assert!(!STYLE.contains("</"));
        for text in SCRIPTS.into_iter().chain([ECHARTS]) {
            let text = text.to_ascii_lowercase();
            assert!(!text.contains("</script") && !text.contains("<script") && !text.contains("<!--"));
        }
    }

    #[test]
    fn a_page_has_the_licences_of_its_charts() {
        assert!(ECHARTS_LICENCES.contains("The Apache Software Foundation"));
        assert!(ECHARTS_LICENCES.contains("Apache License") && ECHARTS_LICENCES.contains("BSD 3-Clause"));
        assert!(ECHARTS.len() <= 600_000);
    }

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
            "<section id=\"a\" aria-labelledby=\"a-heading\"><h2 id=\"a-heading\">A</h2><p>x</p></section>"
        ));
    }
}
