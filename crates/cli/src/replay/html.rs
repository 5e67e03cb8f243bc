//! Predictions as one page that stands alone: the best setting, a heat map for each place, and a curve over the ranks.

use maud::{Markup, html};

use super::heat::{self, grade};
use super::job::Job;
use super::outlook::{At, Cell, NEARLY, Outlook};
use super::text::{changed, environment, interval, number, setting, short};
use crate::html::chart::points::points;
use crate::html::chart::{Axis, Caption, Cloud, Point, Shape};
use crate::html::text::Foreign;
use crate::html::{Document, folded, section, wide};

const STYLE: &str = include_str!("replay.css");

/// The page.
pub(super) fn page(job: &Job, outlook: &Outlook) -> String {
    Document {
        title: &format!("Replay of {}", job.name),
        style: STYLE,
        script: "",
        body: body(job, outlook),
    }
    .render()
}

fn body(job: &Job, outlook: &Outlook) -> Markup {
    let fit = &job.fit;
    html! {
        p {
            (fit.workload.tensors.len()) " tensors, " (format!("{:.1}", fit.workload.bytes() as f64 / 1e6)) " MB a step, "
            (fit.place.words()) ". A step took " (number(fit.measured_us / 1e3)) " ms with fusion "
            (short(fit.reference.fusion_threshold_bytes as f64 / 1048576.0)) " MiB and a cycle of "
            (short(fit.reference.cycle_us / 1e3)) " ms; the model makes it " (number(fit.modelled_us / 1e3)) " ms."
        }
        @if !job.warnings.is_empty() {
            (section("warnings", "Before you believe this", &html! {
                ul { @for warning in &job.warnings { li { (Foreign(warning)) } } }
            }))
        }
        @if let Some(curves) = curves(outlook) {
            (section("ranks", "Step time over ranks", &curves))
        }
        @for (index, at) in outlook.targets.iter().enumerate() {
            (section(&format!("at-{index}"), &heading(at), &place(job, at, outlook.targets.len() > 1)))
        }
    }
}

fn heading(at: &At) -> String {
    let ranks = format!("{} rank{}", at.ranks, if at.ranks == 1 { "" } else { "s" });
    match &at.network {
        Some(network) => format!("{ranks} on {} hosts, {network}", at.hosts),
        None => format!("{ranks}, as recorded"),
    }
}

/// The heat maps of one network and number of ranks.
fn place(job: &Job, at: &At, fold: bool) -> Markup {
    let same = at.best.is_setting_of(&at.current) || at.change.median > -NEARLY;
    let kinds = at.kinds();
    let maps = html! {
        @for &(hierarchical, cache) in &kinds {
            @if kinds.len() > 1 {
                h3 { "hierarchical " (on(hierarchical)) ", cache " (on(cache)) }
            }
            (map(at, hierarchical, cache))
        }
        p.note { (heat::legend()) ". Framed: the best. Dashed: as recorded. Each cell tells its interval." }
    };
    html! {
        @if let Some(withheld) = job.withheld() {
            p { (withheld.to_string()) }
        } @else if same {
            p { "The setting in force is as good as any of these: " (number(at.current.step_ms)) " ms (" (interval(&at.current)) ")." }
        } @else {
            p {
                strong { (setting(&at.best, at)) } ": " (number(at.best.step_ms)) " ms (" (interval(&at.best)) "), "
                (changed(&at.change)) " against " (number(at.current.step_ms)) " ms now."
            }
            p { code { (environment(at)) } }
        }
        @if at.network.is_some() || fold {
            p { "Efficiency against one rank: " (share(at.efficiency)) " now, " (share(at.efficiency_best)) " with the best setting." }
        }
        @if !at.assumptions.is_empty() {
            (folded("What is taken for granted", &html! {
                ul { @for sentence in &at.assumptions { li { (Foreign(sentence)) } } }
            }))
        }
        @if fold { (folded("All settings", &maps)) } @else { (maps) }
    }
}

