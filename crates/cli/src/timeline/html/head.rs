//! Top of the page: sources, advice and key figures.

use maud::{Markup, html};

use crate::html::text::{Foreign, shortened};
use crate::present::units::{self as number, count, counted, ms, percent};
use ronde_trace::analysis::Report;
use ronde_trace::analysis::report::{Advice, StepsFoundBy};

/// Largest number of characters of a file name in the title.
const TITLE_CHARS: usize = 60;

/// Title of the page: the first file, and the number of other files.
pub(super) fn title(report: &Report) -> String {
    let Some(first) = report.sources.first() else {
        return "Timeline".to_owned();
    };
    let file = first
        .path
        .rsplit('/')
        .find(|part| !part.is_empty())
        .unwrap_or(&first.path);
    let file = shortened(file, TITLE_CHARS);
    match report.sources.len() {
        1 => format!("Timeline {file}"),
        n => format!("Timeline {file} and {} more", n - 1),
    }
}

/// Sentence on the files, ranks and steps that were read.
pub(super) fn summary(report: &Report) -> Markup {
    let warnings = report.warnings.len()
        + report
            .sources
            .iter()
            .map(|s| s.warnings.len())
            .sum::<usize>();
    let recorded_at = report
        .sources
        .iter()
        .find_map(|source| source.recorded_at.as_ref());
    html! {
        p.soft {
            (counted(report.sources.len() as u64, "file")) " of a job of " (counted(u64::from(report.ranks), "rank"))
            "; " (counted(report.steps.len() as u64, "step")) " of rank " (report.reference_rank) ", "
            (match report.steps_found_by {
                StepsFoundBy::Marks => "as marked in the file.",
                StepsFoundBy::Names => "told apart by tensor names that come again.",
                StepsFoundBy::Period => "told apart by a repeating sequence of operations.",
                StepsFoundBy::Nothing => "not told apart: all of the file counts as one.",
            })
            @if let Some(at) = recorded_at { " Recorded at " (Foreign(at)) "." }
            @if warnings > 0 { " " a href="#sources" { (counted(warnings as u64, "warning")) } " to read first." }
        }
    }
}

/// List of advice, the most useful first.
pub(super) fn advice(report: &Report) -> Markup {
    html! {
        @if report.advice.is_empty() {
            p { "Nothing stands out: no setting promises a gain that these files could show." }
        } @else {
            ol.advice { @for one in &report.advice { li { (sentence(one)) } } }
        }
    }
}

fn sentence(advice: &Advice) -> Markup {
    let setting = advice
        .variable
        .as_ref()
        .map(|variable| match &advice.value {
            Some(value) => format!("{variable}={value}"),
            None => variable.clone(),
        });
    html! {
        (Foreign(&advice.sentence))
        // Do not repeat a setting that the sentence contains.
        @if let Some(setting) = setting.filter(|setting| !advice.sentence.contains(setting)) {
            " " span.set { code { (Foreign(&setting)) } }
        }
        @if let Some(gain) = advice.gain_ms.filter(|gain| *gain > 0.0) {
            " " span.soft { "May gain " (ms(gain)) " a step." }
        }
    }
}

/// Tiles with the key figures: step time, communication, slowest rank and others.
pub(super) fn figures(report: &Report) -> Option<Markup> {
    let steady = report.steady.as_ref()?;
    let exposed = steady.exposed_ms();
    Some(html! {
        dl.tiles {
            (tile("Median step", &ms(steady.step_ms.p50), &format!("of {}", counted(steady.steps, "steady step"))))
            (tile("One step in ten is longer than", &ms(steady.step_ms.p90), &format!("longest {}", ms(steady.step_ms.max))))
            (tile("Exposed communication", &ms(exposed), &format!("{} of a mean step", percent(exposed / steady.step_ms.mean))))
            (tile("Overlap", &percent(steady.overlap), &format!("of {} hidden behind computation", ms(steady.communication_ms.p50))))
            (slowest(report))
            @if steady.bytes > 0 { (tile("Payload a step", &number::bytes(steady.bytes), &tensors(report))) }
            @if let Some(startup) = &report.startup {
                (tile("Start-up", &ms(startup.step_ms.p50), &format!("median of the first {}", counted(startup.steps, "step"))))
            }
        }
    })
}

fn tensors(report: &Report) -> String {
    match report.tensors.len() {
        0 => String::new(),
        n => format!("in {}", counted(n as u64, "tensor")),
    }
}

fn slowest(report: &Report) -> Markup {
    let Some(stragglers) = &report.stragglers else {
        return tile("Slowest rank", "not known", "ready times of one rank only");
    };
    match stragglers
        .ranks
        .iter()
        .find(|rank| Some(rank.rank) == stragglers.slowest)
    {
        Some(rank) => tile(
            "Slowest rank",
            &count(u64::from(rank.rank)),
            &format!("costs {} a step", ms(rank.cost_ms)),
        ),
        None => tile("Slowest rank", "none", "no rank stands out"),
    }
}

fn tile(name: &str, value: &str, detail: &str) -> Markup {
    html! {
        div { dt { (name) } dd { (value) } @if !detail.is_empty() { dd.detail { (detail) } } }
    }
}
