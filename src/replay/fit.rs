//! From traces to a workload and costs.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::linear::{self, Linear, Prior};
use super::{Copying, Costs, Negotiation, Place, Rules, Setting, Simulator, Trace, WorkTensor, Workload};

/// What is believed of a message before one was seen: tens of µs, GB/s; a factor of e² either way.
const COLLECTIVE: Prior = Prior {
    median: [50.0, 2e-4],
    sd: [2.0, 2.0],
};
const NEGOTIATION: Prior = Prior {
    median: [50.0, 0.2],
    sd: [2.0, 1.5],
};
const COPYING: Prior = Prior {
    median: [1.0, 1e-4],
    sd: [1.5, 1.5],
};
/// Of a hierarchical collective, how far the guess from the flat one may be off, in ln.
pub(super) const GUESS_SD: f64 = 0.7;
/// Large buffers: what is tried for the slow-down of copies, and where it sets in, bytes.
pub(super) const SLOWDOWNS: [f64; 4] = [0.0, 0.5, 1.0, 1.5];
pub(super) const KNEES: [f64; 3] = [6e6, 12e6, 24e6];
/// Copies overlap collectives if cycles are shorter than their parts by this much in the median.
const OVERLAP: f64 = 0.95;
/// An uncached negotiation is a message to rank 0 and one back, and work for each tensor.
const UNCACHED_BASE: f64 = 2.0;
const UNCACHED_TENSOR_US: f64 = 3.0;

/// A job's workload and costs, and how sure they are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fit {
    /// What a step consists of.
    pub workload: Workload,
    /// The likeliest costs.
    pub costs: Costs,
    /// How sure they are.
    pub spread: Spread,
    /// How cycles come about.
    pub rules: Rules,
    /// Where the ranks are.
    pub place: Place,
    /// The setting of the first trace, its median step, and what the simulator makes of it, µs.
    pub reference: Setting,
    /// See `reference`.
    pub measured_us: f64,
    /// See `reference`.
    pub modelled_us: f64,
}

/// Costs with their covariance.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Spread {
    /// By class of tensors: α and β of a flat collective.
    pub flat: Vec<Linear>,
    /// Likewise of a hierarchical one, where one was seen.
    pub hierarchical: Vec<Option<Linear>>,
    /// Base and per tensor, through the cache.
    pub cached: Linear,
    /// Likewise through rank 0; none was seen if `None`.
    pub uncached: Option<Linear>,
    /// Per tensor and per byte, one for each shape that was tried; empty if no copy was seen.
    pub copying: Vec<(Copying, Linear)>,
    /// Whether copies overlap collectives, where that could be told.
    pub overlaps: Option<bool>,
}

/// Fits `traces`, the first of which is of the reference setting. None without a step or a tensor in it.
pub fn fit(traces: &[Trace], rules: Rules, place: Place) -> Option<Fit> {
    let reference = traces.first()?;
    let workload = workload(reference)?;
    let mut lengths: Vec<f64> = reference.steps.iter().map(|step| step.step_us).collect();
    let measured_us = middle(&mut lengths)?;
    let classes = traces
        .iter()
        .flat_map(batches)
        .map(|(_, class, ..)| class as usize + 1)
        .max()
        .unwrap_or(1);

    let mut spread = Spread::default();
    for class in 0..classes {
        spread
            .flat
            .push(collective(traces, class, false, &COLLECTIVE).unwrap_or_else(|| Linear::of(&COLLECTIVE)));
    }
    for class in 0..classes {
        let [alpha_us, us_per_byte] = spread.flat[class].parts();
        let guess = place.hierarchical(
            super::Collective {
                alpha_us,
                us_per_byte,
            },
            false,
        );
        let prior = Prior {
            median: [guess.alpha_us, guess.us_per_byte],
            sd: [GUESS_SD; 2],
        };
        spread.hierarchical.push(collective(traces, class, true, &prior));
    }
    spread.cached = negotiation(traces, true, &NEGOTIATION).unwrap_or_else(|| Linear::of(&NEGOTIATION));
    spread.uncached = negotiation(traces, false, &uncached_prior(&spread.cached));
    spread.copying = copying(traces);
    spread.overlaps = overlaps(traces);

    let costs = likeliest(&spread, &place);
    let modelled_us = Simulator::new(&workload, rules).step_us(&costs, &reference.setting);
    Some(Fit {
        workload,
        costs,
        spread,
        rules,
        place,
        reference: reference.setting,
        measured_us,
        modelled_us,
    })
}

