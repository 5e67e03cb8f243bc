//! Surfaces that real runs recorded: a CSV file each, step times interpolated between the settings that were run.
//!
//! ```text
//! fusion_mb,cycle_ms,hierarchical,step_ms,repeat_1_ms,repeat_2_ms
//! 0,0.5,0,31.2,31.0,31.4
//! ```
//!
//! `step_ms` is the mean, the columns after it the repeats that it is the mean of. All combinations of the fusion thresholds
//! and cycle times that occur must be there, for flat, for hierarchical or for both. Lines that begin with `#` say where
//! the numbers come from.

use std::path::{Path, PathBuf};

use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;

use super::setting::{MIB, Setting};

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{}: cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: no column {column:?}; expected fusion_mb,cycle_ms,hierarchical,step_ms and repeats", path.display())]
    Column { path: PathBuf, column: &'static str },
    #[error("{}:{line}: {value:?} is not a {expected}", path.display())]
    Value {
        path: PathBuf,
        line: usize,
        value: String,
        expected: &'static str,
    },
    #[error("{}: no row for fusion {fusion_mb} MB, cycle {cycle_ms} ms, hierarchical {hierarchical}; record all combinations", path.display())]
    Missing {
        path: PathBuf,
        fusion_mb: f64,
        cycle_ms: f64,
        hierarchical: bool,
    },
    #[error("{}: no rows", path.display())]
    Empty { path: PathBuf },
}

/// A recorded surface.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Recorded {
    /// Ascending; MiB and ms.
    fusion_mb: Vec<f64>,
    cycle_ms: Vec<f64>,
    /// ln(step time in µs), flat and hierarchical: for each threshold, for each cycle time.
    log_us: [Option<Vec<f64>>; 2],
    /// Repeats as multiples of their mean.
    scatter: Vec<f64>,
}

struct Row {
    fusion_mb: f64,
    cycle_ms: f64,
    hierarchical: bool,
    step_ms: f64,
}

impl Recorded {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::Read {
            path: path.into(),
            source,
        })?;
        let (rows, scatter) = rows(path, &text)?;
        let levels = |of: fn(&Row) -> f64| {
            let mut levels: Vec<f64> = rows.iter().map(of).collect();
            levels.sort_by(f64::total_cmp);
            levels.dedup();
            levels
        };
        let (fusion_mb, cycle_ms) = (levels(|row| row.fusion_mb), levels(|row| row.cycle_ms));
        let log_us = |hierarchical: bool| {
            let mut rows = rows
                .iter()
                .filter(|row| row.hierarchical == hierarchical)
                .peekable();
            rows.peek()?;
            let rows: Vec<&Row> = rows.collect();
            let find = |fusion_mb: f64, cycle_ms: f64| {
                let row = rows
                    .iter()
                    .find(|row| row.fusion_mb == fusion_mb && row.cycle_ms == cycle_ms);
                row.map(|row| (row.step_ms * 1e3).ln()).ok_or(Error::Missing {
                    path: path.into(),
                    fusion_mb,
                    cycle_ms,
                    hierarchical,
                })
            };
            let all = fusion_mb
                .iter()
                .flat_map(|fusion| cycle_ms.iter().map(move |cycle| (*fusion, *cycle)));
            Some(all.map(|(fusion, cycle)| find(fusion, cycle)).collect())
        };
        let log_us = [log_us(false).transpose()?, log_us(true).transpose()?];
        Ok(Self {
            log_us,
            scatter,
            fusion_mb,
            cycle_ms,
        })
    }

    /// Between the recorded settings linear in the logarithms (no fusion lies as far below the least threshold as the next one
    /// above it), constant beyond them. The cache changes nothing; what was recorded in one mode only is the same in the other.
    pub(crate) fn step_us(&self, setting: &Setting) -> f64 {
        let [flat, hierarchical] = &self.log_us;
        let modes = if setting.hierarchical {
            [hierarchical, flat]
        } else {
            [flat, hierarchical]
        };
        let Some(log_us) = modes.into_iter().flatten().next() else {
            return f64::NAN; // a file without rows is not read
        };
        let (fusion, more_fusion, fusion_share) = between(&self.fusion_mb, setting.fusion_mb());
        let (cycle, more_cycle, cycle_share) = between(&self.cycle_ms, setting.cycle_ms);
        let at = |fusion: usize, cycle: usize| log_us[fusion * self.cycle_ms.len() + cycle];
        let across =
            |fusion: usize| at(fusion, cycle) * (1.0 - cycle_share) + at(fusion, more_cycle) * cycle_share;
        (across(fusion) * (1.0 - fusion_share) + across(more_fusion) * fusion_share).exp()
    }

    /// A step under `setting`, µs.
    pub(crate) fn draw_us(&self, setting: &Setting, rng: &mut Xoshiro256PlusPlus) -> f64 {
        let scatter = match self.scatter.len() {
            0 => 1.0,
            count => self.scatter[rng.random_range(0..count)],
        };
        self.step_us(setting) * scatter
    }

    /// What was recorded.
    pub(crate) fn settings(&self) -> Vec<Setting> {
        let mut settings = Vec::new();
        for (mode, hierarchical) in [(0, false), (1, true)] {
            for fusion_mb in self.fusion_mb.iter().filter(|_| self.log_us[mode].is_some()) {
                settings.extend(self.cycle_ms.iter().map(|cycle_ms| Setting {
                    hierarchical,
                    ..Setting::of(*fusion_mb, *cycle_ms)
                }));
            }
        }
        settings
    }
}

