//! A sweep's finding in words: the same sentences for the terminal and for Markdown.

use crate::cli::html::number;
use crate::cli::timeline::text::capitalized;
use crate::sweep::{Basis, Conclusion, Ending, Estimate, Finding, Knob, KnobEffect, Outcome, Point, Verdict};

/// Ties that are named.
const NAMED_MOST: usize = 6;
/// A gain that is surely below this is nothing to change settings for.
const MATTERS: f64 = 0.01;
/// An interval that reaches above this leaves open whether there is something to gain.
const OPEN: f64 = 0.03;
/// Predictions that all miss by more than this are of another job.
const MISSES: f64 = 0.15;
/// A knob whose share is below this, and which at its worst costs less, does not matter.
const DEAD: f64 = 0.01;

/// How a setting is named: with the booleans, where they were varied or are not as usual.
#[derive(Clone, Copy, Debug)]
pub(super) struct Naming {
    cache: bool,
    hierarchical: bool,
}

impl Naming {
    pub(super) fn of(finding: &Finding) -> Self {
        let varied = |of: fn(&Point) -> bool| finding.points.iter().any(|outcome| of(&outcome.point));
        Self {
            cache: varied(|point| !point.cache),
            hierarchical: varied(|point| point.hierarchical_allreduce),
        }
    }

    /// `fusion 16 MiB, cycle 2.5 ms`.
    pub(super) fn setting(self, point: &Point) -> String {
        let mut words = format!(
            "fusion {} MiB, cycle {} ms",
            knob(point.fusion_mb()),
            knob(point.cycle_time_ms)
        );
        if self.cache {
            words += &format!(", cache {}", on(point.cache));
        }
        if self.hierarchical {
            words += if point.hierarchical_allreduce {
                ", hierarchical"
            } else {
                ", flat"
            };
        }
        words
    }

    /// Headings of the columns of a setting.
    pub(super) fn headings(self) -> Vec<&'static str> {
        let optional = [(self.cache, "cache"), (self.hierarchical, "hier.")];
        let optional = optional
            .into_iter()
            .filter(|(there, _)| *there)
            .map(|(_, heading)| heading);
        ["fusion MiB", "cycle ms"].into_iter().chain(optional).collect()
    }

    /// The cells below them.
    pub(super) fn cells(self, point: &Point) -> Vec<String> {
        let mut cells = vec![knob(point.fusion_mb()), knob(point.cycle_time_ms)];
        if self.cache {
            cells.push(on(point.cache).to_owned());
        }
        if self.hierarchical {
            cells.push(on(point.hierarchical_allreduce).to_owned());
        }
        cells
    }
}

/// The answer, in sentences.
pub(super) fn answer(finding: &Finding) -> Vec<String> {
    let naming = Naming::of(finding);
    let Some(best) = finding.best() else {
        return vec!["No setting has a result.".to_owned()];
    };
    let mut sentences = match finding.conclusion {
        Conclusion::Nothing => vec!["No setting has a result.".to_owned()],
        Conclusion::NoDefault => vec![no_default(finding, best, naming)],
        Conclusion::Faster => faster(finding, best, naming),
        Conclusion::Unproven => unproven(finding, best, naming),
        Conclusion::DefaultAsGood => as_good(finding, best, naming),
    };
    sentences.extend(ties(finding, naming));
    sentences.extend(missed(finding));
    sentences
}

fn no_default(finding: &Finding, best: &Outcome, naming: Naming) -> String {
    let why = match finding.default().map(|default| &default.ending) {
        Some(Ending::Failed(why)) => format!("it failed ({why})"),
        Some(_) => "it was cut short".to_owned(),
        None => "it was not measured".to_owned(),
    };
    format!(
        "Best: {}, {}. What that gains nobody can say, for the default has no result: {why}.",
        naming.setting(&best.point),
        time(best),
    )
}

fn faster(finding: &Finding, best: &Outcome, naming: Naming) -> Vec<String> {
    let mut sentences = vec![compared(finding, best, naming)];
    if finding
        .gain
        .and_then(|gain| gain.interval)
        .is_some_and(|[_, high]| high < MATTERS)
    {
        sentences.push("That much is proven, but too little to matter: the default will do.".to_owned());
    }
    sentences.push(basis(finding));
    sentences
}

/// What the best gains.
fn compared(finding: &Finding, best: &Outcome, naming: Naming) -> String {
    let default = finding.default().map(time).unwrap_or_default();
    let verb = if finding.basis == Basis::Predicted {
        "is predicted to save"
    } else {
        "saves"
    };
    format!(
        "{} {verb} {}: {} a step against the default's {default}.",
        capitalized(&naming.setting(&best.point)),
        gain(finding),
        time(best)
    )
}

