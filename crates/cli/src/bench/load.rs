//! Load of a benchmark step: the arguments that `ronde bench` and `ronde sweep` share.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueHint;
use clap::builder::PossibleValuesParser;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use ronde::internal::collective::local::LocalCollective;
use ronde::internal::identity::MAX_RANKS;
use ronde_lab::bench::schedule::{ComputeKind, Schedule};
use ronde_lab::bench::{Load, Workload, models, profile};

/// Model that is used if no other is named: the canonical workload.
const MODEL_DEFAULT: &str = "resnet50";

/// Longest simulated backward pass, in ms: one minute.
const COMPUTE_MS_MAX: f64 = 60_000.0;

// Tensors to reduce, and when they are submitted. (No doc comment: clap would use it as the
// description of the subcommand.)
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LoadArgs {
    /// Model whose gradients are reduced [default: resnet50]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(models::NAMES))]
    pub(crate) model: Option<String>,
    /// Reduce the tensors of this file instead: a profile JSON, or one element count per line
    #[arg(long, value_name = "FILE", conflicts_with = "model", value_hint = ValueHint::FilePath)]
    pub(crate) profile: Option<PathBuf>,
    /// Spread the submissions over a backward pass of this length, in ms [default: 0]
    #[arg(long, value_name = "MS", allow_negative_numbers = true, value_parser = parse_compute_ms)]
    pub(crate) compute_ms: Option<f64>,
    /// Whether that pass leaves the CPU idle (sleep, as with an accelerator) or uses it (spin)
    /// [default: sleep]
    #[arg(long, value_name = "KIND", value_parser = parse_compute_kind)]
    pub(crate) compute_kind: Option<ComputeKind>,
    /// Let this rank compute longer than the others, by MS: a straggler, which `ronde timeline`
    /// finds
    #[arg(long, value_name = "RANK,MS", allow_hyphen_values = true, value_parser = parse_slow_rank)]
    pub(crate) slow_rank: Option<SlowRank>,
}

/// Rank whose backward pass takes longer than that of the others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SlowRank {
    pub(crate) rank: usize,
    /// Additional time, in ms.
    pub(crate) ms: f64,
}

impl LoadArgs {
    /// Returns the tensors to reduce.
    pub(crate) fn workload(&self) -> Result<Workload, Error> {
        Ok(match &self.profile {
            Some(path) => profile::load(path)?,
            None => models::workload(self.model.as_deref().unwrap_or(MODEL_DEFAULT))?,
        })
    }

    /// Length of the backward pass in ms; 0 without one.
    pub(crate) fn compute_ms(&self) -> f64 {
        self.compute_ms.unwrap_or(0.0)
    }

    /// Whether the backward pass leaves the CPU free or keeps it busy.
    pub(crate) fn compute_kind(&self) -> ComputeKind {
        self.compute_kind.unwrap_or_default()
    }

    /// Returns these arguments with all defaults filled in and with an absolute profile path.
    pub(crate) fn resolved(&self) -> Self {
        let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let default = self.profile.is_none().then(|| MODEL_DEFAULT.to_owned());
        Self {
            model: self.model.clone().or(default),
            profile: self.profile.as_ref().map(absolute),
            compute_ms: Some(self.compute_ms()),
            compute_kind: Some(self.compute_kind()),
            slow_rank: self.slow_rank,
        }
    }

    /// Checks that a host can have this number of ranks and that the slow rank is one of them.
    pub(crate) fn check_ranks(&self, ranks: usize) -> Result<(), Error> {
        if !(1..=MAX_RANKS).contains(&ranks) {
            return Err(Error::RankCount { np: ranks });
        }
        self.check_slow_rank(ranks)
    }

    /// Checks that the slow rank is one of a job's `ranks`.
    pub(crate) fn check_slow_rank(&self, ranks: usize) -> Result<(), Error> {
        match self.slow_rank {
            Some(SlowRank { rank, .. }) if rank >= ranks => Err(Error::SlowRank { rank, ranks }),
            _ => Ok(()),
        }
    }

    /// Load of rank `rank` of `ranks` in each step.
    pub(crate) fn load(&self, workload: Workload, (rank, ranks): (usize, usize)) -> Load {
        let slower_ms = match self.slow_rank {
            Some(slow) if slow.rank == rank => slow.ms,
            _ => 0.0,
        };
        let compute = Duration::from_secs_f64((self.compute_ms() + slower_ms) / 1e3);
        let schedule = Schedule::new(&workload, compute, self.compute_kind());
        Load {
            workload,
            schedule,
            chunk_bytes: LocalCollective::chunk_bytes(ranks),
        }
    }
}

fn parse_compute_ms(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(ms) if (0.0..=COMPUTE_MS_MAX).contains(&ms) => Ok(ms),
        _ => Err(format!("give a number from 0 to {COMPUTE_MS_MAX} (ms)")),
    }
}

fn parse_slow_rank(text: &str) -> Result<SlowRank, String> {
    let parse = |(rank, ms): (&str, &str)| {
        let (rank, ms) = (rank.trim().parse().ok()?, ms.trim().parse().ok()?);
        (0.0..=COMPUTE_MS_MAX)
            .contains(&ms)
            .then_some(SlowRank { rank, ms })
    };
    text.split_once(',').and_then(parse).ok_or_else(|| {
        format!("give a rank and a number from 0 to {COMPUTE_MS_MAX} (ms), such as 1,10")
    })
}

fn parse_compute_kind(text: &str) -> Result<ComputeKind, String> {
    let kinds = [ComputeKind::Sleep, ComputeKind::Spin];
    let kind = kinds.into_iter().find(|kind| kind.as_str() == text);
    kind.ok_or_else(|| "give sleep or spin".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_numbers_in_range() {
        assert_eq!(parse_compute_ms("2.5"), Ok(2.5));
        assert_eq!(parse_compute_kind("spin"), Ok(ComputeKind::Spin));
        assert_eq!(parse_slow_rank("1,2.5"), Ok(SlowRank { rank: 1, ms: 2.5 }));
    }

    #[test]
    fn resolved_arguments_have_the_defaults() {
        let resolved = LoadArgs::default().resolved();
        assert_eq!(resolved.model.as_deref(), Some("resnet50"));
        assert_eq!(resolved.compute_ms, Some(0.0));
        assert_eq!(resolved.compute_kind, Some(ComputeKind::Sleep));
        assert_eq!(resolved.resolved(), resolved);
        let profile = LoadArgs {
            profile: Some("p.json".into()),
            ..LoadArgs::default()
        };
        let resolved = profile.resolved();
        assert!(resolved.model.is_none() && resolved.profile.unwrap().is_absolute());
    }
}
