//! Detection of pauses: steps far longer than those before.

/// Distinguishes pauses from steps by the durations of the last few steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    recent_ns: [u64; Self::RECENT],
    count: usize,
    /// Whether the previous step was taken for a pause.
    paused: bool,
}

impl Pauses {
    /// Number of recent steps: enough for a median, few enough to follow a change of settings.
    const RECENT: usize = 9;
    /// Ratio of a pause to the median step: settings in the tuner's range rarely differ by so much
    /// …
    const FACTOR: u64 = 4;
    /// … and least difference in nanoseconds: the scheduler alone easily extends short steps.
    const MARGIN_NS: u64 = 50_000_000;

    /// Returns whether a step of this length is a pause; otherwise adds it to the last few steps.
    pub(super) fn is_pause(&mut self, step_ns: u64) -> bool {
        let mut sorted = self.recent_ns;
        sorted.sort_unstable();
        let known = self.count >= Self::RECENT;
        let limit_ns = (sorted[Self::RECENT / 2] * Self::FACTOR)
            .max(sorted[Self::RECENT / 2] + Self::MARGIN_NS);
        if known && !self.paused && step_ns > limit_ns {
            self.paused = true;
            return true;
        }
        if self.paused && step_ns > limit_ns {
            // Two in a row: steps are that long from now on.
            self.count = 0;
        }
        self.paused = false;
        self.recent_ns[self.count % Self::RECENT] = step_ns;
        self.count += 1;
        false
    }
}
