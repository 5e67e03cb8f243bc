//! The length of every step, in parts, over the run.

use maud::{Markup, html};

use super::parts::{flat_series, series};
use crate::html::chart::{Axis, Caption, Column, Marker, columns, legend};
use crate::html::number::{bytes, count, counted, ms, short};
use crate::html::{folded, wide};
use ronde_trace::analysis::report::{PartKind, Step, Summary};

/// More columns than a screen can tell apart would only make the file large.
const MOST_COLUMNS: usize = 240;

pub(super) fn show(steps: &[Step], steady: Option<&Summary>, started_slowly: bool) -> Option<Markup> {
    let (first, last) = (steps.first()?, steps.last()?);
    let per_column = steps.len().div_ceil(MOST_COLUMNS);
    let drawn: Vec<Column> = steps.chunks(per_column).map(column).collect();
    let top = top(&drawn);
    let x = Axis::linear("step", first.index as f64, last.index as f64 + 1.0, 6, step_name);
    let y = Axis::linear("ms a step", 0.0, top, 5, short);
    let marker = steady.filter(|_| started_slowly).map(|steady| Marker {
        at: steady.first_step as f64,
        label: format!("steady from step {}", count(steady.first_step)),
    });
    let caption = Caption {
        id: "steps-chart",
        title: "Length of every step",
        description: "A column for each step, stacked by part as in the bars above, in order of time.",
    };
    let cut_off = steps.iter().filter(|step| step.ms > top).count() as u64;
    let partial = steps.iter().filter(|step| step.partial).count() as u64;
    Some(html! {
        figure {
            (legend(&series()))
            (columns::columns(&caption, &flat_series(), &drawn, &x, &y, marker.as_slice(), 0))
            figcaption {
                @if per_column > 1 { "Each column is the mean of " (per_column) " steps. " }
                @if cut_off > 0 {
                    (counted(cut_off, "step")) " longer than the picture is high (▲); the longest takes "
                    (ms(steps.iter().map(|step| step.ms).fold(0.0, f64::max))) ". "
                }
                @if partial > 0 { (counted(partial, "step")) " left out of the summaries, cut off or with other traffic in between: drawn pale. " }
            }
        }
        div.screen-only { (folded("The steps as a table", &table(steps, per_column))) }
    })
}

/// Steps have whole numbers.
fn step_name(index: f64) -> String {
    if index.fract() == 0.0 {
        short(index)
    } else {
        String::new()
    }
}

fn column(steps: &[Step]) -> Column {
    let n = steps.len() as f64;
    let mean = |part: usize| steps.iter().map(|step| step.exposed_ms[part]).sum::<f64>() / n;
    let (first, last) = (&steps[0], &steps[steps.len() - 1]);
    Column {
        from: first.index as f64,
        to: last.index as f64 + 1.0,
        parts: (0..PartKind::COUNT).map(mean).collect(),
        title: format!(
            "{}: {}",
            range(steps),
            ms(steps.iter().map(|step| step.ms).sum::<f64>() / n)
        ),
        label: String::new(),
        faint: steps.iter().all(|step| step.partial),
    }
}

fn range(steps: &[Step]) -> String {
    match (steps[0].index, steps[steps.len() - 1].index) {
        (first, last) if first == last => format!("step {first}"),
        (first, last) => format!("steps {first}–{last}"),
    }
}

/// How high the picture is: all of it, unless a few columns dwarf the rest.
fn top(columns: &[Column]) -> f64 {
    let mut heights: Vec<f64> = columns
        .iter()
        .map(|c| c.parts.iter().sum())
        .filter(|h: &f64| h.is_finite())
        .collect();
    heights.sort_by(f64::total_cmp);
    let Some(highest) = heights.last().copied() else {
        return 1.0;
    };
    let typical = heights[heights.len() * 9 / 10];
    if highest > 3.0 * typical && typical > 0.0 {
        1.5 * typical
    } else {
        1.05 * highest
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
