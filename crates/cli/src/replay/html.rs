//! Predictions as one self-contained HTML page: the best setting, a heat map for each network and
//! number of ranks, and a curve over the ranks.

use maud::{Markup, html};

use super::job::Job;
use super::outlook::{At, Cell, NEARLY, Outlook};
use super::text::{
    changed, environment, interval, number, setting, short, stated_cycle, stated_threshold,
};
use crate::chart::scale::{Better, Shades, colour, tick};
use crate::chart::{Axis, Chart, Data, Point, Rect, Series, Shape, Unit};
use crate::html::text::Foreign;
use crate::html::{Document, folded, section, wide};

const STYLE: &str = include_str!("replay.css");

/// Renders the page.
pub(super) fn page(job: &Job, outlook: &Outlook) -> String {
    Document {
        title: &format!("Replay of {}", job.name),
        style: STYLE,
        body: body(job, outlook),
    }
    .render()
}

fn body(job: &Job, outlook: &Outlook) -> Markup {
    let fit = &job.fit;
    let sections = sections(job, outlook);
    html! {
        p {
            (fit.workload.tensors.len()) " tensors, " (format!("{:.1}", fit.workload.bytes() as f64 / 1e6)) " MB a step, "
            (fit.place.words()) ". A step took " (number(fit.measured_us / 1e3)) " ms with fusion "
            (stated_threshold(job)) ", cycle " (stated_cycle(job)) "; the model makes it " (number(fit.modelled_us / 1e3)) " ms."
        }
        nav aria-label="Sections" {
            @for (id, heading, _) in &sections { a href={ "#" (id) } { (Foreign(heading)) } " " }
        }
        @for (id, heading, body) in &sections { (section(id, heading, body)) }
    }
}

/// Sections of the page: identifier, heading and contents.
fn sections(job: &Job, outlook: &Outlook) -> Vec<(String, String, Markup)> {
    let mut sections = Vec::new();
    if !job.warnings.is_empty() {
        let list = html! { ul { @for warning in &job.warnings { li { (Foreign(warning)) } } } };
        sections.push((
            "warnings".to_owned(),
            "Before you believe this".to_owned(),
            list,
        ));
    }
    if let Some(curves) = curves(outlook) {
        sections.push((
            "ranks".to_owned(),
            "Step time over ranks".to_owned(),
            curves,
        ));
    }
    for (index, at) in outlook.targets.iter().enumerate() {
        let body = place(job, at, index, outlook.targets.len() > 1);
        sections.push((format!("at-{index}"), heading(at), body));
    }
    sections.push((
        "guide".to_owned(),
        "How to read this page".to_owned(),
        guide(),
    ));
    sections
}