fn basis(finding: &Finding) -> String {
    match finding.basis {
        Basis::Confirmed => "The gain is from measurements made after the grid, the best few and the default in turns, so that \
                             the luck that made a setting look best has no part in it."
            .to_owned(),
        Basis::Verified => "Measured: the best of what replay predicted and the default, in turns.".to_owned(),
        Basis::Grid => format!(
            "It is the best of {} settings, and chance helps the best: the interval allows for that, the number itself may be a \
             little high.",
            measured(finding)
        ),
        Basis::Predicted => "Predicted by replay, not measured: --verify 3 measures the best three.".to_owned(),
    }
}

fn unproven(finding: &Finding, best: &Outcome, naming: Naming) -> Vec<String> {
    let doubt = match finding.basis {
        Basis::Predicted => {
            "The recording does not say enough to be sure of it: --verify 3 measures the best three."
        }
        _ => "But no setting was measured twice, so nobody can tell that from chance: take --repeats 3.",
    };
    vec![compared(finding, best, naming), doubt.to_owned()]
}

fn as_good(finding: &Finding, best: &Outcome, naming: Naming) -> Vec<String> {
    let Some(default) = finding.default() else {
        return Vec::new();
    };
    let predicted = finding.basis == Basis::Predicted;
    let most = match finding.best == finding.default {
        true => gain_most(finding),
        false => finding.gain.and_then(|gain| gain.interval).map(|[_, high]| high),
    };
    let open = !predicted && most.is_some_and(|most| most > OPEN);
    let hedge = if open {
        "for all that can be told, the"
    } else {
        "the"
    };
    let mut sentence = capitalized(&format!(
        "{hedge} default is as good as anything here: {} a step.",
        time(default)
    ));
    if finding.best != finding.default {
        let (took, doubt) = match predicted {
            true => ("is predicted to take", ""),
            false => ("took", ": that may be chance"),
        };
        sentence += &format!(
            " {} {took} {}, which saves {}{doubt}.",
            capitalized(&naming.setting(&best.point)),
            time(best),
            gain(finding),
        );
    } else {
        sentence += &match most {
            Some(most) if most > 0.0 => {
                format!(
                    " No other setting saves more than {} of it (95 %).",
                    percent(most)
                )
            }
            Some(_) => " Every other setting takes longer (95 %).".to_owned(),
            None if predicted => String::new(),
            None => " No setting was measured twice, though: --repeats 3 says how sure that is.".to_owned(),
        };
    }
    if open {
        sentence += " The measurements are noisy: more --repeats or --steps would tell.";
    }
    vec![sentence]
}

/// How far replay was from what was measured afterwards.
fn missed(finding: &Finding) -> Option<String> {
    let error = |outcome: &Outcome| Some(outcome.predicted_ms?.value / outcome.step_ms? - 1.0);
    let measured = finding
        .points
        .iter()
        .filter(|outcome| outcome.ending == Ending::Measured);
    let errors: Vec<f64> = measured.filter_map(error).collect();
    let (least, most) = errors
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), &error| {
            (least.min(error), most.max(error))
        });
    if errors.is_empty() {
        return None;
    }
    let range = match signed(least) == signed(most) {
        true => signed(least),
        false => format!("{} to {}", bare(signed(least)), signed(most)),
    };
    let mut sentence = format!("Replay was off by {range}.");
    // What is off by the same in all settings leaves their order as it is.
    if errors.iter().all(|error| error.abs() > MISSES) {
        sentence += " That much at every setting means that the job which was measured is not the one that was recorded \
                     (another machine, network or load): believe how settings compare rather than the times.";
    }
    Some(sentence)
}

fn ties(finding: &Finding, naming: Naming) -> Option<String> {
    let others: Vec<String> = finding
        .ties()
        .filter(|tie| Some(*tie) != finding.best())
        .map(|tie| match tie.point.is_default() {
            true => "the default".to_owned(),
            false => naming.setting(&tie.point),
        })
        .collect();
    if others.is_empty() {
        return (finding.ties_known && finding.conclusion == Conclusion::Faster)
            .then(|| "No other setting ties with it.".to_owned());
    }
    let named = others[..others.len().min(NAMED_MOST)].join("; ");
    let more = match others.len().saturating_sub(NAMED_MOST) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let tie = if others.len() == 1 {
        "setting ties"
    } else {
        "settings tie"
    };
    Some(format!(
        "{} other {tie} with the best, that is, cannot be told from it: {named}{more}.",
        others.len()
    ))
}

