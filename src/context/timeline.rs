//! Timeline calls of a program: start and end of recordings, and marks of steps and epochs.

use std::path::Path;
use std::sync::Arc;

use super::{Context, fork};
use crate::command::{Command, TimelineCommand};
use crate::error::{Error, SettingsError};

/// Longest path on Linux, bytes; a longer one is not sent to the other ranks.
const PATH_BYTES_MAX: usize = 4096;

impl Context {
    /// Marks the end of a training step. It is optional, because steps are detected as the
    /// repeating sequence of tensors. With marks, step metrics and tuning are exact from the first
    /// step on.
    pub fn mark_step(&self) {
        if let Some(running) = &self.world.inner.running {
            running.engine.queue.mark_step();
        }
    }

    /// Marks the end of an epoch: the timeline shows it, and readers can separate epochs. The
    /// epoch's last step is marked with [`mark_step`](Self::mark_step), as any other.
    ///
    /// ```
    /// # use ronde::{Context, ReduceOp};
    /// # let context = Context::builder().alone().build()?;
    /// for _epoch in 0..2 {
    ///     for _step in 0..10 {
    ///         context.allreduce("gradient", vec![1.0f32; 8], ReduceOp::Average)?.wait()?;
    ///         context.mark_step();
    ///     }
    ///     context.mark_epoch();
    /// }
    /// # Ok::<(), ronde::Error>(())
    /// ```
    pub fn mark_epoch(&self) {
        if let Some(running) = &self.world.inner.running {
            running.engine.queue.mark_epoch();
        }
    }

    /// Begins to record a timeline into the file `path`, on all ranks from the same cycle on. With
    /// `mark_cycles`, the start of each cycle is recorded. A running recording is closed first; a
    /// recording into the same file continues. Needs `HOROVOD_TIMELINE` on every rank: a file,
    /// which is recorded from the beginning, or `DYNAMIC`.
    ///
    /// Rank 0 decides: its call has an effect, and returns when its own file exists. On the other
    /// ranks the call does nothing and returns at once. So a program may call it on all ranks or on
    /// rank 0 alone, from any thread, with tensors in flight. Ranks other than 0 record only with
    /// `RONDE_TIMELINE_ALL_RANKS=1`, into files beside rank 0's; a rank that cannot write its file
    /// logs an error.
    ///
    /// ```
    /// # use ronde::{Context, ReduceOp, knobs::{Knobs, TimelineTarget}};
    /// # let folder = std::env::temp_dir().join(format!("ronde-doc-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder).unwrap();
    /// # let file = folder.join("t.json");
    /// # let mut knobs = Knobs::default();
    /// # knobs.timeline = Some(TimelineTarget::Dynamic); // HOROVOD_TIMELINE=DYNAMIC
    /// # let context = Context::builder().alone().knobs(knobs).build()?;
    /// // In a job started with HOROVOD_TIMELINE=DYNAMIC:
    /// context.start_timeline(&file, false)?;
    /// context.allreduce("gradient", vec![1.0f32; 8], ReduceOp::Average)?.wait()?;
    /// context.stop_timeline()?;
    /// # drop(context);
    /// # std::fs::remove_dir_all(&folder).unwrap();
    /// # Ok::<(), ronde::Error>(())
    /// ```
    ///
    /// # Errors
    /// `HOROVOD_TIMELINE` is not set. On rank 0 also: a file that cannot be written, and a rank
    /// that is lost or has left, because all ranks take part.
    pub fn start_timeline(&self, path: impl AsRef<Path>, mark_cycles: bool) -> Result<(), Error> {
        let path = path.as_ref();
        if path.as_os_str().len() > PATH_BYTES_MAX {
            return Err(SettingsError::Output {
                what: "the timeline",
                path: path.to_owned(),
                variable: "start_timeline",
                source: Arc::new(rustix::io::Errno::NAMETOOLONG.into()),
            }
            .into());
        }
        self.command_timeline(TimelineCommand::Start {
            path: path.to_owned(),
            mark_cycles,
        })
    }

    /// Ends the recording of a timeline, on all ranks with the same cycle. Without a recording it
    /// does nothing. As with [`start_timeline`](Self::start_timeline), only rank 0's call has an
    /// effect, and it returns when its file is complete.
    ///
    /// ```
    /// # use ronde::{Context, Error};
    /// let context = Context::builder().alone().build()?;
    /// if let Err(error) = context.stop_timeline() {
    ///     assert!(error.to_string().contains("HOROVOD_TIMELINE=DYNAMIC")); // it was not set
    /// }
    /// # Ok::<(), ronde::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`start_timeline`](Self::start_timeline). It is no error if other ranks have left
    /// already at the end of a job: the recording has then ended with the job.
    pub fn stop_timeline(&self) -> Result<(), Error> {
        self.command_timeline(TimelineCommand::Stop)
    }

    fn command_timeline(&self, command: TimelineCommand) -> Result<(), Error> {
        if fork::forked() {
            return Err(Error::Forked);
        }
        if self.job.knobs.timeline.is_none() {
            return Err(SettingsError::TimelineNotEnabled.into());
        }
        if self.job.identity.rank != 0 {
            return Ok(());
        }
        self.command(Command::Timeline(command))
    }
}
