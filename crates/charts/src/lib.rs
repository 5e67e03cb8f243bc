//! Parts of all HTML pages: Apache ECharts, the common style and scripts, the colour scale of heat
//! maps.
//!
//! The pages of reports (`ronde-present`) contain these parts; the live page of a job
//! (`ronde-dash`) loads them from its own server. So both look alike, and the runtime needs nothing
//! else of the presentation.

pub mod scale;

/// Apache ECharts as built by `scripts/build-charts`: a script that defines `echarts`.
pub const ECHARTS: &str = include_str!("../echarts/echarts.js");

/// Notice and licences of the charts' library.
pub const ECHARTS_LICENCES: &str = include_str!("../echarts/LICENSES.txt");

/// Style of a page: colours of the light and the dark scheme, text, tables, tiles, charts.
pub const STYLE: &str = include_str!("page.css");

/// Script that draws the charts of a page and switches between light and dark. It defines
/// `ronde.chart(element, spec)` and `ronde.units` for pages whose charts change.
pub const CHARTS_SCRIPT: &str = include_str!("charts.js");

/// Script that opens folded sections for printing.
pub const PRINT_SCRIPT: &str = include_str!("page.js");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn style_and_script_cannot_end_their_elements() {
        assert!(!STYLE.contains("</"));
        for text in [CHARTS_SCRIPT, PRINT_SCRIPT, ECHARTS] {
            let text = text.to_ascii_lowercase();
            assert!(
                !text.contains("</script") && !text.contains("<script") && !text.contains("<!--")
            );
        }
    }

    #[test]
    fn the_licences_of_the_charts_are_complete() {
        assert!(ECHARTS_LICENCES.contains("The Apache Software Foundation"));
        assert!(
            ECHARTS_LICENCES.contains("Apache License")
                && ECHARTS_LICENCES.contains("BSD 3-Clause")
        );
        assert!(ECHARTS.len() <= 600_000);
    }
}
