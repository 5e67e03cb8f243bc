//! Comparison of two runs: each difference, and whether chance alone explains it.
//!
//! A difference of medians is tested against its margin of error, half the width of its 95 %
//! confidence interval: 1.96 standard errors. The standard error of the median of n independent
//! steps is 1.2533 · s / √n, for the normal distribution with standard deviation s; s is a robust
//! estimate ([`Quantiles::spread`]). Neighbouring steps of a job are correlated, so n is the number
//! of independent steps (see `independent`).

use serde::{Deserialize, Serialize};

use ronde_job::units::{bytes, ms, percent};

use super::Report;
use super::quantiles::median;
use super::report::{PartKind, Quantiles, Step, Summary};

/// Smaller differences, as a share of the larger value, are ignored, however steady the runs are.
const LEAST: f64 = 0.01;
/// Standard errors in half the 95 % confidence interval of a normally distributed estimate.
const STANDARD_ERRORS: f64 = 1.96;
/// Standard error of the median over that of the mean: √(π / 2).
const MEDIAN_TO_MEAN: f64 = 1.2533;
/// Blocks of steps whose medians are compared: most, and the least number of steps in each.
const BLOCKS_MOST: usize = 10;
const BLOCK_STEPS_LEAST: usize = 8;
/// Fewer blocks than this do not determine the scatter of their medians.
const BLOCKS_LEAST: usize = 8;
/// Smaller differences, in milliseconds, are rounding errors of writing and reading numbers.
const NOTHING_MS: f64 = 1e-6;
/// Text for a setting that is not in the file.
const UNKNOWN: &str = "unknown";
// Properties of the job that are not settings.
const RANKS: &str = "ranks";
const RECORDED_BY: &str = "recorded by";
const COLLECTIVES: &str = "collectives";

/// Differences between run A and run B.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Comparison {
    /// First file of run A.
    pub a: String,
    /// First file of run B.
    pub b: String,
    /// Every quantity measured in either run, by group.
    pub changes: Vec<Change>,
    /// Settings and job properties that differ.
    pub settings: Vec<SettingChange>,
    /// The relevant changes as sentences, the step's first.
    pub sentences: Vec<String>,
    /// Reasons that make the runs hard to compare.
    pub warnings: Vec<String>,
}

/// One quantity in both runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Group of the quantity.
    pub group: ChangeGroup,
    /// Name of the quantity, such as `step` or `collective`.
    pub name: String,
    /// Unit: `ms`, `GB/s`, `bytes`, `%`, or empty for a count.
    pub unit: String,
    /// Median in run A. None if not measured there.
    pub a: Option<f64>,
    /// Median in run B. None if not measured there.
    pub b: Option<f64>,
    /// `b − a`. None unless both were measured.
    pub difference: Option<f64>,
    /// `b / a − 1`. None also if `a` is zero.
    pub relative: Option<f64>,
    /// Variation within the runs: the root of the sum of the squares of both
    /// [spreads](super::report::Quantiles::spread). None where only single numbers are known.
    pub spread: Option<f64>,
    /// Margin of error of `difference`: half the width of its 95 % confidence interval. None where
    /// only single numbers are known.
    pub margin: Option<f64>,
    /// Whether the difference exceeds both `margin` and a hundredth of the larger value.
    pub significant: bool,
}

/// Group of a [`Change`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeGroup {
    /// Length of a step, start-up, communication and overlap.
    Step,
    /// Exposed time of a part of the step.
    Part,
    /// Batches and their sizes.
    Fusion,
    /// Cost of a late rank for the others.
    Stragglers,
    /// Line α + β · bytes of a collective.
    Bandwidth,
}

/// A setting or job property that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingChange {
    /// Name.
    pub name: String,
    /// Value in run A; "unknown" if the file does not state it.
    pub a: String,
    /// Value in run B.
    pub b: String,
}

