//! Predictions as sections: the recording, a grid for each network and number of ranks, the best
//! setting, and the commands to apply it; for the terminal and for one self-contained HTML page.

use maud::{Markup, html};

use super::charts::{curves, map, shades};
use super::job::{CYCLE_TIME, Job, THRESHOLD};
use super::outlook::{At, Cell, Change, Choice, NEARLY, Outlook, early_words};
use crate::html::Document;
use crate::present::units::{
    NONE, bytes, change, change_within, counted, digits, ms, percent, setting as short,
};
use crate::present::{self, Cell as TableCell, List, Look, Section, Table, wrapped};
use crate::setting::{Naming, numbers, on, paste};
use ronde_job::gate::Withheld;
use ronde_lab::paste::Paste;

/// Most grids that are shown in full if there are several networks or numbers of ranks.
const GRIDS_MOST: usize = 1;

/// Renders the text, which ends with a newline.
pub(super) fn text(job: &Job, outlook: &Outlook, look: &Look) -> String {
    let mut sections = vec![head(job), warnings(job), table(outlook)];
    let several = outlook.targets.len() > GRIDS_MOST;
    if let Some(at) = outlook.targets.last() {
        if !several {
            sections.extend(grids(at));
        }
        sections.push(best(job, at, Section::new("best", "Best")));
    }
    sections.push(assumptions(outlook));
    present::text(&sections, look)
}

/// Renders the page.
pub(super) fn page(job: &Job, outlook: &Outlook) -> String {
    let titles = outlook.targets.iter().enumerate();
    let titles: Vec<(String, String)> = titles
        .map(|(index, at)| (format!("at-{index}"), heading(at)))
        .collect();
    let mut sections = vec![head(job), warnings(job), table(outlook)];
    for (index, (at, (id, title))) in outlook.targets.iter().zip(&titles).enumerate() {
        let mut section = best(job, at, Section::new(id, title));
        let kinds = at.kinds();
        for (number, &kind) in kinds.iter().enumerate() {
            section = section
                .page(html! { (map(at, kind, kinds.len() > 1, format!("map-{index}-{number}"))) })
                .folded(
                    format!("As a table: {}", kind_words(kind)),
                    grid(at, kind, None),
                );
        }
        sections.push(
            section.page(html! { p.note { (marks(at)) " Point at a cell for its interval." } }),
        );
    }
    sections.push(assumptions(outlook));
    sections.push(Section::new("guide", "How to read this page").page(guide()));
    Document {
        title: &format!("Replay of {}", job.name),
        style: include_str!("replay.css"),
        body: present::markup(&sections),
    }
    .render()
}

fn guide() -> Markup {
    html! {
        dl.guide {
            dt { "Step" }
            dd { "Time between two consecutive results of the last tensor, on the slowest rank." }
            dt { "Fusion threshold" }
            dd { "Tensors that are ready together are reduced in one message of at most this size, in MiB." }
            dt { "Cycle time" }
            dd { "Shortest time between the starts of two cycles, in ms: a longer one fuses more tensors and starts them later." }
            dt { "Hierarchical" }
            dd { "Allreduces in two stages: within each host, then between hosts." }
            dt { "Cache" }
            dd { "Tensors that were negotiated before are announced with one bit each." }
        }
    }
}

/// Title of the section on one network and number of ranks.
fn heading(at: &At) -> String {
    let ranks = counted(at.ranks.into(), "rank");
    match &at.network {
        Some(network) => format!("{ranks} on {}, {network}", counted(at.hosts.into(), "host")),
        None => format!("{ranks}, as recorded"),
    }
}

fn warnings(job: &Job) -> Section<'_> {
    Section::new("warnings", "Warnings").list(List::Warnings, job.warnings.clone())
}

