//! Pauses: steps far longer than those before.

/// Tells pauses from steps by the last few steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    recent_ns: [u64; Self::RECENT],
    count: usize,
    /// The step before was taken for a pause.
    paused: bool,
}

impl Pauses {
    /// Enough for a median; few enough to follow a change of settings.
    const RECENT: usize = 9;
    /// A pause is this many times the median step: settings in the tuner's range rarely differ by so much …
    const FACTOR: u64 = 4;
    /// … and longer than it by at least this: short steps are easily stretched by the scheduler alone.
    const MARGIN_NS: u64 = 50_000_000;

    /// Whether a step of this length is one; otherwise it counts among the last few.
    pub(super) fn is_pause(&mut self, step_ns: u64) -> bool {
        let mut sorted = self.recent_ns;
        sorted.sort_unstable();
        let known = self.count >= Self::RECENT;
        let limit_ns =
            (sorted[Self::RECENT / 2] * Self::FACTOR).max(sorted[Self::RECENT / 2] + Self::MARGIN_NS);
        if known && !self.paused && step_ns > limit_ns {
            self.paused = true;
            return true;
        }
        if self.paused && step_ns > limit_ns {
            // Twice in a row: this is how long steps are now.
            self.count = 0;
        }
        self.paused = false;
        self.recent_ns[self.count % Self::RECENT] = step_ns;
        self.count += 1;
        false
    }
}