fn guide() -> Markup {
    html! {
        dl.guide {
            dt { "Step" }
            dd { "Time from one result of the last tensor to the next, on the slowest rank." }
            dt { "Fusion threshold" }
            dd { "Tensors that are ready together are reduced in one message of at most this size, in MiB." }
            dt { "Cycle time" }
            dd { "Pause between two rounds of negotiation, in ms: a longer one gathers more tensors and starts them later." }
            dt { "Hierarchical" }
            dd { "The ranks of a host reduce first, then one rank of each host." }
            dt { "Cache" }
            dd { "Tensors that were negotiated before are agreed on with one bit each." }
            dt { "Interval" }
            dd { "From the 10th to the 90th percentile of the prediction." }
            dt { "Efficiency" }
            dd { "Step time of one rank divided by that of all." }
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

/// Heat maps of one network and number of ranks.
fn place(job: &Job, at: &At, index: usize, fold: bool) -> Markup {
    let same = at.best.is_setting_of(&at.current) || at.change.median > -NEARLY;
    let kinds = at.kinds();
    let maps = html! {
        @for (number, &kind) in kinds.iter().enumerate() {
            (map(at, kind, kinds.len() > 1, format!("map-{index}-{number}")))
        }
        p.note { "Star: the best. Diamond: as recorded. Point at a cell for its interval." }
        (folded("The predictions as tables", &html! { @for &kind in &kinds { (table(at, kind)) } }))
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

/// Colours of all settings for one number of ranks.
fn shades(at: &At) -> Shades {
    Shades::new(at.cells.iter().map(|cell| cell.step_ms), Better::Lower, 0.0)
}

fn cells(at: &At, (hierarchical, cache): (bool, bool)) -> Vec<&Cell> {
    let cells = at.cells.iter();
    cells
        .filter(|cell| (cell.hierarchical, cell.cache) == (hierarchical, cache))
        .collect()
}

/// Distinct values of one setting among these cells, ascending.
fn levels(cells: &[&Cell], of: impl Fn(&Cell) -> f64) -> Vec<f64> {
    let mut values: Vec<f64> = cells.iter().map(|cell| of(cell)).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

fn kind_words((hierarchical, cache): (bool, bool)) -> String {
    format!("hierarchical {}, cache {}", on(hierarchical), on(cache))
}

/// Heat map of predicted step times over threshold and cycle time.
fn map(at: &At, kind: (bool, bool), several: bool, id: String) -> Chart {
    let cells = cells(at, kind);
    let shades = shades(at);
    let fusion = levels(&cells, Cell::fusion_mb);
    let cycle = levels(&cells, |cell| cell.cycle_time_ms);
    let place = |cell: &Cell| {
        let find =
            |values: &[f64], wanted: f64| values.partition_point(|value| *value < wanted) as f64;
        (
            find(&fusion, cell.fusion_mb()),
            find(&cycle, cell.cycle_time_ms),
        )
    };
    let words = |cell: &Cell| {
        format!(
            "{} MiB, {} ms: {} ms\n{} ms",
            short(cell.fusion_mb()),
            short(cell.cycle_time_ms),
            number(cell.step_ms),
            interval(cell)
        )
    };
    let rect = |cell: &&Cell| {
        let (x, y) = place(cell);
        Rect {
            x: [x - 0.49, x + 0.49],
            y: [y - 0.49, y + 0.49],
            colour: colour(shades.at(cell.step_ms)),
            text: words(cell),
            label: number(cell.step_ms),
        }
    };
    // The marks are in the upper corners of the cell, beside its number.
    let mark = |name: &str, shape, colour, of: &Cell, side: f64| {
        let cell = cells.iter().find(|cell| cell.is_setting_of(of))?;
        let (x, y) = place(cell);
        let points = vec![Point::new(
            x + side,
            y + 0.3,
            format!("{name}\n{}", words(cell)),
        )];
        Some(Series::new(name, colour, Data::Points { shape, points }))
    };
    let title = match several {
        true => format!("Predicted step, ms; {}", kind_words(kind)),
        false => "Predicted step, ms".to_owned(),
    };
    let boxes = Series::new(
        "",
        "--series-5",
        Data::Boxes {
            boxes: cells.iter().map(rect).collect(),
        },
    );
    let marks = [
        mark(
            "as recorded",
            Shape::Diamond,
            "--series-1",
            &at.current,
            0.36,
        ),
        mark("best", Shape::Star, "--ink", &at.best, -0.36),
    ];
    let names = |values: &[f64]| values.iter().map(|value| tick(*value)).collect::<Vec<_>>();
    Chart {
        description:
            "Fusion threshold in MiB across, cycle time in ms upwards; the tables below have the numbers."
                .into(),
        height_px: 60 + (34 * cycle.len() as u32).clamp(80, 500),
        x: Axis::places("fusion threshold, MiB", names(&fusion)),
        y: Axis::places("cycle time, ms", names(&cycle)),
        series: [Some(boxes)].into_iter().chain(marks).flatten().collect(),
        scale: Some(shades.key("Above the best of all".to_owned())),
        ..Chart::new(id, title)
    }
}

fn table(at: &At, kind: (bool, bool)) -> Markup {
    let cells = cells(at, kind);
    let cycles = levels(&cells, |cell| cell.cycle_time_ms);
    let class = |cell: &Cell| {
        if cell.is_setting_of(&at.best) {
            "n best"
        } else if cell.is_setting_of(&at.current) {
            "n now"
        } else {
            "n"
        }
    };
    wide(
        "Predicted step times",
        &html! {
            table {
                caption {
                    "Predicted step, ms, " (kind_words(kind)) "; fusion threshold in MiB down, cycle time in ms across; bold: the best, "
                    "underlined: as recorded"
                }
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

/// Chart for each network: step time over ranks, with the setting in force and with the best.
/// `None` if only one number of ranks is predicted.
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
    let series = |name: &str, colour, shape, of: &dyn Fn(&At) -> Cell| {
        let point = |at: &&At| {
            let cell = of(at);
            let text = format!(
                "{} ranks, {name}\n{} ms ({})",
                at.ranks,
                number(cell.step_ms),
                interval(&cell)
            );
            Point {
                low: cell.low_ms,
                high: cell.high_ms,
                ..Point::new(ranks(at), cell.step_ms, text)
            }
        };
        let line = ats
            .iter()
            .map(|at| [ranks(at), of(at).step_ms, of(at).step_ms, of(at).step_ms]);
        let line = Data::Line {
            points: line.collect(),
            dashed: true,
        };
        let points = Data::Points {
            shape,
            points: ats.iter().map(point).collect(),
        };
        [
            Series::new(name, colour, line),
            Series::new(name, colour, points),
        ]
    };
    let now = series("the setting in force", "--series-0", Shape::Circle, &|at| {
        at.current
    });
    let best = series("the best setting", "--series-1", Shape::Square, &|at| {
        at.best
    });
    let chart = Chart {
        description: "Predicted step times with the setting in force and with the best one; error bars are from the 10th to the \
                      90th percentile."
            .into(),
        x: Axis::log("ranks", Unit::Count, first.max(1.0) / 1.1, last * 1.1),
        y: Axis::log("step", Unit::Ms, (low * 0.9).max(1e-3), high * 1.1),
        series: now.into_iter().chain(best).collect(),
        ..Chart::new(format!("curve-{index}"), format!("Step time over ranks, {network}"))
    };
    html! {
        figure {
            (chart)
            figcaption { (Foreign(network)) "; error bars from the 10th to the 90th percentile. The sections below have the numbers." }
        }
    }
}

fn on(switch: bool) -> &'static str {
    if switch { "on" } else { "off" }
}

fn share(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
