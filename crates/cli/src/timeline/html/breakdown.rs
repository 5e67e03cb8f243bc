//! Where a step's time goes: a stacked bar for start-up and steady state, and its numbers.

use maud::{Markup, html};

use super::parts::{look, series, title};
use crate::html::chart::{Axis, Bar, Caption, legend, stacked, swatch};
use crate::html::number::{counted, decimals, fixed, ms, percent, short};
use crate::html::{folded, wide};
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

fn chart(summaries: &[(&str, &Summary)]) -> Markup {
    let bars: Vec<Bar> = summaries
        .iter()
        .map(|(name, summary)| Bar {
            label: format!(
                "{name}: {}, {} on average",
                counted(summary.steps, "step"),
                ms(summary.step_ms.mean)
            ),
            parts: PartKind::ALL.map(|kind| exposed_mean(summary, kind)).to_vec(),
        })
        .collect();
    let longest = bars.iter().map(|bar| bar.parts.iter().sum()).fold(0.0, f64::max);
    let axis = Axis::linear("ms a step", 0.0, longest, 5, short);
    let series = series();
    let caption = Caption {
        id: "breakdown-chart",
        title: "Parts of a mean step",
        description: "Stacked bars of mean exposed time by part; the table below has the numbers.",
    };
    html! {
        figure {
            (legend(&series))
            (stacked::bars(&caption, &series, &bars, &axis, |bar, part| {
                let whole: f64 = bar.parts.iter().sum();
                percent(part / whole)
            }))
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

/// Phases as the files have them.
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