fn head(job: &Job) -> Section<'_> {
    let fit = &job.fit;
    let what = format!(
        "{}: {}, {} of {} a step, {}{}",
        job.name,
        job.kind,
        counted(fit.workload.tensors.len() as u64, "tensor"),
        bytes(fit.workload.bytes()),
        fit.place.words(),
        match job.recorded_steps {
            Some(steps) => format!("; {}", counted(steps as u64, "steady step")),
            None => String::new(),
        },
    );
    let off = fit.modelled_us / fit.measured_us - 1.0;
    let modelled = ms(fit.modelled_us / 1e3);
    let (error, sure) = match job.recorded_steps {
        None => (String::new(), "from the profile".to_owned()),
        Some(_) => (
            format!(" ± {:.1} %", fit.measured_error * 100.0),
            format!("the model predicts {modelled} ({}) for it", change(off)),
        ),
    };
    let stated = |setting: &str, value: f64, unit: &str| match job.states(setting) {
        true => format!("{} {unit}", short(value)),
        false => "unknown".to_owned(),
    };
    let fusion_mb = fit.reference.fusion_threshold_bytes as f64 / 1048576.0;
    let line = format!(
        "step {}{error} with fusion {}, cycle {}; {sure}",
        ms(fit.measured_us / 1e3),
        stated(THRESHOLD, fusion_mb, "MiB"),
        stated(CYCLE_TIME, fit.reference.cycle_us / 1e3, "ms"),
    );
    let collective = fit.costs.flat.first().copied().unwrap_or_default();
    let costs = format!(
        "costs: a message {:.1} µs + {:.1} µs a MiB; negotiation {:.1} µs a cycle + {:.2} µs a tensor; {:.1} µs a step after its \
         last result",
        collective.alpha_us,
        collective.us_per_byte * 1048576.0,
        fit.costs.cached.base_us,
        fit.costs.cached.per_tensor_us,
        fit.workload.tail_us,
    );
    let reproduced = ronde_job::gate::reproduces(fit.measured_us, fit.modelled_us);
    let markup = html! { p { (line) } p { (costs) } };
    let lines = move |look: &Look| {
        let line = match reproduced {
            true => line.clone(),
            false => look.warn(&line),
        };
        [line, costs.clone()]
            .map(|line| wrapped("  ", &line, look.width))
            .concat()
    };
    let section = Section::new("recording", "Recording").untitled();
    section.text(what).terminal(lines).page(markup)
}

/// Table with a row for each network and number of ranks, unless there is only the recorded one.
fn table(outlook: &Outlook) -> Section<'_> {
    let section = Section::new("ranks", "Other networks and numbers of ranks");
    if outlook.targets.len() == 1 && outlook.targets[0].assumptions.is_empty() {
        return section;
    }
    let mut table = Table::headed(
        "ranks; hosts; <network; now ms; 80 %; effic.; best ms; 80 %; effic.; with; flat; hier.",
    )
    .with_keys(3);
    for at in &outlook.targets {
        let chosen = |text: &dyn Fn(&Choice) -> String| {
            at.choice.as_ref().map_or_else(|| NONE.to_owned(), text)
        };
        let optional =
            |cell: &Option<Cell>| cell.map_or(String::new(), |cell| digits(cell.step_ms));
        table.row([
            at.ranks.to_string(),
            at.hosts.to_string(),
            at.network.clone().unwrap_or_else(|| "as recorded".into()),
            digits(at.current.step_ms),
            interval(&at.current),
            percent(at.efficiency),
            chosen(&|choice| digits(choice.best.step_ms)),
            chosen(&|choice| interval(&choice.best)),
            chosen(&|choice| percent(choice.efficiency_best)),
            chosen(&|choice| numbers(&choice.best.point)),
            chosen(&|choice| optional(&choice.flat)),
            chosen(&|choice| optional(&choice.hierarchical)),
        ]);
    }
    let table = table.without_empty();
    section.table(table).page(curves(outlook)).text(
        "now: recorded setting; best: best setting of the grid, in column \"with\". 80 %: from the 10th to the 90th percentile. \
         effic.: scaling efficiency, step time of one rank divided by that of all. flat, hier.: step time of the best flat and the \
         best hierarchical setting, ms.",
    )
}

/// Grids for the terminal, one for each combination of the booleans.
fn grids(at: &At) -> Vec<Section<'_>> {
    let kinds = at.kinds();
    let one = |&kind: &(bool, bool)| {
        let grid = move |look: &Look| {
            let mut title = at.title();
            if at.kinds().len() > 1 {
                title += &format!(", {}", kind_words(kind));
            }
            let mut lines = vec![look.title(&title)];
            lines.extend(grid(at, kind, Some(look)).lines(look.width));
            if at.kinds().last() == Some(&kind) {
                let grades = shades(at).key(String::new()).grades();
                let legend = format!("{} Heat, above the best: {grades}.", marks(at));
                lines.extend(wrapped("  ", &legend, look.width));
            }
            lines
        };
        Section::new("", "").untitled().terminal(grid)
    };
    kinds.iter().map(one).collect()
}

/// Explains the marks in a grid and in its chart.
fn marks(at: &At) -> &'static str {
    match at.choice {
        Some(_) => "Best: * in tables, star in charts. As recorded: +, diamond.",
        None => "As recorded: + in tables, diamond in charts.",
    }
}