/// The levels around `value` and the share of the way to the upper one, in logarithms.
fn between(levels: &[f64], value: f64) -> (usize, usize, f64) {
    let above = levels.partition_point(|level| *level <= value);
    if above == 0 || above == levels.len() {
        let end = above.min(levels.len() - 1);
        return (end, end, 0.0);
    }
    let (low, high) = (levels[above - 1], levels[above]);
    // Zero has no logarithm: it stands a factor below the least level.
    let low = if low > 0.0 {
        low
    } else {
        let next = levels.get(above + 1).copied().unwrap_or(2.0 * high);
        high * high / next
    };
    let share = (value.max(low) / low).ln() / (high / low).ln();
    (above - 1, above, share)
}

fn rows(path: &Path, text: &str) -> Result<(Vec<Row>, Vec<f64>), Error> {
    let mut lines = text
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let empty = || Error::Empty { path: path.into() };
    let (_, header) = lines.next().ok_or_else(empty)?;
    let header: Vec<&str> = header.split(',').map(str::trim).collect();
    let place = |column: &'static str| {
        let place = header.iter().position(|name| *name == column);
        place.ok_or(Error::Column {
            path: path.into(),
            column,
        })
    };
    let (fusion, cycle) = (place("fusion_mb")?, place("cycle_ms")?);
    let (hierarchical, mean) = (place("hierarchical")?, place("step_ms")?);
    let (mut rows, mut scatter) = (Vec::new(), Vec::new());
    for (line, text) in lines {
        let values: Vec<&str> = text.split(',').map(str::trim).collect();
        let number = |place: usize, expected: &'static str, fits: fn(f64) -> bool| {
            let value = values.get(place).copied().unwrap_or("");
            let number = value.parse::<f64>().ok().filter(|number| fits(*number));
            number.ok_or(Error::Value {
                path: path.into(),
                line,
                value: value.into(),
                expected,
            })
        };
        let step_ms = number(mean, "step time in ms", |ms| ms > 0.0 && ms.is_finite())?;
        rows.push(Row {
            fusion_mb: number(fusion, "fusion threshold in MB", |mb| (0.0..=1e6).contains(&mb))?,
            cycle_ms: number(cycle, "cycle time in ms", |ms| ms > 0.0 && ms.is_finite())?,
            hierarchical: number(hierarchical, "boolean, 0 or 1", |flag| flag == 0.0 || flag == 1.0)? == 1.0,
            step_ms,
        });
        for place in (mean + 1..values.len()).filter(|place| !values[*place].is_empty()) {
            let repeat_ms = number(place, "step time in ms", |ms| ms > 0.0 && ms.is_finite())?;
            scatter.push(repeat_ms / step_ms);
        }
    }
    if rows.is_empty() {
        return Err(empty());
    }
    // Thresholds are bytes in the end: what cannot be told apart there must not be two levels here.
    rows.iter_mut()
        .for_each(|row| row.fusion_mb = (row.fusion_mb * MIB).trunc() / MIB);
    Ok((rows, scatter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn read(text: &str) -> Result<Recorded, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("made-up.csv");
        std::fs::write(&path, text).unwrap();
        Recorded::read(&path)
    }

    const MADE_UP: &str = "# made up\nfusion_mb,cycle_ms,hierarchical,step_ms,repeat_1_ms,repeat_2_ms\n\
        0,1,0,40,39,41\n0,4,0,50,50,50\n1,1,0,20,20,20\n1,4,0,30,30,30\n16,1,0,10,9,11\n16,4,0,40,40,40\n";

    #[test]
    fn between_recorded_settings_is_interpolated() {
        let recorded = read(MADE_UP).unwrap();
        let step_ms = |fusion_mb, cycle_ms| recorded.step_us(&Setting::of(fusion_mb, cycle_ms)) / 1e3;
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        near(step_ms(16.0, 1.0), 10.0);
        near(step_ms(256.0, 0.5), 10.0); // constant beyond the ends
        near(step_ms(4.0, 1.0), (20.0f64 * 10.0).sqrt()); // half way from 1 to 16 in logarithms
        near(step_ms(1.0, 2.0), (20.0f64 * 30.0).sqrt());
        near(step_ms(0.25, 1.0), (40.0f64 * 20.0).sqrt()); // 0 stands at 1/16
        let hierarchical = Setting {
            hierarchical: true,
            ..Setting::of(16.0, 1.0)
        };
        near(recorded.step_us(&hierarchical) / 1e3, 10.0); // was not recorded: the same
        assert_eq!(recorded.settings().len(), 6);
    }

    #[test]
    fn noise_is_the_recorded_scatter() {
        let recorded = read(MADE_UP).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let setting = Setting::of(16.0, 1.0);
        let mut drawn: Vec<u32> = (0..200)
            .map(|_| (recorded.draw_us(&setting, &mut rng) / 10.0).round() as u32)
            .collect();
        drawn.sort();
        drawn.dedup();
        assert_eq!(drawn, [900, 975, 1000, 1025, 1100]);
    }

    #[test]
    fn bad_files_are_named_with_line_and_value() {
        let message = |text: &str| {
            let message = read(text).unwrap_err().to_string();
            message.rsplit_once("made-up.csv").unwrap().1.to_string()
        };
        assert_eq!(message(""), ": no rows");
        assert!(message("fusion_mb,cycle_ms,step_ms\n").contains("no column \"hierarchical\""));
        let header = "fusion_mb,cycle_ms,hierarchical,step_ms\n";
        assert_eq!(message(header), ": no rows");
        assert_eq!(
            message(&format!("{header}0,1,0,-3\n")),
            ":2: \"-3\" is not a step time in ms"
        );
        assert_eq!(
            message(&format!("{header}0,1,yes,3\n")),
            ":2: \"yes\" is not a boolean, 0 or 1"
        );
        assert_eq!(
            message(&format!("{header}0,1,0\n")),
            ":2: \"\" is not a step time in ms"
        );
        let missing = message(&format!("{header}0,1,0,3\n2,4,0,3\n"));
        assert!(
            missing.contains("no row for fusion 0 MB, cycle 4 ms, hierarchical false"),
            "{missing}"
        );
    }
}