pub(super) fn likeliest(spread: &Spread, place: &Place) -> Costs {
    let of = |linear: &Linear| {
        let [alpha_us, us_per_byte] = linear.parts();
        super::Collective {
            alpha_us,
            us_per_byte,
        }
    };
    let negotiation = |linear: &Linear| {
        let [base_us, per_tensor_us] = linear.parts();
        Negotiation {
            base_us,
            per_tensor_us,
        }
    };
    let flat: Vec<_> = spread.flat.iter().map(of).collect();
    let seen = spread.hierarchical.iter().zip(&flat);
    let hierarchical = seen
        .map(|(seen, &flat)| seen.as_ref().map_or_else(|| place.hierarchical(flat, false), of))
        .collect();
    let cached = negotiation(&spread.cached);
    let uncached = spread
        .uncached
        .as_ref()
        .map_or_else(|| uncached_guess(cached), negotiation);
    let best = spread.copying.iter().min_by(|a, b| a.1.loss.total_cmp(&b.1.loss));
    let copying = best.map_or_else(Copying::default, |&(shape, _)| Copying {
        overlaps: spread.overlaps.unwrap_or(false),
        ..shape
    });
    Costs {
        cached,
        uncached,
        flat,
        hierarchical,
        copying,
        polling: 0.0,
        contention: 0.0,
    }
}

/// What an uncached negotiation costs where none was seen.
pub(super) fn uncached_guess(cached: Negotiation) -> Negotiation {
    Negotiation {
        base_us: UNCACHED_BASE * cached.base_us,
        per_tensor_us: UNCACHED_TENSOR_US,
    }
}

fn uncached_prior(cached: &Linear) -> Prior {
    Prior {
        median: [UNCACHED_BASE * cached.parts()[0], UNCACHED_TENSOR_US],
        sd: [GUESS_SD; 2],
    }
}

/// When tensors are ready in a step of the trace, and how long it goes on after the last result: medians.
fn workload(trace: &Trace) -> Option<Workload> {
    #[derive(Default)]
    struct Seen {
        pending: Vec<f64>,
        ready: Vec<f64>,
    }
    let mut seen: HashMap<u64, (crate::fusion::Item, Seen)> = HashMap::new();
    let mut tails = Vec::new();
    for step in &trace.steps {
        for tensor in &step.tensors {
            let (_, times) = seen
                .entry(tensor.key)
                .or_insert_with(|| (tensor.item, Seen::default()));
            times.pending.push(tensor.pending_us.min(tensor.ready_us));
            times.ready.push(tensor.ready_us);
        }
        let last_ready = step
            .tensors
            .iter()
            .map(|tensor| tensor.ready_us)
            .fold(0.0, f64::max);
        let ended = step
            .cycles
            .iter()
            .map(|cycle| cycle.began_us + cycle.negotiate_us + cycle.moving_us);
        tails.push((step.step_us - ended.fold(last_ready, f64::max)).max(0.0));
    }
    // What came in less than half of the steps is not part of it.
    let often = trace.steps.len().div_ceil(2);
    let mut tensors: Vec<(u64, WorkTensor)> = Vec::with_capacity(seen.len());
    for (key, (item, mut times)) in seen {
        if times.ready.len() >= often {
            let (pending_us, ready_us) = (middle(&mut times.pending)?, middle(&mut times.ready)?);
            let finite = pending_us.is_finite() && ready_us.is_finite();
            let tensor = WorkTensor {
                item,
                pending_us: pending_us.max(0.0),
                ready_us: ready_us.max(0.0),
            };
            finite.then(|| tensors.push((key, tensor)))?;
        }
    }
    tensors.sort_by(|a, b| a.1.ready_us.total_cmp(&b.1.ready_us).then(a.0.cmp(&b.0)));
    let tensors: Vec<WorkTensor> = tensors.into_iter().map(|(_, tensor)| tensor).collect();
    (!tensors.is_empty()).then_some(Workload {
        tensors,
        tail_us: middle(&mut tails)?,
    })
}

/// Every batch with its setting's hierarchy: hierarchical, class, bytes, tensors, collective, copies.
fn batches(trace: &Trace) -> impl Iterator<Item = (bool, u32, f64, f64, f64, f64)> {
    let hierarchical = trace.setting.hierarchical;
    let batches = trace
        .steps
        .iter()
        .flat_map(|step| &step.cycles)
        .flat_map(|cycle| &cycle.batches);
    batches.map(move |b| {
        (
            hierarchical,
            b.class,
            b.bytes as f64,
            f64::from(b.tensors),
            b.collective_us,
            b.copy_us,
        )
    })
}

