//! placeholder
use crate::trace::{Mark, NameId, Operation, Source, Visitor};

/// Takes in one file.
#[derive(Debug, Default)]
pub struct Collector;

/// What one file comes down to.
#[derive(Debug)]
pub struct RankRecord {
    source: Source,
}

impl Collector {
    /// Has seen nothing yet.
    pub fn new() -> Self {
        Self
    }
    /// The file has been read.
    pub fn finish(self, source: Source) -> RankRecord {
        RankRecord { source }
    }
}

impl RankRecord {
    /// The file.
    pub fn source(&self) -> &Source {
        &self.source
    }
}

impl Visitor for Collector {
    fn name(&mut self, _id: NameId, _name: &str) {}
    fn operation(&mut self, _operation: &Operation) {}
    fn mark(&mut self, _mark: Mark) {}
}
