//! Tests of starting and stopping, ranks, process sets and ranges of steps.

use super::*;
use crate::error::Error;
use crate::knobs::StepRange;
use crate::settings::Settings;
use crate::timeline::TimelineCommand;

fn start(path: &str) -> TimelineCommand {
    TimelineCommand::Start {
        path: path.into(),
        mark_cycles: false,
    }
}

impl Recording {
    /// Applies a command as a cycle does that receives it.
    fn order(&mut self, order: &TimelineCommand) -> Result<(), Error> {
        self.track.interrupt();
        self.timeline.apply(order)
    }
}

/// Returns the ends of the operations in a file, microseconds.
fn ends(text: &str) -> Vec<u64> {
    let events = balanced(text);
    let ended = events
        .iter()
        .filter(|event| event["args"]["dtype"].is_string());
    ended.map(|event| event["ts"].as_u64().unwrap()).collect()
}

#[test]
fn only_events_between_start_and_stop_are_recorded() {
    let memory = Memory::new();
    let options = Options {
        dynamic: true,
        ..Options::default()
    };
    let mut recording = Recording::new(memory.timeline(options));
    recording.order(&TimelineCommand::Stop).unwrap(); // nothing to stop
    recording.step(10, &["a"]);
    assert!(memory.names().is_empty());
    recording.order(&start("t.json")).unwrap();
    assert!(ends(&memory.text()).is_empty()); // valid from the start
    recording.step(20, &["b"]);
    recording.order(&start("t.json")).unwrap(); // continues
    recording.step(30, &["a"]);
    recording.order(&start("u.json")).unwrap(); // another file
    assert_eq!(ends(&memory.text()), [26, 36]); // complete when the command has been applied
    recording.step(40, &["a"]);
    recording.order(&TimelineCommand::Stop).unwrap();
    assert_eq!(ends(&memory.text_of("u.json")), [46]);
    assert!(!recording.track.is_on());
    recording.step(50, &["a"]);
    recording.order(&TimelineCommand::Stop).unwrap();
    recording.order(&start("t.json")).unwrap(); // a new file
    recording.step(60, &["c"]);
    recording.finish();
    assert_eq!(ends(&memory.text()), [66]);
    assert_eq!(memory.names(), ["t.json", "u.json"]);
    // Each file has its own numbers, in order of first appearance in it.
    assert_eq!(tensors(&memory.text_of("u.json")), ["a"]);
    assert_eq!(tensors(&memory.text()), ["c"]);
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_of_the_order() {
    let memory = Memory::new();
    let mut recording = Recording::new(memory.timeline(Options::default()));
    let error = recording.order(&start("/nowhere/t.json")).unwrap_err();
    assert!(error.to_string().contains("/nowhere/t.json"), "{error}");
    recording.step(10, &["a"]);
    recording.order(&start("t.json")).unwrap();
    recording.step(20, &["a"]);
    // The current recording is closed first.
    assert!(recording.order(&start("/nowhere/t.json")).is_err());
    recording.step(30, &["a"]);
    recording.finish();
    assert_eq!(ends(&memory.text()), [26]);
}

#[test]
fn other_ranks_write_files_of_their_own_or_none() {
    for all_ranks in [false, true] {
        let memory = Memory::new();
        let options = Options {
            path: Some("a/t.json".into()),
            all_ranks,
            rank: 2,
            size: 3,
            ..Options::default()
        };
        let mut recording = Recording::new(memory.timeline(options));
        recording.step(10, &["a"]);
        recording.order(&start("b")).unwrap();
        recording.step(20, &["a"]);
        recording.finish();
        if all_ranks {
            assert_eq!(memory.names(), ["a/t.rank2.json", "b.rank2"]);
            assert_eq!(ends(&memory.text_of("b.rank2")), [26]);
        } else {
            assert!(memory.names().is_empty());
        }
    }
}

#[test]
fn a_tensor_of_another_process_set_is_another_bar() {
    let memory = Memory::new();
    let mut recording = memory.recording(false, 4096);
    recording.step(10, &["a"]);
    // At the same time, in the same file.
    let mut track = recording.timeline.track(Some(2), 0);
    track.begin_cycle(us(10));
    let a = track.tensor("a");
    let b = track.tensor("b");
    track.executed(&allreduce(12, 19, &[]), [member(a), member(b)]);
    track.end_cycle();
    drop(track); // the set is removed
    recording.step(30, &["a"]);
    recording.finish();
    let mut names = tensors(&memory.text());
    names.sort();
    assert_eq!(names, ["a", "a [set 2]", "b [set 2]"]);
    let mut ended = ends(&memory.text());
    ended.sort();
    assert_eq!(ended, [16, 19, 19, 36]);
}

fn windowed(first: u64, last: Option<u64>) -> Options {
    Options {
        path: Some("t.json".into()),
        dynamic: true,
        mark_cycles: true,
        steps: Some(StepRange { first, last }),
        ..Options::default()
    }
}

#[test]
fn a_window_holds_its_steps_only() {
    let memory = Memory::new();
    let mut recording = Recording::new(memory.timeline(windowed(3, Some(4))));
    for step in 1..=6 {
        recording.step(step * 100, &["a"]);
        recording.step(step * 100 + 50, &["b"]);
    }
    recording.finish();
    let text = memory.text();
    assert_eq!(ends(&text), [306, 356, 406, 456]);
    let cycles = balanced(&text);
    let cycles = cycles.iter().filter(|event| event["name"] == "CYCLE_START");
    let cycles: Vec<u64> = cycles.map(|event| event["ts"].as_u64().unwrap()).collect();
    assert_eq!(cycles, [300, 350, 400, 450]);
}

#[test]
fn nothing_is_recorded_after_a_window() {
    let memory = Memory::new();
    let mut recording = Recording::new(memory.timeline(windowed(1, Some(3))));
    for step in 1..=4 {
        recording.step(step * 100, &["a"]);
    }
    // The writer has run when this is answered.
    recording.order(&start("u.json")).unwrap();
    recording.order(&TimelineCommand::Stop).unwrap();
    assert_eq!(ends(&memory.text()), [106, 206, 306]);
    recording.step(500, &["a"]);
    assert!(!recording.track.is_on());
    recording.finish();
}

#[test]
fn an_open_window_counts_marked_steps_by_time() {
    let memory = Memory::new();
    let mut recording = Recording::new(memory.timeline(windowed(2, None)));
    // The first cycle of step 2 has both of its tensors, submitted at 196, and the mark that ended
    // step 1 at 150.
    recording.step(100, &["a"]);
    recording.track.mark_steps(&[]);
    recording.track.begin_cycle(us(200));
    let a = recording.track.tensor("a");
    let second = Member {
        submitted: Some(us(196)),
        ..member(a)
    };
    recording
        .track
        .executed(&allreduce(201, 206, &[]), [second, second]);
    recording.track.mark_steps(&[us(150)]);
    recording.track.end_cycle();
    recording.finish();
    let text = memory.text();
    assert_eq!(ends(&text), [206, 206]);
    let step = balanced(&text)
        .into_iter()
        .find(|event| event["name"] == "STEP")
        .unwrap();
    assert_eq!(
        (&step["ts"], &step["args"]["step"]),
        (&150.into(), &1.into())
    );
}

#[test]
fn a_negotiation_belongs_to_the_step_of_its_tensor_though_another_rank_is_ahead() {
    let memory = Memory::new();
    let options = Options {
        size: 2,
        ..windowed(2, Some(2))
    };
    let mut recording = Recording::new(memory.timeline(options));
    let track = &mut recording.track;
    let a = track.tensor("a");
    // Rank 1 is ready for a step before rank 0 has marked the end of the previous one; rank 0 is
    // ready directly after the mark.
    for step in 1..=3 {
        let ended = step * 100 + 100;
        track.begin_cycle(us(ended - 70));
        let ticks = [(0, ended - 100), (1, ended - 120)];
        track.negotiated(a, OpKind::Allreduce, ticks.into_iter(), us(ended - 60));
        let own = Member {
            submitted: Some(Nanos((ended - 100) * 1_000 + 500)),
            ..member(a)
        };
        track.executed(&allreduce(ended - 50, ended - 40, &[]), [own]);
        track.mark_steps(&[Nanos(ended * 1_000 + 400)]);
        track.end_cycle();
    }
    recording.finish();
    let text = memory.text();
    assert_eq!(ends(&text), [260]);
    let events = balanced(&text);
    let negotiated = events
        .iter()
        .filter(|event| event["name"] == "NEGOTIATE_ALLREDUCE");
    let began: Vec<u64> = negotiated
        .map(|event| event["ts"].as_u64().unwrap())
        .collect();
    assert_eq!(began, [180]);
}

#[test]
fn a_recording_continues_after_a_reset() {
    let memory = Memory::new();
    let options = |resets, size| Options {
        path: Some("of_resets.json".into()), // of no other test: the process keeps recordings
        resets,
        size,
        settings: Settings {
            fusion_threshold_bytes: 1000 * size as u64,
            cycle_time_ns: 5,
            ..Settings::default()
        },
        ..Options::default()
    };
    let mut recording = Recording::new(memory.timeline(options(0, 2)));
    recording.step(10, &["a", "b"]);
    recording.track.begin_cycle(us(18));
    recording.track.mark_steps(&[us(18)]);
    recording.finish();
    let first = memory.text_of("of_resets.json");
    let mut recording = Recording::new(memory.timeline(options(3, 4)));
    recording.step(30, &["b", "c"]);
    recording.track.begin_cycle(us(38));
    recording.track.mark_steps(&[us(38)]);
    recording.finish();
    let text = memory.text_of("of_resets.json");
    assert!(text.starts_with(first.trim_end_matches(']')), "{text}");
    assert_eq!(ends(&text), [16, 16, 36, 36]);
    assert_eq!(tensors(&text), ["a", "b", "c"]);
    let marks: Vec<Value> = balanced(&text);
    let marks: Vec<String> = marks
        .iter()
        .filter(|event| event["ph"] == "i")
        .map(|event| format!("{} {}", event["name"].as_str().unwrap(), event["args"]))
        .collect();
    let expected = [
        r#"STEP {"step":1}"#,
        r#"SETTINGS {"cycle_time_ns":5,"fusion_threshold_bytes":4000}"#,
        r#"RESET {"reset":3,"size":4}"#,
        r#"STEP {"step":2}"#,
    ];
    assert_eq!(marks, expected);
    assert_eq!(metadata(&text, "process_labels", "ronde")["size"], 4);
    // A process that has recorded nothing leaves the files of others alone.
    let mut recording = Recording::new(memory.timeline(Options {
        path: Some("others.json".into()),
        ..options(2, 2)
    }));
    recording.step(10, &["a"]);
    recording.finish();
    assert_eq!(memory.names(), ["of_resets.json", "others.reset2.json"]);
}
