//! Recorder: puts a record of each step into a ring, for the feed. It runs in the cycle, so it does
//! not allocate, lock or call the system for a tensor or a step.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use ronde_dash::{End, LogKind};
use rtrb::{Consumer, Producer, RingBuffer};

use super::feed::{Feed, Source};
use super::shared::Shared;
use crate::autotune::{Progress, Purpose};
use crate::clock::Nanos;
use crate::command::TimelineCommand;
use crate::error::{Error, NegotiationError, PeerError};
use crate::identity::Hosts;
use crate::observer::{Agreed, CycleEnd};
use crate::settings::{Settings, Versioned};
use crate::telemetry::StepEnd;

/// Records that wait for the feed, which takes them every 0.2 s. A step that finds the ring full is
/// part of the next record.
const RECORDS: usize = 4096;

/// Recorder of rank 0, for the set of all ranks. Its methods are those of
/// [`Observer`](crate::observer::Observer).
pub(crate) struct Recorder {
    shared: Arc<Shared>,
    progress: Arc<Progress>,
    records: Producer<Record>,
    /// Arguments of the feed, until it runs.
    source: Option<(Source, Consumer<Record>)>,
    feed: Option<JoinHandle<()>>,
    /// Number of ends of steps; the first one begins step 0.
    ends: u64,
    /// Steps that have ended in this cycle, or found the ring full.
    ended: Option<Ended>,
    /// Sums of the cycles before the current one, since the last end of a step, and of the current
    /// one: a mark that was made before the cycle is received after it.
    sums: Sums,
    cycle: Sums,
    cycle_began: Nanos,
    settings: Option<Versioned<Settings>>,
    /// Purpose of the current step.
    purpose: Purpose,
    /// Whether the first step begins in this cycle: the time that callers were blocked was before.
    begins: bool,
}

/// Record for the feed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Record {
    Steps(Steps),
    Settings(Change),
}

/// Consecutive steps at the same settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Steps {
    /// Number of the first one.
    pub(super) first: u64,
    pub(super) count: u64,
    /// Time of all.
    pub(super) took: Duration,
    pub(super) settings: Settings,
    pub(super) purpose: Purpose,
    pub(super) sums: Sums,
}

/// Change of settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Change {
    /// First step under them.
    pub(super) step: u64,
    pub(super) settings: Settings,
    pub(super) purpose: Purpose,
}

/// Sums of the measurements of steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sums {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    /// Sum of the messages' shares of the fusion threshold, and the number of messages with one.
    pub(super) fill: f64,
    pub(super) filled: u64,
    pub(super) negotiation: Duration,
    pub(super) blocked: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Ended {
    first: u64,
    count: u64,
    took: Duration,
}

impl Recorder {
    pub(super) fn new(shared: Arc<Shared>, source: Source) -> Self {
        let progress = Arc::clone(&source.progress);
        let (mut recorder, records) = Self::without_feed(shared, progress);
        recorder.source = Some((source, records));
        recorder
    }

    fn without_feed(shared: Arc<Shared>, progress: Arc<Progress>) -> (Self, Consumer<Record>) {
        let (records, taken) = RingBuffer::new(RECORDS);
        let recorder = Self {
            shared,
            progress,
            records,
            source: None,
            feed: None,
            ends: 0,
            ended: None,
            sums: Sums::default(),
            cycle: Sums::default(),
            cycle_began: Nanos(0),
            settings: None,
            purpose: Purpose::None,
            begins: false,
        };
        (recorder, taken)
    }

    /// Starts the feed.
    pub(crate) fn connected(&mut self, hosts: Hosts) {
        let Some((source, records)) = self.source.take() else {
            return;
        };
        let feed = Feed::new(source, records, Arc::clone(&self.shared));
        let thread = std::thread::Builder::new().name("ronde-dash-feed".into());
        match thread.spawn(move || feed.run(hosts)) {
            Ok(thread) => {
                self.shared.feed.get_or_init(|| thread.thread().clone());
                self.feed = Some(thread);
            }
            Err(error) => tracing::warn!("the live page gets no events: {error}"),
        }
    }

    pub(crate) fn agreed(&mut self, agreed: &Agreed) {
        self.close_cycle();
        self.cycle_began = agreed.began;
        self.cycle.negotiation = agreed.ended - agreed.began;
        if let Some(last) = &agreed.last {
            self.shared.late(last.rank, last.late_us);
        }
    }

