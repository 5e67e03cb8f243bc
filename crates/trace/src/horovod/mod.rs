//! Reader for the timelines of Horovod (old and new versions) and Ronde: each tensor is a process
//! (`pid`) whose bars open (`B`) and close (`E`).
//!
//! ```text
//! B NEGOTIATE_ALLREDUCE   X 0  X 1 (ranks)   E      negotiation, from first to last ready rank
//! B ALLREDUCE   B MPI_ALLREDUCE  E   E              execution, activities; dtype, shape at end
//! ```
//! A negotiation and the execution that follows it are one operation. Horovod's barriers and joins
//! have no execution, but an end. The bars of one tensor are processed in the order of the file,
//! whatever their times.

mod activities;
mod arguments;
mod header;
mod tracks;

pub(super) use self::header::of_ronde;

use self::activities::Activities;
use self::arguments::{rank, sums};
use self::tracks::{Stage, TrackId, Tracks};
use super::complaint::{Complaint, FilePosition};
use super::event::{Event, Id, Time};
use super::json::{NS_MAX, Value};
use super::model::{Activity, Kind, Mark, MarkKind, Span, Tick};
use super::reader::Out;
use super::vocabulary;

/// Reader for Horovod's and Ronde's timelines.
#[derive(Debug, Default)]
pub(super) struct Horovod {
    tracks: Tracks,
    activities: Activities,
    /// Time of the previous event, nanoseconds.
    latest: i64,
    /// Highest rank named by a tick.
    highest_rank: Option<u32>,
}

impl Horovod {
    /// Reads the next event.
    #[inline]
    pub(super) fn event(&mut self, event: &Event<'_>, place: FilePosition<'_>, out: &mut Out<'_>) {
        match event.phase {
            b'B' | b'E' | b'X' => {}
            b'M' => return header::metadata(event, place, &mut self.tracks, out),
            b'i' | b'I' | b'R' => return self.instant(event, place, out),
            // Counters, flows and other event types, which Horovod does not write.
            _ => return,
        }
        let Some(track) = self.tracks.find(event.process) else {
            let detail = || format!("{:?}", event.name.decode());
            return out.complaints.add(Complaint::NoProcess, place, detail);
        };
        let at = self.time(event, place, out);
        let scene = Scene {
            event,
            place,
            track,
            at,
        };
        match event.phase {
            b'B' => self.begin(scene, out),
            b'E' => self.end(scene, out),
            _ => self.complete(scene, out),
        }
    }

    fn time(&mut self, event: &Event<'_>, place: FilePosition<'_>, out: &mut Out<'_>) -> i64 {
        if let Time::Ns(ns) = event.at {
            self.latest = ns;
        } else {
            out.complaints.add(Complaint::BadTime, place, String::new);
        }
        self.latest
    }

    fn instant(&mut self, event: &Event<'_>, place: FilePosition<'_>, out: &mut Out<'_>) {
        let count = |key| event.argument(key).and_then(Value::count);
        let kind = match event.name.raw {
            b"CYCLE_START" => MarkKind::Cycle,
            b"STEP" => MarkKind::Step,
            b"EPOCH" => MarkKind::Epoch,
            b"SETTINGS" => match (count("fusion_threshold_bytes"), count("cycle_time_ns")) {
                (Some(fusion_threshold_bytes), Some(cycle_time_ns)) => MarkKind::Settings {
                    fusion_threshold_bytes,
                    cycle_time_ns,
                    gpu_fusion_threshold_bytes: count("gpu_fusion_threshold_bytes"),
                },
                _ => return,
            },
            _ => return,
        };
        let at = self.time(event, place, out);
        out.visitor.mark(Mark { kind, at });
    }

    /// Opens a bar.
    fn begin(&mut self, scene: Scene<'_>, out: &mut Out<'_>) {
        let name = scene.event.name.raw;
        let stage = self.tracks.stage(scene.track);
        if let Some(of) = name.strip_prefix(b"NEGOTIATE_") {
            if stage != Stage::Idle {
                self.abandon(scene, out);
            }
            let open = self.tracks.open(scene.track);
            open.stage = Stage::Negotiating;
            open.began = scene.at;
            open.operation.kind = vocabulary::kind(of).unwrap_or(Kind::Other);
            return;
        }
        let kind = vocabulary::kind(name);
        if stage == Stage::Executing {
            if kind.is_none() {
                let (name, phase) = self.activities.look_up(scene.event.name, out);
                return self.tracks.open(scene.track).push(name, phase, scene.at);
            }
            // The end of the previous execution is lost.
            self.abandon(scene, out);
        }
        let open = self.tracks.open(scene.track);
        if open.stage == Stage::Negotiating {
            scene.complain(Complaint::NoEnd, out);
            open.end_negotiation(scene.at);
        }
        open.stage = Stage::Executing;
        open.began = scene.at;
        open.operation.refused = name == b"ERROR";
        match kind {
            Some(kind) => open.operation.kind = kind,
            // An activity; the start of its operation is lost.
            None if vocabulary::phase(name).is_some() => {
                let (name, phase) = self.activities.look_up(scene.event.name, out);
                open.push(name, phase, scene.at);
            }
            None => {}
        }
    }

