//! Logs of one member of a simulated set, for the checkers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock::{Alignment, Nanos};
use crate::command::TimelineCommand;
use crate::cycle::Stalls;
use crate::error::{Error, SettingsError};
use crate::observer::{
    CycleEnd, Executed, Negotiated, Observer, Pending, ReadyTimes, StallCheck, WantedTimes,
};
use crate::settings::{Settings, Versioned};
use crate::sync::lock;
use crate::timeline::Activity;
use crate::transport::simulated::{SimulatedClock, World};

/// Log of one rank in one set; equal on all of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Log {
    /// Names of each batch's tensors.
    pub(super) batches: Vec<Vec<String>>,
    /// Names of the tensors of each batch on the device, in the order in which the batches ran.
    pub(super) device_batches: Vec<Vec<String>>,
    /// Version of the settings in force in each cycle.
    pub(super) versions: Vec<u64>,
    /// Timeline commands that were applied, and the numbers of cycles before them.
    pub(super) commands: Vec<(usize, TimelineCommand)>,
    /// Settings that came into force, and the numbers of cycles before them.
    pub(super) switched: Vec<(usize, Versioned<Settings>)>,
    /// Activity of each batch with data, such as `SIM_ALLREDUCE_HIERARCHICAL`.
    pub(super) ways: Vec<&'static str>,
}

/// Log of one rank that differs between ranks.
#[derive(Clone, Debug, Default)]
pub(super) struct Diary {
    /// Numbers of steps and epochs that were marked.
    pub(super) marks: (usize, usize),
    pub(super) alignments: Vec<Alignment>,
    /// Error of the estimate of rank 0's clock, and its stated bound, at the end of each cycle
    /// since the first alignment.
    pub(super) off: Vec<(Duration, Duration)>,
    /// Tensors that were ready everywhere, and the time at which each rank was ready: microseconds
    /// on rank 0's clock.
    pub(super) ready_us: Vec<(String, Vec<Option<u64>>)>,
}

/// Observer that writes both logs and checks that every batch was flat or hierarchical as the
/// settings of its cycle say; on set rank 0 it also changes the settings. It cannot write to a file
/// named `no`.
pub(super) struct Recorder {
    pub(super) log: Arc<Mutex<Log>>,
    pub(super) diary: Arc<Mutex<Diary>>,
    pub(super) world: Arc<World>,
    /// Clock of this rank.
    pub(super) clock: SimulatedClock,
    /// Number of cycles after which it changes the settings; 0 = never.
    pub(super) retune_every: u64,
    pub(super) cycles: u64,
    /// Number of batches that were checked against the settings of their cycle.
    pub(super) checked: usize,
    pub(super) stalls: Option<Stalls>,
}

/// Suffix of the activity name of a hierarchical batch.
pub(super) const HIERARCHICAL: &str = "_HIERARCHICAL";

impl Observer for Recorder {
    fn negotiated(&mut self, negotiated: &Negotiated<'_>, ready: ReadyTimes<'_>) {
        let ReadyTimes::OfRanks(ready_us) = ready else {
            unreachable!("not wanted");
        };
        let note = (negotiated.tensor.name.to_string(), ready_us.collect());
        lock(&self.diary).ready_us.push(note);
    }

    fn wanted_times(&self) -> WantedTimes {
        WantedTimes::OfRanks
    }

    fn executed(&mut self, batch: &Executed<'_>) {
        let names = batch
            .members
            .iter()
            .map(|member| member.submission.tensor.name.to_string())
            .collect();
        let mut log = lock(&self.log);
        match batch.on_device {
            None => log.batches.push(names),
            Some(activities) => {
                assert!(
                    batch.began <= batch.ended,
                    "{:?} {:?}",
                    batch.began,
                    batch.ended
                );
                let within = |activity: &Activity| {
                    activity.began >= batch.began && activity.ended <= batch.ended
                };
                assert!(activities.iter().all(within));
                let is_allreduce = |activity: &Activity| activity.name.ends_with("_ALLREDUCE");
                assert!(activities.iter().any(is_allreduce));
                log.device_batches.push(names);
            }
        }
        if let Some(stages) = batch.stages {
            log.ways.push(stages.collective);
        }
    }

    fn apply_timeline_command(&mut self, command: &TimelineCommand) -> Result<(), Error> {
        let mut log = lock(&self.log);
        let cycle = log.versions.len();
        log.commands.push((cycle, command.clone()));
        match command {
            TimelineCommand::Start { path, .. } if path.as_os_str() == "no" => {
                Err(SettingsError::Output {
                    what: "the timeline",
                    path: path.clone(),
                    variable: "start_timeline",
                    source: Arc::new(std::io::ErrorKind::PermissionDenied.into()),
                }
                .into())
            }
            _ => Ok(()),
        }
    }

    fn aligned(&mut self, alignment: &Alignment) {
        lock(&self.diary).alignments.push(*alignment);
    }

    fn check_stalls(&mut self, now: Nanos, pending: &dyn Pending) -> Result<StallCheck, Error> {
        self.stalls
            .as_mut()
            .map_or(Ok(StallCheck::default()), |stalls| {
                stalls.look(now, pending, &mut |_| {})
            })
    }

    fn cycle_ended(&mut self, cycle: &CycleEnd) -> Option<Settings> {
        let mut diary = lock(&self.diary);
        diary.marks.0 += cycle.step_marks.len();
        diary.marks.1 += cycle.epoch_marks.len();
        if let Some(alignment) = diary.alignments.last() {
            let present = self.world.present();
            let (own, truth) = (
                self.clock.at(present),
                SimulatedClock::new(&self.world, 0).at(present),
            );
            let thought = alignment.to_reference(own);
            let off = Duration::from_nanos(truth.0.abs_diff(thought.0));
            let bound = alignment.error_at(own);
            diary.off.push((off, bound));
        }
        let mut log = lock(&self.log);
        if log.versions.last().copied().unwrap_or(0) != cycle.settings.version {
            let cycles = log.versions.len();
            log.switched.push((cycles, cycle.settings));
        }
        log.versions.push(cycle.settings.version);
        for way in &log.ways[self.checked..] {
            let kind = way.trim_end_matches(HIERARCHICAL);
            let hierarchical = match kind {
                "SIM_ALLREDUCE" => cycle.settings.hierarchical_allreduce,
                "SIM_ALLGATHER" => cycle.settings.hierarchical_allgather,
                _ => false,
            };
            assert_eq!(
                way.ends_with(HIERARCHICAL),
                hierarchical,
                "{way} under {}",
                cycle.settings.value
            );
        }
        self.checked = log.ways.len();
        drop(log);
        self.cycles += 1;
        let retune = self.retune_every > 0 && self.cycles.is_multiple_of(self.retune_every);
        retune.then(|| Settings {
            fusion_threshold_bytes: 64 * self.cycles,
            gpu_fusion_threshold_bytes: 48 * self.cycles,
            cache: !cycle.settings.cache,
            hierarchical_allreduce: !cycle.settings.hierarchical_allreduce,
            ..cycle.settings.value
        })
    }
}
