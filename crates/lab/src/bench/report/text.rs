//! The report for people.

use std::fmt;

use super::{BenchReport, LinkReport, SettingsReport, SlowRankReport, StepSummary};

impl fmt::Display for LinkReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "shaped: {} µs and {} GB/s per message, not this machine's own",
            self.alpha_us, self.gb_per_s
        )
    }
}

impl fmt::Display for SettingsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fusion_threshold_bytes {
            0 => write!(f, "no fusion")?,
            bytes => write!(f, "fusion {} MiB", rounded(bytes as f64 / f64::from(1 << 20)))?,
        }
        write!(f, ", cycle {} ms", rounded(self.cycle_time_ms))?;
        let switches = [
            (self.hierarchical_allreduce, ", hierarchical allreduce"),
            (self.hierarchical_allgather, ", hierarchical allgather"),
        ];
        let on = switches.into_iter().filter(|(on, _)| *on);
        on.map(|(_, words)| words)
            .try_for_each(|words| f.write_str(words))
    }
}

/// A number of bytes in the largest decimal unit of which there is at least one.
pub(super) struct Size(pub(super) usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} B", self.0),
            1_000..1_000_000 => write!(f, "{:.1} kB", bytes / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} MB", bytes / 1e6),
            _ => write!(f, "{:.2} GB", bytes / 1e9),
        }
    }
}

/// `value` with at most three decimals and no trailing zeros.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// The summary for people, several lines, without a line end after the last.
impl fmt::Display for BenchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            model,
            np,
            backend,
            steps,
            tensors,
            step_ms,
            ..
        } = self;
        let size = Size(self.bytes_per_step);
        let ranks = if *np == 1 { "rank" } else { "ranks" };
        let plural = if *tensors == 1 { "" } else { "s" };
        writeln!(
            f,
            "{model}: {tensors} tensor{plural}, {size} per step, {np} {ranks}, {backend} backend"
        )?;
        if let Some(link) = &self.link {
            writeln!(f, "  link       {link}")?;
        }
        if self.compute_ms > 0.0 {
            writeln!(
                f,
                "  compute    {} ms per step ({})",
                self.compute_ms, self.compute_kind
            )?;
        }
        if let Some(SlowRankReport { rank, ms }) = self.slow_rank {
            writeln!(f, "  slow rank  {rank}, by {ms} ms per step")?;
        }
        writeln!(f, "  settings   {}", self.settings)?;
        let StepSummary { p10, p50, p90, mean } = step_ms;
        write!(
            f,
            "  step       p50 {p50:.3} ms (p10 {p10:.3}, p90 {p90:.3}, mean {mean:.3}; {steps} steps, slowest rank)"
        )?;
        if let Some(rate) = self.gb_per_s {
            let memcpy = self.memcpy_gb_per_s;
            let shaped = if self.link.is_some() { " (shaped)" } else { "" };
            write!(
                f,
                "\n  bandwidth  {rate:.3} GB/s{shaped}, {:.2} of memcpy ({memcpy:.3} GB/s)",
                rate / memcpy
            )?;
        }
        if let Some(mpi) = &self.mpi {
            write!(
                f,
                "\n  mpi        {} messages, {}, {} collective calls per step of the rank that sends most",
                rounded(mpi.messages),
                Size(mpi.bytes as usize),
                rounded(mpi.collectives)
            )?;
        }
        if let Some(autotune) = &self.autotune {
            write!(f, "\n  autotune   {autotune}")?;
        }
        Ok(())
    }
}
