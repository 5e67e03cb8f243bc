//! `--compare A B`: compares two logs, as text or JSON.

use std::process::ExitCode;

use serde::Serialize;

use super::args::Args;
use super::{input, text};
use crate::error::Error;
use crate::present::output::{self, check_distinct, stdout_is_free};
use crate::present::units::{NONE, change, counted, fixed, percent, setting};
use crate::present::{Look, Section, Table};
use crate::print;
use crate::timeline::write_json;
use ronde_lab::review::{Comparison, Review, Switch, compare};

/// Version of the JSON document.
const COMPARISON_VERSION: u32 = 1;
/// Relative differences below this value are negligible.
const MATTERS: f64 = 0.01;

/// Runs the comparison.
///
/// # Errors
/// [`Error`] if a log cannot be read or has no trial, or an output cannot be written.
pub(super) fn run(paths: [&std::path::Path; 2], args: &Args) -> Result<ExitCode, Error> {
    check_distinct(
        &args.outputs(),
        &input::files(&paths.map(std::path::Path::to_owned)),
    )?;
    let json = output::open(&args.json)?;
    let known = args.known();
    let (a, b) = (
        input::read_one(paths[0], &known)?,
        input::read_one(paths[1], &known)?,
    );
    let comparison = compare(&a, &b);
    let mut code = ExitCode::SUCCESS;
    if stdout_is_free(&args.outputs()) {
        code = print(&text::comparison(
            &comparison,
            [&a, &b],
            &Look::of_stdout(0),
        ));
    }
    let document = Document {
        ronde_review_comparison: COMPARISON_VERSION,
        comparison: &comparison,
        reviews: [&a, &b],
    };
    output::write(json, |sink| write_json(sink, &document))?;
    Ok(code)
}

/// JSON document of a comparison.
#[derive(Serialize)]
struct Document<'a> {
    ronde_review_comparison: u32,
    #[serde(flatten)]
    comparison: &'a Comparison,
    reviews: [&'a Review; 2],
}

/// The settings that both logs tried.
pub(super) fn common(comparison: &Comparison) -> Section<'static> {
    let overlap = &comparison.overlap;
    let section = |sentence: &str| Section::new("common", "In common").text(sentence);
    let (Some(fusion), Some(cycle)) = (overlap.fusion_mb, overlap.cycle_ms) else {
        return section("The ranges that were tried do not overlap.");
    };
    let range = |[low, high]: [f64; 2]| format!("{} to {}", setting(low), setting(high));
    let none = || NONE.to_owned();
    let mut table =
        Table::headed("fusion MiB; cycle ms; =settings; correlation; step time of the second");
    table.row([
        range(fusion),
        range(cycle),
        format!("{} in both", counted(overlap.settings, "setting")),
        overlap
            .correlation
            .map_or_else(none, |correlation| fixed(correlation, 2)),
        overlap
            .slower
            .map_or_else(none, |slower| change(slower.mean)),
    ]);
    let flat = overlap.correlation.is_none();
    section(match flat {
        true => "At least one of the surfaces is flat over the common range.",
        false => "Surfaces over the common range, if both jobs reduce the same bytes:",
    })
    .table(table)
}

/// The better of the two choices.
pub(super) fn preferred(comparison: &Comparison) -> Section<'static> {
    let section = |sentence: String| Section::new("preferred", "Whose choice").text(sentence);
    let Some(preference) = &comparison.preference else {
        return section("One of the logs has no choice.".to_owned());
    };
    let [first, second] = [&preference.a, &preference.b].map(|choice| choice.words(&Switch::ALL));
    if preference.same {
        return section(format!("Both chose {first}."));
    }
    let mut table = Table::headed("<according to; second against first (95 %)");
    for (by, difference) in [
        (comparison.a.as_str(), &preference.by_a),
        (comparison.b.as_str(), &preference.by_b),
        ("both", &preference.together),
    ] {
        table.row([by.to_owned(), difference.words()]);
    }
    let together = &preference.together;
    let better = match together.mean {
        _ if preference.contradiction => {
            "the logs contradict each other: measure both in one run".to_owned()
        }
        mean if together.low > 0.0 => format!("the first is better, by {}", percent(mean)),
        mean if together.high < 0.0 => format!("the second is better, by {}", percent(-mean)),
        _ if together.low > -MATTERS && together.high < MATTERS => {
            "they are equally good".to_owned()
        }
        _ => "these logs do not show which is better".to_owned(),
    };
    section(format!(
        "{} chose {first}, {} chose {second}; {better}.",
        comparison.a, comparison.b
    ))
    .table(table)
}