/// How sure the numbers are, in sentences.
pub(super) fn noise(finding: &Finding) -> Vec<String> {
    let Some(noise) = &finding.noise else {
        return Vec::new();
    };
    let naming = Naming::of(finding);
    let mut sentences = vec![format!(
        "One measurement of a setting scatters by {} ({} degrees of freedom).",
        percent(noise.sd),
        noise.freedom
    )];
    let times = noise.default_over_time.iter().map(|(_, ms)| *ms);
    let (least, most) = times.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), ms| {
        (least.min(ms), most.max(ms))
    });
    let default = match noise.default_over_time.len() {
        0 | 1 => String::new(),
        count => format!(
            "; the default took {} to {} in {count} measurements",
            number::ms(least),
            number::ms(most)
        ),
    };
    sentences.push(format!(
        "The machine drifted by {} meanwhile, which is taken out{default}.",
        percent(noise.drift)
    ));
    sentences.extend(noise.strays.iter().map(|stray| {
        format!(
            "Left out as a stray: {} took {} where {} was expected, {} after the beginning.",
            naming.setting(&stray.point),
            number::ms(stray.step_ms),
            number::ms(stray.expected_ms),
            duration(stray.at_s)
        )
    }));
    sentences
}

/// What a knob's effect comes to, in a few words.
pub(super) fn effect(effect: &KnobEffect) -> String {
    let by_time = |a: &&crate::sweep::Level, b: &&crate::sweep::Level| a.best_ms.total_cmp(&b.best_ms);
    let (Some(best), Some(worst)) = (
        effect.levels.iter().min_by(by_time),
        effect.levels.iter().max_by(by_time),
    ) else {
        return String::new();
    };
    let cost = worst.best_ms / best.best_ms - 1.0;
    if effect.share < DEAD && cost < DEAD {
        return "does not matter here".to_owned();
    }
    if effect.levels.iter().all(|level| level.tied) {
        return "no difference that could be told from chance".to_owned();
    }
    format!(
        "best at {}; at {} at least {}",
        value(effect.knob, best.value),
        value(effect.knob, worst.value),
        signed(cost)
    )
}

fn value(knob: Knob, value: f64) -> String {
    match knob {
        Knob::FusionThreshold => format!("{} MiB", self::knob(value)),
        Knob::CycleTime => format!("{} ms", self::knob(value)),
        Knob::Cache | Knob::HierarchicalAllreduce => on(value > 0.5).to_owned(),
    }
}

/// What was measured and how that went, in a sentence.
pub(super) fn effort(verdict: &Verdict) -> String {
    let outcomes = || verdict.findings.iter().flat_map(|finding| &finding.points);
    let count_of = |wanted: fn(&Outcome) -> bool| outcomes().filter(|outcome| wanted(outcome)).count() as u64;
    let predicted = count_of(|outcome| outcome.predicted_ms.is_some());
    let tried = count_of(|outcome| outcome.ending != Ending::Predicted);
    let settings = |count| number::counted(count, "setting");
    let tally = &verdict.measurements;
    let count = tally.done + tally.cut + tally.failed;
    let mut sentence = String::new();
    if predicted > 0 {
        sentence += &format!("{} predicted", settings(predicted));
    }
    if count == 0 {
        return sentence;
    }
    if predicted > 0 {
        sentence += "; ";
    }
    let parts = [
        (tally.done, "whole"),
        (tally.cut, "cut short (clearly worse)"),
        (tally.failed, "failed"),
    ];
    let parts = parts.into_iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts.map(|(count, what)| format!("{count} {what}")).collect();
    let of = match tally.done == count {
        true => String::new(),
        false => format!(" ({})", parts.join(", ")),
    };
    sentence
        + &format!(
            "{} of {}{of} in {}",
            number::counted(count.into(), "measurement"),
            settings(tried),
            duration(verdict.took_s)
        )
}

/// Settings without a whole measurement, and what became of them.
pub(super) fn incomplete(finding: &Finding) -> Vec<String> {
    let naming = Naming::of(finding);
    let shown = |outcome: &Outcome| match &outcome.ending {
        Ending::Cut => Some(format!(
            "{}: cut short at {} a step",
            naming.setting(&outcome.point),
            outcome.step_ms.map(number::ms).unwrap_or_default()
        )),
        Ending::Failed(why) => Some(format!("{}: failed, {why}", naming.setting(&outcome.point))),
        Ending::Measured if outcome.failures > 0 => Some(format!(
            "{}: {} failed besides those that count",
            naming.setting(&outcome.point),
            number::counted(outcome.failures.into(), "measurement")
        )),
        Ending::Measured | Ending::Predicted => None,
    };
    finding.points.iter().filter_map(shown).collect()
}

/// Variables to paste before a command.
pub(super) fn environment(point: &Point) -> String {
    let mut line = format!(
        "HOROVOD_FUSION_THRESHOLD={} HOROVOD_CYCLE_TIME={}",
        point.fusion_threshold_bytes, point.cycle_time_ms
    );
    if !point.cache {
        line += " HOROVOD_CACHE_CAPACITY=0";
    }
    if point.hierarchical_allreduce {
        line += " HOROVOD_HIERARCHICAL_ALLREDUCE=1";
    }
    line
}

