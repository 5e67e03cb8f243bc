//! Export of predictions as CSV: a row for each setting, network and number of ranks.

use std::io::{self, Write};

use super::outlook::{At, Cell, Outlook};

const HEADER: &str = "ranks,hosts,network,hierarchical_allreduce,cache_enabled,cycle_time_ms,fusion_threshold_mb,step_ms,low_ms,high_ms,\
                      early_cycle,current";

/// Writes the header and the rows. The last column, `best`, is written only if the data support a
/// recommendation.
pub(super) fn write(sink: &mut dyn Write, outlook: &Outlook) -> io::Result<()> {
    let recommended = outlook.targets.iter().all(|at| at.choice.is_some());
    writeln!(sink, "{HEADER}{}", if recommended { ",best" } else { "" })?;
    for at in &outlook.targets {
        let outside = |cell: &Cell| !at.cells.iter().any(|other| other.is_setting_of(cell));
        for cell in &at.cells {
            row(sink, at, cell)?;
        }
        if outside(&at.current) {
            row(sink, at, &at.current)?;
        }
    }
    Ok(())
}

/// Formats a value of a setting; an assumed one is empty.
fn stated(assumed: bool, value: f64) -> String {
    if assumed {
        String::new()
    } else {
        value.to_string()
    }
}

fn row(sink: &mut dyn Write, at: &At, cell: &Cell) -> io::Result<()> {
    // Only a network given as a pair of numbers has a comma in its name.
    let network = at.network.as_deref().unwrap_or("").replace(", ", "/");
    let best = match at.choice {
        Some(_) => format!(",{}", u8::from(at.is_best(cell))),
        None => String::new(),
    };
    writeln!(
        sink,
        "{},{},{network},{},{},{},{},{:.4},{:.4},{:.4},{},{}{best}",
        at.ranks,
        at.hosts,
        u8::from(cell.point.hierarchical_allreduce),
        u8::from(cell.point.cache),
        stated(cell.assumed[1], cell.point.cycle_time_ms),
        stated(cell.assumed[0], cell.point.fusion_mb()),
        cell.step_ms,
        cell.low_ms,
        cell.high_ms,
        u8::from(cell.early),
        u8::from(cell.is_setting_of(&at.current)),
    )
}
