//! Section on tensor fusion: the number and sizes of batches, and the reasons why they ended.

use maud::Markup;
use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::{CutReason, Fusion, Quantiles};

use crate::chart::{Axis, Chart, Rect, Rule, Series, Unit};
use crate::present::units::{bytes, count, counted, percent, short};
use crate::present::{Cell, Section, Table};

pub(super) fn section(report: &Report) -> Section<'_> {
    let section = Section::new("fusion", "Tensor fusion");
    let Some(fusion) = &report.fusion else {
        return section.page_text(
            "Nothing is fused in these files: they have no operations, or every operation is a \
             batch of its own.",
        );
    };
    let section = section
        .text(summary(fusion))
        .folded("Batches in numbers", quantiles(fusion));
    let section = match fusion.histogram.is_empty() {
        true => section,
        false => section.page(chart(fusion)),
    };
    section.table(histogram(fusion)).table(cuts(fusion))
}

fn summary(fusion: &Fusion) -> String {
    let batches = counted(fusion.batches_per_step.p50.round() as u64, "batch");
    let tensors = counted(fusion.tensors_per_batch.p50.round() as u64, "tensor");
    let mut text = format!("{batches} a step, each of {tensors}");
    // Some formats do not contain the size of a tensor.
    if fusion.bytes_per_batch.max > 0.0 {
        text += &format!(" and {}", bytes(fusion.bytes_per_batch.p50 as u64));
    }
    text += " (medians)";
    text += &match (fusion.threshold_bytes, fusion.threshold_from_file) {
        (Some(0), true) => "; fusion is off".to_owned(),
        (Some(threshold), true) => format!("; fusion threshold {}", bytes(threshold)),
        (Some(largest), false) => format!(
            "; fusion threshold not known, at least {} as the largest batch",
            bytes(largest)
        ),
        (None, _) => String::new(),
    };
    if let Some(cycle) = fusion.cycle_time_ms {
        text += &format!("; cycle time {} ms", (cycle * 1e3).round() / 1e3);
    }
    text + "."
}

/// Quantiles of the batches in steady steps.
fn quantiles(fusion: &Fusion) -> Table {
    let mut table = Table::headed("<in steady steps; p10; median; p90; most; mean");
    let mut row = |name: &str, q: &Quantiles, unit: fn(f64) -> String| {
        let numbers = [q.p10, q.p50, q.p90, q.max, q.mean].map(unit);
        table.row(std::iter::once(name.to_owned()).chain(numbers));
    };
    row("batches a step", &fusion.batches_per_step, short);
    row("tensors a batch", &fusion.tensors_per_batch, short);
    if fusion.bytes_per_batch.max > 0.0 {
        let size = |size: f64| bytes(size.max(0.0) as u64);
        row("bytes a batch", &fusion.bytes_per_batch, size);
    }
    table
}

fn histogram(fusion: &Fusion) -> Table {
    let most = most_batches(fusion);
    let mut table = Table::headed("bytes from; to; batches; tensors; |");
    for bin in fusion.histogram.iter().filter(|bin| bin.batches > 0) {
        table.row([
            bytes(bin.from).into(),
            bytes(bin.to).into(),
            count(bin.batches).into(),
            count(bin.tensors).into(),
            Cell::Bar(bin.batches as f64 / most),
        ]);
    }
    table
}

fn most_batches(fusion: &Fusion) -> f64 {
    let batches = fusion.histogram.iter().map(|bin| bin.batches);
    batches.max().unwrap_or(0) as f64
}

fn chart(fusion: &Fusion) -> Markup {
    let bins = &fusion.histogram;
    let place = |bytes: u64| bytes.max(1) as f64;
    let shown = bins.iter().filter(|bin| bin.batches > 0);
    let boxes = shown.map(|bin| {
        let (from, to) = (bytes(bin.from), bytes(bin.to));
        let (batches, tensors) = (
            counted(bin.batches, "batch"),
            counted(bin.tensors, "tensor"),
        );
        Rect {
            // Slightly narrower than the bin, so that neighbours are distinguishable.
            x: [place(bin.from) * 1.04, place(bin.to) / 1.04],
            y: [0.0, bin.batches as f64],
            colour: String::new(),
            text: format!("{from} to {to}: {batches} with {tensors}"),
            label: count(bin.batches),
        }
    });
    let boxes = boxes.collect();
    let begins = bins.iter().map(|bin| place(bin.from));
    let from = begins.fold(f64::MAX, f64::min);
    let end = bins.iter().map(|bin| place(bin.to)).fold(1.0, f64::max);
    // Show the threshold even if all batches are smaller, unless it is far away.
    let threshold = fusion.threshold_bytes.map(place);
    let threshold = threshold.filter(|at| (from..=end * 256.0).contains(at));
    let to = threshold.map_or(end, |at| end.max(at * 1.5));
    let rule = threshold.map(|at| Rule {
        upright: true,
        at,
        name: format!("threshold {}", bytes(at as u64)),
    });
    let caption = "Batches of steady steps by their size, a column for each power of two.";
    let chart = Chart {
        description: caption.into(),
        height_px: 260,
        x: Axis::log("size of a batch", Unit::Bytes, from, to),
        y: Axis::linear("batches", Unit::Count, 0.0, most_batches(fusion) * 1.1),
        series: vec![Series::boxes("batches", "--series-0", boxes)],
        rules: rule.into_iter().collect(),
        ..Chart::new("histogram-chart", "Batches by size")
    };
    chart.figure(caption)
}

fn cuts(fusion: &Fusion) -> Table {
    let mut table = Table::headed("<end of a batch; batches; share; |");
    for cut in &fusion.cuts {
        let reason = match cut.reason {
            CutReason::Threshold => "next tensor did not fit",
            CutReason::NotReady => "no other tensor was ready",
            CutReason::OtherKind => "next tensor has another type or operation",
            CutReason::EndOfStep => "last of the step",
        };
        table.row([
            reason.into(),
            count(cut.batches).into(),
            percent(cut.share).into(),
            Cell::Bar(cut.share),
        ]);
    }
    table
}