fn collective(traces: &[Trace], class: usize, hierarchical: bool, prior: &Prior) -> Option<Linear> {
    let of_class = traces
        .iter()
        .flat_map(batches)
        .filter(|b| (b.0, b.1 as usize) == (hierarchical, class));
    let points = linear::gather(
        of_class
            .map(|(_, _, bytes, _, us, _)| ([1.0, bytes], us))
            .collect(),
    );
    (!points.is_empty()).then(|| linear::fit(&points, prior))
}

fn negotiation(traces: &[Trace], cached: bool, prior: &Prior) -> Option<Linear> {
    let cycles = traces
        .iter()
        .flat_map(|trace| &trace.steps)
        .flat_map(|step| &step.cycles);
    let of_kind = cycles.filter(|cycle| {
        if cached {
            cycle.cached == cycle.tensors
        } else {
            cycle.cached == 0
        }
    });
    let seen = of_kind.map(|cycle| ([1.0, f64::from(cycle.tensors)], cycle.negotiate_us));
    let points = linear::gather(seen.collect());
    (!points.is_empty()).then(|| linear::fit(&points, prior))
}

/// Both ways together are what was seen.
fn copying(traces: &[Trace]) -> Vec<(Copying, Linear)> {
    let copied = || traces.iter().flat_map(batches).filter(|b| b.5 > 0.0);
    if copied().next().is_none() {
        return Vec::new();
    }
    let flat = Copying {
        knee_bytes: KNEES[0],
        ..Copying::default()
    };
    let bent = SLOWDOWNS[1..].iter().flat_map(|&slowdown| {
        KNEES.map(|knee_bytes| Copying {
            slowdown,
            knee_bytes,
            ..flat
        })
    });
    let shapes = std::iter::once(flat).chain(bent);
    let fits = shapes.map(|shape| {
        let of_bytes = Copying {
            us_per_byte: 1.0,
            ..shape
        };
        let seen = copied()
            .map(|(_, _, bytes, tensors, _, us)| ([2.0 * tensors, 2.0 * of_bytes.way_us(0, bytes)], us));
        let fitted = linear::fit(&linear::gather(seen.collect()), &COPYING);
        let [per_tensor_us, us_per_byte] = fitted.parts();
        (
            Copying {
                per_tensor_us,
                us_per_byte,
                ..shape
            },
            fitted,
        )
    });
    fits.collect()
}

/// Whether cycles of several copied batches are shorter than their parts.
fn overlaps(traces: &[Trace]) -> Option<bool> {
    let cycles = traces
        .iter()
        .flat_map(|trace| &trace.steps)
        .flat_map(|step| &step.cycles);
    let several =
        cycles.filter(|cycle| cycle.batches.iter().filter(|batch| batch.copy_us > 0.0).count() >= 2);
    let mut shares: Vec<f64> = several
        .map(|cycle| {
            let parts: f64 = cycle
                .batches
                .iter()
                .map(|batch| batch.collective_us + batch.copy_us)
                .sum();
            cycle.moving_us / parts
        })
        .collect();
    middle(&mut shares).map(|share| share < OVERLAP)
}