    /// A batch of `bytes` was executed.
    pub(crate) fn executed(&mut self, bytes: u64, is_on_device: bool) {
        self.cycle.messages += 1;
        self.cycle.bytes += bytes;
        let settings = self.settings.map(|settings| settings.value);
        let threshold = settings.map_or(0, |settings| match is_on_device {
            true => settings.device_threshold_bytes(),
            false => settings.fusion_threshold_bytes,
        });
        if threshold > 0 {
            self.cycle.fill += (bytes as f64 / threshold as f64).min(1.0);
            self.cycle.filled += 1;
        }
    }

    pub(crate) fn step_ended(&mut self, end: &StepEnd) {
        if self.cycle_began < end.at {
            self.close_cycle();
        }
        let Some(took) = end.took else {
            // The time until now was no step, or only a part of one.
            self.sums = Sums::default();
            self.ended = None;
            self.ends = self.ends.max(1);
            self.begins = true;
            return;
        };
        let step = self.ends.saturating_sub(1);
        self.ends += 1;
        self.progress.count_steps(step + 1);
        let ended = self.ended.get_or_insert(Ended {
            first: step,
            count: 0,
            took: Duration::ZERO,
        });
        ended.count += 1;
        ended.took += took;
    }

    pub(crate) fn timeline_command(
        &mut self,
        command: &TimelineCommand,
        outcome: &Result<(), Error>,
    ) {
        if outcome.is_err() {
            return; // its caller gets the error
        }
        let text = match command {
            TimelineCommand::Start { path, .. } => format!("timeline started: {}", path.display()),
            TimelineCommand::Stop => "timeline stopped".to_owned(),
        };
        self.shared.log(LogKind::Timeline, text);
    }

    /// `purpose`: purpose of the next step.
    pub(crate) fn cycle_ended(&mut self, cycle: &CycleEnd, purpose: Purpose) {
        if !std::mem::take(&mut self.begins) {
            self.sums.blocked += cycle.blocked;
        }
        if self.settings != Some(cycle.settings) {
            let ended = self.ended.map(|ended| ended.first);
            let change = Change {
                step: ended.unwrap_or(self.ends.saturating_sub(1)),
                settings: cycle.settings.value,
                purpose: self.purpose,
            };
            // The first settings are no change.
            if self.settings.is_none() || self.records.push(Record::Settings(change)).is_ok() {
                self.settings = Some(cycle.settings);
            }
        }
        if let Some(ended) = self.ended {
            let steps = Steps {
                first: ended.first,
                count: ended.count,
                took: ended.took,
                settings: cycle.settings.value,
                purpose: self.purpose,
                sums: self.sums,
            };
            if self.records.push(Record::Steps(steps)).is_ok() {
                (self.ended, self.sums) = (None, Sums::default());
            }
        }
        self.purpose = purpose;
    }

    /// Tensors have stalled, as `text` reports.
    pub(crate) fn stalled(&mut self, text: &str) {
        self.shared.log(LogKind::Stall, text.to_owned());
    }

    pub(crate) fn ended(&mut self, error: &Error) {
        let text = error.to_string();
        let (failed, kind) = match error {
            Error::Peer(PeerError::Left { .. }) => (false, Some(LogKind::Info)),
            _ if error.is_orderly() => (false, None),
            _ if error.is_peer_gone() => (true, Some(LogKind::LostRank)),
            Error::Negotiation(NegotiationError::Stalled { .. }) => (true, Some(LogKind::Stall)),
            _ => (true, Some(LogKind::Warning)),
        };
        let end = match kind {
            None => "the job has ended".to_owned(),
            Some(_) => format!("the job has ended: {text}"),
        };
        if let Some(kind) = kind {
            self.shared.log(kind, text);
        }
        self.shared.set_end(End { failed, text: end });
    }

    fn close_cycle(&mut self) {
        self.sums.add(&std::mem::take(&mut self.cycle));
    }
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.messages += other.messages;
        self.bytes += other.bytes;
        self.fill += other.fill;
        self.filled += other.filled;
        self.negotiation += other.negotiation;
        self.blocked += other.blocked;
    }
}

