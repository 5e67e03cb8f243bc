//! Options of a recording: files, ranks, window of steps, and the metadata of the files.

use std::path::{Path, PathBuf};

use super::files::of_rank;
use crate::identity::Identity;
use crate::knobs::{Knobs, Link, StepRange};
use crate::settings::Settings;

/// Options of a process's recording. [`Default`] records nothing, as the only rank of a job.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rank 0's file in Horovod's format, recorded from the start; `None` until a command starts a
    /// recording.
    pub path: Option<PathBuf>,
    /// Whether the file marks the starts of cycles.
    pub mark_cycles: bool,
    /// Whether ranks other than 0 write a file of their own, beside rank 0's.
    pub all_ranks: bool,
    /// Steps that the file in Horovod's format is restricted to.
    pub steps: Option<StepRange>,
    /// Approximate size limit of the file and the older one together, bytes; 0 for no limit.
    pub max_bytes: u64,
    /// Trace in BytePS's format.
    pub byteps: Option<BytepsOptions>,
    /// Whether the program may start and stop the timeline.
    pub dynamic: bool,
    /// Rank of this process in the job.
    pub rank: usize,
    /// Number of ranks in the job.
    pub size: usize,
    /// Local rank of this process.
    pub local_rank: usize,
    /// Cross rank of this process.
    pub cross_rank: usize,
    /// Name of its host.
    pub host: String,
    /// Backend through which the ranks reach each other.
    pub backend: &'static str,
    /// Link whose speed the local collective simulates.
    pub link: Option<Link>,
    /// Settings at the start.
    pub settings: Settings,
    /// Resets of the elastic job so far. With more than 0, the recording of this process is
    /// continued; without one, the names of new files have the number of the reset.
    pub resets: u64,
}

/// A trace in BytePS's format.
#[derive(Clone, Debug)]
pub struct BytepsOptions {
    /// Folder that contains the ranks' folders; created if it does not exist.
    pub folder: PathBuf,
    /// Steps to be recorded.
    pub steps: StepRange,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            path: None,
            mark_cycles: false,
            all_ranks: false,
            steps: None,
            max_bytes: 0,
            byteps: None,
            dynamic: false,
            rank: 0,
            size: 1,
            local_rank: 0,
            cross_rank: 0,
            host: String::new(),
            backend: "local",
            link: None,
            settings: Settings::default(),
            resets: 0,
        }
    }
}

impl Options {
    /// Creates the options from the knobs, for the process `identity` and the backend `backend`;
    /// `settings` are those at the start.
    pub fn new(
        knobs: &Knobs,
        identity: &Identity,
        backend: &'static str,
        settings: Settings,
    ) -> Self {
        // Its steps are those before the first reset of an elastic job.
        let has_trace = knobs.byteps_trace && knobs.resets == 0;
        let byteps = has_trace.then(|| BytepsOptions {
            folder: knobs.byteps_trace_folder.clone(),
            steps: StepRange {
                first: knobs.byteps_trace_first_step,
                last: Some(knobs.byteps_trace_last_step),
            },
        });
        Self {
            path: knobs.timeline_path().map(Path::to_owned),
            mark_cycles: knobs.timeline_mark_cycles,
            all_ranks: knobs.timeline_all_ranks,
            steps: knobs.timeline_steps,
            max_bytes: knobs.timeline_max_mb << 20,
            byteps,
            dynamic: knobs.timeline.is_some(),
            rank: identity.rank,
            size: identity.size,
            local_rank: identity.local_rank,
            cross_rank: identity.cross_rank,
            host: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            backend,
            link: knobs.link,
            settings,
            resets: knobs.resets,
        }
    }

    /// File of this rank that is recorded from the start, before any reset.
    pub(super) fn target(&self) -> Option<PathBuf> {
        let path = self.path.as_ref().filter(|_| self.has_file())?;
        Some(of_rank(path, self.rank))
    }

    /// Whether this rank has a file in Horovod's format, once one is recorded.
    pub(super) fn has_file(&self) -> bool {
        self.rank == 0 || self.all_ranks
    }
}

impl BytepsOptions {
    /// Returns the file of a process. BytePS uses `<folder>/<local_rank>/comm.json`, where hosts
    /// with a shared disk overwrite each other's files; here the files of other hosts are in a
    /// folder of their host.
    pub fn file(&self, local_rank: usize, cross_rank: usize) -> PathBuf {
        let mut path = self.folder.clone();
        if cross_rank > 0 {
            path.push(format!("node{cross_rank}"));
        }
        path.push(local_rank.to_string());
        path.push("comm.json");
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(variables: &[(&str, &str)], rank: usize) -> Options {
        let identity = Identity::on_one_host(rank, 2);
        Options::new(
            &Knobs::of(variables),
            &identity,
            "local",
            Settings::default(),
        )
    }

    #[test]
    fn the_knobs_of_the_timeline_reach_the_recording() {
        let default = options(&[], 0);
        assert_eq!((default.max_bytes, default.dynamic), (0, false));
        assert!(!default.mark_cycles && !default.all_ranks);
        assert!(default.path.is_none() && default.steps.is_none() && default.byteps.is_none());

        let set = [
            ("HOROVOD_TIMELINE", "t.json"),
            ("HOROVOD_TIMELINE_MARK_CYCLES", "1"),
            ("RONDE_TIMELINE_ALL_RANKS", "1"),
            ("RONDE_TIMELINE_STEPS", "3..5"),
            ("RONDE_TIMELINE_MAX_MB", "3"),
        ];
        let options_of_1 = options(&set, 1);
        assert_eq!(options_of_1.path.as_deref(), Some(Path::new("t.json")));
        assert_eq!(options_of_1.max_bytes, 3 << 20);
        assert!(options_of_1.mark_cycles && options_of_1.all_ranks && options_of_1.dynamic);
        let steps = options_of_1.steps.expect("set");
        assert_eq!((steps.first, steps.last), (3, Some(5)));
        assert_eq!((options_of_1.rank, options_of_1.size), (1, 2));
        assert_eq!(options_of_1.target(), Some("t.rank1.json".into()));
    }

    #[test]
    fn the_knobs_of_byteps_reach_the_recording() {
        let set = [
            ("BYTEPS_TRACE_ON", "1"),
            ("BYTEPS_TRACE_START_STEP", "4"),
            ("BYTEPS_TRACE_END_STEP", "6"),
            ("BYTEPS_TRACE_DIR", "traces"),
        ];
        let byteps = options(&set, 0).byteps.expect("on");
        assert_eq!(byteps.folder, Path::new("traces"));
        assert_eq!((byteps.steps.first, byteps.steps.last), (4, Some(6)));
    }
}
