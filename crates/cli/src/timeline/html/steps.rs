//! Steps section: the length of every step, divided into its parts.

use maud::{Markup, html};

use super::parts::{look, title};
use crate::chart::{Axis, Chart, Column, Data, Point, Rule, Series, Shape, Unit, robust_top};
use crate::html::{folded, wide};
use crate::present::units::{bytes, count, counted, ms};
use ronde_trace::analysis::report::{PartKind, Step, Summary};

/// Largest number of columns. More could not be distinguished on a screen and would enlarge the
/// file.
const MOST_COLUMNS: usize = 240;

pub(super) fn show(
    steps: &[Step],
    steady: Option<&Summary>,
    started_slowly: bool,
) -> Option<Markup> {
    let (first, last) = (steps.first()?, steps.last()?);
    let per_column = steps.len().div_ceil(MOST_COLUMNS);
    let groups: Vec<&[Step]> = steps.chunks(per_column).collect();
    let top = robust_top(groups.iter().map(|group| mean_ms(group)));
    let parts = PartKind::ALL.map(|kind| {
        let column = |group: &&[Step]| column(group, kind);
        Series::new(
            title(kind),
            look(kind).colour,
            Data::Columns {
                columns: groups.iter().map(column).collect(),
            },
        )
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
    let rule = steady.filter(|_| started_slowly).map(|steady| Rule {
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
    Some(html! {
        figure {
            (chart)
            figcaption {
                @if per_column > 1 { "Each column is the mean of " (per_column) " steps. " }
                @if cut_off > 0 {
                    (counted(cut_off, "step")) " longer than the chart is high, marked ▲; the longest takes "
                    (ms(steps.iter().map(|step| step.ms).fold(0.0, f64::max))) ". "
                }
                @if partial > 0 { (counted(partial, "step")) " left out of the summaries, cut off or with other traffic in between: drawn pale. " }
            }
        }
        div.screen-only { (folded("The steps as a table", &table(steps, per_column))) }
    })
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

fn table(steps: &[Step], per_row: usize) -> Markup {
    wide(
        "Steps",
        &html! {
            table {
                thead {
                    tr {
                        th scope="col" { "Step" } th.n scope="col" { "length" } th.n scope="col" { "exposed communication" }
                        th.n scope="col" { "tensors" } th.n scope="col" { "batches" } th.n scope="col" { "payload" } th scope="col" {}
                    }
                }
                tbody {
                    @for steps in steps.chunks(per_row) {
                        @let n = steps.len() as u64;
                        @let mean = |value: fn(&Step) -> f64| steps.iter().map(value).sum::<f64>() / n as f64;
                        tr {
                            th scope="row" { (range(steps)) }
                            td.n { (ms(mean(|s| s.ms))) }
                            td.n { (ms(mean(|s| s.exposed_ms.iter().sum::<f64>() - s.exposed_ms[0]))) }
                            td.n { (count(steps.iter().map(|s| s.tensors).sum::<u64>() / n)) }
                            td.n { (count(steps.iter().map(|s| s.batches).sum::<u64>() / n)) }
                            td.n { (bytes((steps.iter().map(|s| u128::from(s.bytes)).sum::<u128>() / u128::from(n)) as u64)) }
                            td { @if steps.iter().any(|s| s.partial) { "partial" } }
                        }
                    }
                }
            }
        },
    )
}
