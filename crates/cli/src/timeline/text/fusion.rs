//! Text sections on tensor fusion and on the bandwidth of the collectives.

use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::{Bandwidth, CutReason, Fusion};

use crate::present::units::{bytes, count, counted, decimals, percent};
use crate::present::{Look, Table, harmless, titled, wrapped};

/// Length of the longest bar of the histogram, in characters.
const GAUGE_WIDTH: usize = 24;

/// Section on batches: their number, their sizes, and the reasons why they ended.
pub(super) fn section(report: &Report, look: &Look) -> Vec<String> {
    let Some(fusion) = &report.fusion else {
        return Vec::new();
    };
    let mut lines = wrapped("  ", &summary(fusion), look.width);
    lines.extend(histogram(fusion, look));
    lines.extend(cuts(fusion, look));
    titled("Tensor fusion", lines, look)
}

fn summary(fusion: &Fusion) -> String {
    let mut text = format!(
        "{} a step, each of {}",
        counted(fusion.batches_per_step.p50.round() as u64, "batch"),
        counted(fusion.tensors_per_batch.p50.round() as u64, "tensor"),
    );
    // Some formats do not contain the size of a tensor.
    if fusion.bytes_per_batch.max > 0.0 {
        text += &format!(" and {}", bytes(fusion.bytes_per_batch.p50 as u64));
    }
    text += " (medians)";
    match (fusion.threshold_bytes, fusion.threshold_from_file) {
        (Some(0), true) => text += "; fusion is off",
        (Some(threshold), true) => text += &format!("; fusion threshold {}", bytes(threshold)),
        (Some(threshold), false) => {
            text += &format!(
                "; fusion threshold not known, at least {} as the largest batch",
                bytes(threshold)
            );
        }
        (None, _) => {}
    }
    if let Some(cycle) = fusion.cycle_time_ms {
        text += &format!("; cycle time {} ms", (cycle * 1e3).round() / 1e3);
    }
    text + "."
}

fn histogram(fusion: &Fusion, look: &Look) -> Vec<String> {
    let most = fusion
        .histogram
        .iter()
        .map(|bin| bin.batches)
        .max()
        .unwrap_or(0);
    let mut table = Table::new(&["bytes from", "to", "batches", "tensors", "|"]);
    for bin in fusion.histogram.iter().filter(|bin| bin.batches > 0) {
        table.row([
            bytes(bin.from),
            bytes(bin.to),
            count(bin.batches),
            count(bin.tensors),
            look.gauge(bin.batches as f64 / most as f64, GAUGE_WIDTH),
        ]);
    }
    table.lines(look.width)
}

fn cuts(fusion: &Fusion, look: &Look) -> Vec<String> {
    let mut table = Table::new(&["<end of a batch", "batches", "share", "|"]);
    for cut in &fusion.cuts {
        table.row([
            because(cut.reason).to_owned(),
            count(cut.batches),
            percent(cut.share),
            look.gauge(cut.share, GAUGE_WIDTH),
        ]);
    }
    table.lines(look.width)
}

fn because(reason: CutReason) -> &'static str {
    match reason {
        CutReason::Threshold => "next tensor did not fit",
        CutReason::NotReady => "no other tensor was ready",
        CutReason::OtherKind => "next tensor has another type or operation",
        CutReason::EndOfStep => "last of the step",
    }
}

/// Section on the time of each collective by message size.
pub(super) fn bandwidth(report: &Report, look: &Look) -> Vec<String> {
    let lines = report
        .bandwidth
        .iter()
        .flat_map(|bandwidth| collective(bandwidth, look))
        .collect();
    titled("Bandwidth of the collectives", lines, look)
}

fn collective(bandwidth: &Bandwidth, look: &Look) -> Vec<String> {
    let mut text = harmless(&bandwidth.activity);
    if let Some(fit) = &bandwidth.fit {
        text += &format!(
            ": time = {:.1} µs + {:.1} µs a MiB ({:.2} GB/s), median error {}",
            fit.alpha_us,
            fit.us_per_mib,
            fit.gb_per_s,
            percent(fit.relative_error)
        );
    }
    let mut lines = wrapped("  ", &text, look.width);
    let fastest = bandwidth
        .points
        .iter()
        .map(|point| point.gb_per_s)
        .fold(0.0, f64::max);
    let decimals = decimals(bandwidth.points.iter().map(|point| point.us_p90));
    let mut table = Table::new(&["size", "batches", "median µs", "p10", "p90", "GB/s", "|"]);
    for point in &bandwidth.points {
        table.row([
            bytes(point.bytes),
            count(point.n),
            format!("{:.decimals$}", point.us_p50),
            format!("{:.decimals$}", point.us_p10),
            format!("{:.decimals$}", point.us_p90),
            format!("{:.3}", point.gb_per_s),
            look.gauge(point.gb_per_s / fastest, GAUGE_WIDTH),
        ]);
    }
    lines.extend(table.lines(look.width));
    lines
}