/// Flags that mean the same to `horovodrun` and `ronde run`; none if the threshold is no whole number of MiB, for
/// `horovodrun` takes no other.
pub(super) fn flags(point: &Point) -> Option<String> {
    let whole = point.fusion_threshold_bytes.is_multiple_of(1 << 20);
    let mut line = format!(
        "--fusion-threshold-mb {} --cycle-time-ms {}",
        point.fusion_threshold_bytes >> 20,
        point.cycle_time_ms
    );
    if !point.cache {
        line += " --cache-capacity 0";
    }
    if point.hierarchical_allreduce {
        line += " --hierarchical-allreduce";
    }
    whole.then_some(line)
}

/// What there is to paste, with a name for each line; nothing where the default will do.
pub(super) fn paste(finding: &Finding) -> Vec<(String, String)> {
    let Some(recommended) = finding
        .recommended()
        .filter(|outcome| !outcome.point.is_default())
    else {
        return Vec::new();
    };
    let mut lines = vec![("environment".to_owned(), environment(&recommended.point))];
    if let Some(flags) = flags(&recommended.point) {
        lines.push((
            "horovodrun".to_owned(),
            format!("horovodrun -np {} {flags} …", finding.np),
        ));
        lines.push((
            "ronde".to_owned(),
            format!("ronde run -np {} {flags} -- …", finding.np),
        ));
    }
    lines
}

/// Share of the default's step that the best saves, with its interval.
pub(super) fn gain(finding: &Finding) -> String {
    finding.gain.map_or_else(
        || "nothing".to_owned(),
        |gain| match gain.interval {
            Some([low, high]) => format!(
                "{} ({} %: {} to {})",
                percent(gain.value),
                level(finding),
                bare(percent(low)),
                percent(high)
            ),
            None => percent(gain.value),
        },
    )
}

/// Of the intervals, in percent.
pub(super) fn level(finding: &Finding) -> u32 {
    let level = match finding.basis {
        Basis::Predicted => crate::sweep::LEVEL_PREDICTED,
        _ => crate::sweep::LEVEL,
    };
    (level * 100.0).round() as u32
}

/// The most that any setting may save, all looked at together.
fn gain_most(finding: &Finding) -> Option<f64> {
    let low = |outcome: &Outcome| {
        outcome
            .against_default
            .and_then(|against| against.interval)
            .map(|[low, _]| -low)
    };
    finding
        .points
        .iter()
        .filter_map(low)
        .reduce(f64::max)
        .map(|most| most.max(0.0))
}

/// A change relative to something, with the interval after it.
pub(super) fn change(estimate: Option<Estimate>) -> String {
    match estimate {
        None => "–".to_owned(),
        Some(Estimate {
            value,
            interval: None,
        }) => signed(value),
        Some(Estimate {
            value,
            interval: Some([low, high]),
        }) => {
            format!(
                "{} ({} to {})",
                signed(value),
                bare(signed(low)),
                bare(signed(high))
            )
        }
    }
}

fn measured(finding: &Finding) -> usize {
    finding
        .points
        .iter()
        .filter(|outcome| outcome.ending == Ending::Measured)
        .count()
}

/// Step time with its unit: measured, or predicted.
pub(super) fn time(outcome: &Outcome) -> String {
    let predicted = outcome.predicted_ms.map(|predicted| predicted.value);
    outcome
        .step_ms
        .or(predicted)
        .map_or_else(|| "–".to_owned(), number::ms)
}

/// A share in percent, with one decimal where it is not large.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        value if !value.is_finite() => "–".to_owned(),
        value if value >= 99.95 => format!("{} %", number::fixed(percent, 0)),
        _ => format!("{} %", number::fixed(percent, 1)),
    }
}

/// The same with its sign.
pub(super) fn signed(share: f64) -> String {
    let text = percent(share);
    match text.starts_with(['−', '–']) || text.trim_start_matches(['0', '.']).starts_with(' ') {
        true => text,
        false => format!("+{text}"),
    }
}

/// Without its unit.
fn bare(percent: String) -> String {
    percent.trim_end_matches(" %").to_owned()
}

/// A knob's value, exact as far as anybody sets it.
pub(super) fn knob(value: f64) -> String {
    format!("{}", (value * 1e4).round() / 1e4)
}

/// `6 min 12 s`.
pub(super) fn duration(seconds: f64) -> String {
    let seconds = if seconds.is_finite() {
        seconds.max(0.0)
    } else {
        0.0
    };
    if seconds < 10.0 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    match (whole / 3600, whole / 60 % 60, whole % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

pub(super) fn on(switch: bool) -> &'static str {
    if switch { "on" } else { "off" }
}
