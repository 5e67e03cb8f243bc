//! `ronde review`: evaluates autotune logs.
//!
//! Reads logs of Horovod and Ronde, evaluates them with [`ronde_lab::review`], and writes the
//! result as text, JSON, charts or one HTML page. `--compare` compares two logs.

mod args;
mod compare;
mod figures;
mod html;
pub(crate) mod input;
pub(crate) mod report;
mod text;

use std::process::ExitCode;

use serde::Serialize;

use crate::chart::picture;
use crate::error::Error;
pub(super) use args::Args;

use super::present::output::{self, check_distinct, stdout_is_free};
use super::present::{Look, warn};
use super::print;
use super::timeline::write_json;
use ronde_lab::review::Review;

/// Version of the JSON document.
const REVIEW_VERSION: u32 = 1;

/// Runs the subcommand.
pub(super) fn main(args: &Args) -> Result<ExitCode, Error> {
    match args.compared() {
        Some(paths) => compare::run(paths, args),
        None => run(args),
    }
}

fn run(args: &Args) -> Result<ExitCode, Error> {
    check_distinct(&args.outputs(), &input::files(&args.paths))?;
    let [html, json, png, svg] = [&args.html, &args.json, &args.png, &args.svg].map(output::open);
    let (html, json, png, svg) = (html?, json?, png?, svg?);
    let reviews = input::read(&args.paths, &args.known())?;

    // Print the text first, so that a later output error does not suppress it.
    let mut code = ExitCode::SUCCESS;
    if stdout_is_free(&args.outputs()) {
        code = print(&text::reviews(&reviews, &Look::of_stdout(0)));
    } else {
        for (review, warning) in reviews
            .iter()
            .flat_map(|review| review.warnings.iter().map(move |warning| (review, warning)))
        {
            warn("review", &format!("{}: {warning}", review.source));
        }
    }
    output::write(json, |sink| write_json(sink, &Document::new(&reviews)))?;
    output::write(html, |sink| sink.write_all(html::page(&reviews).as_bytes()))?;
    if svg.is_some() {
        let picture = figures::drawn(&reviews, "svg", picture::svg)?;
        output::write(svg, |sink| sink.write_all(picture.as_bytes()))?;
    }
    if png.is_some() {
        let picture = figures::drawn(&reviews, "png", picture::png)?;
        output::write(png, |sink| sink.write_all(&picture))?;
    }
    Ok(code)
}

/// JSON document of the reviews.
#[derive(Serialize)]
struct Document<'a> {
    ronde_review: u32,
    reviews: &'a [Review],
}

impl<'a> Document<'a> {
    fn new(reviews: &'a [Review]) -> Self {
        Self {
            ronde_review: REVIEW_VERSION,
            reviews,
        }
    }
}
