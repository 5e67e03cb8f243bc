//! What a benchmark found: one JSON object for programs, a few lines for people.
//!
//! The object's keys are an interface (`docs/`, scripts and plots read them): see [`BenchReport`]. Times are those of the
//! slowest rank in each step. Bandwidth is bytes per step over the median step, in GB/s of 10⁹ bytes; it is left out when
//! a backward pass is pretended, for then the step's length says little about the collective.

use std::fmt;

use serde::Serialize;

use crate::knobs::Link;
use crate::settings::Settings;

pub use crate::percentile::percentile;

/// The result of one benchmark run; serialised, it is what `ronde bench --json` writes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchReport {
    /// The model's name, or the profile's file name.
    pub model: String,
    /// Number of ranks.
    pub np: usize,
    /// The backend that ran the collectives: `local`, `mpi`, `nccl`.
    pub backend: String,
    /// The network that the local backend was shaped to; `null` when it ran at full speed.
    pub link: Option<LinkReport>,
    /// Length of the pretended backward pass, in ms; 0 without one.
    pub compute_ms: f64,
    /// What that pass did: `sleep` or `spin`.
    pub compute_kind: &'static str,
    /// The rank that was made to compute longer; `null` if none was.
    pub slow_rank: Option<SlowRankReport>,
    /// Measured steps.
    pub steps: usize,
    /// Tensors per step.
    pub tensors: usize,
    /// Bytes reduced per step and rank.
    pub bytes_per_step: usize,
    /// The settings in force at the end.
    pub settings: SettingsReport,
    /// Step times.
    pub step_ms: StepSummary,
    /// Bytes per step over the median step; `null` when ranks compute in between.
    pub gb_per_s: Option<f64>,
    /// The same for a plain copy of the same tensors on all ranks at once, in the same run.
    pub memcpy_gb_per_s: f64,
    /// What the tuner did; `null` when it was off.
    pub autotune: Option<AutotuneSummary>,
}

/// A rank that was made to compute longer than the others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SlowRankReport {
    /// Which.
    pub rank: usize,
    /// By how much, in ms a step.
    pub ms: f64,
}

/// The network a run was shaped to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LinkReport {
    /// Always true: these are not the machine's own speeds.
    pub shaped: bool,
    /// Latency of a message, in µs.
    pub alpha_us: f64,
    /// Bandwidth, in GB/s.
    pub gb_per_s: f64,
}

/// The runtime's settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SettingsReport {
    /// Most bytes fused into one collective; 0 is no fusion.
    pub fusion_threshold_bytes: u64,
    /// Shortest time between the starts of two cycles, in ms.
    pub cycle_time_ms: f64,
}

/// Step times in ms: percentiles and mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StepSummary {
    /// A tenth of the steps were faster.
    pub p10: f64,
    /// The median.
    pub p50: f64,
    /// A tenth of the steps were slower.
    pub p90: f64,
    /// The arithmetic mean.
    pub mean: f64,
}

/// What the tuner did and found; figures are `null` until there is a verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AutotuneSummary {
    /// Where the tuner stood at the end: `default`, `sample`, `ab`, or `final` with a verdict.
    pub state: String,
    /// Step time with the default settings, in ms.
    pub default_step_ms: Option<f64>,
    /// Step time with the chosen settings, in ms.
    pub chosen_step_ms: Option<f64>,
    /// Interval of the gain over the default, in percent of the default step.
    pub gain_pct: Option<[f64; 2]>,
    /// Whether the default stays in force.
    pub kept_default: Option<bool>,
    /// Steps that the tuner was at work.
    pub steps_active: u64,
    /// What tuning cost, in steps at the default's speed.
    pub steps_lost: Option<f64>,
    /// What it was allowed to cost, in the same unit.
    pub budget_steps: Option<f64>,
    /// The step by which the gain has paid for the search; `null` where there is no gain.
    pub payback_step: Option<u64>,
    /// The chosen settings; without a verdict, those in force at the end.
    pub settings: SettingsReport,
    /// The verdict as the tuner puts it.
    #[serde(skip)]
    pub verdict_text: Option<String>,
}

impl From<Link> for LinkReport {
    fn from(link: Link) -> Self {
        Self {
            shaped: true,
            alpha_us: link.alpha_us,
            gb_per_s: link.gb_per_s,
        }
    }
}

impl From<Settings> for SettingsReport {
    fn from(settings: Settings) -> Self {
        Self {
            fusion_threshold_bytes: settings.fusion_threshold_bytes,
            cycle_time_ms: settings.cycle_time_ns as f64 / 1e6,
        }
    }
}

impl StepSummary {
    /// Summarises step times in ms; `None` without steps.
    pub fn new(step_ms: &[f64]) -> Option<Self> {
        let mut sorted = step_ms.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            p10: percentile(&sorted, 0.1)?,
            p50: percentile(&sorted, 0.5)?,
            p90: percentile(&sorted, 0.9)?,
            mean: sorted.iter().sum::<f64>() / sorted.len() as f64,
        })
    }
}

/// GB/s of `bytes` in `ms`.
pub fn gb_per_s(bytes: usize, ms: f64) -> f64 {
    bytes as f64 / (ms * 1e6)
}

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
        write!(f, ", cycle {} ms", rounded(self.cycle_time_ms))
    }
}

/// A number of bytes in the largest decimal unit of which there is at least one.
struct Size(usize);

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
        if let Some(autotune) = &self.autotune {
            write!(f, "\n  autotune   {autotune}")?;
        }
        Ok(())
    }
}

