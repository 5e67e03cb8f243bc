//! Section on every step, for the page: its length, divided into its parts.

use maud::html;

use crate::chart::{Axis, Chart, Column, Data, Point, Rule, Series, Shape, Unit, robust_top};
use crate::present::units::{bytes, count, counted, ms};
use crate::present::{Section, Table};
use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::{PartKind, Step};

/// Largest number of columns. More could not be distinguished on a screen and would enlarge the
/// file.
const MOST_COLUMNS: usize = 240;

pub(super) fn section(report: &Report) -> Section<'_> {
    let steps = &report.steps[..];
    let section = Section::new("steps", "Steps over time");
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
        return section;
    };
    let per_column = steps.len().div_ceil(MOST_COLUMNS);
    let groups: Vec<&[Step]> = steps.chunks(per_column).collect();
    let top = robust_top(groups.iter().map(|group| mean_ms(group)));
    let parts = PartKind::ALL.map(|kind| {
        let columns = groups.iter().map(|group| column(group, kind)).collect();
        Series {
            hatch: "",
            ..Series::of_part(kind, Data::Columns { columns })
        }
    });
    let beyond: Vec<Point> = groups
        .iter()
        .filter(|group| mean_ms(group) > top)
        .map(|group| {
            let middle = (group[0].index as f64 + group[group.len() - 1].index as f64 + 1.0) / 2.0;
            Point::new(
                middle,
                top,
                format!("{}: {}", range(group), ms(mean_ms(group))),
            )
        })
        .collect();
    let outliers = (!beyond.is_empty()).then(|| {
        let data = Data::Points {
            shape: Shape::Triangle,
            points: beyond,
        };
        Series::new("beyond the axis", "--ink", data)
    });
    let steady = report.steady.as_ref();
    let rule = steady
        .filter(|_| report.startup.is_some())
        .map(|steady| Rule {
            upright: true,
            at: steady.first_step as f64,
            name: format!("steady from step {}", count(steady.first_step)),
        });
    let chart = Chart {
        description:
            "A column for each step, stacked by part as in the bars above, in order of time.".into(),
        x: Axis::linear(
            "step",
            Unit::Count,
            first.index as f64,
            last.index as f64 + 1.0,
        ),
        y: Axis::linear("time a step", Unit::Ms, 0.0, top),
        series: parts.into_iter().chain(outliers).collect(),
        rules: rule.into_iter().collect(),
        zoom: true,
        ..Chart::new("steps-chart", "Length of every step")
    };
    let cut_off = steps.iter().filter(|step| step.ms > top).count() as u64;
    let partial = steps.iter().filter(|step| step.partial).count() as u64;
    let longest = steps.iter().map(|step| step.ms).fold(0.0, f64::max);
    let figure = html! {
        figure {
            (chart)
            figcaption {
                @if per_column > 1 { "Each column is the mean of " (per_column) " steps. " }
                @if cut_off > 0 {
                    (counted(cut_off, "step")) " longer than the chart is high, marked ▲; the longest takes " (ms(longest)) ". "
                }
                @if partial > 0 { (counted(partial, "step")) " excluded from the summaries (cut off, or other operations in between): drawn pale. " }
            }
        }
    };
    section
        .page(figure)
        .folded("The steps as a table", table(steps, per_column))
}

/// Column with the mean of one part over neighbouring steps.
fn column(steps: &[Step], kind: PartKind) -> Column {
    let (first, last) = (&steps[0], &steps[steps.len() - 1]);
    Column {
        x: [first.index as f64, last.index as f64 + 1.0],
        height: steps
            .iter()
            .map(|step| step.exposed_ms[kind as usize])
            .sum::<f64>()
            / steps.len() as f64,
        text: format!("{}: {}", range(steps), ms(mean_ms(steps))),
        pale: steps.iter().all(|step| step.partial),
    }
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
    let mut table = Table::new(&[
        "<step",
        "length",
        "exposed communication",
        "tensors",
        "batches",
        "payload",
        "<",
    ]);
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
            ms(mean(|step| {
                step.exposed_ms.iter().sum::<f64>() - step.exposed_ms[0]
            })),
            count(whole(|step| step.tensors)),
            count(whole(|step| step.batches)),
            bytes(whole(|step| step.bytes)),
            if partial { "partial" } else { "" }.to_owned(),
        ]);
    }
    table
}
