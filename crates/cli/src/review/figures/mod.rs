//! Charts of a review: the trials in order, and the surface fitted to them.

mod surface;
mod trail;

use super::error::Error;
use crate::chart::scale::Better;
use crate::chart::{Chart, Shape, picture};
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
        let surfaces =
            combinations(review)
                .into_iter()
                .enumerate()
                .filter_map(|(number, switches)| {
                    Some(named(
                        surface(review, switches)?,
                        format!("surface-{index}-{number}"),
                    ))
                });
        Some(Self {
            surfaces: surfaces.collect(),
            trail: named(trail(review), format!("trail-{index}")),
        })
    }
}

/// Draws all charts of all reviews, one below the other, as SVG.
///
/// # Errors
/// [`Error::NothingToDraw`] if no review has a trial, or the error of drawing.
pub(super) fn svg(reviews: &[Review]) -> Result<String, Error> {
    let charts = charts(reviews, "svg")?;
    let charts: Vec<&Chart> = charts.iter().collect();
    Ok(picture::svg(&title(reviews), &charts)?)
}

/// Draws all charts of all reviews, one below the other, as PNG.
///
/// # Errors
/// As [`svg`].
pub(super) fn png(reviews: &[Review]) -> Result<Vec<u8>, Error> {
    let charts = charts(reviews, "png")?;
    let charts: Vec<&Chart> = charts.iter().collect();
    Ok(picture::png(&title(reviews), &charts)?)
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

fn title(reviews: &[Review]) -> String {
    let names: Vec<&str> = reviews
        .iter()
        .map(|review| review.source.as_str())
        .collect();
    format!("Review of {}", names.join(", "))
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
    use super::surface::GRID;
    use super::trail::LINE_MOST;
    use super::*;
    use crate::chart::{Data, Series};
    use ronde_lab::review::{Known, review};
    use ronde_tuner::read_log;

    fn reviews(text: &str) -> Vec<Review> {
        review(&read_log(text).unwrap(), "a.csv", &Known::default())
    }

    fn points(series: &Series) -> &[crate::chart::Point] {
        match &series.data {
            Data::Points { points, .. } => points,
            _ => &[],
        }
    }

    /// Number of points in a chart.
    fn drawn(chart: &Chart) -> usize {
        chart.series.iter().map(|series| points(series).len()).sum()
    }

    fn named<'a>(chart: &'a Chart, name: &str) -> &'a Series {
        let mut series = chart.series.iter();
        series.find(|series| series.name.starts_with(name)).unwrap()
    }

    const HEADER: &str = "hierarchical_allreduce,cycle_time_ms,tensor_fusion_threshold,score\n";

    #[test]
    fn a_surface_for_each_combination_and_the_default_where_it_would_be() {
        let reviews = reviews(&format!(
            "{HEADER}0,5,0,100\n0,50,32,120\n1,5,4,150\n0,20,10,110\n"
        ));
        let pictures = Pictures::of(&reviews[0], "", 0).unwrap();
        assert_eq!((drawn(&pictures.trail), pictures.surfaces.len()), (4, 2));
        // The choice's combination comes first, although the other was tried more often.
        let [first, second] = &pictures.surfaces[..] else {
            panic!()
        };
        assert_eq!(pictures.trail.title, "Score of each trial");
        assert!(
            first.title.ends_with("hierarchical allreduce on")
                && second.title.ends_with("hierarchical allreduce off")
        );
        // Threshold 0 has a row of its own, below the grid.
        let Data::Boxes { boxes } = &first.series[0].data else {
            panic!()
        };
        assert_eq!(boxes.len(), GRID * (GRID + 1));
        assert_eq!(first.y.ticks[0], (0.0, "0".to_owned()));
        let default = named(second, "default");
        assert_eq!(
            points(default)[0].text,
            "default: 128 MiB, 1 ms (never tried)"
        );
        let best = named(first, "best");
        assert_eq!(points(best)[0].label, "150");
        let picture = svg(&reviews).unwrap();
        assert!(
            picture.contains("Review of a.csv") && picture.matches("fusion threshold").count() >= 2
        );
    }

    #[test]
    fn many_trials_are_thinned_out() {
        let rows: String = (0..5000)
            .map(|i| format!("0,{},{},{}\n", 1 + i % 90, 1 + i % 60, 100 + i % 17))
            .collect();
        let reviews = reviews(&format!("{HEADER}{rows}"));
        let pictures = Pictures::of(&reviews[0], "", 0).unwrap();
        let Data::Line { points: line, .. } = &pictures.trail.series[0].data else {
            panic!()
        };
        assert!(line.len() <= LINE_MOST && line.iter().all(|[_, mean, low, _]| low <= mean));
        let drawn = drawn(&pictures.trail);
        assert!((200..3000).contains(&drawn), "{drawn}");
    }

    #[test]
    fn without_trials_there_is_no_picture() {
        let reviews = reviews(HEADER);
        assert!(Pictures::of(&reviews[0], "", 0).is_none());
        assert_eq!(
            svg(&reviews).unwrap_err().to_string(),
            "--svg: there is nothing to draw: no log has a trial"
        );
    }
}