/// Predictions over threshold and cycle time; for the terminal with a column of grades.
fn grid(at: &At, kind: (bool, bool), look: Option<&Look>) -> Table {
    let (shades, cells) = (shades(at), at.cells_of(kind));
    let mut headings = vec!["fusion MiB".to_owned()];
    let threshold = |cell: &Cell| cell.point.fusion_threshold_bytes;
    let rows = || cells.chunk_by(|a, b| threshold(a) == threshold(b));
    let cycles = rows().next().into_iter().flatten();
    headings.extend(cycles.map(|cell| format!("{} ms ", short(cell.point.cycle_time_ms))));
    headings.extend(look.map(|_| "<heat".to_owned()));
    let mut table = Table::new(&headings);
    for row in rows() {
        let mut shown = vec![TableCell::from(short(row[0].point.fusion_mb()))];
        let mut heat = String::new();
        for cell in row {
            let mark = if at.is_best(cell) {
                "*"
            } else if cell.is_setting_of(&at.current) {
                "+"
            } else {
                " "
            };
            shown.push((digits(cell.step_ms) + mark).into());
            let at = shades.at(cell.step_ms);
            heat += &look.map_or_else(String::new, |look| look.heat(at));
        }
        shown.extend(look.map(|_| TableCell::Styled(heat)));
        table.row(shown);
    }
    table
}

/// Adds the best setting, its gain, and the commands to apply it.
fn best<'a>(job: &Job, at: &At, section: Section<'a>) -> Section<'a> {
    if let Some(withheld) = job.withheld() {
        return section.text(withheld.to_string());
    }
    let Some(choice) = &at.choice else {
        return section;
    };
    let same = choice.best.is_setting_of(&at.current) || choice.change.median > -NEARLY;
    let place = match &at.network {
        Some(network) => format!(" ({} on {network})", counted(at.ranks.into(), "rank")),
        None => String::new(),
    };
    let section = |lines: Vec<String>| section.texts(lines.into_iter().chain(outside(at, same)));
    let predicted = |cell: &Cell| format!("{} ms ({})", digits(cell.step_ms), interval(cell));
    if same {
        let now = predicted(&at.current);
        let these = match at.outside {
            Some(_) => "any within the range of the recording",
            None => "any of these",
        };
        return section(vec![format!(
            "The setting in force is as good as {these}{place}: {now}."
        )]);
    }
    let Change { median, low, high } = choice.change;
    let is_chance = high >= 0.0;
    let sentence = format!(
        "{}{place}: {}, {} against {} ms now. {}",
        setting(choice, &choice.best, at),
        predicted(&choice.best),
        change_within(median, [low, high]),
        digits(at.current.step_ms),
        if is_chance {
            "The interval contains 0, so the difference may be chance: HOROVOD_AUTOTUNE=1 measures it in the running job."
        } else {
            "HOROVOD_AUTOTUNE=1 confirms it in the running job."
        },
    );
    let section = section(vec![sentence]);
    if is_chance {
        return section;
    }
    let paste = Paste {
        host_threshold_bytes: job.host_threshold_bytes,
        ..paste(&choice.best.point, &at.current.point)
    };
    let mut line = paste.environment();
    if choice.best.early != at.current.early {
        line += &format!(" RONDE_EARLY_CYCLE={}", u8::from(choice.best.early));
    }
    section.code([line])
}

/// Names a setting with a better prediction that is not recommended, and the reason.
fn outside(at: &At, is_alone: bool) -> Option<String> {
    let (choice, outside) = (at.choice.as_ref()?, at.outside.as_ref()?);
    let (messages, recorded) = (outside.messages, outside.recorded);
    let point = format!(
        "{} ({} ms predicted; {} messages a step, the largest {}; recorded: at most {} and {})",
        setting(choice, &outside.cell, at),
        digits(outside.cell.step_ms),
        digits(messages.per_step),
        bytes(messages.largest_bytes as u64),
        digits(recorded.per_step),
        bytes(recorded.largest_bytes as u64),
    );
    Some(match is_alone {
        true => Withheld::OutsideRange { point }.to_string(),
        false => {
            format!("Not considered: {point} is outside the measured range; measure it first.")
        }
    })
}

fn assumptions(outlook: &Outlook) -> Section<'_> {
    let mut said: Vec<String> = Vec::new();
    for sentence in outlook.targets.iter().flat_map(|at| &at.assumptions) {
        if !said.contains(sentence) {
            said.push(sentence.clone());
        }
    }
    Section::new("assumptions", "Assumptions").list(List::Dashes, said)
}

/// Short text of a setting; a boolean is named only if it differs from the setting in force.
fn setting(choice: &Choice, of: &Cell, at: &At) -> String {
    let (best, current) = (&of.point, &at.current.point);
    let changed = best.hierarchical_allreduce != current.hierarchical_allreduce;
    let naming = Naming {
        cache: best.cache != current.cache,
        hierarchical: changed || choice.hierarchical.is_some(),
    };
    let early = match of.early != at.current.early {
        true => format!(", {}", early_words(of.early)),
        false => String::new(),
    };
    naming.setting(best) + &early
}

pub(super) fn interval(cell: &Cell) -> String {
    format!("{}–{}", digits(cell.low_ms), digits(cell.high_ms))
}

pub(super) fn kind_words((hierarchical, cache): (bool, bool)) -> String {
    format!("hierarchical {}, cache {}", on(hierarchical), on(cache))
}