impl fmt::Display for AutotuneSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.verdict_text {
            Some(text) => f.write_str(text),
            None => write!(
                f,
                "no verdict after {} steps (in phase {}); give it more --steps",
                self.steps_active, self.state
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: SettingsReport = SettingsReport {
        fusion_threshold_bytes: 128 << 20,
        cycle_time_ms: 1.0,
    };

    fn report() -> BenchReport {
        BenchReport {
            model: "resnet50".to_owned(),
            np: 2,
            backend: "local".to_owned(),
            link: None,
            compute_ms: 0.0,
            compute_kind: "sleep",
            slow_rank: None,
            steps: 50,
            tensors: 161,
            bytes_per_step: 102_228_128,
            settings: DEFAULT,
            step_ms: StepSummary {
                p10: 19.5,
                p50: 20.0,
                p90: 22.25,
                mean: 20.5,
            },
            gb_per_s: Some(gb_per_s(102_228_128, 20.0)),
            memcpy_gb_per_s: 5.5,
            autotune: None,
        }
    }

    #[test]
    fn summary_sorts_first() {
        let summary = StepSummary::new(&[16.0, 1.0, 8.0, 2.0, 4.0]).unwrap();
        assert_eq!(
            summary,
            StepSummary {
                p10: 1.4,
                p50: 4.0,
                p90: 12.8,
                mean: 6.2
            }
        );
        assert_eq!(StepSummary::new(&[]), None);
    }

    #[test]
    fn a_gigabyte_is_ten_to_the_nine() {
        assert_eq!(gb_per_s(2_000_000_000, 500.0), 4.0);
    }

    #[test]
    fn json_has_the_promised_keys_in_order() {
        let json = serde_json::to_string(&report()).unwrap();
        assert_eq!(
            json,
            concat!(
                r#"{"model":"resnet50","np":2,"backend":"local","link":null,"compute_ms":0.0,"compute_kind":"sleep","slow_rank":null,"#,
                r#""steps":50,"tensors":161,"bytes_per_step":102228128,"#,
                r#""settings":{"fusion_threshold_bytes":134217728,"cycle_time_ms":1.0},"#,
                r#""step_ms":{"p10":19.5,"p50":20.0,"p90":22.25,"mean":20.5},"#,
                r#""gb_per_s":5.1114064,"memcpy_gb_per_s":5.5,"autotune":null}"#
            )
        );
    }

    #[test]
    fn summary_for_people() {
        assert_eq!(
            report().to_string(),
            "resnet50: 161 tensors, 102.2 MB per step, 2 ranks, local backend\n  \
               settings   fusion 128 MiB, cycle 1 ms\n  \
               step       p50 20.000 ms (p10 19.500, p90 22.250, mean 20.500; 50 steps, slowest rank)\n  \
               bandwidth  5.111 GB/s, 0.93 of memcpy (5.500 GB/s)"
        );
    }

    #[test]
    fn every_output_of_a_shaped_run_says_so() {
        let mut shaped = report();
        shaped.link = Some(LinkReport {
            shaped: true,
            alpha_us: 1000.0,
            gb_per_s: 2.5,
        });
        let text = shaped.to_string();
        assert!(
            text.contains("link       shaped: 1000 µs and 2.5 GB/s") && text.contains("GB/s (shaped)"),
            "{text}"
        );
        let json = serde_json::to_value(&shaped).unwrap();
        assert_eq!(json["link"]["shaped"], true);
        assert_eq!(json["link"]["alpha_us"], 1000.0);
    }

    #[test]
    fn verdict_of_the_tuner() {
        let cut = AutotuneSummary {
            state: "sample".to_owned(),
            default_step_ms: None,
            chosen_step_ms: None,
            gain_pct: None,
            kept_default: None,
            steps_active: 60,
            steps_lost: None,
            budget_steps: None,
            payback_step: None,
            settings: DEFAULT,
            verdict_text: None,
        };
        assert_eq!(
            cut.to_string(),
            "no verdict after 60 steps (in phase sample); give it more --steps"
        );
        let done = AutotuneSummary {
            state: "final".to_owned(),
            default_step_ms: Some(60.0),
            chosen_step_ms: Some(48.0),
            gain_pct: Some([18.0, 21.5]),
            kept_default: Some(false),
            steps_active: 240,
            steps_lost: Some(6.5),
            budget_steps: Some(20.0),
            payback_step: Some(280),
            settings: SettingsReport {
                fusion_threshold_bytes: 8 << 20,
                cycle_time_ms: 2.5,
            },
            verdict_text: Some("chose 8 MB".to_owned()),
        };
        let mut tuned = report();
        tuned.autotune = Some(done.clone());
        assert!(tuned.to_string().ends_with("\n  autotune   chose 8 MB"));
        assert_eq!(
            serde_json::to_string(&done).unwrap(),
            concat!(
                r#"{"state":"final","default_step_ms":60.0,"chosen_step_ms":48.0,"gain_pct":[18.0,21.5],"#,
                r#""kept_default":false,"steps_active":240,"steps_lost":6.5,"budget_steps":20.0,"payback_step":280,"#,
                r#""settings":{"fusion_threshold_bytes":8388608,"cycle_time_ms":2.5}}"#
            )
        );
    }

    #[test]
    fn sizes_have_units_people_use() {
        let sizes = [4, 1_500, 102_228_128, 1_340_567_552].map(|bytes| Size(bytes).to_string());
        assert_eq!(sizes, ["4 B", "1.5 kB", "102.2 MB", "1.34 GB"]);
    }

    #[test]
    fn no_fusion_is_said_in_words() {
        let settings = SettingsReport {
            fusion_threshold_bytes: 0,
            cycle_time_ms: 0.5,
        };
        assert_eq!(settings.to_string(), "no fusion, cycle 0.5 ms");
    }
}
