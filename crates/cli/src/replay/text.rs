//! Predictions as text: the recording, a grid for each network and number of ranks, the best
//! setting, and the commands to apply it.

use super::heat::{self, grade};
use super::job::{CYCLE_TIME, Job, THRESHOLD};
use super::outlook::{At, Cell, Change, NEARLY, Outlook};
use crate::present::units::{NONE, bytes, change, changes, counted, ms, percent};
pub(super) use crate::present::units::{digits as number, setting as short};
use crate::present::{Look, Table, harmless, page as sections, titled, warnings, wrapped};
use ronde_lab::paste::Paste;

/// Most grids that are shown in full if there are several networks or numbers of ranks.
const GRIDS_MOST: usize = 1;

/// Renders the text, which ends with a newline.
pub(super) fn page(job: &Job, outlook: &Outlook, look: &Look) -> String {
    let mut parts = vec![head(job, look), warnings(&job.warnings, look)];
    let several = outlook.targets.len() > GRIDS_MOST;
    if several || outlook.targets.iter().any(|at| !at.assumptions.is_empty()) {
        parts.push(table(job, outlook, look));
    }
    if !several {
        for at in &outlook.targets {
            parts.extend(grids(at, look));
            parts.push(best(job, at, look));
        }
    } else if let Some(at) = outlook.targets.last() {
        parts.push(best(job, at, look));
    }
    parts.push(assumptions(outlook, look));
    sections(parts, look)
}

