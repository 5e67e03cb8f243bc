//! `--compare A B`: compares two logs, as text or JSON.

use std::process::ExitCode;

use serde::Serialize;

use super::args::Args;
use super::error::Error;
use super::{input, text};
use crate::present::Look;
use crate::present::output::{Output, check_distinct};
use crate::print;
use crate::timeline::write_json;
use ronde_lab::gain::{Saved, Sense};
use ronde_lab::review::words::{counted, knob, percent, signed};
use ronde_lab::review::{Comparison, Difference, Review, Switch, compare};

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
    let json = args.json.as_deref().map(Output::open).transpose()?;
    let known = args.known();
    let (a, b) = (
        input::read_one(paths[0], &known)?,
        input::read_one(paths[1], &known)?,
    );
    let comparison = compare(&a, &b);
    let mut code = ExitCode::SUCCESS;
    if args.stdout_is_free() {
        code = print(&text::comparison(
            &comparison,
            [&a, &b],
            &Look::of_stdout(0),
        ));
    }
    if let Some(output) = json {
        output.finish(|sink| {
            write_json(
                sink,
                &Document {
                    ronde_review_comparison: COMPARISON_VERSION,
                    comparison: &comparison,
                    reviews: [&a, &b],
                },
            )
        })?;
    }
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

/// Sentences on the settings that both logs tried.
pub(super) fn common(comparison: &Comparison) -> Vec<String> {
    let overlap = &comparison.overlap;
    let (Some(fusion), Some(cycle)) = (overlap.fusion_mb, overlap.cycle_ms) else {
        return vec![
            "The ranges that were tried do not meet; each log says something only of its own."
                .to_owned(),
        ];
    };
    let range =
        |[low, high]: [f64; 2], unit: &str| format!("{} to {} {unit}", knob(low), knob(high));
    let mut lines = vec![format!(
        "Both tried thresholds from {} and cycle times from {}; {} in both, within 1 %.",
        range(fusion, "MiB"),
        range(cycle, "ms"),
        counted(overlap.settings, "setting")
    )];
    lines.push(match overlap.correlation {
        Some(correlation) => {
            format!("There the surfaces have a correlation of {correlation:.2}.").replace('-', "−")
        }
        None => "There at least one of the surfaces is flat, so there is nothing to agree on."
            .to_owned(),
    });
    if let Some(slower) = &overlap.slower {
        let saved = Saved {
            share: -slower.mean,
            interval: None,
        };
        let took = match saved.sense() {
            Sense::Less => format!("{} less", percent(slower.mean)),
            Sense::Same => "as long".to_owned(),
            Sense::More => format!("{} longer", percent(slower.mean)),
        };
        lines.push(format!(
            "Steps took {took} in {} there, on average (if both jobs reduce the same bytes).",
            comparison.b
        ));
    }
    lines
}

/// Sentences on which log's choice is better.
pub(super) fn preferred(comparison: &Comparison) -> Vec<String> {
    let Some(preference) = &comparison.preference else {
        return vec!["One of the logs has no choice.".to_owned()];
    };
    let (a, b) = (&comparison.a, &comparison.b);
    let [first, second] = [&preference.a, &preference.b].map(|setting| setting.words(&Switch::ALL));
    if preference.same {
        return vec![format!("Both chose {first}.")];
    }
    let interval = |difference: &Difference| {
        format!(
            "{} ({} to {})",
            signed(difference.mean),
            signed(difference.low),
            signed(difference.high)
        )
    };
    let mut lines = vec![
        format!("{a} chose {first}, {b} chose {second}."),
        format!(
            "The second setting's step time against the first's: {} by {a}, {} by {b}, {} by both.",
            interval(&preference.by_a),
            interval(&preference.by_b),
            interval(&preference.together)
        ),
    ];
    let together = &preference.together;
    lines.push(if preference.contradiction {
        "The logs contradict each other: these are not the same job under the same conditions. Measure both settings in one run.".to_owned()
    } else if together.low > 0.0 {
        format!("{first} is better, by {}.", percent(together.mean))
    } else if together.high < 0.0 {
        format!("{second} is better, by {}.", percent(together.mean))
    } else if together.low > -MATTERS && together.high < MATTERS {
        "They are as good as each other.".to_owned()
    } else {
        "Which is better, these logs do not tell.".to_owned()
    });
    lines
}