fn map(at: &At, hierarchical: bool, cache: bool) -> Markup {
    let cells: Vec<&Cell> = at
        .cells
        .iter()
        .filter(|cell| (cell.hierarchical, cell.cache) == (hierarchical, cache))
        .collect();
    let fastest = at
        .cells
        .iter()
        .map(|cell| cell.step_ms)
        .fold(f64::INFINITY, f64::min);
    let mut cycles: Vec<f64> = cells.iter().map(|cell| cell.cycle_time_ms).collect();
    cycles.sort_by(f64::total_cmp);
    cycles.dedup();
    let class = |cell: &Cell| {
        let mark = if cell.is_setting_of(&at.best) {
            " best"
        } else if cell.is_setting_of(&at.current) {
            " now"
        } else {
            ""
        };
        format!("heat heat-{}{mark}", grade(cell.step_ms, fastest))
    };
    wide(
        "Predicted step times",
        &html! {
            table {
                caption { "Predicted step, ms; fusion threshold in MiB down, cycle time in ms across" }
                thead { tr { th scope="col" { "MiB" } @for cycle in &cycles { th.n scope="col" { (short(*cycle)) } } } }
                tbody {
                    @for row in cells.chunk_by(|a, b| a.fusion_threshold_bytes == b.fusion_threshold_bytes) {
                        tr {
                            th scope="row" { (short(row[0].fusion_mb())) }
                            @for cell in row {
                                td class=(class(cell)) title=(format!("{} ms", interval(cell))) { (number(cell.step_ms)) }
                            }
                        }
                    }
                }
            }
        },
    )
}

/// A picture for each network: step time over ranks, with the setting in force and with the best. None of one number of ranks.
fn curves(outlook: &Outlook) -> Option<Markup> {
    let mut networks: Vec<&Option<String>> = outlook.targets.iter().map(|at| &at.network).collect();
    networks.dedup();
    let of = |network: &Option<String>| -> Vec<&At> {
        let mut of: Vec<&At> = outlook
            .targets
            .iter()
            .filter(|at| &at.network == network)
            .collect();
        of.sort_by_key(|at| at.ranks);
        of
    };
    let several = networks.iter().any(|network| of(network).len() > 1);
    several.then(|| {
        html! {
            @for (index, network) in networks.iter().enumerate() {
                (curve(index, network.as_deref().unwrap_or("as recorded"), &of(network)))
            }
        }
    })
}

fn curve(index: usize, network: &str, ats: &[&At]) -> Markup {
    let all = || ats.iter().flat_map(|at| [&at.current, &at.best]);
    let low = all().map(|cell| cell.low_ms).fold(f64::INFINITY, f64::min);
    let high = all().map(|cell| cell.high_ms).fold(0.0, f64::max);
    let ranks = |at: &At| f64::from(at.ranks);
    let first = ats.first().map_or(1.0, |at| ranks(at));
    let last = ats.last().map_or(2.0, |at| ranks(at));
    let x = Axis::powers_of_two("ranks", first.max(1.0), last, 8, |value| format!("{value}"));
    let y = Axis::decades("step, ms", (low * 0.9).max(1e-3), high * 1.1, 6, number);
    let cloud = |class: &str, shape: Shape, of: &dyn Fn(&At) -> Cell| {
        let point = |at: &&At| {
            let cell = of(at);
            Point {
                x: ranks(at),
                y: cell.step_ms,
                whisker: (cell.low_ms, cell.high_ms),
                title: format!(
                    "{} ranks: {} ms ({})",
                    at.ranks,
                    number(cell.step_ms),
                    interval(&cell)
                ),
            }
        };
        Cloud {
            class: class.to_owned(),
            shape,
            points: ats.iter().map(point).collect(),
            line: ats.iter().map(|at| (ranks(at), of(at).step_ms)).collect(),
        }
    };
    let clouds = [
        cloud("line-now", Shape::Circle, &|at| at.current),
        cloud("line-best", Shape::Square, &|at| at.best),
    ];
    let caption = Caption {
        id: &format!("curve-{index}"),
        title: &format!("Step time over ranks, {network}"),
        description: "Predicted step times with the setting in force and with the best one; whiskers are from the 10th to the 90th \
                      percentile.",
    };
    html! {
        figure {
            (points(&caption, &clouds, &x, &y))
            figcaption {
                (Foreign(network)) ": " (Shape::Circle.swatch("line-now")) " the setting in force, "
                (Shape::Square.swatch("line-best")) " the best; whiskers from the 10th to the 90th percentile."
            }
        }
    }
}

fn on(switch: bool) -> &'static str {
    if switch { "on" } else { "off" }
}

fn share(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
