//! Advice on fusion threshold, cycle time, early start and bytes on the wire: the predicted gain of
//! each, and of threshold and cycle time together.

use super::GAIN_LEAST;
use crate::analysis::report::{Advice, CutReason, PartKind, Report, Summary};
use crate::analysis::whatif::{Settings, WhatIf};
use ronde_job::units::{bytes, ms, percent};

const FUSION_THRESHOLD: &str = "HOROVOD_FUSION_THRESHOLD";
/// Its counterpart for GPUs; the lower one applies.
const GPU_FUSION_THRESHOLD: &str = "RONDE_GPU_FUSION_THRESHOLD";

/// Thresholds tried, powers of two: 1 to 512 MiB.
const THRESHOLDS: std::ops::RangeInclusive<u32> = 20..=29;
/// Cycle times tried, milliseconds.
const CYCLES_MS: [f64; 7] = [0.5, 1.0, 2.0, 3.5, 5.0, 10.0, 20.0];
/// Share of the best gain that a smaller change must reach to be preferred.
const NEARLY: f64 = 0.95;

/// Returns the settings that gain, each alone and both together if that gains more, and the best
/// settings.
pub(super) fn settings(report: &Report, whatif: &WhatIf) -> (Vec<Advice>, Settings) {
    let current = whatif.current;
    let least = GAIN_LEAST * whatif.measured_ns;
    // The largest batch is only a lower bound of the threshold. If the file does not state it, the
    // effect of another one cannot be predicted, nor that of longer cycles, which make batches
    // larger.
    let stated = states_threshold(report);
    let thresholds = THRESHOLDS.filter(|_| stated).map(|power| Settings {
        threshold_bytes: 1 << power,
        ..current
    });
    // Without a known cycle time, the effect of another one cannot be predicted.
    let cycles = CYCLES_MS.map(|ms| Settings {
        cycle_ns: ms * 1e6,
        ..current
    });
    let cycles = cycles
        .iter()
        .copied()
        .filter(|to| current.cycle_ns > 0.0 && (stated || to.cycle_ns < current.cycle_ns));
    let threshold = choose(whatif, thresholds, |to| {
        ((to.threshold_bytes as f64) / (current.threshold_bytes.max(1) as f64))
            .ln()
            .abs()
    });
    let cycle = choose(whatif, cycles, |to| {
        (to.cycle_ns / current.cycle_ns).ln().abs()
    });
    let mut advice = Vec::new();
    let mut best = (current, 0.0);
    let mut better = |settings: Settings, gain: f64| {
        if gain >= least && gain > best.1 {
            best = (settings, gain);
        }
    };
    threshold
        .into_iter()
        .chain(cycle)
        .for_each(|(to, gain)| better(to, gain));
    if let Some((to, gain)) = threshold.filter(|&(_, gain)| gain >= least) {
        advice.push(threshold_sentence(report, whatif, to, gain));
    }
    if let Some((to, gain)) = cycle.filter(|&(_, gain)| gain >= least) {
        advice.push(cycle_sentence(report, whatif, to, gain));
    }
    let early = Settings {
        early: true,
        ..current
    };
    if !current.early && current.cycle_ns > 0.0 && is_ronde(report) {
        let gain = whatif.gain_ns(early);
        better(early, gain);
        if gain >= least {
            advice.push(Advice {
                sentence: format!(
                    "Cycles wait for the cycle time although all tensors of the step are ready. An early start is predicted \
                     to save {} a step. If RONDE_EARLY_CYCLE is 0, set it to 1: the file does not state it.",
                    ms(gain / 1e6)
                ),
                variable: None,
                value: None,
                gain_ms: Some(gain / 1e6),
            });
        }
    }
    if advice.len() >= 2
        && let (Some((threshold, a)), Some((cycle, b))) = (threshold, cycle)
    {
        let both = Settings {
            cycle_ns: cycle.cycle_ns,
            ..threshold
        };
        let gain = whatif.gain_ns(both);
        better(both, gain);
        if gain - a.max(b) >= least {
            advice.push(Advice {
                sentence: format!(
                    "Both together are predicted to gain {} a step ({}): set both, or let HOROVOD_AUTOTUNE=1 find and confirm the \
                     best pair in the running job.",
                    ms(gain / 1e6),
                    percent(gain / whatif.modelled_ns),
                ),
                variable: Some("HOROVOD_AUTOTUNE".into()),
                value: Some("1".into()),
                // Sorts this sentence after those of the single settings.
                gain_ms: Some(a.min(b).min(gain) / 1e6),
            });
        }
    }
    (advice, best.0)
}

