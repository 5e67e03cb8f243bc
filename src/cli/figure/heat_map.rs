/// What every combination of two knobs brought: one cell each, its colour the value, best and default marked.
#[derive(Clone, Debug)]
pub(crate) struct HeatMap {
    /// What it shows, in a few words.
    pub(crate) title: String,
    /// What else is worth knowing (workload, machine, repeats); may be empty.
    pub(crate) subtitle: String,
    /// The knob from left to right.
    pub(crate) x: AxisValues,
    /// The knob from bottom to top.
    pub(crate) y: AxisValues,
    /// Cells in any order; combinations without one stay blank.
    pub(crate) cells: Vec<Cell>,
    /// Cells that stand out.
    pub(crate) marks: Vec<Mark>,
    /// What the colour says.
    pub(crate) scale: Scale,
}

/// One combination of the two knobs.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    /// Which of the x values.
    pub(crate) x: usize,
    /// Which of the y values.
    pub(crate) y: usize,
    /// What was measured; none (or no number) if it has no result, and the cell is hatched.
    pub(crate) value: Option<f64>,
    /// What stands in the cell, where it is large enough: the value with few digits, or why there is none ("failed").
    pub(crate) text: String,
}

/// A cell that stands out, and its name in the legend.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    /// Which of the x values.
    pub(crate) x: usize,
    /// Which of the y values.
    pub(crate) y: usize,
    /// Its shape.
    pub(crate) kind: Kind,
    /// What the legend says, such as "best: 16 MB, 2.5 ms".
    pub(crate) name: String,
}
