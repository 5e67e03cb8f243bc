//! Recorded surfaces: the `sweep.csv` of a `ronde sweep`; step times are interpolated between the
//! measured settings.
//!
//! A setting's step time is that of the sweep's own report, corrected for the drift of the machine.
//! If all measurements of a setting were ended early, because it was so much slower than the best,
//! it is their step time until then. Steps are drawn with the scatter of the recorded ones, in
//! blocks: a block is one measurement that was not ended early, and each of its steps is the 10th,
//! 50th or 90th percentile of that measurement over its setting's step time (for normal noise 1.1
//! times its variance). So steps that follow each other are alike as far as the recorded ones were.
//! A block ends with its number of steps, or when the setting changes. Two settings differ if their
//! step times do by more than 95 % of the differences of two measurements of one setting. Failed
//! measurements do not count. All combinations of the fusion thresholds and cycle times that occur
//! must have been measured, on one number of ranks: values between them are interpolated, but no
//! value is invented for a setting that the sweep's budget did not reach.

use std::path::{Path, PathBuf};

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use ronde_lab::sweep::store::{StoreError, read};
use ronde_lab::sweep::{Finding, Phase, Row, Status, verdict};

use super::setting::Setting;

/// Error in a sweep.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{}: no measurements", path.display())]
    Empty { path: PathBuf },
    #[error("{}: measured on {ranks:?} ranks; a surface is of one number of them: sweep each into a folder of its own", path.display())]
    Ranks { path: PathBuf, ranks: Vec<u32> },
    #[error("{}: no measurement of fusion {fusion_mb} MB, cycle {cycle_ms} ms, hierarchical {hierarchical}, cache {cache}; go on with ronde sweep --resume, and have the default, 128 MB and 1 ms, in the grid", path.display())]
    Missing {
        path: PathBuf,
        fusion_mb: f64,
        cycle_ms: f64,
        hierarchical: bool,
        cache: bool,
    },
}

/// A recorded surface.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Recorded {
    /// Thresholds and cycle times, ascending; MiB and ms.
    fusion_mb: Vec<f64>,
    cycle_ms: Vec<f64>,
    modes: Vec<Mode>,
    /// Measurements from which steps are drawn.
    blocks: Vec<Block>,
    /// Relative difference of two measurements of one setting that 95 % do not exceed.
    chance: f64,
}

/// Steps that were measured one after another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Block {
    /// Their number.
    steps: u32,
    /// Percentiles as multiples of the setting's step time.
    percentiles: [f64; 3],
}

/// Standard errors of a 95 % interval, times the root of 2 for a difference.
const CHANCE_SD: f64 = 1.96 * std::f64::consts::SQRT_2;

/// Settings that share their booleans.
#[derive(Clone, Debug, PartialEq)]
struct Mode {
    hierarchical: bool,
    cache: bool,
    /// ln(step time in µs): for each threshold, for each cycle time.
    log_us: Vec<f64>,
}

