//! Setting of the tuned knobs, and the coordinates in which it is searched.

use ronde_job::replay;
use ronde_lab::sweep;

/// 2^20 bytes, the unit of thresholds.
pub(crate) const MIB: f64 = 1024.0 * 1024.0;
/// Ends of the search space.
pub(crate) const FUSION_LEAST: f64 = 65536.0;
pub(crate) const FUSION_MOST: f64 = 256.0 * MIB;
pub(crate) const CYCLE_LEAST_MS: f64 = 0.1;
pub(crate) const CYCLE_MOST_MS: f64 = 100.0;
/// Levels of the lattice that tuners search: fusion thresholds besides 0, and cycle times.
pub(crate) const FUSION_LEVELS: usize = 16;
pub(crate) const CYCLE_LEVELS: usize = 13;

/// A setting of the five knobs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Setting {
    pub(crate) fusion_bytes: u64,
    pub(crate) cycle_ms: f64,
    pub(crate) hierarchical: bool,
    /// Hierarchical allgather: the jobs here have no allgather, so it does nothing.
    pub(crate) allgather: bool,
    pub(crate) cache: bool,
}

impl Setting {
    /// 128 MiB and 1 ms, the cache on: the default of Horovod and Ronde.
    pub(crate) const DEFAULT: Self = Self::of(128.0, 1.0);
    /// Earlier default of Horovod.
    pub(crate) const OLD: Self = Self::of(64.0, 5.0);

    /// Flat, with the cache.
    pub(crate) const fn of(fusion_mb: f64, cycle_ms: f64) -> Self {
        Self {
            fusion_bytes: (fusion_mb * MIB) as u64,
            cycle_ms,
            hierarchical: false,
            allgather: false,
            cache: true,
        }
    }

    /// Converts coordinates in 0..1 on a log scale; below 0.05 nothing is fused.
    pub(crate) fn at(fusion: f64, cycle: f64) -> Self {
        let fusion_bytes = if fusion < 0.05 {
            0.0
        } else {
            FUSION_LEAST * (FUSION_MOST / FUSION_LEAST).powf(((fusion - 0.1) / 0.9).max(0.0))
        };
        let cycle_ms = CYCLE_LEAST_MS * (CYCLE_MOST_MS / CYCLE_LEAST_MS).powf(cycle);
        Self::of(fusion_bytes / MIB, cycle_ms)
    }

    /// Returns the settings that tuners search: the lattice of fusion thresholds and cycle times,
    /// flat and hierarchical, and the default.
    pub(crate) fn lattice() -> Vec<Self> {
        let spaced = |low: f64, high: f64, level: usize, levels: usize| {
            low * (high / low).powf(level as f64 / (levels - 1) as f64)
        };
        let fusion_mb = (0..FUSION_LEVELS)
            .map(|level| spaced(FUSION_LEAST, FUSION_MOST, level, FUSION_LEVELS) / MIB);
        let mut settings = vec![Self::DEFAULT];
        for fusion_mb in std::iter::once(0.0).chain(fusion_mb) {
            for level in 0..CYCLE_LEVELS {
                let cycle_ms = spaced(CYCLE_LEAST_MS, CYCLE_MOST_MS, level, CYCLE_LEVELS);
                settings.extend([false, true].map(|hierarchical| Self {
                    hierarchical,
                    ..Self::of(fusion_mb, cycle_ms)
                }));
            }
        }
        settings
    }

    /// Fusion threshold in MiB.
    pub(crate) fn fusion_mb(&self) -> f64 {
        self.fusion_bytes as f64 / MIB
    }

    /// Converts it for the replay.
    pub(crate) fn replay(&self) -> replay::Setting {
        replay::Setting {
            fusion_threshold_bytes: self.fusion_bytes,
            cycle_us: self.cycle_ms * 1e3,
            hierarchical: self.hierarchical,
            hierarchical_allgather: self.allgather,
            cache: self.cache,
        }
    }

    /// Key; equal keys have equal step times.
    pub(crate) fn key(&self) -> (u64, u64, bool, bool) {
        (
            self.fusion_bytes,
            self.cycle_ms.to_bits(),
            self.hierarchical,
            self.cache,
        )
    }
}

impl From<&sweep::Point> for Setting {
    fn from(point: &sweep::Point) -> Self {
        Self {
            fusion_bytes: point.fusion_threshold_bytes,
            cycle_ms: point.cycle_time_ms,
            hierarchical: point.hierarchical_allreduce,
            allgather: false,
            cache: point.cache,
        }
    }
}
