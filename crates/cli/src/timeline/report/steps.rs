//! Section on every step, for the page: its length, divided into its parts.

use maud::html;

use super::recorded_parts;
use crate::chart::{Axis, Chart, Column, Data, Point, Rule, Series, Shape, Unit, robust_top};
use crate::present::units::{bytes, count, counted, ms};
use crate::present::{Section, Table};
use crate::timeline::part;
use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::{PartKind, Step};

/// Largest number of columns. More could not be distinguished on a screen and would enlarge the
/// file.
const MOST_COLUMNS: usize = 240;

pub(super) fn section(report: &Report) -> Section<'_> {
    let steps = &report.steps[..];
    let section = Section::new("steps", "Steps over time");
    if steps.is_empty() {
        return section;
    }
    let (first, last) = ends(steps);
    let per_column = steps.len().div_ceil(MOST_COLUMNS);
    let groups: Vec<&[Step]> = steps.chunks(per_column).collect();
    let top = robust_top(groups.iter().map(|group| mean_ms(group)));
    let parts = recorded_parts(report).map(|kind| {
        let columns = groups.iter().map(|group| column(group, kind)).collect();
        Series {
            hatch: "",
            ..part::series(kind, Data::Columns { columns })
        }
    });
    let beyond = groups.iter().filter(|group| mean_ms(group) > top);
    let beyond = beyond.map(|group| {
        let (first, last) = ends(group);
        let text = format!("{}: {}", range(group), ms(mean_ms(group)));
        Point::new((first + last) / 2.0, top, text)
    });
    let points: Vec<Point> = beyond.collect();
    let cut_off = points.len() as u64;
    let outliers = (!points.is_empty())
        .then(|| Series::points("beyond the axis", "--ink", Shape::Triangle, points));
    let steady = report.steady.as_ref();
    let changed = steady.filter(|_| report.startup.is_some());
    let rule = changed.map(|steady| Rule {
        upright: true,
        at: steady.first_step as f64,
        name: format!("steady from step {}", count(steady.first_step)),
    });
    let chart = Chart {
        description:
            "A column for each step, stacked by part as in the bars above, in order of time.".into(),
        x: Axis::linear("step", Unit::Count, first, last),
        y: Axis::linear("time a step", Unit::Ms, 0.0, top),
        series: parts.chain(outliers).collect(),
        rules: rule.into_iter().collect(),
        zoom: true,
        ..Chart::new("steps-chart", "Length of every step")
    };
    let partial = steps.iter().filter(|step| step.partial).count() as u64;
    let longest = steps.iter().map(|step| step.ms).fold(0.0, f64::max);
    let figure = chart.figure(html! {
        @if per_column > 1 { "Each column is the mean of " (per_column) " steps. " }
        @if cut_off > 0 {
            (counted(cut_off, "column")) " higher than the chart, marked ▲. "
        }
        @if longest > top { "The longest step takes " (ms(longest)) ". " }
        @if partial > 0 {
            (counted(partial, "step")) " excluded from the summaries (cut off, or other "
            "operations in between): drawn pale. "
        }
    });
    section
        .page(figure)
        .folded("The steps as a table", table(steps, per_column))
}

/// Column with the mean of one part over neighbouring steps.
fn column(steps: &[Step], kind: PartKind) -> Column {
    let (first, last) = ends(steps);
    let sum: f64 = steps
        .iter()
        .map(|step| step.exposed_ms[kind as usize])
        .sum();
    Column {
        x: [first, last],
        height: sum / steps.len() as f64,
        text: format!("{}: {}", range(steps), ms(mean_ms(steps))),
        pale: steps.iter().all(|step| step.partial),
    }
}

/// Beginning of the first step and end of the last, as numbers of steps.
fn ends(steps: &[Step]) -> (f64, f64) {
    let last = steps[steps.len() - 1].index;
    (steps[0].index as f64, last as f64 + 1.0)
}

fn mean_ms(steps: &[Step]) -> f64 {
    steps.iter().map(|step| step.ms).sum::<f64>() / steps.len() as f64
}

fn range(steps: &[Step]) -> String {
    match (steps[0].index, steps[steps.len() - 1].index) {
        (first, last) if first == last => format!("step {first}"),
        (first, last) => format!("steps {first}–{last}"),
    }
}

fn table(steps: &[Step], per_row: usize) -> Table {
    let mut table =
        Table::headed("<step; length; exposed communication; tensors; batches; payload; <");
    for steps in steps.chunks(per_row) {
        let n = steps.len() as u64;
        let mean = |value: fn(&Step) -> f64| steps.iter().map(value).sum::<f64>() / n as f64;
        let whole = |value: fn(&Step) -> u64| {
            let sum: u128 = steps.iter().map(|step| u128::from(value(step))).sum();
            (sum / u128::from(n)) as u64
        };
        let partial = steps.iter().any(|step| step.partial);
        table.row([
            range(steps),
            ms(mean(|step| step.ms)),
            ms(mean(exposed_ms)),
            count(whole(|step| step.tensors)),
            count(whole(|step| step.batches)),
            bytes(whole(|step| step.bytes)),
            if partial { "partial" } else { "" }.to_owned(),
        ]);
    }
    table
}

/// Exposed communication of a step.
fn exposed_ms(step: &Step) -> f64 {
    let communication = PartKind::ALL.iter().filter(|kind| kind.is_communication());
    communication
        .map(|kind| step.exposed_ms[*kind as usize])
        .sum()
}
