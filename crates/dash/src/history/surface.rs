//! Model of the step time with the colours of a heat map.

use ronde_charts::scale::{Better, Shades, colour};
use serde::Serialize;

use super::steps::rounded;
use crate::{Measure, Measured, Place, Surface};

/// Most levels of an axis.
const LEVELS_MAX: usize = 64;
/// Largest number of tried settings; further ones are left out.
const TRIED_MAX: usize = 512;

/// Heat map.
#[derive(Debug, Serialize)]
pub(super) struct View {
    /// Levels of the fusion threshold, MiB, and of the cycle time, ms, ascending.
    fusion_mb: Vec<f64>,
    cycle_ms: Vec<f64>,
    /// Whether the values come from a model; otherwise they are measured.
    is_model: bool,
    /// Value and colour of each cell; for each cycle time, one for each threshold.
    cells: Vec<Option<(f64, String)>>,
    /// Legend: colours with their labels.
    key: Vec<(String, String)>,
    default: Option<Place>,
    incumbent: Option<Place>,
    next: Option<Place>,
    tried: Vec<Measured>,
}

impl View {
    pub(super) fn new(mut surface: Surface, measure: Measure) -> Self {
        surface.tried.truncate(TRIED_MAX);
        let is_valid = |levels: &[f64]| (1..=LEVELS_MAX).contains(&levels.len());
        let is_model = is_valid(&surface.fusion_mb)
            && is_valid(&surface.cycle_ms)
            && surface.predicted.len() == surface.fusion_mb.len() * surface.cycle_ms.len();
        if !is_model {
            (surface.fusion_mb, surface.cycle_ms) = grid(&surface);
        }
        let values: Vec<f64> = match is_model {
            true => surface.predicted,
            false => measured(&surface),
        };
        let better = match measure {
            Measure::StepMs => Better::Lower,
            Measure::Score => Better::Higher,
        };
        let shades = Shades::new(values.iter().copied(), better, 0.0);
        let cell = |value: &f64| {
            let shade = || (rounded(*value), colour(shades.at(*value)));
            value.is_finite().then(shade)
        };
        let key = shades.key(String::new()).ticks.into_iter();
        Self {
            is_model,
            cells: values.iter().map(cell).collect(),
            key: key.map(|(at, label)| (colour(at), label)).collect(),
            fusion_mb: surface.fusion_mb,
            cycle_ms: surface.cycle_ms,
            default: surface.default,
            incumbent: surface.incumbent,
            next: surface.next,
            tried: surface.tried,
        }
    }
}

/// Levels of the settings that were tried, or are marked.
fn grid(surface: &Surface) -> (Vec<f64>, Vec<f64>) {
    let marked = [surface.default, surface.incumbent, surface.next];
    let tried = surface.tried.iter().map(|tried| tried.place);
    let places: Vec<Place> = tried.chain(marked.into_iter().flatten()).collect();
    let levels = |of: fn(&Place) -> f64| {
        let mut levels: Vec<f64> = places.iter().map(of).filter(|v| v.is_finite()).collect();
        levels.sort_by(f64::total_cmp);
        levels.dedup();
        levels.truncate(LEVELS_MAX);
        levels
    };
    (
        levels(|place| place.fusion_mb),
        levels(|place| place.cycle_ms),
    )
}

/// Measured values of the cells; NaN where nothing was measured.
fn measured(surface: &Surface) -> Vec<f64> {
    let mut values = vec![f64::NAN; surface.fusion_mb.len() * surface.cycle_ms.len()];
    for tried in &surface.tried {
        let index = |levels: &[f64], wanted: f64| levels.iter().position(|level| *level == wanted);
        let x = index(&surface.fusion_mb, tried.place.fusion_mb);
        let y = index(&surface.cycle_ms, tried.place.cycle_ms);
        if let (Some(x), Some(y)) = (x, y) {
            values[y * surface.fusion_mb.len() + x] = tried.value;
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(fusion_mb: f64, cycle_ms: f64, value: f64) -> Measured {
        Measured {
            place: Place {
                fusion_mb,
                cycle_ms,
            },
            value,
            ci95: None,
            measurements: 2,
        }
    }

    #[test]
    fn the_best_cell_is_bright_and_unknown_ones_are_empty() {
        let surface = Surface {
            tried: vec![
                tried(64.0, 1.0, 50.0),
                tried(8.0, 5.0, 40.0),
                tried(64.0, 5.0, 80.0),
            ],
            ..Surface::default()
        };
        let view = View::new(surface.clone(), Measure::StepMs);
        assert_eq!(
            (&view.fusion_mb[..], &view.cycle_ms[..]),
            (&[8.0, 64.0][..], &[1.0, 5.0][..])
        );
        let colours: Vec<Option<&str>> = view
            .cells
            .iter()
            .map(|cell| cell.as_ref().map(|(_, colour)| colour.as_str()))
            .collect();
        assert_eq!(colours[0], None);
        assert_eq!((colours[2], colours[3]), (Some("#fee825"), Some("#440154")));
        assert_eq!(view.key[0], ("#fee825".to_owned(), "best".to_owned()));
        let scores = View::new(surface, Measure::Score);
        assert_eq!(scores.cells[3], Some((80.0, "#fee825".to_owned())));
    }

    #[test]
    fn a_model_that_does_not_fit_its_axes_is_left_out() {
        let surface = Surface {
            fusion_mb: vec![1.0, 2.0],
            cycle_ms: vec![1.0],
            predicted: vec![9.0, 8.0],
            ..Surface::default()
        };
        assert!(View::new(surface.clone(), Measure::StepMs).is_model);
        let wrong = Surface {
            predicted: vec![9.0],
            ..surface
        };
        let view = View::new(wrong, Measure::StepMs);
        assert!(!view.is_model && view.cells.is_empty());
    }
}
