//! Fuzz targets as functions: each takes bytes and panics if a reader violates a guarantee.
//!
//! The guarantees: no panic; readers of traces number names in order and report them before their
//! first use; spans are not negative; ticks are in order of time; and the reported events do not
//! depend on how the input is split.

use std::io::Read;
use std::path::Path;

use ronde_job::replay::Forecast;
use ronde_job::replay::network::{Algorithm, Network, Target, Topology};
use ronde_job::replay::profile::Profile;
use ronde_lab::review::{Known, review};
use ronde_trace::{
    Format, Input, Mark, NameId, Operation, ReadError, Span, Visitor, Work, read_input,
};

/// One of this many autotune logs is reviewed, selected by length.
const REVIEWED: usize = 256;

/// Function of a target.
pub(crate) type FuzzTarget = fn(&[u8]);

/// All targets with their names.
pub(crate) const ALL: [(&str, FuzzTarget); 7] = [
    ("horovod", horovod),
    ("byteps", byteps),
    ("kineto", kineto),
    ("read", read),
    ("profile", profile),
    ("autotune", autotune),
    ("frames", frames),
];

/// Reads the data as the frames of a connection over TCP, in pieces whose length is the first byte.
pub(crate) fn frames(data: &[u8]) {
    if let Some((&piece, bytes)) = data.split_first() {
        ronde::internal::net::frames(bytes, usize::from(piece));
    }
}

/// Reads the data as a timeline of Horovod or Ronde.
pub(crate) fn horovod(data: &[u8]) {
    check(data, Some(Format::Horovod));
}

/// Reads the data as BytePS's `comm.json`.
pub(crate) fn byteps(data: &[u8]) {
    check(data, Some(Format::Byteps));
}

/// Reads the data as a trace of PyTorch's profiler.
pub(crate) fn kineto(data: &[u8]) {
    check(data, Some(Format::Kineto));
}

/// Reads the data as a profile: a valid profile can be predicted at any of these settings, and
/// predictions are numbers.
pub(crate) fn profile(data: &[u8]) {
    let Ok(profile) = Profile::parse(data) else {
        return;
    };
    let Ok((fit, _)) = profile.fit() else { return };
    // Jobs of many tensors take too long for a fuzzer; a few tensors interact in the same way.
    if fit.workload.tensors.len() > 64 {
        return;
    }
    let place = Target {
        topology: Topology::new(64, 8),
        network: Network::parse("25gbe").ok(),
        local: None,
        algorithm: Algorithm::Tree,
    };
    for target in [Target::same(&fit.place), place] {
        let Ok(mut forecast) = Forecast::new(&fit, &target, fit.rules) else {
            continue;
        };
        let step = forecast.predict(&fit.reference);
        assert!(
            step.step_us >= 0.0 && step.low_us <= step.high_us,
            "{step:?}"
        );
        assert!(step.step_us.is_finite(), "{step:?}");
    }
}

/// Reads the data as an autotune log: a valid log can be reviewed, and all numbers of a review are
/// in their ranges.
pub(crate) fn autotune(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(logs) = ronde_tuner::read_logs(&text) else {
        return;
    };
    assert!(!logs.is_empty(), "a text that is read has a log");
    let lines = text.matches(['\n', '\r']).count() as u64 + 1;
    for log in logs {
        assert!(log.best.is_none_or(|best| best < log.rows.len()));
        assert!(log.rows.iter().all(|row| (1..=lines).contains(&row.line)));
        // A review takes as long as a thousand readings: only some logs are reviewed, and none with
        // many trials.
        if log.rows.len() > 24 || !data.len().is_multiple_of(REVIEWED) {
            continue;
        }
        for review in review(&log, "log", &Known::default()) {
            assert!(
                review
                    .trials
                    .iter()
                    .all(|trial| trial.value > 0.0 && trial.value.is_finite())
            );
            assert_eq!(review.best.is_some(), !review.trials.is_empty());
            for candidate in review
                .best
                .iter()
                .flat_map(|best| best.ties.iter().chain([&best.choice, &best.favourite]))
            {
                assert!(
                    (0.0..=1.0).contains(&candidate.probability_best),
                    "{candidate:?}"
                );
                assert!(
                    candidate.expected.low <= candidate.expected.high,
                    "{candidate:?}"
                );
            }
        }
    }
}

/// Reads the data in the detected format, and again with the bytes in pieces.
pub(crate) fn read(data: &[u8]) {
    // The output of a decompressor before it detects damage depends on the size of the reads.
    let compressed = data.starts_with(b"\x1f\x8b");
    let whole = told(std::io::Cursor::new(data.to_vec()), None);
    let pieces = Pieces {
        data: data.to_vec(),
        at: 0,
    };
    let again = told(pieces, None);
    assert!(
        compressed || whole == again,
        "what is told depends on how it is read: {whole:?} {again:?}"
    );
}

fn check(data: &[u8], format: Option<Format>) {
    told(std::io::Cursor::new(data.to_vec()), format);
}

/// Events that a reader reported, or its error.
#[derive(Debug, Default, PartialEq)]
struct Told {
    names: u32,
    operations: Vec<Operation>,
    marks: Vec<Mark>,
    compute: Vec<Span>,
    end: String,
}

fn told(reader: impl Read + 'static, format: Option<Format>) -> Told {
    let mut told = Told::default();
    let input =
        Input::from_reader(reader, Path::new("/x/node1/3/comm.json")).expect("memory can be read");
    told.end = match read_input(input, format, &mut told, &mut |_| {}) {
        Ok(source) => format!("{source:?}"),
        Err(error @ ReadError::NotATrace { .. }) => error.to_string(),
        Err(other) => panic!("{other}"),
    };
    told
}

impl Visitor for Told {
    fn name(&mut self, id: NameId, _: &str) {
        assert_eq!(id.0, self.names, "numbers count up");
        self.names += 1;
    }

    fn operation(&mut self, operation: &Operation) {
        assert!(
            operation.tensor.0 < self.names,
            "a name comes before it is used"
        );
        for activity in &operation.activities {
            assert!(
                activity.name.0 < self.names,
                "a name comes before it is used"
            );
            in_order(activity.span);
        }
        operation.negotiation.into_iter().for_each(in_order);
        operation.execution.into_iter().for_each(in_order);
        assert!(operation.ticks.is_sorted_by_key(|tick| tick.at));
        self.operations.push(operation.clone());
    }

    fn mark(&mut self, mark: Mark) {
        self.marks.push(mark);
    }

    fn compute(&mut self, span: Span, _work: Work) {
        in_order(span);
        self.compute.push(span);
    }
}

fn in_order(span: Span) {
    assert!(span.began <= span.ended, "a span is not negative");
    // Times within the limits can be subtracted.
    let _ = span.ns();
}

/// Reader that returns 7 bytes at a time.
struct Pieces {
    data: Vec<u8>,
    at: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let end = self.data.len().min(self.at + buffer.len().min(7));
        let piece = &self.data[self.at..end];
        buffer[..piece.len()].copy_from_slice(piece);
        self.at = end;
        Ok(piece.len())
    }
}
