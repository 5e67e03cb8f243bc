//! The pictures of a review: its trials one after the other, and the surface behind them.

mod surface;
mod trail;

use super::error::Error;
use crate::figure::{self, Better, Figure, Stack, Surface, Trail};
use crate::timeline::text::capitalized;
use ronde_lab::review::{Measure, Review};

use surface::{combinations, surface};
use trail::trail;

/// The default of Horovod's and Ronde's knobs, MiB and ms.
const DEFAULT: (f64, f64) = (128.0, 1.0);

/// The pictures of one review.
pub(super) struct Pictures {
    /// Its trials.
    pub(super) trail: Trail,
    /// Its surfaces, each with what it is of: the choice's first.
    pub(super) surfaces: Vec<Surface>,
}

impl Pictures {
    /// Of a review with trials; their titles begin with `whose`.
    pub(super) fn of(review: &Review, whose: &str) -> Option<Self> {
        review.best.as_ref()?;
        let titled = |title: String| match whose {
            "" => capitalized(&title),
            whose => format!("{whose}: {title}"),
        };
        let surfaces = combinations(review).into_iter().filter_map(|switches| {
            let surface = surface(review, switches)?;
            Some(Surface {
                title: titled(surface.title),
                ..surface
            })
        });
        let trail = trail(review);
        Some(Self {
            surfaces: surfaces.collect(),
            trail: Trail {
                title: titled(trail.title),
                ..trail
            },
        })
    }

    fn all(&self) -> impl Iterator<Item = &dyn Figure> {
        let surfaces = self.surfaces.iter().map(|surface| surface as &dyn Figure);
        std::iter::once(&self.trail as &dyn Figure).chain(surfaces)
    }
}

/// All pictures of all reviews, one below the other, as SVG.
///
/// # Errors
/// [`Error::NothingToDraw`], or what drawing says.
pub(super) fn svg(reviews: &[Review]) -> Result<String, Error> {
    let pictures = pictures(reviews, "svg")?;
    Ok(figure::svg(&stack(reviews, &pictures))?)
}

/// The same as PNG.
///
/// # Errors
/// As [`svg`].
pub(super) fn png(reviews: &[Review]) -> Result<Vec<u8>, Error> {
    let pictures = pictures(reviews, "png")?;
    Ok(figure::png(&stack(reviews, &pictures))?)
}

fn pictures(reviews: &[Review], format: &'static str) -> Result<Vec<Pictures>, Error> {
    let pictures: Vec<Pictures> = reviews
        .iter()
        .filter_map(|review| Pictures::of(review, &review.source))
        .collect();
    if pictures.is_empty() {
        return Err(Error::NothingToDraw { format });
    }
    Ok(pictures)
}

fn stack<'a>(reviews: &[Review], pictures: &'a [Pictures]) -> Stack<'a> {
    let names: Vec<&str> = reviews.iter().map(|review| review.source.as_str()).collect();
    Stack {
        title: format!("Review of {}", names.join(", ")),
        figures: pictures.iter().flat_map(Pictures::all).collect(),
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
    use crate::figure::Kind;
    use ronde_lab::review::{Known, review};
    use ronde_tuner::read_log;

    fn reviews(text: &str) -> Vec<Review> {
        review(&read_log(text).unwrap(), "a.csv", &Known::default())
    }

    const HEADER: &str = "hierarchical_allreduce,cycle_time_ms,tensor_fusion_threshold,score\n";

    #[test]
    fn a_surface_for_each_combination_and_the_default_where_it_would_be() {
        let reviews = reviews(&format!(
            "{HEADER}0,5,0,100\n0,50,32,120\n1,5,4,150\n0,20,10,110\n"
        ));
        let pictures = Pictures::of(&reviews[0], "").unwrap();
        assert_eq!((pictures.trail.points.len(), pictures.surfaces.len()), (4, 2));
        // The choice's combination comes first, though the other was tried more often.
        let [first, second] = &pictures.surfaces[..] else {
            panic!()
        };
        assert_eq!(pictures.trail.title, "Score of each trial");
        assert!(
            first.title.ends_with("hierarchical allreduce on")
                && second.title.ends_with("hierarchical allreduce off")
        );
        assert_eq!(
            (first.y.values[0], first.x.values.len(), first.y.values.len()),
            (0.0, GRID, GRID + 1)
        );
        assert_eq!(first.mean.len(), GRID * (GRID + 1));
        let default = second
            .samples
            .iter()
            .find(|sample| sample.kind == Kind::Default)
            .unwrap();
        assert_eq!((default.y, default.x), DEFAULT);
        assert!(
            first
                .samples
                .iter()
                .any(|sample| sample.kind == Kind::Best && sample.text == "150")
        );
        let picture = svg(&reviews).unwrap();
        assert!(picture.contains("Review of a.csv") && picture.matches("fusion threshold").count() >= 2);
    }

    #[test]
    fn of_many_trials_a_line_through_some() {
        let rows: String = (0..5000)
            .map(|i| format!("0,{},{},{}\n", 1 + i % 90, 1 + i % 60, 100 + i % 17))
            .collect();
        let reviews = reviews(&format!("{HEADER}{rows}"));
        let pictures = Pictures::of(&reviews[0], "").unwrap();
        let line = pictures.trail.line.unwrap();
        assert!(line.points.len() <= LINE_MOST && line.points.iter().all(|place| place.low <= place.mean));
        assert_eq!(pictures.trail.points.len(), 5000);
    }

    #[test]
    fn without_trials_there_is_no_picture() {
        let reviews = reviews(HEADER);
        assert!(Pictures::of(&reviews[0], "").is_none());
        assert_eq!(
            svg(&reviews).unwrap_err().to_string(),
            "--svg: there is nothing to draw: no log has a trial"
        );
    }
}
