/// The values of one knob along a side of a picture.
#[derive(Clone, Debug)]
pub(crate) struct AxisValues {
    /// What the knob is called, such as "fusion threshold".
    pub(crate) label: String,
    /// Its unit, such as "MB"; may be empty.
    pub(crate) unit: String,
    /// Ascending, each once. Distances are those of the logarithms; a 0 has its own place at the start.
    pub(crate) values: Vec<f64>,
}
