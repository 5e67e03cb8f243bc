/// What a colour says: how much worse than the best a value is.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    /// What is measured against the best, such as "step time above the best, 40.2 ms".
    pub(crate) label: String,
    /// Which values are good.
    pub(crate) better: Better,
}

/// Which values are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    /// Low ones, such as step times.
    Lower,
    /// High ones, such as scores.
    Higher,
}