/// Compares the steady steps of run `b` with those of run `a`.
pub fn compare(a: &Report, b: &Report) -> Comparison {
    let label = |report: &Report| {
        (report.sources.first()).map_or(String::new(), |source| source.path.clone())
    };
    let changes = changes(a, b);
    let settings = settings(a, b);
    Comparison {
        a: label(a),
        b: label(b),
        sentences: sentences(&changes, &settings),
        warnings: warnings(a, b),
        changes,
        settings,
    }
}

/// Median of a distribution in one run.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    quantiles: Quantiles,
    /// Standard error of the median.
    error: f64,
}

impl Estimate {
    /// A distribution over steps, of which `independent` are independent.
    fn new(quantiles: Quantiles, independent: f64) -> Self {
        let n = (quantiles.n as f64).min(independent).max(1.0);
        Self {
            quantiles,
            error: MEDIAN_TO_MEAN * quantiles.spread() / n.sqrt(),
        }
    }
}

/// Number of independent steps that determine the median as well as the correlated steps of
/// `values` do, in order of time. The medians of blocks of steps vary more than those of independent
/// steps by the same factor. With few steps, all are taken to be independent.
fn independent(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let blocks = (values.len() / BLOCK_STEPS_LEAST).min(BLOCKS_MOST);
    let spread = Quantiles::of(values.iter().copied()).spread();
    if blocks < BLOCKS_LEAST || spread <= 0.0 {
        return n;
    }
    let block = |index: usize| index * values.len() / blocks;
    let medians =
        (0..blocks).map(|index| median(&mut values[block(index)..block(index + 1)].to_vec()));
    let medians: Vec<f64> = medians.collect();
    let count = blocks as f64;
    let mean = medians.iter().sum::<f64>() / count;
    let squares: f64 = medians.iter().map(|median| (median - mean).powi(2)).sum();
    let expected = (MEDIAN_TO_MEAN * spread).powi(2) * count / n;
    n / (squares / (count - 1.0) / expected).max(1.0)
}

/// Values of the steady steps of a run, in order of time.
fn of_steps(report: &Report, value: impl Fn(&Step) -> f64) -> Vec<f64> {
    let first = report.steady.as_ref().map_or(0, |steady| steady.first_step);
    let steps = report.steps.iter();
    let steady = steps.filter(|step| step.index >= first && !step.partial);
    steady.map(value).collect()
}

/// Compares a distribution.
fn distribution(
    group: ChangeGroup,
    name: impl Into<String>,
    unit: &str,
    a: Option<Estimate>,
    b: Option<Estimate>,
) -> Change {
    let both = a.zip(b);
    let spread = both.map(|(a, b)| a.quantiles.spread().hypot(b.quantiles.spread()));
    let margin = both.map(|(a, b)| STANDARD_ERRORS * a.error.hypot(b.error));
    change(
        group,
        name.into(),
        unit,
        [a, b].map(|run| Some(run?.quantiles.p50)),
        spread.zip(margin),
    )
}

/// Compares a single number.
fn number(
    group: ChangeGroup,
    name: impl Into<String>,
    unit: &str,
    a: Option<f64>,
    b: Option<f64>,
) -> Change {
    change(group, name.into(), unit, [a, b], None)
}

fn change(
    group: ChangeGroup,
    name: String,
    unit: &str,
    [a, b]: [Option<f64>; 2],
    variation: Option<(f64, f64)>,
) -> Change {
    let (spread, margin) = variation.unzip();
    let difference = a.zip(b).map(|(a, b)| b - a);
    let relative = a
        .zip(b)
        .filter(|&(a, _)| a != 0.0)
        .map(|(a, b)| b / a - 1.0);
    let larger = a.unwrap_or(0.0).abs().max(b.unwrap_or(0.0).abs());
    let least = margin.unwrap_or(0.0).max(LEAST * larger);
    Change {
        group,
        name,
        unit: unit.to_owned(),
        a,
        b,
        difference,
        relative,
        spread,
        margin,
        significant: difference.is_some_and(|difference| difference.abs() > least),
    }
}

