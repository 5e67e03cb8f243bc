//! The tuner's news as events.

use ronde_dash as dash;
use ronde_dash::{Event, Log, LogKind, Measured, Verdict};

use crate::autotune::{AutotuneReport, AutotuneVerdict, News, Place, Purpose};

/// The search as the page shows it.
#[derive(Default)]
pub(super) struct TunerView {
    surface: dash::Surface,
    is_new: bool,
    progress: Option<dash::Tuner>,
    cost: Option<f64>,
}

impl TunerView {
    /// Takes `news`, which came after `step` steps; returns the event to publish now, if any.
    pub(super) fn news(&mut self, step: u64, news: News) -> Option<Event> {
        let log = |kind, text| {
            Some(Event::Log(Log {
                step: Some(step),
                kind,
                text,
                at_unix_ms: None,
            }))
        };
        match news {
            News::Search { default } => {
                self.surface = dash::Surface {
                    default: Some(place(&default)),
                    ..dash::Surface::default()
                };
                (self.is_new, self.cost) = (true, None);
                None
            }
            News::Measured {
                place: measured,
                step_ms,
                ci95_ms,
                best,
                cost,
            } => {
                add(&mut self.surface.tried, place(&measured), step_ms, ci95_ms);
                self.surface.incumbent = best.as_ref().map(place);
                (self.is_new, self.cost) = (true, Some(cost));
                None
            }
            News::Proposed {
                surface,
                incumbent,
                next,
            } => {
                if !surface.predicted_ms.is_empty() {
                    self.surface.fusion_mb = surface.fusion_mb;
                    self.surface.cycle_ms = surface.cycle_ms;
                    self.surface.predicted = surface.predicted_ms;
                }
                self.surface.incumbent = Some(place(&incumbent));
                self.surface.next = next.as_ref().map(place);
                self.is_new = true;
                None
            }
            News::Verdict(verdict) => {
                self.surface.next = None;
                (self.is_new, self.cost) = (true, Some(verdict.steps_lost));
                Some(Event::Verdict(of_verdict(step, &verdict)))
            }
            News::Recheck(recheck) => {
                let (default_ms, chosen_ms) = (recheck.default_ms, recheck.chosen_ms);
                let outcome = match recheck.is_confirmed {
                    true => "the chosen settings stay",
                    false => "the default is in force again",
                };
                Some(Event::Recheck(dash::Recheck {
                    step,
                    default_ms: Some(default_ms),
                    chosen_ms: Some(chosen_ms),
                    gain_pct: None,
                    is_confirmed: recheck.is_confirmed,
                    text: format!(
                        "compared again: {chosen_ms:.2} ms instead of {default_ms:.2} ms at the \
                         default; {outcome}"
                    ),
                }))
            }
            News::Drift(text) => log(LogKind::Drift, text),
            News::Note(text) => log(LogKind::Tuner, text),
            News::Warning(text) => log(LogKind::Warning, text),
        }
    }

    /// The surface, if it has changed since the last call.
    pub(super) fn changed_surface(&mut self) -> Option<Event> {
        let is_new = std::mem::take(&mut self.is_new);
        is_new.then(|| Event::Surface(self.surface.clone()))
    }

    /// The progress, if it has changed since the last call.
    pub(super) fn changed_progress(
        &mut self,
        report: &AutotuneReport,
        is_stopped: bool,
    ) -> Option<Event> {
        let is_over = is_stopped || report.verdict.is_some();
        let settings = report.settings;
        let detail = match report.phase.to_string().as_str() {
            "sample" => format!("sample {} at fusion {settings}", report.sample),
            "ab" => format!("round {}, now at fusion {settings}", report.sample + 1),
            _ => format!("fusion {settings}"),
        };
        let phase = match report.phase.to_string().as_str() {
            _ if is_stopped => "stopped",
            "default" => "the default is measured",
            "sample" => "search",
            "ab" => "comparison with the default",
            _ => "decided",
        };
        let tuner = dash::Tuner {
            phase: phase.to_owned(),
            detail,
            steps_left: (!is_over).then_some(u64::from(report.steps_left)),
            steps_lost: self.cost,
            is_over,
        };
        if self.progress.as_ref() == Some(&tuner) {
            return None;
        }
        self.progress = Some(tuner.clone());
        Some(Event::Tuner(tuner))
    }
}

/// Reason of a change of settings in a job that is tuned. `purpose`: purpose of the steps under
/// them.
pub(super) fn reason(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Default => "tuner: the default",
        Purpose::Sample => "tuner: sample",
        Purpose::AbDefault => "tuner: comparison, default",
        Purpose::AbCandidate => "tuner: comparison, candidate",
        Purpose::None => "tuner: verdict",
    }
}

pub(super) fn window(purpose: Purpose) -> dash::Window {
    match purpose {
        Purpose::None => dash::Window::None,
        Purpose::Default => dash::Window::Default,
        Purpose::Sample => dash::Window::Search,
        Purpose::AbDefault => dash::Window::AbDefault,
        Purpose::AbCandidate => dash::Window::AbCandidate,
    }
}

fn place(place: &Place) -> dash::Place {
    dash::Place {
        fusion_mb: place.fusion_mb,
        cycle_ms: place.cycle_ms,
    }
}

/// Adds a measurement to those of its place: the mean, weighted by the precision of each.
fn add(tried: &mut Vec<Measured>, place: dash::Place, value: f64, ci95: f64) {
    let known = tried.iter_mut().find(|measured| measured.place == place);
    let Some(known) = known else {
        tried.push(Measured {
            place,
            value,
            ci95: Some(ci95).filter(|ci95| ci95.is_finite()),
            measurements: 1,
        });
        return;
    };
    let weight = |ci95: f64| ci95.max(1e-9).powi(-2);
    let (before, new) = (known.ci95.map_or(0.0, weight), weight(ci95));
    if new > 0.0 {
        known.value = (before * known.value + new * value) / (before + new);
        known.ci95 = Some((before + new).powf(-0.5));
    }
    known.measurements += 1;
}

fn of_verdict(step: u64, verdict: &AutotuneVerdict) -> Verdict {
    Verdict {
        step,
        kept_default: verdict.kept_default,
        reverted: verdict.reverted,
        settings: verdict.settings,
        default_value: Some(verdict.default_step_ms),
        chosen_value: Some(verdict.chosen_step_ms),
        gain_pct: verdict.gain_is_known().then_some(verdict.gain_pct),
        steps_active: Some(verdict.steps_active),
        steps_lost: Some(verdict.steps_lost),
        budget_steps: Some(verdict.budget_steps),
        payback_step: verdict.payback_step,
        text: verdict.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_of_a_place_are_combined_by_their_precision() {
        let place = dash::Place {
            fusion_mb: 1.0,
            cycle_ms: 2.0,
        };
        let mut tried = Vec::new();
        add(&mut tried, place, 10.0, 1.0);
        add(&mut tried, place, 13.0, 2.0);
        assert_eq!((tried.len(), tried[0].measurements), (1, 2));
        assert!((tried[0].value - 10.6).abs() < 1e-9, "{tried:?}"); // weights 1 and 1/4
        assert!(tried[0].ci95.unwrap() < 1.0);
    }
}
