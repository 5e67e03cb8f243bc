//! Events for tests.

use ronde_job::settings::Settings;

use crate::{Step, Window};

/// A step at the default settings.
pub(crate) fn step(number: u64, value: f64) -> Step {
    Step {
        step: number,
        steps: 1,
        value,
        settings: Settings::default(),
        window: Window::None,
        exposed_ms: None,
        negotiation_ms: None,
        messages: Some(3.0),
        bytes: None,
        fill: Some(0.5),
    }
}
