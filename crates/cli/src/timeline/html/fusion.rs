//! Tensor fusion section: histogram of batch sizes, and the reasons why batches ended.

use maud::{Markup, html};

use crate::chart::{Axis, Chart, Data, Rect, Rule, Series, Unit};
use crate::html::{cell_bar, folded, wide};
use crate::present::units::{bytes, count, counted, digits, ms, percent, short};
use ronde_trace::analysis::report::{Bin, CutReason, Fusion, Quantiles};

pub(super) fn show(fusion: Option<&Fusion>) -> Markup {
    let Some(fusion) = fusion else {
        return html! { p { "Nothing is fused in these files: they have no operations, or each of them travels alone." } };
    };
    html! {
        p { (in_force(fusion)) }
        (wide("Batches", &quantiles(fusion)))
        @if !fusion.histogram.is_empty() {
            (chart(fusion))
            div.screen-only { (folded("The histogram as a table", &table(&fusion.histogram))) }
        }
        @if !fusion.cuts.is_empty() { (cuts(fusion)) }
    }
}

fn in_force(fusion: &Fusion) -> Markup {
    html! {
        @match fusion.threshold_bytes {
            Some(threshold) if fusion.threshold_from_file => { "The fusion threshold was " (bytes(threshold)) }
            Some(threshold) => { "The file does not say the fusion threshold; going by the largest batch of several tensors it was at least " (bytes(threshold)) }
            None => { "The fusion threshold is not known" }
        }
        @match fusion.cycle_time_ms {
            Some(cycle) => { ", the cycle time " (ms(cycle)) "." }
            None => { "; neither is the cycle time." }
        }
    }
}

fn quantiles(fusion: &Fusion) -> Markup {
    let row = |name: &str, q: &Quantiles, unit: fn(f64) -> String| {
        html! {
            tr {
                th scope="row" { (name) }
                td.n { (unit(q.p10)) } td.n { (unit(q.p50)) } td.n { (unit(q.p90)) } td.n { (unit(q.max)) } td.n { (unit(q.mean)) }
            }
        }
    };
    html! {
        table {
            thead {
                tr {
                    th scope="col" { "In steady steps" } th.n scope="col" { "p10" } th.n scope="col" { "median" }
                    th.n scope="col" { "p90" } th.n scope="col" { "most" } th.n scope="col" { "mean" }
                }
            }
            tbody {
                (row("Batches a step", &fusion.batches_per_step, short))
                (row("Tensors a batch", &fusion.tensors_per_batch, short))
                @if fusion.bytes_per_batch.max > 0.0 { (row("Bytes a batch", &fusion.bytes_per_batch, size)) }
            }
        }
    }
}

/// Formats a size in bytes that is a mean or a quantile, so not an integer.
fn size(value: f64) -> String {
    if value.is_finite() {
        bytes(value.max(0.0).round() as u64)
    } else {
        digits(value)
    }
}

fn chart(fusion: &Fusion) -> Markup {
    let bins = &fusion.histogram;
    let place = |bytes: u64| bytes.max(1) as f64;
    let boxes: Vec<Rect> = bins
        .iter()
        .filter(|bin| bin.batches > 0)
        .map(|bin| Rect {
            // Slightly narrower than the bin, so that neighbours are distinguishable.
            x: [place(bin.from) * 1.04, place(bin.to) / 1.04],
            y: [0.0, bin.batches as f64],
            colour: String::new(),
            text: format!(
                "{}: {} with {}",
                range(bin),
                batches(bin.batches),
                counted(bin.tensors, "tensor")
            ),
            label: count(bin.batches),
        })
        .collect();
    let from = bins
        .iter()
        .map(|bin| place(bin.from))
        .fold(f64::MAX, f64::min);
    let end = bins.iter().map(|bin| place(bin.to)).fold(1.0, f64::max);
    // Show the threshold even if all batches are smaller, unless it is far away.
    let threshold = fusion
        .threshold_bytes
        .map(place)
        .filter(|at| (from..=end * 256.0).contains(at));
    let to = threshold.map_or(end, |at| end.max(at * 1.5));
    let most = bins.iter().map(|bin| bin.batches).max().unwrap_or(0);
    let rule = threshold.map(|at| Rule {
        upright: true,
        at,
        name: format!("threshold {}", bytes(at as u64)),
    });
    let chart = Chart {
        description:
            "A column for each power of two; its height is the number of batches in steady steps."
                .into(),
        height_px: 260,
        x: Axis::log("size of a batch", Unit::Bytes, from, to),
        y: Axis::linear("batches", Unit::Count, 0.0, most as f64 * 1.1),
        series: vec![Series::new("batches", "--series-0", Data::Boxes { boxes })],
        rules: rule.into_iter().collect(),
        ..Chart::new("histogram-chart", "Batches by size")
    };
    html! {
        figure {
            (chart)
            figcaption { "Batches of steady steps by their size, a column for each power of two." }
        }
    }
}

fn batches(n: u64) -> String {
    format!("{} {}", count(n), if n == 1 { "batch" } else { "batches" })
}

fn range(bin: &Bin) -> String {
    format!("{} to {}", bytes(bin.from), bytes(bin.to))
}

fn table(bins: &[Bin]) -> Markup {
    wide(
        "Histogram",
        &html! {
            table {
                thead { tr { th scope="col" { "Size" } th.n scope="col" { "batches" } th.n scope="col" { "tensors" } } }
                tbody {
                    @for bin in bins {
                        tr { th scope="row" { (range(bin)) } td.n { (count(bin.batches)) } td.n { (count(bin.tensors)) } }
                    }
                }
            }
        },
    )
}

fn cuts(fusion: &Fusion) -> Markup {
    html! {
        h3 { "Why batches ended where they did" }
        (wide("Reasons", &html! {
            table {
                thead { tr { th scope="col" { "Reason" } th.n scope="col" { "batches" } th.n scope="col" { "share" } th scope="col" {} } }
                tbody {
                    @for cut in &fusion.cuts {
                        tr {
                            th scope="row" { (reason(cut.reason)) }
                            td.n { (count(cut.batches)) } td.n { (percent(cut.share)) }
                            td.bar { (cell_bar(cut.share, "plain")) }
                        }
                    }
                }
            }
        }))
    }
}

fn reason(reason: CutReason) -> &'static str {
    match reason {
        CutReason::Threshold => "the next tensor would not have fitted under the threshold",
        CutReason::NotReady => "nothing else was ready on all ranks",
        CutReason::OtherKind => "the next tensor has another type or operation",
        CutReason::EndOfStep => "it was the step’s last",
    }
}