impl Recorded {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let rows = read(path)?;
        let verdict = verdict(&rows);
        match verdict.findings.as_slice() {
            [] => Err(Error::Empty { path: path.into() }),
            [finding] => Self::new(path, &rows, finding),
            findings => Err(Error::Ranks {
                path: path.into(),
                ranks: findings.iter().map(|finding| finding.np).collect(),
            }),
        }
    }

    fn new(path: &Path, rows: &[Row], finding: &Finding) -> Result<Self, Error> {
        let step_times: Vec<(Setting, f64)> = finding
            .points
            .iter()
            .filter_map(|outcome| Some((Setting::from(&outcome.point), outcome.step_ms?)))
            .collect();
        if step_times.is_empty() {
            return Err(Error::Empty { path: path.into() });
        }
        let (fusion_mb, cycle_ms) = (
            levels(&step_times, Setting::fusion_mb),
            levels(&step_times, |setting| setting.cycle_ms),
        );
        let log_us = |hierarchical: bool, cache: bool| -> Result<Vec<f64>, Error> {
            let log_us = |fusion_mb: f64, cycle_ms: f64| {
                let wanted = Setting {
                    hierarchical,
                    cache,
                    ..Setting::of(fusion_mb, cycle_ms)
                };
                let found = step_times.iter().find(|(setting, _)| *setting == wanted);
                found
                    .map(|(_, step_ms)| (step_ms * 1e3).ln())
                    .ok_or(Error::Missing {
                        path: path.into(),
                        fusion_mb,
                        cycle_ms,
                        hierarchical,
                        cache,
                    })
            };
            let grid = fusion_mb
                .iter()
                .flat_map(|&fusion_mb| cycle_ms.iter().map(move |&cycle_ms| (fusion_mb, cycle_ms)));
            grid.map(|(fusion_mb, cycle_ms)| log_us(fusion_mb, cycle_ms))
                .collect()
        };
        let mut modes: Vec<Mode> = Vec::new();
        for (
            Setting {
                hierarchical,
                cache,
                ..
            },
            _,
        ) in step_times.iter().copied()
        {
            let is_known = |mode: &Mode| (mode.hierarchical, mode.cache) == (hierarchical, cache);
            if !modes.iter().any(is_known) {
                let log_us = log_us(hierarchical, cache)?;
                modes.push(Mode {
                    hierarchical,
                    cache,
                    log_us,
                });
            }
        }
        let step_ms = |row: &Row| {
            let wanted = Setting::from(&row.point);
            let found = step_times.iter().find(|(setting, _)| *setting == wanted);
            found.map(|(_, step_ms)| *step_ms)
        };
        let whole = rows
            .iter()
            .filter(|row| row.phase != Phase::Predicted && row.status == Status::Done);
        let blocks = whole.filter_map(|row| {
            let (times, step_ms) = (row.times?, step_ms(row)?);
            Some(Block {
                steps: row.steps.max(1),
                percentiles: [times.p10, times.p50, times.p90].map(|ms| ms / step_ms),
            })
        });
        // Without repeated measurements nothing is known to differ.
        let noise = finding.noise.as_ref();
        Ok(Self {
            blocks: blocks.collect(),
            chance: noise.map_or(f64::INFINITY, |noise| CHANCE_SD * noise.sd),
            fusion_mb,
            cycle_ms,
            modes,
        })
    }

    /// Interpolates linearly in the logarithms between the recorded settings (no fusion is as far
    /// below the least threshold as the next one above it); constant beyond them. A boolean of
    /// which only one value was recorded has no effect.
    pub(crate) fn step_us(&self, setting: &Setting) -> f64 {
        let unlike = |mode: &&Mode| {
            (
                mode.hierarchical != setting.hierarchical,
                mode.cache != setting.cache,
            )
        };
        let Some(mode) = self.modes.iter().min_by_key(unlike) else {
            return f64::NAN; // a sweep without measurements is not read
        };
        let (fusion, more_fusion, fusion_share) = between(&self.fusion_mb, setting.fusion_mb());
        let (cycle, more_cycle, cycle_share) = between(&self.cycle_ms, setting.cycle_ms);
        let at = |fusion: usize, cycle: usize| mode.log_us[fusion * self.cycle_ms.len() + cycle];
        let across = |fusion: usize| {
            at(fusion, cycle) * (1.0 - cycle_share) + at(fusion, more_cycle) * cycle_share
        };
        (across(fusion) * (1.0 - fusion_share) + across(more_fusion) * fusion_share).exp()
    }

    /// Relative difference of two settings that may be due to chance.
    pub(crate) fn chance(&self) -> f64 {
        self.chance
    }

    /// Draws a step under `setting`, µs. `block` is the block of the step before; a change of
    /// setting ends it.
    pub(crate) fn draw_us(
        &self,
        setting: &Setting,
        is_changed: bool,
        block: &mut Option<Block>,
        rng: &mut Xoshiro256PlusPlus,
    ) -> f64 {
        let step_us = self.step_us(setting);
        if self.blocks.is_empty() {
            return step_us;
        }
        let mut current = match *block {
            Some(block) if !is_changed && block.steps > 0 => block,
            _ => self.blocks[rng.random_range(0..self.blocks.len())],
        };
        current.steps -= 1;
        *block = Some(current);
        step_us * current.percentiles[rng.random_range(0..3)]
    }

    /// Returns the recorded settings.
    pub(crate) fn settings(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        for mode in &self.modes {
            for &fusion_mb in &self.fusion_mb {
                settings.extend(self.cycle_ms.iter().map(|&cycle_ms| Setting {
                    hierarchical: mode.hierarchical,
                    cache: mode.cache,
                    ..Setting::of(fusion_mb, cycle_ms)
                }));
            }
        }
        settings
    }
}

