//! Charts of the page: a heat map for each network and number of ranks, and a curve over the ranks.

use maud::{Markup, html};

use super::outlook::{At, Cell, Outlook};
use super::report::{interval, kind_words};
use crate::chart::scale::{Better, Shades, colour};
use crate::chart::{Axis, Chart, Grid, Point, Series, Shape, Unit};
use crate::html::text::Foreign;
use crate::present::units::digits;
use crate::setting::numbers;

/// Colour scale of a grid's predictions.
pub(super) fn shades(at: &At) -> Shades {
    Shades::new(at.cells.iter().map(|cell| cell.step_ms), Better::Lower, 0.0)
}

/// Heat map of predicted step times over threshold and cycle time.
pub(super) fn map(at: &At, kind: (bool, bool), several: bool, id: String) -> Chart {
    let cells = at.cells_of(kind);
    let shades = shades(at);
    let place = |cell: &Cell| (cell.point.fusion_mb(), cell.point.cycle_time_ms);
    let grid = Grid::new(cells.iter().map(|cell| place(cell)));
    let words = |cell: &Cell| {
        let (setting, step) = (numbers(&cell.point), digits(cell.step_ms));
        format!("{setting}: {step} ms\n{} ms", interval(cell))
    };
    let rect = |cell: &&Cell| {
        let colour = colour(shades.at(cell.step_ms));
        grid.cell(place(cell), colour, digits(cell.step_ms), words(cell))
    };
    let mark = |name: &str, shape, colour, of: &Cell, right: bool| {
        let cell = cells.iter().find(|cell| cell.is_setting_of(of))?;
        let text = format!("{name}\n{}", words(cell));
        let points = vec![grid.mark(place(cell), right, text)];
        Some(Series::points(name, colour, shape, points))
    };
    let title = match several {
        true => format!("{}; {}", at.title(), kind_words(kind)),
        false => at.title(),
    };
    let boxes = Series::boxes("", "--series-5", cells.iter().map(rect).collect());
    let marks = [
        mark(
            "as recorded",
            Shape::Diamond,
            "--series-1",
            &at.current,
            true,
        ),
        at.choice
            .and_then(|choice| mark("best", Shape::Star, "--ink", &choice.best, false)),
    ];
    let [x, y] = grid.axes("fusion threshold, MiB", "cycle time, ms");
    Chart {
        description:
            "Fusion threshold in MiB across, cycle time in ms upwards; the tables below have the numbers."
                .into(),
        height_px: 60 + (34 * grid.rows() as u32).clamp(80, 500),
        x,
        y,
        series: [Some(boxes)].into_iter().chain(marks).flatten().collect(),
        scale: Some(shades.key("Above the best of all".to_owned())),
        ..Chart::new(id, title)
    }
}

/// Chart for each network: step time over ranks, with the setting in force and with the best.
/// Empty if only one number of ranks is predicted.
pub(super) fn curves(outlook: &Outlook) -> Markup {
    let mut networks: Vec<&Option<String>> = outlook.targets.iter().map(|at| &at.network).collect();
    networks.dedup();
    let of = |network: &Option<String>| -> Vec<&At> {
        let targets = outlook.targets.iter();
        let mut of: Vec<&At> = targets.filter(|at| &at.network == network).collect();
        of.sort_by_key(|at| at.ranks);
        of
    };
    let several = networks.iter().any(|network| of(network).len() > 1);
    html! {
        @for (index, network) in networks.iter().enumerate().filter(|_| several) {
            (curve(index, network.as_deref().unwrap_or("as recorded"), &of(network)))
        }
    }
}

fn curve(index: usize, network: &str, ats: &[&At]) -> Markup {
    let chosen = |at: &At| at.choice.map(|choice| choice.best);
    let all = || {
        ats.iter()
            .flat_map(|at| [Some(at.current), chosen(at)])
            .flatten()
    };
    let low = all().map(|cell| cell.low_ms).fold(f64::INFINITY, f64::min);
    let high = all().map(|cell| cell.high_ms).fold(0.0, f64::max);
    let ranks = |at: &At| f64::from(at.ranks);
    let first = ats.first().map_or(1.0, |at| ranks(at));
    let last = ats.last().map_or(2.0, |at| ranks(at));
    let series = |name: &str, colour, shape, of: &dyn Fn(&At) -> Option<Cell>| {
        let point = |at: &&At| {
            let cell = of(at)?;
            let text = format!(
                "{} ranks, {name}\n{} ms ({})",
                at.ranks,
                digits(cell.step_ms),
                interval(&cell)
            );
            Some(Point {
                low: cell.low_ms,
                high: cell.high_ms,
                ..Point::new(ranks(at), cell.step_ms, text)
            })
        };
        let line = ats.iter().filter_map(|at| {
            let step_ms = of(at)?.step_ms;
            Some([ranks(at), step_ms, step_ms, step_ms])
        });
        let points = ats.iter().filter_map(point).collect();
        [
            Series::line(name, colour, true, line.collect()),
            Series::points(name, colour, shape, points),
        ]
    };
    let now = series("the setting in force", "--series-0", Shape::Circle, &|at| {
        Some(at.current)
    });
    let recommended = ats.iter().any(|at| at.choice.is_some());
    let best = recommended
        .then(|| series("the best setting", "--series-1", Shape::Square, &chosen))
        .into_iter()
        .flatten();
    let chart = Chart {
        description: "Predicted step times with the setting in force and with the best one; error bars are from the 10th to the \
                      90th percentile."
            .into(),
        x: Axis::log("ranks", Unit::Count, first.max(1.0) / 1.1, last * 1.1),
        y: Axis::log("step", Unit::Ms, (low * 0.9).max(1e-3), high * 1.1),
        series: now.into_iter().chain(best).collect(),
        ..Chart::new(format!("curve-{index}"), format!("Step time over ranks, {network}"))
    };
    chart.figure(html! {
        (Foreign(network)) "; error bars from the 10th to the 90th percentile. The sections below have the numbers."
    })
}
