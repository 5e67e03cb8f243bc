//! Options of a recording: files, ranks, window of steps, and the metadata of the files.

use std::path::{Path, PathBuf};

use crate::identity::Identity;
use crate::knobs::{Knobs, Link, StepRange};
use crate::settings::Settings;

/// What a process records, and what its files say about it. [`Default`] records nothing, as the only rank of a job.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rank 0's file in Horovod's format, recorded from the beginning; none until there is an
    /// command.
    pub path: Option<PathBuf>,
    /// Whether the file marks where cycles begin.
    pub mark_cycles: bool,
    /// Whether ranks other than 0 write a file of their own, beside rank 0's.
    pub all_ranks: bool,
    /// Steps that Horovod's format is restricted to.
    pub steps: Option<StepRange>,
    /// Bytes that the file and the older one beside it come to, about; 0 for no bound.
    pub max_bytes: u64,
    /// The trace in BytePS's format.
    pub byteps: Option<BytepsOptions>,
    /// Whether the program may start and stop the timeline.
    pub dynamic: bool,
    /// This process's rank in the job.
    pub rank: usize,
    /// Ranks in the job.
    pub size: usize,
    /// This process's rank on its host.
    pub local_rank: usize,
    /// Number of its host.
    pub cross_rank: usize,
    /// Name of its host.
    pub host: String,
    /// How the ranks reach each other.
    pub backend: &'static str,
    /// The link that the local collective is shaped to.
    pub link: Option<Link>,
    /// Settings at the beginning.
    pub settings: Settings,
    /// Bytes that one batch on a GPU may hold, where the settings allow more.
    pub gpu_fusion_threshold_bytes: Option<u64>,
}

/// A trace in BytePS's format.
#[derive(Clone, Debug)]
pub struct BytepsOptions {
    /// The folder that holds the ranks' folders; made if it is not there.
    pub folder: PathBuf,
    /// The steps recorded.
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
            gpu_fusion_threshold_bytes: None,
        }
    }
}

impl Options {
    /// What the knobs say, for the process `identity` that reaches the others through `backend`; `settings` are those at
    /// the beginning.
    pub fn new(knobs: &Knobs, identity: &Identity, backend: &'static str, settings: Settings) -> Self {
        let byteps = knobs.byteps_trace.then(|| BytepsOptions {
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
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            backend,
            link: knobs.link,
            settings,
            gpu_fusion_threshold_bytes: Some(knobs.gpu_fusion_threshold_bytes),
        }
    }

    /// Whether this rank has a file in Horovod's format, once one is recorded.
    pub(super) fn has_file(&self) -> bool {
        self.rank == 0 || self.all_ranks
    }
}

impl BytepsOptions {
    /// The file of a process. BytePS has `<folder>/<local_rank>/comm.json`, which hosts on a shared disk overwrite
    /// for one another; here those of the other hosts are in a folder of their host.
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
