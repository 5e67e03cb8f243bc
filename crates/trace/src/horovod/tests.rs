//! Tests of Horovod's reader: from bars to operations, in complete and in damaged files.

use super::super::Source;
use super::super::model::{Clock, Format, Kind, MarkKind, Operation, Phase, PhaseSums, Span};
use super::super::testing::{Told, told};
use ronde_job::Dtype;

/// Opens a bar.
fn b(name: &str, us: i64, pid: i64) -> String {
    format!(r#"{{"ph": "B", "name": "{name}", "ts": {us}, "pid": {pid}}},"#)
}

/// Closes a bar.
fn e(us: i64, pid: i64) -> String {
    format!(r#"{{"ph": "E", "ts": {us}, "pid": {pid}}},"#)
}

/// Closes the bar of the operation, with dtype and shape.
fn end(us: i64, pid: i64) -> String {
    format!(
        r#"{{"ph": "E", "ts": {us}, "pid": {pid}, "args": {{"dtype": "float32", "shape": "[4, 1001]"}}}},"#
    )
}

fn tick(rank: u32, us: i64, pid: i64) -> String {
    format!(r#"{{"ph": "X", "name": "{rank}", "ts": {us}, "pid": {pid}, "dur": 0}},"#)
}

fn tensor(name: &str, pid: i64) -> String {
    format!(r#"{{"name": "process_name", "ph": "M", "pid": {pid}, "args": {{"name": "{name}"}}}},"#)
        + "\n"
}

fn read(events: &[String]) -> (Told, Source) {
    told(&format!("[\n{}", events.concat()))
}

/// Kind and execution (start and end in microseconds) of an operation.
fn executed(operation: &Operation) -> (Kind, Option<(i64, i64)>) {
    let span = operation.execution;
    (
        operation.kind,
        span.map(|span| (span.began / 1_000, span.ended / 1_000)),
    )
}

fn us(began: i64, ended: i64) -> Span {
    Span {
        began: 1_000 * began,
        ended: 1_000 * ended,
    }
}

#[test]
fn a_negotiation_and_its_execution_are_one_operation() {
    let (told, source) = read(&[
        r#"{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros":1795167892487131}},"#.to_owned(),
        tensor("grad", 1),
        b("NEGOTIATE_ALLREDUCE", 10, 1),
        tick(1, 12, 1),
        tick(0, 11, 1),
        e(13, 1),
        b("ALLREDUCE", 15, 1),
        b("MEMCPY_IN_FUSION_BUFFER", 15, 1),
        e(16, 1),
        b("MPI_ALLREDUCE", 17, 1),
        e(20, 1),
        end(21, 1),
    ]);
    assert_eq!(
        (source.format, source.rank, source.size),
        (Format::Horovod, Some(0), Some(2))
    );
    assert_eq!(source.epoch_ns, Some(1_795_167_892_487_131_000));
    assert_eq!(source.warnings, Vec::<String>::new());
    let [operation] = &told.operations[..] else {
        panic!("{told:?}");
    };
    assert_eq!(told.name(operation.tensor), "grad");
    assert_eq!(operation.negotiation, Some(us(10, 13)));
    let ticks: Vec<_> = operation
        .ticks
        .iter()
        .map(|tick| (tick.rank, tick.at))
        .collect();
    assert_eq!(ticks, [(0, 11_000), (1, 12_000)], "in order of time");
    assert_eq!(executed(operation), (Kind::Allreduce, Some((15, 21))));
    let activities: Vec<_> = operation
        .activities
        .iter()
        .map(|activity| (told.name(activity.name), activity.phase, activity.span))
        .collect();
    let expected = [
        ("MEMCPY_IN_FUSION_BUFFER", Phase::CopyIn, us(15, 16)),
        ("MPI_ALLREDUCE", Phase::Collective, us(17, 20)),
    ];
    assert_eq!(activities, expected);
    assert_eq!(
        (operation.dtype, operation.elements),
        (Some(Dtype::F32), Some(4004))
    );
    assert_eq!(operation.bytes, Some(16_016));
}

#[test]
fn what_ronde_adds() {
    let ronde = concat!(
        r#"{"name": "process_labels", "ph": "M", "pid": 0, "args": {"labels": "rank 3", "ronde": {"version": "0.1.0", "#,
        r#""rank": 3, "size": 4, "zero_ns": 9000000123, "offset_ns": -77, "error_ns": 40, "drift_ppb": -1500, "#,
        r#""fusion_threshold_bytes": 67108864, "gpu_fusion_threshold_bytes": 5, "cycle_time_ms": 1.5}}},"#
    );
    let (told, source) = read(&[
        ronde.to_owned(),
        // The clocks are compared after the file has begun.
        r#"{"name": "ronde_clock", "ph": "M", "pid": 0, "args": {"zero_ns": 500, "offset_ns": 6, "error_ns": 7, "drift_ppb": 8000, "drift_error_ppb": 9}},"#.to_owned(),
        tensor("grad", 1),
        r#"{"ph": "i", "name": "SETTINGS", "ts": 5, "s": "p", "args": {"fusion_threshold_bytes": 1024, "cycle_time_ns": 500}},"#.to_owned(),
        b("ALLREDUCE", 15, 1),
        b("SHM_ALLREDUCE", 15, 1),
        r#"{"ph": "E", "ts": 20, "pid": 1, "args": {"copy_in_us": 1.5, "reduce_us": 2, "copy_out_us": 0.001, "wait_us": 0}},"#.to_owned(),
        end(21, 1),
        r#"{"ph": "i", "name": "STEP", "ts": 22, "s": "p", "args": {"step": 1}},"#.to_owned(),
        r#"{"ph": "i", "name": "EPOCH", "ts": 23, "s": "p", "args": {"epoch": 1}},"#.to_owned(),
        r#"{"name": "process_labels", "ph": "M", "pid": 0, "args": {"labels": "2 cycles dropped", "dropped_cycles": 2}}]"#.to_owned(),
    ]);
    assert_eq!(
        (source.format, source.rank, source.size),
        (Format::Ronde, Some(3), Some(4))
    );
    assert_eq!(
        (source.fusion_threshold_bytes, source.cycle_time_ms),
        (Some(64 << 20), Some(1.5))
    );
    assert_eq!(source.gpu_fusion_threshold_bytes, Some(5));
    assert_eq!(source.dropped_cycles, 2);
    let clock = Clock {
        zero_ns: 500,
        offset_ns: 6,
        error_ns: 7,
        drift_ppm: 8.0,
    };
    assert_eq!(source.clock, Some(clock));
    let sums = PhaseSums {
        copy_in_ns: 1_500,
        reduce_ns: 2_000,
        copy_out_ns: 1,
        wait_ns: 0,
    };
    assert_eq!(told.operations[0].sums, Some(sums));
    assert_eq!(told.operations[0].negotiation, None, "only rank 0 has it");
    let settings = MarkKind::Settings {
        fusion_threshold_bytes: 1024,
        cycle_time_ns: 500,
        gpu_fusion_threshold_bytes: None,
    };
    let marks: Vec<_> = told.marks.iter().map(|mark| (mark.kind, mark.at)).collect();
    assert_eq!(
        marks,
        [
            (settings, 5_000),
            (MarkKind::Step, 22_000),
            (MarkKind::Epoch, 23_000)
        ]
    );
}

#[test]
fn barriers_joins_and_errors() {
    let (told, source) = read(&[
        tensor("barrier", 1),
        tensor("bad", 2),
        b("NEGOTIATE_BARRIER", 1, 1),
        e(4, 1),
        e(6, 1),
        b("NEGOTIATE_ALLREDUCE", 1, 2),
        e(4, 2),
        b("ERROR", 5, 2),
        e(5, 2),
        b("NEGOTIATE_JOIN", 10, 1),
        e(12, 1),
        b("NEGOTIATE_BARRIER", 13, 1),
        e(14, 1),
        b("BARRIER", 14, 1),
        e(15, 1),
    ]);
    let found: Vec<_> = told.operations.iter().map(executed).collect();
    assert_eq!(
        found,
        [
            (Kind::Barrier, Some((4, 6))),
            (Kind::Allreduce, None),
            (Kind::Join, None),
            (Kind::Barrier, Some((14, 15)))
        ]
    );
    let refused: Vec<_> = told
        .operations
        .iter()
        .map(|operation| operation.refused)
        .collect();
    assert_eq!(refused, [false, true, false, false]);
    assert_eq!(source.warnings, Vec::<String>::new());
}

#[test]
fn ends_without_beginnings_and_beginnings_without_ends() {
    let (told, source) = read(&[
        tensor("a", 1),
        e(1, 1),
        e(2, 1),
        b("ALLREDUCE", 3, 1),
        b("MPI_ALLREDUCE", 4, 1),
        // The end of MPI_ALLREDUCE is lost; only the end of the operation has dtype and shape.
        end(6, 1),
        // The end of the first operation is lost.
        b("ALLREDUCE", 7, 1),
        b("ALLREDUCE", 8, 1),
        e(9, 1),
        // The start of the operation is lost.
        b("MPI_BCAST", 10, 1),
        e(11, 1),
        e(12, 1),
    ]);
    let found: Vec<_> = told.operations.iter().map(executed).collect();
    let allreduce = Kind::Allreduce;
    assert_eq!(
        found,
        [
            (allreduce, Some((3, 6))),
            (allreduce, Some((8, 9))),
            (Kind::Other, Some((10, 12)))
        ]
    );
    assert_eq!(told.operations[0].activities[0].span, us(4, 6));
    let warnings = source.warnings.join("\n");
    assert!(
        warnings.contains("2 ends without a beginning left out"),
        "{warnings}"
    );
    assert!(
        warnings.contains("2 beginnings without an end"),
        "{warnings}"
    );
    assert!(warnings.contains("line 3"), "{warnings}");
}

#[test]
fn clocks_that_go_back_and_times_that_are_none() {
    let (told, source) = read(&[
        tensor("a", 1),
        b("ALLREDUCE", 10, 1),
        b("MPI_ALLREDUCE", 9, 1),
        e(-5, 1),
        e(7, 1),
        b("ALLREDUCE", -20, 1),
        r#"{"ph": "E", "ts": NaN, "pid": 1},"#.to_owned(),
        b("ALLREDUCE", 30, 1),
        r#"{"ph": "E", "pid": 1},"#.to_owned(),
    ]);
    let found: Vec<_> = told
        .operations
        .iter()
        .map(|operation| executed(operation).1)
        .collect();
    assert_eq!(found, [Some((10, 10)), Some((-20, -20)), Some((30, 30))]);
    let warnings = source.warnings.join("\n");
    assert!(
        warnings.contains("2 bars end before they begin"),
        "{warnings}"
    );
    assert!(warnings.contains("2 times are missing"), "{warnings}");
}

#[test]
fn bars_with_durations() {
    let (told, source) = read(&[
        tensor("a", 1),
        r#"{"ph": "X", "name": "NEGOTIATE_ALLREDUCE", "ts": 1, "dur": 2, "pid": 1},"#.to_owned(),
        r#"{"ph": "X", "name": "ALLREDUCE", "ts": 4, "dur": 2.5, "pid": 1, "args": {"dtype": "uint16", "shape": "[3]"}},"#.to_owned(),
        b("ALLGATHER", 10, 1),
        r#"{"ph": "X", "name": "NCCL_ALLGATHER", "ts": 11, "dur": 3, "pid": 1},"#.to_owned(),
        r#"{"ph": "X", "name": "MEMCPY_OUT_FUSION_BUFFER", "ts": 14, "pid": 1},"#.to_owned(),
        e(15, 1),
    ]);
    let [reduced, gathered] = &told.operations[..] else {
        panic!("{told:?}");
    };
    assert_eq!(reduced.negotiation, Some(us(1, 3)));
    let span = Span {
        began: 4_000,
        ended: 6_500,
    };
    assert_eq!(reduced.execution, Some(span));
    assert_eq!((reduced.dtype, reduced.bytes), (None, Some(6)));
    assert_eq!(gathered.activities[0].span, us(11, 14));
    assert_eq!(gathered.activities[1].span, us(14, 14));
    assert!(source.warnings.join("\n").contains("1 duration is missing"));
}

#[test]
fn names_that_come_late_twice_or_not_at_all() {
    let (told, source) = read(&[
        b("ALLREDUCE", 1, 1),
        e(2, 1),
        b("ALLREDUCE", 3, 9),
        e(4, 9),
        tensor("late", 1),
        b("NEGOTIATE_ALLREDUCE", 5, 1),
        e(6, 1),
        tensor("other", 1),
        b("ALLREDUCE", 7, 1),
        e(8, 1),
    ]);
    let found: Vec<_> = told
        .operations
        .iter()
        .map(|operation| (told.name(operation.tensor), executed(operation).1))
        .collect();
    assert_eq!(
        found,
        [
            ("late", Some((1, 2))),
            ("late", None),
            ("other", Some((7, 8))),
            ("pid 9", Some((3, 4))),
        ]
    );
    let warnings = source.warnings.join("\n");
    assert!(
        warnings.contains("1 pid was given to another tensor"),
        "{warnings}"
    );
    assert!(warnings.contains("1 tensor has no name"), "{warnings}");
}

#[test]
fn pids_of_all_kinds() {
    let pids = ["\"12\"", "\"layer\"", "-4", "99999999999", "12.0"];
    let events: Vec<String> = pids
        .iter()
        .flat_map(|pid| {
            [
                format!(
                    r#"{{"name": "process_name", "ph": "M", "pid": {pid}, "args": {{"name": "of {}"}}}},"#,
                    pid.trim_matches('"')
                ),
                format!(r#"{{"ph": "B", "name": "ALLREDUCE", "ts": 1, "pid": {pid}}},"#),
                format!(r#"{{"ph": "E", "ts": 2, "pid": {pid}}},"#),
            ]
        })
        .collect();
    let (told, source) = read(&events);
    let names: Vec<_> = told
        .operations
        .iter()
        .map(|operation| told.name(operation.tensor))
        .collect();
    assert_eq!(
        names,
        ["of 12", "of layer", "of -4", "of 99999999999", "of 12.0"]
    );
    assert!(
        source.warnings[0].contains("1 pid was given to another tensor"),
        "12 and 12.0 are one"
    );
    let (_, source) = read(&[
        b("ALLREDUCE", 1, 1),
        r#"{"ph": "B", "name": "x", "ts": 1},"#.to_owned(),
    ]);
    assert!(
        source
            .warnings
            .join("\n")
            .contains("1 event without a pid left out")
    );
}

#[test]
fn the_end_tells_what_was_under_way() {
    let (told, source) = read(&[
        tensor("waiting", 1),
        tensor("moving", 2),
        b("NEGOTIATE_ALLREDUCE", 1, 1),
        tick(0, 1, 1),
        tick(2, 1, 1),
        b("NEGOTIATE_ALLREDUCE", 1, 2),
        e(2, 2),
        b("ALLREDUCE", 3, 2),
        b("MPI_ALLREDUCE", 3, 2),
    ]);
    assert_eq!(told.operations.len(), 1);
    assert_eq!(told.operations[0].negotiation, Some(us(1, 2)));
    assert_eq!(told.operations[0].execution, None);
    let warnings = source.warnings.join("\n");
    assert!(
        warnings.contains("1 tensor was still waiting")
            && warnings.contains("(waiting, ready on ranks 0, 2 alone)"),
        "{warnings}"
    );
    assert!(
        warnings.contains("1 operation was in progress"),
        "{warnings}"
    );
}

#[test]
fn tens_of_thousands_of_tensors() {
    let tensors = 50_000;
    let text: String = (1..=tensors)
        .map(|pid| tensor(&format!("t{pid}"), pid) + &b("ALLREDUCE", pid, pid) + &end(pid + 1, pid))
        .collect();
    let (told, source) = told(&text);
    assert_eq!(told.operations.len(), tensors as usize);
    assert_eq!(told.name(told.operations[49_999].tensor), "t50000");
    assert_eq!(source.warnings, Vec::<String>::new());
}
