//! Breakdown section: the parts of a step as a stacked bar for start-up and steady state, and a
//! table.

use maud::{Markup, html};

use super::parts::{look, title};
use crate::chart::{Axis, Chart, Data, Rect, Series, Unit};
use crate::html::{folded, swatch, wide};
use crate::present::units::{counted, decimals, fixed, ms, percent};
use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::{PartKind, Summary};

pub(super) fn show(report: &Report) -> Markup {
    let Some(steady) = &report.steady else {
        return html! { p { "No whole step was found, so there is nothing to break down." } };
    };
    let summaries: Vec<(&str, &Summary)> = report
        .startup
        .iter()
        .map(|s| ("Start-up", s))
        .chain([("Steady state", steady)])
        .collect();
    html! {
        (chart(&summaries))
        p.note { "Milliseconds a step: what a part adds to the step, as mean, median and p90; total: the median with what is hidden behind computation." }
        (wide("Parts of a step", &table(&summaries)))
        p.note {
            @if steady.compute_known { "Computation is taken from the profiler’s trace." }
            @else { "Computation is not in these files: it is taken to last until this rank’s last tensor is ready." }
        }
        @for (name, summary) in &summaries { (more(name, summary)) }
    }
}

/// Draws a horizontal bar for each summary, with its parts side by side.
fn chart(summaries: &[(&str, &Summary)]) -> Markup {
    let whole = |summary: &Summary| {
        summary
            .parts
            .iter()
            .map(|part| part.exposed_ms.mean)
            .sum::<f64>()
    };
    let mut ends = vec![0.0; summaries.len()];
    let parts = PartKind::ALL.map(|kind| {
        let rect = |(row, (name, summary)): (usize, &(&str, &Summary))| {
            let part = exposed_mean(summary, kind);
            let from = ends[row];
            ends[row] += if part.is_finite() { part.max(0.0) } else { 0.0 };
            let share = percent(part / whole(summary));
            (ends[row] > from).then(|| Rect {
                x: [from, ends[row]],
                y: [row as f64 - 0.32, row as f64 + 0.32],
                colour: String::new(),
                text: format!("{name}: {}\n{}, {share} of the step", title(kind), ms(part)),
                label: share,
            })
        };
        Series {
            hatch: look(kind).hatch,
            ..Series::new(
                title(kind),
                look(kind).colour,
                Data::Boxes {
                    boxes: summaries.iter().enumerate().filter_map(rect).collect(),
                },
            )
        }
    });
    let names = summaries.iter().map(|(name, _)| (*name).to_owned());
    let lengths = summaries.iter().map(|(name, summary)| {
        format!(
            "{name}: {}, mean {}",
            counted(summary.steps, "step"),
            ms(summary.step_ms.mean)
        )
    });
    let chart = Chart {
        description: "Stacked bars of mean exposed time by part; the table below has the numbers."
            .into(),
        height_px: 60 + 60 * summaries.len() as u32,
        x: Axis::linear(
            "time a step",
            Unit::Ms,
            0.0,
            ends.iter().copied().fold(0.0, f64::max),
        ),
        y: Axis::places("", names),
        series: parts.into(),
        ..Chart::new("breakdown-chart", "Parts of a mean step")
    };
    html! {
        figure {
            (chart)
            figcaption { (lengths.collect::<Vec<_>>().join("; ")) "." }
        }
    }
}

fn exposed_mean(summary: &Summary, kind: PartKind) -> f64 {
    summary
        .parts
        .iter()
        .find(|part| part.kind == kind)
        .map_or(0.0, |part| part.exposed_ms.mean)
}

fn table(summaries: &[(&str, &Summary)]) -> Markup {
    let places = decimals(summaries.iter().map(|(_, s)| s.step_ms.mean));
    let number = |value: f64| fixed(value, places);
    html! {
        table {
            thead {
                tr {
                    th scope="col" rowspan="2" { "Part" }
                    @for (name, _) in summaries { th.group scope="colgroup" colspan="5" { (name) } }
                }
                tr {
                    @for _ in summaries {
                        th.n.group scope="col" { "share" } th.n scope="col" { "mean" } th.n scope="col" { "median" }
                        th.n scope="col" { "p90" } th.n scope="col" { "total" }
                    }
                }
            }
            tbody {
                @for kind in PartKind::ALL.into_iter().filter(|kind| present(summaries, *kind)) {
                    tr {
                        th scope="row" { (swatch(&look(kind).class())) " " (title(kind)) }
                        @for (_, summary) in summaries {
                            @if let Some(part) = summary.parts.iter().find(|part| part.kind == kind) {
                                td.n.group { (percent(part.share)) } td.n { (number(part.exposed_ms.mean)) }
                                td.n { (number(part.exposed_ms.p50)) } td.n { (number(part.exposed_ms.p90)) }
                                td.n { (number(part.total_ms.p50)) }
                            } @else { td.n colspan="5" { "–" } }
                        }
                    }
                }
                tr.total {
                    th scope="row" { "Step" }
                    @for (_, summary) in summaries {
                        td.n.group { (percent(1.0)) } td.n { (number(summary.step_ms.mean)) }
                        td.n { (number(summary.step_ms.p50)) } td.n { (number(summary.step_ms.p90)) } td.n {}
                    }
                }
            }
        }
    }
}

fn present(summaries: &[(&str, &Summary)], kind: PartKind) -> bool {
    summaries
        .iter()
        .flat_map(|(_, s)| &s.parts)
        .any(|part| part.kind == kind && part.total_ms.max > 0.0)
}

/// Renders the activities by phase as recorded in the files, folded.
fn more(name: &str, summary: &Summary) -> Markup {
    if summary.phases_ms.is_empty() && summary.streamed_ms.is_none() {
        return html! {};
    }
    folded(
        &format!("{name}: activities by phase"),
        &html! {
            @if !summary.phases_ms.is_empty() {
                p.note { "All activities of a phase, added up over tensors that may overlap." }
            (wide("Activities by phase", &html! {
                    table {
                            thead { tr { th scope="col" { "Phase" } th.n scope="col" { "a step" } } }
                        tbody {
                            @for (phase, time) in &summary.phases_ms {
                                tr { th scope="row" { (super::sources::word(phase)) } td.n { (ms(*time)) } }
                            }
                        }
                    }
                }))
            }
            @if let Some([copy_in, combine, copy_out, wait]) = summary.streamed_ms {
                p {
                    "The streaming collective measured inside itself, medians a step: copying in " (ms(copy_in))
                    ", combining " (ms(combine)) ", copying out " (ms(copy_out)) ", waiting for peers " (ms(wait)) "."
                }
            }
        },
    )
}
