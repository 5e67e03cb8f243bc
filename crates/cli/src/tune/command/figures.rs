//! Chart of the runs of a search, in order.

use maud::{Markup, Render};
use ronde_command::{Phase, Row};

use super::report::Report;
use crate::chart::{Axis, Chart, Data, Point, Rule, Series, Shape, Unit, robust_top};
use crate::present::units::{capitalized, short};

/// Series of the chart: name, marks, colour and runs.
type Kind<'a> = (&'static str, Shape, &'static str, &'a dyn Fn(&Row) -> bool);

/// Renders the chart.
pub(super) fn figures(report: &Report) -> Markup {
    let start = report.job.plan.start();
    let is_of_start = |row: &Row| row.setting == start;
    let kinds: [Kind<'_>; 4] = [
        ("start", Shape::Square, "--series-0", &|row| {
            is_of_start(row)
        }),
        ("searched", Shape::Circle, "--series-1", &|row| {
            !is_of_start(row) && row.phase == Phase::Search && !row.outcome.is_stopped()
        }),
        (
            "compared with the start",
            Shape::Diamond,
            "--series-2",
            &|row| !is_of_start(row) && row.phase == Phase::Compare,
        ),
        ("stopped early", Shape::Hollow, "--series-3", &|row| {
            row.outcome.is_stopped()
        }),
    ];
    let figures = || report.rows.iter().filter_map(|row| row.outcome.value());
    let top = robust_top(figures().map(|cost| report.job.figure(cost)));
    let points = |is: &dyn Fn(&Row) -> bool| -> Vec<Point> {
        let rows = report.rows.iter().enumerate().filter(|(_, row)| is(row));
        let point = |(index, row): (usize, &Row)| {
            let figure = report.job.figure(row.outcome.value()?);
            let setting = report.job.words(&row.setting);
            let text = format!("run {}: {}\n{setting}", index + 1, short(figure));
            Some(Point::new((index + 1) as f64, figure.min(top), text))
        };
        rows.filter_map(point).collect()
    };
    let series = kinds.iter().map(|(name, shape, colour, is)| {
        let data = Data::Points {
            shape: *shape,
            points: points(*is),
        };
        Series::new(*name, colour, data)
    });
    let name = report.job.metric.name();
    let rules = report.cost_of(&report.verdict.chosen).map(|cost| Rule {
        upright: false,
        at: report.job.figure(cost),
        name: "chosen".to_owned(),
    });
    let better = capitalized(report.job.better());
    let chart = Chart {
        description: format!("{better} is better. Runs that failed have no point."),
        x: Axis::linear("run", Unit::Count, 0.5, report.rows.len() as f64 + 0.5),
        y: Axis::linear(&name, Unit::Plain, 0.0, top),
        series: series.collect(),
        rules: rules.into_iter().collect(),
        ..Chart::new("runs-chart", format!("{name} of each run"))
    };
    chart.render()
}
