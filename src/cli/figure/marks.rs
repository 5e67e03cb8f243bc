/// What a measurement or a setting is among the others; each has its own shape, so that colour alone tells nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// The setting that was in force before: a diamond.
    Default,
    /// One of the tried: a dot.
    Sample,
    /// The default, measured again in turns with the candidate: a hollow diamond.
    AbDefault,
    /// The candidate, measured in turns with the default: a hollow square.
    AbCandidate,
    /// Measured and not counted (warm-up, cut short): a cross.
    SetAside,
    /// Worth naming for another reason: a triangle.
    Other,
    /// The winner: a star.
    Best,
}
