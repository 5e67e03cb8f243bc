//! Heat maps of a sweep: step time over threshold and cycle time, one for each number of ranks and
//! each combination of the other settings.

use std::collections::BTreeSet;
use std::path::Path;

use super::report::About;
use super::words;
use crate::chart::scale::{self, Better, Shades};
use crate::chart::{Chart, Grid, Point as Place, Series, Shape, picture};
use crate::error::Error;
use crate::present::output::save;
use crate::present::units as number;
use crate::setting::{numbers, on};
use ronde_lab::sweep::{Basis, Ending, Finding, Outcome, Point, Verdict};

/// Largest number of settings tied with the best that are marked; if there are more, only their
/// number is given.
const TIES_MARKED: usize = 8;

/// Picture that has been written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Picture {
    /// Number of ranks.
    pub(super) np: u32,
    /// Title of the picture.
    pub(super) title: String,
    /// Name of the file in the folder.
    pub(super) svg: String,
}

/// Settings that are constant in a picture: all but threshold and cycle time. Pictures are in this
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kept {
    np: u32,
    no_cache: bool,
    hierarchical: bool,
}

/// Writes the pictures of `verdict` to `folder`, as SVG and PNG.
pub(super) fn write(
    about: &About,
    verdict: &Verdict,
    folder: &Path,
) -> Result<Vec<Picture>, Error> {
    let points = verdict.findings.iter().flat_map(|finding| &finding.points);
    let all: BTreeSet<Kept> = points.map(|outcome| Kept::of(&outcome.point)).collect();
    let mut pictures = Vec::new();
    for kept in &all {
        let of_ranks = |finding: &&Finding| finding.np == kept.np;
        let Some(finding) = verdict.findings.iter().find(of_ranks) else {
            continue;
        };
        let points = finding.points.iter();
        let shown: Vec<&Outcome> = points.filter(|outcome| kept.has(outcome)).collect();
        // A picture is omitted if its only point is the default and the other points have other
        // constant settings.
        if shown.len() < 2 && shown.len() < finding.points.len() {
            continue;
        }
        let distinct = kept.distinct(&all);
        let name = [vec!["heat".to_owned()], distinct.clone()].concat();
        let name = name.join("-").replace(' ', "-");
        let ranks = number::counted(kept.np.into(), "rank");
        let others = distinct.into_iter().filter(|word| !word.starts_with("np"));
        let words: Vec<String> = std::iter::once(ranks).chain(others).collect();
        let title = format!("{} on {}", about.job, words.join(", "));
        let map = heat_map(about, finding, &shown, Chart::new(name.as_str(), title));
        let svg = picture::svg(&map.title, &[&map])?;
        let png = picture::png(&map.title, &[&map])?;
        let svg_name = format!("{name}.svg");
        save(&folder.join(&svg_name), svg)?;
        save(&folder.join(format!("{name}.png")), png)?;
        pictures.push(Picture {
            np: kept.np,
            title: map.title,
            svg: svg_name,
        });
    }
    Ok(pictures)
}

impl Kept {
    fn of(point: &Point) -> Self {
        Self {
            np: point.np,
            no_cache: !point.cache,
            hierarchical: point.hierarchical_allreduce,
        }
    }

    fn has(&self, outcome: &Outcome) -> bool {
        Self::of(&outcome.point) == *self
    }

    /// Settings that distinguish this picture from the others: `np2`, `cache on`, `flat`.
    fn distinct(&self, all: &BTreeSet<Self>) -> Vec<String> {
        let hierarchy = match self.hierarchical {
            true => "hierarchical",
            false => "flat",
        };
        let varied = |of: fn(&Self) -> u32| all.iter().any(|other| of(other) != of(self));
        let np = varied(|kept| kept.np).then(|| format!("np{}", self.np));
        let cache = varied(|kept| kept.no_cache.into());
        let cache = cache.then(|| format!("cache {}", on(!self.no_cache)));
        let hierarchy = varied(|kept| kept.hierarchical.into()).then(|| hierarchy.to_owned());
        [np, cache, hierarchy].into_iter().flatten().collect()
    }
}

