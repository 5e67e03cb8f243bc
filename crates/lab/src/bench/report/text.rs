//! Text format of the report.

use std::fmt;

use ronde_job::units::{bytes, counted, setting};

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
            bytes => write!(
                f,
                "fusion {} MiB",
                setting(bytes as f64 / f64::from(1 << 20))
            )?,
        }
        write!(f, ", cycle {} ms", setting(self.cycle_time_ms))?;
        let switches = [
            (self.hierarchical_allreduce, ", hierarchical allreduce"),
            (self.hierarchical_allgather, ", hierarchical allgather"),
        ];
        let on = switches.into_iter().filter(|(on, _)| *on);
        on.map(|(_, words)| words)
            .try_for_each(|words| f.write_str(words))
    }
}

/// Formats the summary: several lines, without a line end after the last.
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
        let size = bytes(self.bytes_per_step as u64);
        let (tensors, ranks) = (
            counted(*tensors as u64, "tensor"),
            counted(*np as u64, "rank"),
        );
        writeln!(
            f,
            "{model}: {tensors}, {size} per step, {ranks}, {backend} backend"
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
        let StepSummary {
            p10,
            p50,
            p90,
            mean,
        } = step_ms;
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
                "\n  messages   {}, {}, {} collective calls per step of the rank that sends most",
                setting(mpi.messages),
                bytes(mpi.bytes as u64),
                setting(mpi.collectives)
            )?;
        }
        if let Some(autotune) = &self.autotune {
            write!(f, "\n  autotune   {autotune}")?;
        }
        Ok(())
    }
}