    /// Closes a bar.
    fn end(&mut self, scene: Scene<'_>, out: &mut Out<'_>) {
        let stage = self.tracks.stage(scene.track);
        if stage == Stage::Idle {
            return scene.complain(Complaint::NoBegin, out);
        }
        let open = self.tracks.open(scene.track);
        match stage {
            Stage::Negotiating => {
                if !open.end_negotiation(scene.at) {
                    scene.complain(Complaint::Backwards, out);
                }
            }
            Stage::Executing if open.is_within_activity() => {
                let output = open.output(scene.event);
                if !open.pop(scene.at) {
                    scene.complain(Complaint::Backwards, out);
                }
                if output {
                    // Only the end of an operation has dtype and shape: the end of the activity is
                    // lost.
                    scene.complain(Complaint::NoEnd, out);
                    while open.is_within_activity() {
                        open.pop(scene.at);
                    }
                    self.executed(scene, out);
                } else if !scene.event.arguments.is_empty() {
                    open.operation.sums = sums(scene.event).or(open.operation.sums);
                }
            }
            Stage::Executing => {
                open.output(scene.event);
                self.executed(scene, out);
            }
            Stage::Negotiated if matches!(open.operation.kind, Kind::Barrier | Kind::Join) => {
                open.began = open
                    .operation
                    .negotiation
                    .map_or(scene.at, |span| span.ended);
                self.executed(scene, out);
            }
            Stage::Negotiated | Stage::Idle => scene.complain(Complaint::NoBegin, out),
        }
    }

    /// Closes the bar of the whole operation.
    fn executed(&mut self, scene: Scene<'_>, out: &mut Out<'_>) {
        let open = self.tracks.open(scene.track);
        if scene.at < open.began {
            scene.complain(Complaint::Backwards, out);
        }
        let ended = scene.at.max(open.began);
        let began = open.began;
        open.operation.execution = (!open.operation.refused).then_some(Span { began, ended });
        self.tracks.emit(scene.track, scene.place, out);
    }

    /// Reads a complete event (`X`): a rank's tick, or an activity with a duration.
    fn complete(&mut self, scene: Scene<'_>, out: &mut Out<'_>) {
        let name = scene.event.name.raw;
        let stage = self.tracks.stage(scene.track);
        if let Some(rank) = rank(name) {
            if stage != Stage::Negotiating {
                return scene.complain(Complaint::StrayTick, out);
            }
            self.highest_rank = self.highest_rank.max(Some(rank));
            let ticks = &mut self.tracks.open(scene.track).operation.ticks;
            return ticks.push(Tick { rank, at: scene.at });
        }
        let duration = match scene.event.duration {
            Time::Ns(ns) if ns >= 0 => ns,
            _ => {
                scene.complain(Complaint::NoDuration, out);
                0
            }
        };
        let span = Span {
            began: scene.at,
            ended: (scene.at + duration).min(NS_MAX),
        };
        if let Some(of) = name.strip_prefix(b"NEGOTIATE_") {
            if stage != Stage::Idle {
                self.abandon(scene, out);
            }
            let open = self.tracks.open(scene.track);
            open.stage = Stage::Negotiated;
            open.operation.kind = vocabulary::kind(of).unwrap_or(Kind::Other);
            open.operation.negotiation = Some(span);
            return;
        }
        let kind = vocabulary::kind(name);
        if stage == Stage::Executing && kind.is_none() {
            let (name, phase) = self.activities.look_up(scene.event.name, out);
            let activities = &mut self.tracks.open(scene.track).operation.activities;
            return activities.push(Activity { name, phase, span });
        }
        if stage == Stage::Executing {
            self.abandon(scene, out);
        }
        let open = self.tracks.open(scene.track);
        if open.stage == Stage::Negotiating {
            scene.complain(Complaint::NoEnd, out);
            open.end_negotiation(scene.at);
        }
        if let Some(kind) = kind {
            open.operation.kind = kind;
        } else if vocabulary::phase(name).is_some() {
            let (name, phase) = self.activities.look_up(scene.event.name, out);
            open.operation
                .activities
                .push(Activity { name, phase, span });
        }
        open.output(scene.event);
        open.operation.sums = sums(scene.event).or(open.operation.sums);
        open.operation.execution = Some(span);
        self.tracks.emit(scene.track, scene.place, out);
    }

    /// Ends the tensor's current operation, because the next event belongs to another one. Its
    /// negotiation is kept.
    fn abandon(&mut self, scene: Scene<'_>, out: &mut Out<'_>) {
        if !matches!(
            self.tracks.stage(scene.track),
            Stage::Negotiated | Stage::Idle
        ) {
            scene.complain(Complaint::NoEnd, out);
        }
        self.tracks.settle(scene.track, scene.place, out);
    }

    /// Ends the file.
    pub(super) fn finish(mut self, out: &mut Out<'_>) {
        self.tracks.finish(out);
        header::infer(self.highest_rank, out);
    }
}

/// An event with its tensor, time and place.
#[derive(Clone, Copy)]
struct Scene<'a> {
    event: &'a Event<'a>,
    place: FilePosition<'a>,
    track: TrackId,
    at: i64,
}

impl Scene<'_> {
    #[cold]
    fn complain(&self, complaint: Complaint, out: &mut Out<'_>) {
        out.complaints.add(complaint, self.place, || {
            let pid = match self.event.process {
                Id::Number(number) => number.to_string(),
                Id::Text(text) => format!("{:?}", String::from_utf8_lossy(text)),
                Id::None => "none".to_owned(),
            };
            let name = self.event.name.decode();
            if name.is_empty() {
                format!("pid {pid}")
            } else {
                format!("{name:?}, pid {pid}")
            }
        });
    }
}

#[cfg(test)]
mod tests;
