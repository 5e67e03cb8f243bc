/// Measurements one after the other with what they scatter, and what a model made of them.
#[derive(Clone, Debug)]
pub(crate) struct Trail {
    /// What it shows, in a few words.
    pub(crate) title: String,
    /// What else is worth knowing; may be empty.
    pub(crate) subtitle: String,
    /// What x counts, such as "sample".
    pub(crate) x_label: String,
    /// What was measured, such as "step time".
    pub(crate) y_label: String,
    /// Its unit, such as "ms"; may be empty.
    pub(crate) y_unit: String,
    /// The measurements, in any order.
    pub(crate) points: Vec<TrailPoint>,
    /// A line with the band around it, such as what the model expects.
    pub(crate) line: Option<TrailLine>,
    /// Levels worth a line across, such as the default's.
    pub(crate) references: Vec<Reference>,
}

/// One measurement.
#[derive(Clone, Debug)]
pub(crate) struct TrailPoint {
    /// Its place, such as the sample's number.
    pub(crate) x: f64,
    /// What was measured; not drawn if it is no number.
    pub(crate) value: f64,
    /// Where its error bar begins; `value` if there is none.
    pub(crate) low: f64,
    /// Where its error bar ends.
    pub(crate) high: f64,
    /// Its shape.
    pub(crate) kind: Kind,
}

/// A line with the band around it.
#[derive(Clone, Debug)]
pub(crate) struct TrailLine {
    /// What the legend says, such as "model, 90 % band".
    pub(crate) name: String,
    /// Places on it, by rising x.
    pub(crate) points: Vec<TrailLinePoint>,
}

/// One place on a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TrailLinePoint {
    /// Where.
    pub(crate) x: f64,
    /// Height of the line.
    pub(crate) mean: f64,
    /// Lower edge of the band; `mean` if there is none.
    pub(crate) low: f64,
    /// Upper edge of the band.
    pub(crate) high: f64,
}

/// A level worth a line across.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    /// What stands on it, such as "default 44.2 ms".
    pub(crate) name: String,
    /// Its height.
    pub(crate) value: f64,
}