impl Drop for Recorder {
    /// Returns when connected pages have received the end of the job, within a second.
    fn drop(&mut self) {
        self.shared.finish();
        if let Some(feed) = self.feed.take() {
            let _ = feed.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder() -> (Recorder, Consumer<Record>) {
        Recorder::without_feed(Arc::new(Shared::new(2)), Arc::default())
    }

    fn ms(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    fn cycle(recorder: &mut Recorder, began_ms: u64, bytes: u64) {
        recorder.agreed(&Agreed {
            began: ms(began_ms),
            ended: ms(began_ms + 1),
            has_joined: false,
            last: None,
        });
        recorder.executed(bytes, false);
    }

    fn cycle_end(version: u64, fusion_threshold_bytes: u64) -> CycleEnd {
        CycleEnd {
            settings: Versioned {
                version,
                value: Settings {
                    fusion_threshold_bytes,
                    ..Settings::default()
                },
            },
            step_marks: Vec::new(),
            epoch_marks: Vec::new(),
            blocked: Duration::from_millis(2),
        }
    }

    fn step_end(at_ms: u64, took_ms: u64) -> StepEnd {
        StepEnd {
            at: ms(at_ms),
            took: (took_ms > 0).then(|| Duration::from_millis(took_ms)),
        }
    }

    #[test]
    fn a_record_has_the_sums_of_the_cycles_before_the_end_of_its_step() {
        let (mut recorder, mut records) = recorder();
        cycle(&mut recorder, 0, 100);
        recorder.step_ended(&step_end(5, 0)); // the first end
        recorder.cycle_ended(&cycle_end(0, 1000), Purpose::Default);
        cycle(&mut recorder, 10, 500);
        recorder.cycle_ended(&cycle_end(0, 1000), Purpose::Default);
        // A mark that was made before this cycle.
        cycle(&mut recorder, 20, 3000);
        recorder.step_ended(&step_end(15, 10));
        recorder.cycle_ended(&cycle_end(0, 1000), Purpose::Sample);
        let Ok(Record::Steps(steps)) = records.pop() else {
            panic!("no step");
        };
        assert_eq!((steps.first, steps.count), (0, 1));
        assert_eq!(steps.took, Duration::from_millis(10));
        assert_eq!(steps.purpose, Purpose::Default);
        assert_eq!(steps.sums.bytes, 500);
        assert_eq!((steps.sums.fill, steps.sums.filled), (0.5, 1));
        assert_eq!(steps.sums.negotiation, Duration::from_millis(1));
        assert_eq!(steps.sums.blocked, Duration::from_millis(4)); // of two cycles
        // The other cycle belongs to the next step, under new settings.
        recorder.step_ended(&step_end(30, 15));
        recorder.cycle_ended(&cycle_end(1, 2000), Purpose::Sample);
        let change = match records.pop() {
            Ok(Record::Settings(change)) => change,
            other => panic!("{other:?}"),
        };
        assert_eq!((change.step, change.purpose), (1, Purpose::Sample));
        assert_eq!(change.settings.fusion_threshold_bytes, 2000);
        let Ok(Record::Steps(steps)) = records.pop() else {
            panic!("no step");
        };
        assert_eq!(
            (steps.first, steps.sums.bytes, steps.sums.fill),
            (1, 3000, 1.0)
        );
        assert!(records.pop().is_err());
    }

    #[test]
    fn steps_that_find_the_ring_full_are_part_of_the_next_record() {
        let (mut recorder, mut records) = recorder();
        recorder.step_ended(&step_end(0, 0));
        for step in 1..=RECORDS as u64 + 10 {
            cycle(&mut recorder, step * 10, 1);
            recorder.step_ended(&step_end(step * 10 + 5, 10));
            recorder.cycle_ended(&cycle_end(0, 1000), Purpose::None);
        }
        let mut steps = 0;
        while records.pop().is_ok() {
            steps += 1;
        }
        assert_eq!(steps, RECORDS);
        recorder.cycle_ended(&cycle_end(0, 1000), Purpose::None);
        let Ok(Record::Steps(rest)) = records.pop() else {
            panic!("no step");
        };
        assert_eq!((rest.first, rest.count), (RECORDS as u64, 10));
        assert_eq!(
            (rest.sums.bytes, rest.took),
            (10, Duration::from_millis(100))
        );
    }
}
