//! How tensors travelled together, and how fast.

use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::{Bandwidth, CutReason, Fusion};

use super::{Look, Table, binary_bytes, bytes, count, decimals, harmless, percent, plural, titled, wrapped};

/// Characters of the longest bar of the histogram.
const GAUGE_WIDTH: usize = 24;

/// Batches: how many, how large, and why they ended.
pub(super) fn section(report: &Report, look: &Look) -> Vec<String> {
    let Some(fusion) = &report.fusion else {
        return Vec::new();
    };
    let mut lines = wrapped("  ", &summary(fusion), look.width);
    lines.extend(histogram(fusion, look));
    lines.extend(cuts(fusion, look));
    titled("How tensors travel together", lines, look)
}

fn summary(fusion: &Fusion) -> String {
    let mut text = format!(
        "{} a step, each of {}",
        plural(fusion.batches_per_step.p50.round() as u64, "batch"),
        plural(fusion.tensors_per_batch.p50.round() as u64, "tensor"),
    );
    // Some formats do not say how large a tensor is.
    if fusion.bytes_per_batch.max > 0.0 {
        text += &format!(" and {}", bytes(fusion.bytes_per_batch.p50));
    }
    text += " (medians)";
    match (fusion.threshold_bytes, fusion.threshold_from_file) {
        (Some(0), true) => text += "; fusion is off",
        (Some(threshold), true) => text += &format!("; fusion threshold {}", binary_bytes(threshold)),
        (Some(threshold), false) => {
            text += &format!(
                "; fusion threshold not known, at least {} as the largest batch",
                binary_bytes(threshold)
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
    let most = fusion.histogram.iter().map(|bin| bin.batches).max().unwrap_or(0);
    let mut table = Table::new(&["bytes from", "to", "batches", "tensors", "|"]);
    for bin in fusion.histogram.iter().filter(|bin| bin.batches > 0) {
        table.row([
            binary_bytes(bin.from),
            binary_bytes(bin.to),
            count(bin.batches),
            count(bin.tensors),
            look.gauge(bin.batches as f64 / most as f64, GAUGE_WIDTH),
        ]);
    }
    if table.is_empty() {
        Vec::new()
    } else {
        table.lines(look.width)
    }
}

fn cuts(fusion: &Fusion, look: &Look) -> Vec<String> {
    let mut table = Table::new(&["<a batch ended because", "batches", "share", "|"]);
    for cut in &fusion.cuts {
        table.row([
            because(cut.reason).to_owned(),
            count(cut.batches),
            percent(cut.share),
            look.gauge(cut.share, GAUGE_WIDTH),
        ]);
    }
    if table.is_empty() {
        Vec::new()
    } else {
        table.lines(look.width)
    }
}

fn because(reason: CutReason) -> &'static str {
    match reason {
        CutReason::Threshold => "the next tensor did not fit",
        CutReason::NotReady => "nothing else was ready",
        CutReason::OtherKind => "the next has another type or operation",
        CutReason::EndOfStep => "it was the step's last",
    }
}

/// Time against size, for each collective.
pub(super) fn bandwidth(report: &Report, look: &Look) -> Vec<String> {
    let lines = report
        .bandwidth
        .iter()
        .flat_map(|bandwidth| collective(bandwidth, look))
        .collect();
    titled("How fast the collectives are", lines, look)
}

fn collective(bandwidth: &Bandwidth, look: &Look) -> Vec<String> {
    let mut text = harmless(&bandwidth.activity);
    if let Some(fit) = &bandwidth.fit {
        text += &format!(
            ": time = {:.1} µs + {:.1} µs a MiB ({:.2} GB/s), off by {} in the median",
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
    let decimals = decimals(
        bandwidth
            .points
            .iter()
            .map(|point| point.us_p90)
            .fold(0.0, f64::max),
    );
    let mut table = Table::new(&["size", "batches", "median µs", "p10", "p90", "GB/s", "|"]);
    for point in &bandwidth.points {
        table.row([
            bytes(point.bytes as f64),
            count(point.n),
            format!("{:.decimals$}", point.us_p50),
            format!("{:.decimals$}", point.us_p10),
            format!("{:.decimals$}", point.us_p90),
            format!("{:.3}", point.gb_per_s),
            look.gauge(point.gb_per_s / fastest, GAUGE_WIDTH),
        ]);
    }
    if !table.is_empty() {
        lines.extend(table.lines(look.width));
    }
    lines
}