fn head(job: &Job, look: &Look) -> Vec<String> {
    let fit = &job.fit;
    let what = format!(
        "{}: {}, {} of {} a step, {}{}",
        harmless(&job.name),
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
    let sure = if job.recorded_steps.is_none() {
        "as the profile says".to_owned()
    } else {
        format!(
            "which the model makes {} ({})",
            ms(fit.modelled_us / 1e3),
            change(off)
        )
    };
    let line = format!(
        "step {}{} with fusion {}, cycle {}; {sure}",
        ms(fit.measured_us / 1e3),
        match job.recorded_steps {
            Some(_) => format!(" ± {:.1} %", fit.measured_error * 100.0),
            None => String::new(),
        },
        stated_threshold(job),
        stated_cycle(job),
    );
    let line = if !ronde_job::gate::reproduces(fit.measured_us, fit.modelled_us) {
        look.warn(&line)
    } else {
        line
    };
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
    [
        wrapped("", &what, look.width),
        wrapped("  ", &line, look.width),
        wrapped("  ", &costs, look.width),
    ]
    .concat()
}

/// Fusion threshold that the recording states.
pub(super) fn stated_threshold(job: &Job) -> String {
    match job.states(THRESHOLD) {
        true => format!(
            "{} MiB",
            short(job.fit.reference.fusion_threshold_bytes as f64 / 1048576.0)
        ),
        false => "unknown".to_owned(),
    }
}

/// Cycle time that the recording states.
pub(super) fn stated_cycle(job: &Job) -> String {
    match job.states(CYCLE_TIME) {
        true => format!("{} ms", short(job.fit.reference.cycle_us / 1e3)),
        false => "unknown".to_owned(),
    }
}

/// Table with a row for each network and number of ranks.
fn table(job: &Job, outlook: &Outlook, look: &Look) -> Vec<String> {
    let mut table = Table::new(&[
        "ranks", "hosts", "<network", "now ms", "80 %", "effic.", "best ms", "80 %", "effic.",
        "with", "flat", "hier.",
    ])
    .with_keys(3);
    let withheld = job.withheld().is_some();
    let recommended = |text: String| if withheld { NONE.to_owned() } else { text };
    for at in &outlook.targets {
        let optional = |cell: &Option<Cell>| {
            cell.map_or(String::new(), |cell| recommended(number(cell.step_ms)))
        };
        table.row([
            at.ranks.to_string(),
            at.hosts.to_string(),
            at.network.clone().unwrap_or_else(|| "as recorded".into()),
            number(at.current.step_ms),
            interval(&at.current),
            percent(at.efficiency),
            recommended(number(at.best.step_ms)),
            recommended(interval(&at.best)),
            recommended(percent(at.efficiency_best)),
            recommended(format!(
                "{} MiB, {} ms",
                short(at.best.fusion_mb()),
                short(at.best.cycle_time_ms)
            )),
            optional(&at.flat),
            optional(&at.hierarchical),
        ]);
    }
    let mut lines = table.lines(look.width);
    lines.extend(wrapped(
        "  ",
        "now: the setting that was recorded; best: of the grid, with this fusion threshold and cycle time. 80 %: from the 10th to the 90th \
         percentile. Efficiency: one rank's step over that of all. flat, hier.: the best of either kind, ms.",
        look.width,
    ));
    titled("Elsewhere", lines, look)
}

/// Grids for each combination of the booleans.
fn grids(at: &At, look: &Look) -> Vec<Vec<String>> {
    let kinds = at.kinds();
    let fastest = at
        .cells
        .iter()
        .map(|cell| cell.step_ms)
        .fold(f64::INFINITY, f64::min);
    let grid = |&(hierarchical, cache): &(bool, bool)| {
        let cells: Vec<&Cell> = at
            .cells
            .iter()
            .filter(|cell| (cell.hierarchical, cell.cache) == (hierarchical, cache))
            .collect();
        let mut title = "Predicted step, ms".to_owned();
        if kinds.len() > 1 {
            title += &format!(", hierarchical {}, cache {}", on(hierarchical), on(cache));
        }
        titled(&title, grid(&cells, at, fastest, look), look)
    };
    let mut shown: Vec<Vec<String>> = kinds.iter().map(grid).collect();
    if let Some(last) = shown.last_mut() {
        let legend = format!("* best, + as recorded. {}.", heat::legend());
        last.extend(wrapped("  ", &legend, look.width));
    }
    shown
}

fn grid(cells: &[&Cell], at: &At, fastest: f64, look: &Look) -> Vec<String> {
    let mut cycles: Vec<f64> = cells.iter().map(|cell| cell.cycle_time_ms).collect();
    cycles.sort_by(f64::total_cmp);
    cycles.dedup();
    let names: Vec<String> = cycles
        .iter()
        .map(|ms| format!("{} ms ", short(*ms)))
        .collect();
    let mut headings = vec!["fusion MiB"];
    headings.extend(names.iter().map(String::as_str));
    headings.push("<heat");
    let mut table = Table::new(&headings);
    for row in cells.chunk_by(|a, b| a.fusion_threshold_bytes == b.fusion_threshold_bytes) {
        let mut shown = vec![short(row[0].fusion_mb())];
        let mut heat = String::new();
        for cell in row {
            let mark = if cell.is_setting_of(&at.best) {
                "*"
            } else if cell.is_setting_of(&at.current) {
                "+"
            } else {
                " "
            };
            shown.push(number(cell.step_ms) + mark);
            let grade = grade(cell.step_ms, fastest);
            heat += &look.heat(grade, &grade.to_string());
        }
        shown.push(heat);
        table.row(shown);
    }
    table.lines(look.width)
}

/// Best setting, its gain, and the commands to apply it.
fn best(job: &Job, at: &At, look: &Look) -> Vec<String> {
    if let Some(withheld) = job.withheld() {
        let lines = wrapped("  ", &harmless(&withheld.to_string()), look.width);
        return titled("Best", lines, look);
    }
    let same = at.best.is_setting_of(&at.current) || at.change.median > -NEARLY;
    let place = match &at.network {
        Some(network) => format!(" ({} on {network})", counted(at.ranks.into(), "rank")),
        None => String::new(),
    };
    let sentence = if same {
        format!(
            "The setting in force is as good as any of these{place}: {} ms ({}).",
            number(at.current.step_ms),
            interval(&at.current)
        )
    } else {
        format!(
            "{}{place}: {} ms ({}), {} against {} ms now. {}",
            setting(&at.best, at),
            number(at.best.step_ms),
            interval(&at.best),
            changed(&at.change),
            number(at.current.step_ms),
            if at.change.high > 0.0 {
                "That is within what is not known: let HOROVOD_AUTOTUNE=1 prove it in the running job."
            } else {
                "HOROVOD_AUTOTUNE=1 proves it in the running job."
            },
        )
    };
    let mut lines = wrapped("  ", &sentence, look.width);
    if !same {
        lines.push(format!("  {}", environment(at)));
    }
    titled("Best", lines, look)
}

/// Environment variables to put before a command.
pub(super) fn environment(at: &At) -> String {
    let changed = |best: bool, current: bool| (best != current).then_some(best);
    let paste = Paste {
        fusion_threshold_bytes: at.best.fusion_threshold_bytes,
        cycle_time_ms: short(at.best.cycle_time_ms),
        hierarchical_allreduce: changed(at.best.hierarchical, at.current.hierarchical),
        cache: changed(at.best.cache, at.current.cache),
        ..Paste::default()
    };
    paste.environment()
}

fn assumptions(outlook: &Outlook, look: &Look) -> Vec<String> {
    let mut said: Vec<&String> = Vec::new();
    for sentence in outlook.targets.iter().flat_map(|at| &at.assumptions) {
        if !said.contains(&sentence) {
            said.push(sentence);
        }
    }
    let lines = said
        .iter()
        .flat_map(|sentence| wrapped("  - ", sentence, look.width))
        .collect();
    titled("Taken for granted", lines, look)
}

/// Short text of a setting; a boolean is named only if it differs from the setting in force.
pub(super) fn setting(cell: &Cell, at: &At) -> String {
    let mut words = format!(
        "fusion {} MiB, cycle {} ms",
        short(cell.fusion_mb()),
        short(cell.cycle_time_ms)
    );
    if cell.hierarchical != at.current.hierarchical || at.hierarchical.is_some() {
        words += if cell.hierarchical {
            ", hierarchical"
        } else {
            ", flat"
        };
    }
    if cell.cache != at.current.cache {
        words += if cell.cache {
            ", with cache"
        } else {
            ", without cache"
        };
    }
    words
}

/// Formats a change of the step time with its interval: `−6.1 % (−8.0 to −4.0 %)`.
pub(super) fn changed(change: &Change) -> String {
    format!(
        "{} ({})",
        self::change(change.median),
        changes(change.low, change.high)
    )
}

pub(super) fn interval(cell: &Cell) -> String {
    format!("{}–{}", number(cell.low_ms), number(cell.high_ms))
}

fn on(switch: bool) -> &'static str {
    if switch { "on" } else { "off" }
}