/// Returns the values of a knob, ascending.
fn levels(step_times: &[(Setting, f64)], of: impl Fn(&Setting) -> f64) -> Vec<f64> {
    let mut levels: Vec<f64> = step_times.iter().map(|(setting, _)| of(setting)).collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    levels
}

/// Returns the levels around `value` and the share of the way to the upper one, in logarithms.
fn between(levels: &[f64], value: f64) -> (usize, usize, f64) {
    let above = levels.partition_point(|level| *level <= value);
    if above == 0 || above == levels.len() {
        let end = above.min(levels.len() - 1);
        return (end, end, 0.0);
    }
    let (low, high) = (levels[above - 1], levels[above]);
    // Zero has no logarithm: its level is a factor below the least one.
    let low = if low > 0.0 {
        low
    } else {
        let next = levels.get(above + 1).copied().unwrap_or(2.0 * high);
        high * high / next
    };
    let share = (value.max(low) / low).ln() / (high / low).ln();
    (above - 1, above, share)
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use ronde_lab::sweep::store::Store;
    use ronde_lab::sweep::{Point, StepSummary};

    use super::*;

    /// A measurement on two ranks whose steps took from 90 % to 110 % of `p50` ms.
    fn row(fusion_mb: u64, cycle_time_ms: f64, p50: f64) -> Row {
        Row {
            point: Point {
                fusion_threshold_bytes: fusion_mb << 20,
                cycle_time_ms,
                ..Point::default_of(2)
            },
            phase: Phase::Grid,
            block: 0,
            status: Status::Done,
            steps: 20,
            times: Some(StepSummary {
                p10: 0.9 * p50,
                p50,
                p90: 1.1 * p50,
                mean: p50,
            }),
            at_s: 1.0,
        }
    }

    fn recorded(rows: &[Row]) -> Result<Recorded, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sweep.csv");
        let mut store = Store::open(&path).unwrap();
        store.go_on().unwrap();
        rows.iter().for_each(|row| store.append(row).unwrap());
        Recorded::read(&path)
    }

    fn made_up() -> Vec<Row> {
        let of = |(fusion_mb, cycle_ms, p50)| row(fusion_mb, cycle_ms, p50);
        let flat = [(0, 1.0, 40.0), (0, 4.0, 50.0), (1, 1.0, 20.0)];
        let more = [(1, 4.0, 30.0), (16, 1.0, 10.0), (16, 4.0, 40.0)];
        flat.into_iter().chain(more).map(of).collect()
    }

    #[test]
    fn between_recorded_settings_is_interpolated() {
        let recorded = recorded(&made_up()).unwrap();
        let step_ms =
            |fusion_mb, cycle_ms| recorded.step_us(&Setting::of(fusion_mb, cycle_ms)) / 1e3;
        let near = |found: f64, expected: f64| {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}")
        };
        near(step_ms(16.0, 1.0), 10.0);
        near(step_ms(256.0, 0.5), 10.0); // constant beyond the ends
        near(step_ms(4.0, 1.0), (20.0f64 * 10.0).sqrt()); // half way from 1 to 16 in logarithms
        near(step_ms(1.0, 2.0), (20.0f64 * 30.0).sqrt());
        near(step_ms(0.25, 1.0), (40.0f64 * 20.0).sqrt()); // 0 has the level 1/16
        for (hierarchical, cache) in [(true, true), (false, false), (true, false)] {
            let setting = Setting {
                hierarchical,
                cache,
                ..Setting::of(16.0, 1.0)
            };
            near(recorded.step_us(&setting) / 1e3, 10.0); // not recorded: no effect
        }
        assert_eq!(recorded.settings().len(), 6);
    }

    #[test]
    fn a_boolean_that_was_swept_counts() {
        let of = |cache: bool, times: f64| {
            [
                (1, 1.0, 20.0),
                (1, 4.0, 30.0),
                (16, 1.0, 10.0),
                (16, 4.0, 40.0),
            ]
            .map(|(fusion_mb, cycle_ms, p50)| {
                let mut row = row(fusion_mb, cycle_ms, times * p50);
                row.point.cache = cache;
                row
            })
        };
        let recorded = recorded(&[of(true, 1.0), of(false, 2.0)].concat()).unwrap();
        let setting = Setting {
            cache: false,
            ..Setting::of(16.0, 1.0)
        };
        assert!((recorded.step_us(&setting) / 20e3 - 1.0).abs() < 1e-6);
        assert_eq!(recorded.settings().len(), 8);
    }

    #[test]
    fn noise_is_the_recorded_scatter() {
        let recorded = recorded(&made_up()).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let setting = Setting::of(16.0, 1.0);
        let mut block = None;
        let mut drawn: Vec<u32> = (0..200)
            .map(|_| {
                let step_us = recorded.draw_us(&setting, false, &mut block, &mut rng);
                (step_us / 10.0).round() as u32
            })
            .collect();
        drawn.sort();
        drawn.dedup();
        assert_eq!(drawn, [900, 1000, 1100]);
    }

    #[test]
    fn a_block_is_one_measurement() {
        let mut rows = made_up();
        rows.push(row(16, 1.0, 20.0)); // twice as slow as the other of this setting
        let recorded = recorded(&rows).unwrap();
        let setting = Setting::of(16.0, 1.0);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        let (mut block, mut changes) = (None, 0);
        for _ in 0..200 {
            let before: Option<Block> = block;
            recorded.draw_us(&setting, false, &mut block, &mut rng);
            let percentiles = |block: Option<Block>| block.map(|block| block.percentiles);
            changes += u32::from(percentiles(before) != percentiles(block));
        }
        assert!(
            (2..=10).contains(&changes),
            "{changes}: a block has 20 steps"
        );
        assert!(recorded.chance() > 0.5, "{}", recorded.chance());
    }

    #[test]
    fn what_was_ended_early_counts_where_nothing_else_is_known_and_what_failed_never() {
        let mut rows = made_up();
        rows[0].status = Status::Cut;
        let mut failed = row(16, 1.0, 1.0);
        (failed.status, failed.times) = (Status::Failed("rank 1 ended".into()), None);
        rows.push(failed);
        let recorded = recorded(&rows).unwrap();
        assert!((recorded.step_us(&Setting::of(0.0, 1.0)) / 40e3 - 1.0).abs() < 1e-6);
        assert!((recorded.step_us(&Setting::of(16.0, 1.0)) / 10e3 - 1.0).abs() < 1e-6);
        assert_eq!(recorded.blocks.len(), 5, "one for each whole measurement");
    }

    #[test]
    fn sweeps_that_are_no_surface_are_named() {
        let message = |rows: &[Row]| {
            let message = recorded(rows).unwrap_err().to_string();
            message.rsplit_once("sweep.csv").unwrap().1.to_string()
        };
        assert_eq!(message(&[]), ": no measurements");
        let missing = message(&made_up()[..5]);
        let expected = ": no measurement of fusion 16 MB, cycle 4 ms, hierarchical false, cache true; go on with";
        assert!(missing.starts_with(expected), "{missing}");
        let mut rows = made_up();
        rows[0].point.np = 4;
        assert!(message(&rows).starts_with(": measured on [2, 4] ranks"));
        let mut failed = made_up();
        failed.truncate(1);
        (failed[0].status, failed[0].times) = (Status::Failed("no".into()), None);
        assert_eq!(message(&failed), ": no measurements");
    }
}