fn changes(a: &Report, b: &Report) -> Vec<Change> {
    use ChangeGroup::{Bandwidth, Fusion, Part, Step, Stragglers};
    let steady =
        |of: &dyn Fn(&Summary) -> f64| (a.steady.as_ref().map(of), b.steady.as_ref().map(of));
    // Where no value of each step is known, the correlation of the step lengths is assumed.
    let independent_steps = [a, b].map(|report| independent(&of_steps(report, |step| step.ms)));
    let estimate = |x: Option<Quantiles>, y: Option<Quantiles>| {
        let [m, n] = independent_steps;
        (
            x.map(|x| Estimate::new(x, m)),
            y.map(|y| Estimate::new(y, n)),
        )
    };
    let steady_of = |of: &dyn Fn(&Summary) -> Quantiles| {
        estimate(a.steady.as_ref().map(of), b.steady.as_ref().map(of))
    };
    let mut changes = Vec::new();

    let (x, y) = steady_of(&|steady| steady.step_ms);
    changes.push(distribution(Step, "step", "ms", x, y));
    let tail = |step: Estimate| step.quantiles.p99;
    changes.push(number(Step, "step, p99", "ms", x.map(tail), y.map(tail)));
    let (x, y) = steady_of(&|steady| steady.communication_ms);
    changes.push(distribution(Step, "communication", "ms", x, y));
    let (x, y) = steady(&|steady| steady.overlap * 100.0);
    changes.push(number(Step, "communication hidden", "%", x, y));
    // Every step has payload: zero means that the file does not state it.
    let (x, y) = steady(&|steady| steady.bytes as f64);
    let told = |bytes: &f64| *bytes > 0.0;
    let (x, y) = (x.filter(told), y.filter(told));
    changes.push(number(Step, "payload", "bytes", x, y));
    if a.startup.is_some() || b.startup.is_some() {
        let step = |report: &Report| report.startup.as_ref().map(|startup| startup.step_ms);
        let (x, y) = estimate(step(a), step(b));
        changes.push(distribution(Step, "start-up step", "ms", x, y));
        let steps = |report: &Report| {
            Some(
                report
                    .startup
                    .as_ref()
                    .map_or(0.0, |startup| startup.steps as f64),
            )
        };
        changes.push(number(Step, "start-up steps", "", steps(a), steps(b)));
    }
    for kind in PartKind::ALL {
        let exposed = |steady: &Summary| {
            steady
                .parts
                .iter()
                .find(|part| part.kind == kind)
                .map(|part| part.exposed_ms)
        };
        let of = |report: &Report| {
            let quantiles = report.steady.as_ref().and_then(exposed)?;
            let values = of_steps(report, |step| step.exposed_ms[kind as usize]);
            Some(Estimate::new(quantiles, independent(&values)))
        };
        changes.push(distribution(Part, kind.name(), "ms", of(a), of(b)));
    }
    let cached = |report: &Report| report.negotiate_cached_ms;
    let (x, y) = estimate(cached(a), cached(b));
    changes.push(distribution(Part, "negotiation of a batch", "ms", x, y));
    let of = |of: &dyn Fn(&super::report::Fusion) -> Quantiles| {
        estimate(a.fusion.as_ref().map(of), b.fusion.as_ref().map(of))
    };
    let (x, y) = of(&|fusion| fusion.batches_per_step);
    changes.push(distribution(Fusion, "batches a step", "", x, y));
    let (x, y) = of(&|fusion| fusion.tensors_per_batch);
    changes.push(distribution(Fusion, "tensors a batch", "", x, y));
    let (x, y) = of(&|fusion| fusion.bytes_per_batch);
    changes.push(distribution(Fusion, "bytes a batch", "bytes", x, y));
    let ranks = |report: &Report| {
        report
            .stragglers
            .as_ref()
            .map_or(0, |stragglers| stragglers.ranks.len())
    };
    for rank in 0..ranks(a).max(ranks(b)) {
        let cost = |report: &Report| Some(report.stragglers.as_ref()?.ranks.get(rank)?.cost_ms);
        changes.push(number(
            Stragglers,
            format!("cost of rank {rank}"),
            "ms",
            cost(a),
            cost(b),
        ));
    }
    let mut activities: Vec<&str> = a
        .bandwidth
        .iter()
        .chain(&b.bandwidth)
        .map(|row| row.activity.as_str())
        .collect();
    activities.sort_unstable();
    activities.dedup();
    for activity in activities {
        let fit = |report: &Report| {
            report
                .bandwidth
                .iter()
                .find(|row| row.activity == activity)?
                .fit
        };
        let (x, y) = (fit(a), fit(b));
        let alpha = |fit: super::report::Fit| fit.alpha_us;
        changes.push(number(
            Bandwidth,
            format!("{activity}, α"),
            "µs",
            x.map(alpha),
            y.map(alpha),
        ));
        let speed = |fit: super::report::Fit| fit.gb_per_s;
        changes.push(number(
            Bandwidth,
            format!("{activity}, 1/β"),
            "GB/s",
            x.map(speed),
            y.map(speed),
        ));
    }
    changes.retain(|change| change.a.is_some() || change.b.is_some());
    changes
}

