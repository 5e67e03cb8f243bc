//! Progress bars on standard error.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressFinish, ProgressStyle};

/// Redraws per second at most: enough for the eye, and hardly any load on the CPU that the ranks
/// need.
const REDRAWS_PER_SECOND: u8 = 5;

/// Creates a bar from `template` if standard error is a terminal; `length` may be set later. The
/// bar disappears when it is dropped, so that only the result remains.
pub fn bar(template: &str, length: Option<u64>) -> Option<ProgressBar> {
    std::io::stderr().is_terminal().then(|| {
        let target = ProgressDrawTarget::stderr_with_hz(REDRAWS_PER_SECOND);
        let bar = ProgressBar::with_draw_target(length, target);
        let bar = bar.with_finish(ProgressFinish::AndClear);
        match ProgressStyle::with_template(template) {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        }
    })
}