/// The median, the upper of two.
fn middle(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::super::{Collective, TracedBatch, TracedCycle, TracedStep, TracedTensor};
    use super::*;
    use crate::fusion::Item;

    fn setting(hierarchical: bool) -> Setting {
        Setting {
            fusion_threshold_bytes: 1 << 26,
            cycle_us: 1_000.0,
            hierarchical,
            cache: true,
        }
    }

    /// A step of cycles with one batch each, of these tensors of 1 MB, 10 ms apart; `batch_us` for the bytes.
    fn step(cycles: &[u32], batch_us: impl Fn(f64) -> f64, copy_us: impl Fn(f64, f64) -> f64) -> TracedStep {
        let mut step = TracedStep::default();
        for (index, &tensors) in cycles.iter().enumerate() {
            let began_us = 10_000.0 * (index + 1) as f64;
            let bytes = 1e6 * f64::from(tensors);
            let (collective_us, copy_us) = (batch_us(bytes), copy_us(bytes, f64::from(tensors)));
            step.tensors.extend((0..tensors).map(|tensor| TracedTensor {
                key: 100 * index as u64 + u64::from(tensor),
                item: Item {
                    class: 0,
                    bytes: 1_000_000,
                    group: None,
                },
                pending_us: began_us - 200.0,
                ready_us: began_us - 100.0,
            }));
            let batch = TracedBatch {
                class: 0,
                bytes: bytes as u64,
                tensors,
                collective_us,
                copy_us,
            };
            step.cycles.push(TracedCycle {
                began_us,
                negotiate_us: 20.0 + 5.0 * f64::from(tensors),
                tensors,
                cached: tensors,
                moving_us: collective_us + copy_us,
                batches: vec![batch],
            });
        }
        let last = &step.cycles[cycles.len() - 1];
        step.step_us = last.began_us + last.negotiate_us + last.moving_us + 300.0;
        step
    }

    fn trace(hierarchical: bool, batch_us: impl Fn(f64) -> f64 + Copy) -> Trace {
        let one = step(&[1, 4, 30], batch_us, |_, _| 0.0);
        Trace {
            setting: setting(hierarchical),
            steps: vec![one; 5],
        }
    }

    #[test]
    fn what_was_put_in_comes_out() {
        let place = Place::new(16, 4);
        let flat = trace(false, |bytes| 100.0 + 1e-3 * bytes);
        let fitted = fit(std::slice::from_ref(&flat), Rules::RONDE, place).unwrap();
        let Collective {
            alpha_us,
            us_per_byte,
        } = fitted.costs.flat[0];
        assert!((us_per_byte / 1e-3 - 1.0).abs() < 0.02, "{us_per_byte}");
        assert!((alpha_us / 100.0 - 1.0).abs() < 0.2, "{alpha_us}");
        let Negotiation {
            base_us,
            per_tensor_us,
        } = fitted.costs.cached;
        assert!((base_us / 20.0 - 1.0).abs() < 0.1 && (per_tensor_us / 5.0 - 1.0).abs() < 0.1);
        assert_eq!(fitted.workload.tensors.len(), 35);
        assert!((fitted.workload.tail_us - 300.0).abs() < 1e-6);
        assert_eq!(fitted.workload.tensors[0].ready_us, 9_900.0);
        // Cycles sleep until something is pending: 100 µs sooner than in the trace, and so is all that follows.
        assert!(
            (fitted.modelled_us - fitted.measured_us + 100.0).abs() < 60.0,
            "{fitted:?}"
        );

        // Hierarchical: guessed, until it was seen.
        let guess = place.hierarchical(fitted.costs.flat[0], false);
        assert_eq!(fitted.costs.hierarchical[0], guess);
        let seen = trace(true, |bytes| 50.0 + 2e-4 * bytes);
        let both = fit(&[flat, seen], Rules::RONDE, place).unwrap();
        assert!((both.costs.hierarchical[0].us_per_byte / 2e-4 - 1.0).abs() < 0.05);
        assert_eq!(both.costs.flat[0], fitted.costs.flat[0]);
    }

    #[test]
    fn copies_of_large_buffers_that_fall_out_of_the_cache_are_told_from_others() {
        let truth = Copying {
            per_tensor_us: 3.0,
            us_per_byte: 1e-4,
            slowdown: 1.0,
            knee_bytes: 6e6,
            overlaps: false,
        };
        let sizes: Vec<u32> = (1..=40).collect();
        let copy = |bytes, tensors: f64| {
            if tensors > 1.0 {
                2.0 * truth.way_us(tensors as usize, bytes)
            } else {
                0.0
            }
        };
        let one = step(&sizes, |bytes| 100.0 + 1e-3 * bytes, copy);
        let trace = Trace {
            setting: setting(false),
            steps: vec![one; 3],
        };
        let fitted = fit(&[trace], Rules::RONDE, Place::one_host(2)).unwrap();
        let Copying {
            slowdown,
            knee_bytes,
            us_per_byte,
            ..
        } = fitted.costs.copying;
        assert_eq!((slowdown, knee_bytes), (1.0, 6e6));
        assert!((us_per_byte / 1e-4 - 1.0).abs() < 0.05, "{us_per_byte}");
    }

    #[test]
    fn nothing_seen_is_no_fit_and_a_strange_tensor_is_no_part_of_the_step() {
        assert!(fit(&[], Rules::RONDE, Place::one_host(2)).is_none());
        let empty = Trace {
            setting: setting(false),
            steps: Vec::new(),
        };
        assert!(fit(&[empty], Rules::RONDE, Place::one_host(2)).is_none());
        let mut trace = trace(false, |bytes| bytes * 1e-3);
        trace.steps[0].tensors[0].key = 7_777;
        let fitted = fit(&[trace], Rules::RONDE, Place::one_host(2)).unwrap();
        assert_eq!(fitted.workload.tensors.len(), 35);
    }
}
