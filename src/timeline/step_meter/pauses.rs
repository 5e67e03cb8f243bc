//! Detection of pauses: steps far longer than those before.

/// Distinguishes pauses from steps by the durations of the last few steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Pauses {
    recent_ns: [u64; Self::RECENT],
    count: usize,
    /// Whether a long step shows that steps take so long from now on: after a pause, and after a
    /// change of settings.
    expects_change: bool,
}

impl Pauses {
    /// Number of recent steps: enough for a median, few enough to follow a change of settings.
    const RECENT: usize = 9;
    /// Ratio of a pause to the median step: settings in the tuner's range rarely differ by so much
    /// …
    const FACTOR: u64 = 4;
    /// … and least difference in nanoseconds: the scheduler alone easily extends short steps.
    const MARGIN_NS: u64 = 50_000_000;

    /// The next step has other settings, or is the first of a visit that has the same.
    pub(super) fn settings_change(&mut self) {
        self.expects_change = true;
    }

    /// Returns whether a step of this length, of which `communication_ns` passed in negotiation and
    /// collectives, is a pause; otherwise adds it to the last few steps. A stall of the network is
    /// no pause: it may be due to the settings.
    pub(super) fn is_pause(&mut self, step_ns: u64, communication_ns: u64) -> bool {
        let mut sorted = self.recent_ns;
        sorted.sort_unstable();
        let known = self.count >= Self::RECENT;
        let limit_ns = (sorted[Self::RECENT / 2] * Self::FACTOR)
            .max(sorted[Self::RECENT / 2] + Self::MARGIN_NS);
        let is_long = known && step_ns.saturating_sub(communication_ns) > limit_ns;
        let is_pause = is_long && !self.expects_change;
        self.expects_change = is_pause;
        if is_pause {
            return true;
        }
        if is_long {
            self.count = 0;
        }
        self.recent_ns[self.count % Self::RECENT] = step_ns;
        self.count += 1;
        false
    }
}