/// Advice to halve the bytes, if the step waits for the collective itself even with the `best`
/// settings.
pub(super) fn fewer_bytes(
    report: &Report,
    steady: &Summary,
    whatif: &WhatIf,
    best: Settings,
) -> Option<Advice> {
    let collective = steady
        .parts
        .iter()
        .find(|part| part.kind == PartKind::Collective)?;
    let wide = |dtype: &Option<String>| {
        dtype
            .as_deref()
            .is_none_or(|dtype| dtype == "float32" || dtype == "float64")
    };
    let mostly_wide = report
        .tensors
        .iter()
        .filter(|tensor| wide(&tensor.dtype))
        .count()
        * 2
        > report.tensors.len();
    let gain = whatif.gain_ns(Settings { bytes: 0.5, ..best }) - whatif.gain_ns(best);
    if !mostly_wide || collective.share < 0.05 {
        return None;
    }
    let speed = report
        .bandwidth
        .iter()
        .filter_map(|row| Some((row, row.fit?)));
    let speed = speed.max_by_key(|(row, _)| row.points.iter().map(|point| point.n).sum::<u64>());
    let speed = speed.map_or(String::new(), |(row, fit)| {
        format!(" at {:.2} GB/s of {}", fit.gb_per_s, row.activity)
    });
    Some(Advice {
        sentence: format!(
            "On average {} of a step ({}) is exposed time of the collective itself{speed}. {} half the bytes would gain up to {}, and so \
             would a network of twice the bandwidth. Compression.fp16 in the optimizer halves the bytes, if the model's accuracy \
             allows it.",
            ms(collective.exposed_ms.mean),
            percent(collective.share),
            if best == whatif.current {
                "By itself"
            } else {
                "With the settings above"
            },
            ms(gain / 1e6),
        ),
        variable: None,
        value: None,
        gain_ms: Some(gain / 1e6),
    })
}

/// Returns the candidate nearest to the current settings (by `distance`) whose gain is close to the
/// best one.
fn choose(
    whatif: &WhatIf,
    candidates: impl IntoIterator<Item = Settings>,
    distance: impl Fn(&Settings) -> f64,
) -> Option<(Settings, f64)> {
    let gains: Vec<(Settings, f64)> = candidates
        .into_iter()
        .map(|to| (to, whatif.gain_ns(to)))
        .collect();
    let best = gains.iter().map(|&(_, gain)| gain).fold(0.0, f64::max);
    let enough = gains
        .into_iter()
        .filter(|&(_, gain)| gain > 0.0 && gain >= NEARLY * best);
    enough.min_by(|a, b| distance(&a.0).total_cmp(&distance(&b.0)))
}

/// Whether the file states the fusion threshold in force.
pub(super) fn states_threshold(report: &Report) -> bool {
    let fusion = report.fusion.as_ref();
    fusion.is_some_and(|fusion| fusion.threshold_from_file)
}

fn is_ronde(report: &Report) -> bool {
    report
        .sources
        .first()
        .is_some_and(|source| source.format == crate::Format::Ronde)
}

fn threshold_sentence(report: &Report, whatif: &WhatIf, to: Settings, gain_ns: f64) -> Advice {
    let (now, then) = (whatif.predict(whatif.current), whatif.predict(to));
    let fusion = report.fusion.as_ref();
    let cut = fusion.and_then(|fusion| {
        fusion
            .cuts
            .iter()
            .find(|cut| cut.reason == CutReason::Threshold)
    });
    let why = if to.threshold_bytes > whatif.current.threshold_bytes {
        format!(
            "cuts {} of the batches short, so that a step needs {:.0}",
            percent(cut.map_or(0.0, |cut| cut.share)),
            now.batches
        )
    } else {
        format!(
            "makes tensors wait for one another, so that a step needs only {:.0} batches",
            now.batches
        )
    };
    let (variable, beside) = match fusion.and_then(|fusion| fusion.host_threshold_bytes) {
        None => (FUSION_THRESHOLD, String::new()),
        Some(host) if to.threshold_bytes <= host => (GPU_FUSION_THRESHOLD, String::new()),
        Some(host) => (
            GPU_FUSION_THRESHOLD,
            format!(" {FUSION_THRESHOLD}, {}, must be as large.", bytes(host)),
        ),
    };
    Advice {
        sentence: format!(
            "The fusion threshold of {} {why}: with {} there would be {:.0} and a step is predicted to take {} less \
             ({}).{beside}",
            bytes(whatif.current.threshold_bytes),
            bytes(to.threshold_bytes),
            then.batches,
            ms(gain_ns / 1e6),
            percent(gain_ns / whatif.modelled_ns),
        ),
        variable: Some(variable.into()),
        value: Some(to.threshold_bytes.to_string()),
        gain_ms: Some(gain_ns / 1e6),
    }
}

fn cycle_sentence(report: &Report, whatif: &WhatIf, to: Settings, gain_ns: f64) -> Advice {
    let (now, then) = (whatif.predict(whatif.current), whatif.predict(to));
    let (from_ms, to_ms) = (whatif.current.cycle_ns / 1e6, to.cycle_ns / 1e6);
    let why = if to_ms < from_ms {
        let steady = report.steady.as_ref();
        let waiting = steady.and_then(|steady| {
            steady
                .parts
                .iter()
                .find(|part| part.kind == PartKind::Negotiation)
        });
        format!(
            "leaves {} of a step in which tensors are ready on all ranks and none is transferred",
            ms(waiting.map_or(0.0, |part| part.total_ms.p50))
        )
    } else {
        format!(
            "is too short for tensors to be fused: {:.0} batches a step",
            now.batches
        )
    };
    Advice {
        sentence: format!(
            "The cycle time of {from_ms} ms {why}: with {to_ms} ms ({:.0} batches a step) a step is predicted to take {} less ({}).",
            then.batches,
            ms(gain_ns / 1e6),
            percent(gain_ns / whatif.modelled_ns),
        ),
        variable: Some("HOROVOD_CYCLE_TIME".into()),
        value: Some(to_ms.to_string()),
        gain_ms: Some(gain_ns / 1e6),
    }
}
