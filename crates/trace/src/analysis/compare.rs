//! Comparison of two runs: each difference, and whether it exceeds the variation within the runs.

use serde::{Deserialize, Serialize};

use ronde_job::units::{bytes, ms, percent};

use super::Report;
use super::report::{PartKind, Quantiles, Summary};

/// Smaller differences, as a share of the larger value, are ignored, however steady the runs are.
const LEAST: f64 = 0.01;
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
    /// Whether the difference exceeds both `spread` and a hundredth of the larger value.
    pub beyond_spread: bool,
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

/// Compares a distribution.
fn distribution(
    group: ChangeGroup,
    name: impl Into<String>,
    unit: &str,
    a: Option<Quantiles>,
    b: Option<Quantiles>,
) -> Change {
    let spread = a.zip(b).map(|(a, b)| a.spread().hypot(b.spread()));
    change(
        group,
        name.into(),
        unit,
        a.map(|a| a.p50),
        b.map(|b| b.p50),
        spread,
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
    change(group, name.into(), unit, a, b, None)
}

fn change(
    group: ChangeGroup,
    name: String,
    unit: &str,
    a: Option<f64>,
    b: Option<f64>,
    spread: Option<f64>,
) -> Change {
    let difference = a.zip(b).map(|(a, b)| b - a);
    let relative = a
        .zip(b)
        .filter(|&(a, _)| a != 0.0)
        .map(|(a, b)| b / a - 1.0);
    let larger = a.unwrap_or(0.0).abs().max(b.unwrap_or(0.0).abs());
    let least = spread.unwrap_or(0.0).max(LEAST * larger);
    Change {
        group,
        name,
        unit: unit.to_owned(),
        a,
        b,
        difference,
        relative,
        spread,
        beyond_spread: difference.is_some_and(|difference| difference.abs() > least),
    }
}

fn changes(a: &Report, b: &Report) -> Vec<Change> {
    use ChangeGroup::{Bandwidth, Fusion, Part, Step, Stragglers};
    let steady =
        |of: &dyn Fn(&Summary) -> f64| (a.steady.as_ref().map(of), b.steady.as_ref().map(of));
    let steady_of =
        |of: &dyn Fn(&Summary) -> Quantiles| (a.steady.as_ref().map(of), b.steady.as_ref().map(of));
    let mut changes = Vec::new();

    let (x, y) = steady_of(&|steady| steady.step_ms);
    changes.push(distribution(Step, "step", "ms", x, y));
    let tail = |quantiles: Quantiles| quantiles.p99;
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
        changes.push(distribution(Step, "start-up step", "ms", step(a), step(b)));
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
        let of = |report: &Report| report.steady.as_ref().and_then(exposed);
        changes.push(distribution(Part, kind.name(), "ms", of(a), of(b)));
    }
    let cached = |report: &Report| report.negotiate_cached_ms;
    changes.push(distribution(
        Part,
        "negotiation of a batch",
        "ms",
        cached(a),
        cached(b),
    ));
    let of = |of: &dyn Fn(&super::report::Fusion) -> Quantiles| {
        (a.fusion.as_ref().map(of), b.fusion.as_ref().map(of))
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
    setting(RANKS, Some(a.ranks.to_string()), Some(b.ranks.to_string()));
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
    } else if !step.beyond_spread {
        sentences.push(format!(
            "No significant change: a step takes {} in A and {} in B, a difference of {}, which is {}.",
            ms(a),
            ms(b),
            ms(difference.abs()),
            match step.spread {
                Some(spread) if difference.abs() <= spread =>
                    format!("within the scatter of the runs ({})", ms(spread)),
                _ => "no more than a hundredth".to_owned(),
            }
        ));
    } else {
        sentences.push(format!(
            "A step takes {} in B instead of {} in A: {} {} ({}), more than the scatter of the runs ({}).",
            ms(b),
            ms(a),
            ms(difference.abs()),
            if difference < 0.0 { "shorter" } else { "longer" },
            percent(step.relative.unwrap_or(0.0).abs()),
            ms(step.spread.unwrap_or(0.0)),
        ));
        // Parts that changed in the same direction as the step explain its change.
        let parts = changes
            .iter()
            .filter(|change| change.group == ChangeGroup::Part && change.beyond_spread);
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
    let batches = find(ChangeGroup::Fusion, "batches a step").filter(|change| change.beyond_spread);
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