/// Fills a chart that has its title with the settings `shown`.
fn heat_map(about: &About, finding: &Finding, shown: &[&Outcome], chart: Chart) -> Chart {
    let predicted = shown.iter().any(|outcome| outcome.predicted_ms.is_some());
    let place = |outcome: &Outcome| (outcome.point.fusion_mb(), outcome.point.cycle_time_ms);
    let grid = Grid::new(shown.iter().map(|outcome| place(outcome)));
    let cells = || shown.iter().map(|outcome| cell(outcome, predicted));
    let values = || cells().filter_map(|(value, _)| value);
    let noise = match (predicted, &finding.noise) {
        (false, Some(noise)) => noise.sd,
        _ => 0.0,
    };
    let shades = Shades::new(values(), Better::Lower, noise);
    let (mut timed, mut failed) = (Vec::new(), Vec::new());
    for (outcome, (value, label)) in shown.iter().zip(cells()) {
        let colour = value.map_or_else(String::new, |value| scale::colour(shades.at(value)));
        let text = format!("{}: {label}", numbers(&outcome.point));
        let rect = grid.cell(place(outcome), colour, label, text);
        match value {
            Some(_) => timed.push(rect),
            None => failed.push(rect),
        }
    }
    let mark = |outcomes: Vec<&Outcome>, shape: Shape, colour: &'static str, name: String| {
        let outcomes = outcomes.into_iter().filter(|one| shown.contains(one));
        // The best and the default may be the same cell.
        let right = shape == Shape::Diamond;
        let points: Vec<Place> = outcomes
            .map(|outcome| grid.mark(place(outcome), right, name.clone()))
            .collect();
        (!points.is_empty()).then(|| Series::points(name, colour, shape, points))
    };
    let named = |name: &str, outcome: &Outcome| {
        let mut text = cell(outcome, predicted).1;
        if let Some(ms) = outcome.step_ms.filter(|_| predicted) {
            text += &format!(", measured {}", number::digits(ms));
        }
        format!("{name}: {} ({text} ms)", numbers(&outcome.point))
    };
    let one = |name: &str, outcome: Option<&Outcome>, shape: Shape, colour: &'static str| {
        outcome.and_then(|outcome| mark(vec![outcome], shape, colour, named(name, outcome)))
    };
    let best = finding.best();
    let mut tied = shown.to_vec();
    tied.retain(|outcome| outcome.tied && Some(*outcome) != best);
    let (tied, unmarked) = match tied.len() {
        0..=TIES_MARKED => (tied, 0),
        many => (Vec::new(), many),
    };
    let ties = "cannot be distinguished from the best";
    let least = values().fold(f64::INFINITY, f64::min);
    let series = [
        Some(Series::boxes("", "--series-5", timed)),
        (!failed.is_empty()).then(|| Series::boxes("no result", "--line", failed)),
        mark(tied, Shape::Triangle, "--series-3", ties.to_owned()),
        one("default", finding.default(), Shape::Diamond, "--series-1"),
        one("best", best, Shape::Star, "--ink"),
    ];
    let [x, y] = grid.axes("fusion threshold, MiB", "cycle time, ms");
    Chart {
        description: subtitle(&about.how, finding, shown, predicted, unmarked),
        height_px: 70 + (46 * grid.rows() as u32).clamp(60, 500),
        x,
        y,
        series: series.into_iter().flatten().collect(),
        scale: Some(shades.key(format!("step time above the lowest, {}", number::ms(least)))),
        ..chart
    }
}

/// Value and text of a cell: the predicted step time in a picture of predictions, else the measured
/// one.
fn cell(outcome: &Outcome, predicted: bool) -> (Option<f64>, String) {
    if predicted {
        let ms = outcome.predicted();
        return (ms, ms.map_or_else(String::new, number::digits));
    }
    match (outcome.ending, outcome.step_ms) {
        (Ending::Failed, _) | (_, None) => (None, "failed".to_owned()),
        (Ending::Cut, Some(ms)) => (Some(ms), format!("≈{}", number::digits(ms))),
        (_, Some(ms)) => (Some(ms), number::digits(ms)),
    }
}

/// Subtitle of a picture; `unmarked` is the number of tied settings without a mark.
fn subtitle(
    how: &str,
    finding: &Finding,
    shown: &[&Outcome],
    predicted: bool,
    unmarked: usize,
) -> String {
    let mut parts = vec![how.to_owned()];
    parts.retain(|how| !how.is_empty());
    if predicted {
        parts.push("step predicted by replay, ms".to_owned());
        if finding.basis == Basis::Verified {
            parts.push("the best few were measured afterwards".to_owned());
        }
    } else {
        parts.push("median step, ms".to_owned());
        let noise = finding.noise.as_ref().map(|noise| words::percent(noise.sd));
        parts.extend(noise.map(|sd| format!("one measurement scatters by {sd}")));
    }
    if !predicted && shown.iter().any(|outcome| outcome.ending == Ending::Cut) {
        parts.push("≈ cut short".to_owned());
    }
    if unmarked > 0 {
        parts.push(format!(
            "{unmarked} settings cannot be distinguished from the best"
        ));
    }
    parts.join("; ")
}
