//! Charts of a review: the trials in order, and the surface fitted to them.

mod surface;
mod trail;

use crate::chart::picture::PictureError;
use crate::chart::scale::Better;
use crate::chart::{Chart, Shape};
use crate::error::Error;
use crate::present::units::capitalized;
use ronde_lab::review::{Measure, Review};

use surface::{combinations, surface};
use trail::trail;

/// Default settings of Horovod and Ronde: fusion threshold in MiB, cycle time in ms.
pub(super) const DEFAULT: (f64, f64) = (128.0, 1.0);

/// Charts of one review.
pub(super) struct Pictures {
    /// Chart of the trials.
    pub(super) trail: Chart,
    /// Charts of the fitted surface; that of the choice's switches comes first.
    pub(super) surfaces: Vec<Chart>,
}

impl Pictures {
    /// Draws the charts of a review that has trials. Titles begin with `whose`; identifiers contain
    /// `index`.
    pub(super) fn of(review: &Review, whose: &str, index: usize) -> Option<Self> {
        review.best.as_ref()?;
        let named = |chart: Chart, id: String| Chart {
            id,
            title: match whose {
                "" => capitalized(&chart.title),
                whose => format!("{whose}: {}", chart.title),
            },
            ..chart
        };
        let surface = |(number, switches)| {
            let chart = surface(review, switches)?;
            Some(named(chart, format!("surface-{index}-{number}")))
        };
        let surfaces = combinations(review).into_iter().enumerate();
        Some(Self {
            surfaces: surfaces.filter_map(surface).collect(),
            trail: named(trail(review), format!("trials-chart-{index}")),
        })
    }
}

/// Draws all charts of all reviews, one below the other, in a format.
///
/// # Errors
/// [`Error::NothingToDraw`] if no review has a trial, or the error of drawing.
pub(super) fn drawn<T>(
    reviews: &[Review],
    format: &'static str,
    draw: impl Fn(&str, &[&Chart]) -> Result<T, PictureError>,
) -> Result<T, Error> {
    let charts = charts(reviews, format)?;
    let charts: Vec<&Chart> = charts.iter().collect();
    let names: Vec<&str> = reviews.iter().map(|review| &*review.source).collect();
    Ok(draw(&format!("Review of {}", names.join(", ")), &charts)?)
}

fn charts(reviews: &[Review], format: &'static str) -> Result<Vec<Chart>, Error> {
    let of_review = |(index, review): (usize, &Review)| {
        let pictures = Pictures::of(review, &review.source, index)?;
        Some([pictures.trail].into_iter().chain(pictures.surfaces))
    };
    let reviews = reviews.iter().enumerate();
    let charts: Vec<Chart> = reviews.filter_map(of_review).flatten().collect();
    match charts.is_empty() {
        true => Err(Error::NothingToDraw { format }),
        false => Ok(charts),
    }
}

/// Role of a measurement or a setting. The least important comes first; later kinds are drawn above
/// earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A trial of the search.
    Sample,
    /// Window of the default that alternates with windows of the candidate.
    AbDefault,
    /// Window of the candidate that alternates with windows of the default.
    AbCandidate,
    /// Setting with a name of its own, such as the expected best.
    Other,
    /// The default setting.
    Default,
    /// The chosen setting.
    Best,
}

impl Kind {
    const ALL: [Kind; 6] = [
        Kind::Sample,
        Kind::AbDefault,
        Kind::AbCandidate,
        Kind::Other,
        Kind::Default,
        Kind::Best,
    ];

    /// Name, shape and colour. Each kind has its own shape, so that nothing depends on colour
    /// alone.
    fn look(self) -> (&'static str, Shape, &'static str) {
        match self {
            Kind::Sample => ("sample", Shape::Circle, "--series-0"),
            Kind::AbDefault => (
                "default, alternating with the candidate",
                Shape::Hollow,
                "--series-1",
            ),
            Kind::AbCandidate => (
                "candidate, alternating with the default",
                Shape::Square,
                "--series-2",
            ),
            Kind::Other => ("other", Shape::Triangle, "--series-3"),
            Kind::Default => ("default", Shape::Diamond, "--series-1"),
            Kind::Best => ("best", Shape::Star, "--series-2"),
        }
    }
}

fn measured(measure: Measure) -> (&'static str, &'static str, Better) {
    match measure {
        Measure::StepMs => ("step time", "ms", Better::Lower),
        Measure::Score => ("score", "bytes/µs", Better::Higher),
    }
}

#[cfg(test)]
mod tests {
    use super::trail::LINE_MOST;
    use super::*;
    use crate::chart::{Data, picture};
    use ronde_lab::review::{Known, review};
    use ronde_tuner::read_log;

    fn reviews(rows: &str) -> Vec<Review> {
        let header = "hierarchical_allreduce,cycle_time_ms,tensor_fusion_threshold,score";
        let log = read_log(&format!("{header}\n{rows}\n")).unwrap();
        review(&log, "a.csv", &Known::default())
    }

    /// Title of a chart, its first tick, and its series: names, and numbers or texts of points.
    fn told(chart: &Chart) -> String {
        let mut told = format!("{}; y from {:?}\n", chart.title, chart.y.ticks.first());
        for series in &chart.series {
            told += &format!("  {}: ", series.name);
            told += &match &series.data {
                Data::Points { points, .. } => {
                    let of =
                        |point: &crate::chart::Point| (point.label.clone(), point.text.clone());
                    format!("{:?}", points.iter().map(of).collect::<Vec<_>>())
                }
                Data::Boxes { boxes } => format!("{} boxes", boxes.len()),
                Data::Line { points, .. } => format!("a line of {} points", points.len()),
                Data::Columns { .. } => "columns".to_owned(),
            };
            told.push('\n');
        }
        told
    }

    #[test]
    fn charts_of_a_review() {
        ronde_cases::check("review_charts.txt", |rows| {
            let reviews = reviews(rows);
            match (
                charts(&reviews, "svg"),
                drawn(&reviews, "svg", picture::svg),
            ) {
                (Ok(charts), Ok(_)) => charts.iter().map(told).collect(),
                (_, Err(error)) | (Err(error), _) => error.to_string(),
            }
        });
    }

    #[test]
    fn many_trials_are_thinned_out() {
        let rows: String = (0..5000)
            .map(|i| format!("0,{},{},{}\n", 1 + i % 90, 1 + i % 60, 100 + i % 17))
            .collect();
        let pictures = Pictures::of(&reviews(&rows)[0], "", 0).unwrap();
        let drawn = pictures
            .trail
            .series
            .iter()
            .map(|series| match &series.data {
                Data::Points { points, .. } => points.len(),
                Data::Line { points, .. } => {
                    assert!(points.len() <= LINE_MOST);
                    assert!(points.iter().all(|[_, mean, low, _]| low <= mean));
                    0
                }
                _ => 0,
            });
        let drawn: usize = drawn.sum();
        assert!((200..3000).contains(&drawn), "{drawn}");
    }
}
