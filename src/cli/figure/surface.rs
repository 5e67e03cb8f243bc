/// What a model expects of two knobs, between and beyond the samples it was given; paler where it is less sure.
#[derive(Clone, Debug)]
pub(crate) struct Surface {
    /// What it shows, in a few words.
    pub(crate) title: String,
    /// What else is worth knowing; may be empty.
    pub(crate) subtitle: String,
    /// The grid's places from left to right, 30 to 60 of them, as even in the logarithm as can be; a 0 at the start stands alone.
    pub(crate) x: AxisValues,
    /// The grid's places from bottom to top.
    pub(crate) y: AxisValues,
    /// What is expected at each place of the grid, row by row from the lowest y: index `yi * x.values.len() + xi`.
    pub(crate) mean: Vec<f64>,
    /// Standard deviation of that, the same way; as long as `mean`, or empty if unknown.
    pub(crate) sd: Vec<f64>,
    /// What was measured where.
    pub(crate) samples: Vec<SurfaceSample>,
    /// What the colour says.
    pub(crate) scale: Scale,
}

/// A measured setting on a surface.
#[derive(Clone, Debug)]
pub(crate) struct SurfaceSample {
    /// Its value of the knob from left to right.
    pub(crate) x: f64,
    /// Its value of the knob from bottom to top.
    pub(crate) y: f64,
    /// What stands beside it where there is room, such as its step time; may be empty.
    pub(crate) text: String,
    /// Its shape.
    pub(crate) kind: Kind,
    /// What the legend says of it, such as "best: 16 MB, 2.5 ms"; if empty, what all of its kind are called.
    pub(crate) name: String,
}
