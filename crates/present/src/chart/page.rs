//! HTML of a chart: an element with the chart's data as JSON, which `ronde_charts::CHARTS_SCRIPT`
//! draws with Apache ECharts.

use maud::{Markup, PreEscaped, Render, html};
use serde::Serialize;

use super::Chart;
use super::scale::{Key, colour};
use crate::html::text::{Foreign, embedded_json};

impl Render for Chart {
    fn render(&self) -> Markup {
        html! {
            (frame(&self.id, &self.title, &self.description, self.height_px, self))
            @if let Some(scale) = &self.scale { (key(scale)) }
        }
    }
}

impl Chart {
    /// Renders the chart as a figure with this caption.
    pub fn figure(&self, caption: impl Render) -> Markup {
        html! { figure { (self) figcaption { (caption) } } }
    }
}

/// Renders the legend of a colour scale: a swatch for each label.
fn key(Key { label, ticks }: &Key) -> Markup {
    html! {
        p.note.key {
            (Foreign(label)) ": "
            @for (place, name) in ticks {
                span {
                    svg.swatch width="14" height="12" aria-hidden="true" {
                        rect width="14" height="12" fill=(colour(*place)) {}
                    }
                    " " (name)
                }
                " "
            }
        }
    }
}

/// Renders the element of a chart with its data.
pub fn frame(
    id: &str,
    title: &str,
    description: &str,
    height_px: u32,
    data: &impl Serialize,
) -> Markup {
    html! {
        div.chart id=(id) role="group" aria-label=(Foreign(title)) {
            p.chart-title { (Foreign(title)) }
            div.plot role="img" aria-label=(Foreign(&format!("{title}. {description}")))
                style={ "height:" (height_px) "px" } {}
            script type="application/json" { (PreEscaped(embedded_json(data))) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Point, Series, Shape};

    #[test]
    fn the_data_of_a_chart_cannot_end_its_element() {
        let point = Point::new(f64::NAN, 1.0, "</script>");
        let chart = Chart {
            series: vec![Series::points("a", "--series-0", Shape::Star, vec![point])],
            ..Chart::new("c", "<b>")
        };
        let page = html! { (chart) }.into_string();
        assert_eq!(page.matches("</script>").count(), 1, "{page}");
        assert!(
            page.contains("aria-label=\"&lt;b&gt;") && page.contains(r#""x":null,"y":1.0"#),
            "{page}"
        );
    }
}
