//! Writer of the autotune log, with traffic and negotiation time per row.

use std::path::Path;
use std::sync::Arc;

use ronde_tuner::{Best, Log, Measurement, Point, Verdict};

use super::csv;
use super::space::words;
use crate::error::{Error, SettingsError};
use crate::timeline::step_meter::StepSample;

/// Writes the log, if one is requested and as long as it can be written.
#[derive(Debug, Default)]
pub(super) struct Logbook {
    log: Option<Log>,
    /// Traffic during the current measurement, or the last one once it is `closed`.
    traffic: Traffic,
    closed: bool,
}

/// Values of the log other than the step time, averaged since the last row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    pub(super) bytes: u64,
    pub(super) step_ms: f64,
    pub(super) negotiate_ms: f64,
    pub(super) steps: u64,
    /// Whether the fusion threshold is that of GPUs.
    pub(super) on_gpu: bool,
}

impl Logbook {
    /// Creates the log in the file at `path`, if there is one; continues it after a reset of the
    /// job.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn new(path: Option<&Path>, resets: u64) -> Result<Self, Error> {
        let open = match resets {
            0 => Log::create,
            _ => Log::resume,
        };
        let log = path.map(|path| {
            open(path, &csv::COLUMNS).map_err(|error| {
                Error::Settings(SettingsError::Output {
                    what: "the autotune log",
                    path: path.to_owned(),
                    variable: "HOROVOD_AUTOTUNE_LOG",
                    source: Arc::new(error),
                })
            })
        });
        Ok(Self {
            log: log.transpose()?,
            ..Self::default()
        })
    }

    /// Adds a mark for reset number `resets` of the job, after which `setting` is in force.
    pub(super) fn reset(&mut self, resets: u64, setting: &Point) {
        if resets > 0 {
            let row = csv::reset_row(resets, setting);
            self.write(|log| log.mark(&row));
        }
    }

    /// Adds a measured step; `on_gpu` if the fusion threshold is that of GPUs.
    pub(super) fn step(&mut self, sample: &StepSample, on_gpu: bool) {
        if std::mem::take(&mut self.closed) {
            self.traffic = Traffic::default();
        }
        self.traffic.bytes += sample.bytes;
        self.traffic.step_ms += sample.step_ms;
        self.traffic.negotiate_ms += sample.negotiate_ms;
        self.traffic.steps += 1;
        self.traffic.on_gpu = on_gpu;
    }

    /// The next steps do not belong to the current measurement.
    pub(super) fn interrupted(&mut self) {
        self.closed = true;
    }

    /// Adds rows for measurements that are closed; `best` is the best so far.
    pub(super) fn measured(&mut self, measurements: &[Measurement], best: Option<&Best>) {
        self.closed |= !measurements.is_empty();
        let traffic = self.traffic;
        for measurement in measurements {
            tracing::info!(
                "autotune: {} {}: fusion {}: {:.3} ms",
                measurement.phase,
                measurement.sample,
                words(&measurement.setting),
                measurement.step_ms
            );
            let row = csv::measurement_row(measurement, &traffic);
            self.append(&row, &csv::best_row(best, measurement, &traffic));
        }
    }

    /// Adds the verdict.
    pub(super) fn finished(&mut self, verdict: &Verdict) {
        let traffic = self.traffic;
        let phase = if verdict.reverted {
            "reverted"
        } else {
            "final"
        };
        let row = csv::final_row(phase, verdict, &traffic);
        let best = csv::final_row("best", verdict, &traffic);
        self.append(&row, &best);
    }

    fn append(&mut self, row: &[String], best: &[String]) {
        self.write(|log| log.append(row, best));
    }

    fn write(&mut self, write: impl FnOnce(&mut Log) -> std::io::Result<()>) {
        if let Some(log) = &mut self.log
            && let Err(error) = write(log)
        {
            tracing::warn!(
                "autotune: cannot write the log any more ({error}); tuning continues without it, and \
                 earlier rows are complete"
            );
            self.log = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_can_no_longer_be_written_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        let mut book = Logbook::new(Some(&path), 0).unwrap();
        let row: Vec<String> = csv::COLUMNS
            .iter()
            .map(|column| (*column).to_owned())
            .collect();
        book.append(&row, &row);
        assert!(book.log.is_some());
        book.append(&row[1..], &row); // stands for any error of the file
        assert!(book.log.is_none());
        book.append(&row, &row);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 3);
        let refused = Logbook::new(Some(folder.path()), 0)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("HOROVOD_AUTOTUNE_LOG"), "{refused}");
    }
}