fn settings(a: &Report, b: &Report) -> Vec<SettingChange> {
    let mut settings = Vec::new();
    let mut setting = |name: &str, a: Option<String>, b: Option<String>| {
        if a != b {
            let say = |value: Option<String>| value.unwrap_or_else(|| UNKNOWN.to_owned());
            settings.push(SettingChange {
                name: name.to_owned(),
                a: say(a),
                b: say(b),
            });
        }
    };
    let threshold = |report: &Report| {
        let fusion = report
            .fusion
            .as_ref()
            .filter(|fusion| fusion.threshold_from_file)?;
        fusion.threshold_bytes.map(bytes)
    };
    setting("fusion threshold", threshold(a), threshold(b));
    let cycle = |report: &Report| Some(format!("{:.3} ms", report.fusion.as_ref()?.cycle_time_ms?));
    setting("cycle time", cycle(a), cycle(b));
    let ranks = |report: &Report| (!report.ranks_unknown).then(|| report.ranks.to_string());
    setting(RANKS, ranks(a), ranks(b));
    let format =
        |report: &Report| Some(format!("{:?}", report.sources.first()?.format).to_lowercase());
    setting(RECORDED_BY, format(a), format(b));
    let collectives = |report: &Report| {
        let mut names: Vec<&str> = report
            .bandwidth
            .iter()
            .map(|row| row.activity.as_str())
            .collect();
        names.sort_unstable();
        (!names.is_empty()).then(|| names.join(", "))
    };
    setting(COLLECTIVES, collectives(a), collectives(b));
    settings
}

