//! Visitor for tests that keeps everything a reader passes to it.

use std::path::Path;

use super::model::{Format, Mark, NameId, Operation, Source, Span, Visitor, Work};
use super::{Input, ReadError, read_input};

/// Content of a file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Told {
    pub(super) names: Vec<String>,
    pub(super) operations: Vec<Operation>,
    pub(super) marks: Vec<Mark>,
    pub(super) compute: Vec<Span>,
    pub(super) other_gpu: Vec<Span>,
}

impl Told {
    /// Name with this number.
    pub(super) fn name(&self, id: NameId) -> &str {
        &self.names[id.0 as usize]
    }
}

impl Visitor for Told {
    fn name(&mut self, id: NameId, name: &str) {
        assert_eq!(id.0 as usize, self.names.len(), "numbers count up");
        self.names.push(name.to_owned());
    }

    fn operation(&mut self, operation: &Operation) {
        let known = |name: NameId| (name.0 as usize) < self.names.len();
        assert!(known(operation.tensor), "names come first");
        assert!(
            operation
                .activities
                .iter()
                .all(|activity| known(activity.name))
        );
        let spans = operation.activities.iter().map(|activity| activity.span);
        let spans = spans
            .chain(operation.negotiation)
            .chain(operation.execution);
        for span in spans {
            assert!(span.began <= span.ended, "{operation:?}");
        }
        assert!(operation.ticks.is_sorted_by_key(|tick| tick.at));
        self.operations.push(operation.clone());
    }

    fn mark(&mut self, mark: Mark) {
        self.marks.push(mark);
    }

    fn compute(&mut self, span: Span, work: Work) {
        assert!(span.began <= span.ended);
        let spans = match work {
            Work::Cpu | Work::Kernel => &mut self.compute,
            Work::OtherGpu => &mut self.other_gpu,
        };
        spans.push(span);
    }
}

/// Reads bytes as a file called `x/0/comm.json`.
pub(super) fn told_by(bytes: &[u8], format: Option<Format>) -> Result<(Told, Source), ReadError> {
    let mut told = Told::default();
    let reader = std::io::Cursor::new(bytes.to_vec());
    let input =
        Input::from_reader(reader, Path::new("/x/0/comm.json")).expect("memory can be read");
    let source = read_input(input, format, &mut told, &mut |_| {})?;
    Ok((told, source))
}

/// Reads a text that must be a trace.
pub(super) fn told(text: &str) -> (Told, Source) {
    told_by(text.as_bytes(), None).unwrap_or_else(|error| panic!("{error}"))
}