fn sentences(changes: &[Change], settings: &[SettingChange]) -> Vec<String> {
    let find = |group: ChangeGroup, name: &str| {
        changes
            .iter()
            .find(|change| change.group == group && change.name == name)
    };
    let Some(step) = find(ChangeGroup::Step, "step") else {
        return vec!["Neither run has steps.".to_owned()];
    };
    let (Some(a), Some(b), Some(difference)) = (step.a, step.b, step.difference) else {
        return vec!["Only one of the runs has steps, so there is nothing to compare.".to_owned()];
    };
    let mut sentences = Vec::new();
    if difference.abs() < NOTHING_MS {
        sentences.push(format!("No change: a step takes {} in both.", ms(b)));
    } else if !step.significant {
        sentences.push(format!(
            "No significant change: a step takes {} in A and {} in B, a difference of {}, which is {}.",
            ms(a),
            ms(b),
            ms(difference.abs()),
            match step.margin {
                Some(margin) if difference.abs() <= margin =>
                    format!("within its margin of error ({})", ms(margin)),
                _ => "no more than a hundredth".to_owned(),
            }
        ));
    } else {
        sentences.push(format!(
            "A step takes {} in B instead of {} in A: {} {} ({}), more than the margin of error ({}).",
            ms(b),
            ms(a),
            ms(difference.abs()),
            if difference < 0.0 { "shorter" } else { "longer" },
            percent(step.relative.unwrap_or(0.0).abs()),
            ms(step.margin.unwrap_or(0.0)),
        ));
        // Parts that changed in the same direction as the step explain its change.
        let parts = changes
            .iter()
            .filter(|change| change.group == ChangeGroup::Part && change.significant);
        let same_way = parts.filter_map(|change| Some((change, change.difference?)));
        let largest = same_way
            .filter(|(change, part)| {
                part.signum() == difference.signum() && change.name != "negotiation of a batch"
            })
            .max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
        if let Some((change, part)) = largest {
            sentences.push(format!(
                "The largest part of it is “{}”: {} instead of {} exposed ({} {}).",
                change.name,
                ms(change.b.unwrap_or(0.0)),
                ms(change.a.unwrap_or(0.0)),
                ms(part.abs()),
                if part < 0.0 { "less" } else { "more" },
            ));
        }
    }
    let batches = find(ChangeGroup::Fusion, "batches a step").filter(|change| change.significant);
    if let Some((a, b)) = batches.and_then(|change| change.a.zip(change.b)) {
        sentences.push(format!("A step has {b:.0} batches instead of {a:.0}."));
    }
    let costs = changes
        .iter()
        .filter(|change| change.group == ChangeGroup::Stragglers);
    let costs = costs.filter_map(|change| Some((change, change.difference?)));
    let largest = costs.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
    if let Some((change, cost)) = largest.filter(|(_, cost)| cost.abs() > 0.02 * a.max(b)) {
        sentences.push(format!(
            "The {} goes from {} to {} a step ({} {}).",
            change.name,
            ms(change.a.unwrap_or(0.0)),
            ms(change.b.unwrap_or(0.0)),
            ms(cost.abs()),
            if cost < 0.0 { "less" } else { "more" },
        ));
    }
    // A value that one file does not state is not reported as a change.
    for setting in settings
        .iter()
        .filter(|setting| setting.a != UNKNOWN && setting.b != UNKNOWN)
    {
        sentences.push(match setting.name.as_str() {
            RANKS => format!("A ran on {} ranks, B on {}.", setting.a, setting.b),
            RECORDED_BY => format!("A was recorded by {}, B by {}.", setting.a, setting.b),
            COLLECTIVES => format!("A used {}, B {}.", setting.a, setting.b),
            name => format!("The {name} changed from {} to {}.", setting.a, setting.b),
        });
    }
    sentences
}

fn warnings(a: &Report, b: &Report) -> Vec<String> {
    let mut warnings = Vec::new();
    let bytes_of = |report: &Report| report.steady.as_ref().map_or(0, |steady| steady.bytes);
    let (x, y) = (bytes_of(a), bytes_of(b));
    if x > 0 && y > 0 && x.abs_diff(y) as f64 > 0.02 * x.max(y) as f64 {
        warnings.push(format!(
            "a step moves {} in A and {} in B: the runs are of different jobs or settings",
            bytes(x),
            bytes(y)
        ));
    }
    for (name, report) in [("A", a), ("B", b)] {
        let steps = report.steady.as_ref().map_or(0, |steady| steady.steps);
        if steps < 10 {
            warnings.push(format!(
                "{name} has only {steps} whole steady steps: how much it varies is a rough guess"
            ));
        }
    }
    if a.steps_found_by != b.steps_found_by {
        warnings.push(
            "the steps of the runs were separated by different methods, so their lengths may not be comparable".into(),
        );
    }
    warnings
}
