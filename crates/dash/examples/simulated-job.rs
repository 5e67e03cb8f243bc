//! A simulated job with a live page, for the tests of the page and for its pictures.
//!
//! ```sh
//! cargo run -p ronde-dash --example simulated-job -- PORT STEP_MS STEPS [TOKEN_FILE]
//! ```
//!
//! It publishes what a job with a tuner publishes: the default, a search, a comparison, the
//! verdict, a check of it, late ranks, a stall. Its steps begin at once, and after STEPS of them it
//! publishes its end. The program ends when its input ends.

use std::io::Read;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ronde_dash::{
    Command, Config, Dash, End, Event, Job, Log, LogKind, Measured, Place, RankTimes, Ranks,
    Recheck, SettingsChange, Step, Surface, Tuner, Verdict, Window, now_unix_ms,
};
use ronde_job::settings::Settings;

const MIB: f64 = 1_048_576.0;
const DEFAULT: [f64; 2] = [128.0, 1.0];
/// Settings that the simulated search tries: fusion threshold, MiB, and cycle time, ms.
const TRIED: [[f64; 2]; 9] = [
    [32.0, 5.0],
    [8.0, 2.0],
    [64.0, 10.0],
    [0.0, 1.0],
    [16.0, 5.0],
    [32.0, 2.0],
    [4.0, 10.0],
    [32.0, 10.0],
    [64.0, 5.0],
];
const STEPS_PER_SAMPLE: u64 = 8;
const STEPS_PER_VISIT: u64 = 6;
const VISITS: u64 = 16;
const BEST: [f64; 2] = [32.0, 5.0];

/// State of the simulated job.
struct Simulated {
    dash: Dash,
    settings: Settings,
    commands: Receiver<Command>,
    is_tuning: bool,
    tried: Vec<Measured>,
    random: u64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, or: u64| {
        let given = arguments.get(index).and_then(|text| text.parse().ok());
        given.unwrap_or(or)
    };
    let (port, step_ms, steps) = (number(0, 0), number(1, 40), number(2, 400));
    let config = Config {
        address: port.to_string(),
        token_file: arguments.get(3).map(PathBuf::from),
        control: true,
    };
    let (sender, commands) = channel();
    let dash = Dash::start(&config, move |command| {
        let text = match &command {
            Command::StartTimeline { path } => format!("a timeline begins in {path}"),
            _ => "requested".to_owned(),
        };
        sender.send(command).map_err(|_| "the job has ended")?;
        Ok(text)
    });
    let dash = dash.unwrap_or_else(|error| panic!("{error}"));
    println!("{}", dash.url());
    let mut job = Simulated {
        dash,
        settings: Settings::default(),
        commands,
        is_tuning: true,
        tried: Vec::new(),
        random: 1,
    };
    job.begin();
    for step in 0..steps {
        job.step(step);
        std::thread::sleep(Duration::from_millis(step_ms));
    }
    job.dash.publish(Event::End(End {
        failed: false,
        text: format!("all {steps} steps are done."),
    }));
    let _ = std::io::stdin().read(&mut [0]);
}

impl Simulated {
    fn begin(&self) {
        self.dash.publish(Event::Job(Job {
            name: "python train.py --model resnet50".to_owned(),
            ranks: Some(16),
            hosts: Some(2),
            backend: "tcp".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            model: "161 tensors, 97.5 MiB".to_owned(),
            started_unix_ms: Some(now_unix_ms()),
            ..Job::default()
        }));
        self.log(None, LogKind::Info, "16 ranks on 2 hosts are connected");
    }

    fn log(&self, step: Option<u64>, kind: LogKind, text: &str) {
        self.dash.publish(Event::Log(Log {
            step,
            kind,
            text: text.to_owned(),
            at_unix_ms: None,
        }));
    }

    /// A number from 0 to 1 (xorshift64*).
    fn noise(&mut self) -> f64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn step(&mut self, step: u64) {
        self.obey(step);
        let sample = step / STEPS_PER_SAMPLE;
        let samples = TRIED.len() as u64;
        let begin_of_contest = (samples + 1) * STEPS_PER_SAMPLE;
        let visit = step.saturating_sub(begin_of_contest) / STEPS_PER_VISIT;
        let window = match () {
            () if !self.is_tuning => Window::None,
            () if sample == 0 => Window::Default,
            () if sample <= samples => Window::Search,
            () if visit >= VISITS => Window::None,
            () if visit.is_multiple_of(2) => Window::AbCandidate,
            () => Window::AbDefault,
        };
        if self.is_tuning {
            let place = match window {
                Window::Default | Window::AbDefault => DEFAULT,
                Window::Search => TRIED[(sample - 1) as usize],
                _ => BEST,
            };
            self.change(step, place, &format!("tuner: {window:?}"));
            if window == Window::None {
                self.verdict(step);
            } else if step.is_multiple_of(STEPS_PER_SAMPLE) {
                self.progress(step, window, sample);
            }
        }
        let value = self.measured(self.place()) + 60.0 * f64::from(u8::from(step % 97 == 50));
        let noise = self.noise();
        self.dash.publish(Event::Step(Step {
            step,
            steps: 1,
            value,
            settings: self.settings,
            window,
            exposed_ms: Some(value * (0.1 + 0.02 * noise)),
            negotiation_ms: Some(1.2 + 0.4 * noise),
            messages: Some((97.5 / self.place()[0].max(0.7)).ceil()),
            bytes: Some(97.5 * MIB),
            fill: Some((97.5 / self.place()[0].max(0.7)).min(1.0) * (0.9 + 0.1 * noise)),
        }));
        if step % 10 == 9 {
            self.ranks(step);
        }
        if step == 30 {
            let text = "the tensor layer4.2.conv3 waits for the ranks 5 and 11 (60 s)";
            self.log(Some(step), LogKind::Stall, text);
        }
    }

    fn obey(&mut self, step: u64) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::StopTuning => self.is_tuning = false,
                Command::Set(change) => {
                    self.is_tuning = false;
                    self.settings = change.applied_to(&self.settings);
                    self.dash.publish(Event::Settings(SettingsChange {
                        step,
                        settings: self.settings,
                        why: "set on the page".to_owned(),
                    }));
                }
                Command::StartTimeline { .. } | Command::StopTimeline => {}
            }
        }
    }

    fn place(&self) -> [f64; 2] {
        [
            self.settings.fusion_threshold_bytes as f64 / MIB,
            self.settings.cycle_time_ns as f64 / 1e6,
        ]
    }

    fn change(&mut self, step: u64, [fusion_mb, cycle_ms]: [f64; 2], why: &str) {
        let settings = Settings {
            fusion_threshold_bytes: (fusion_mb * MIB) as u64,
            cycle_time_ns: (cycle_ms * 1e6) as u64,
            ..Settings::default()
        };
        if settings != self.settings {
            self.settings = settings;
            self.dash.publish(Event::Settings(SettingsChange {
                step,
                settings,
                why: why.to_owned(),
            }));
        }
    }

    fn measured(&mut self, place: [f64; 2]) -> f64 {
        expected(place) * (1.0 + 0.03 * (self.noise() + self.noise() - 1.0))
    }

    fn progress(&mut self, step: u64, window: Window, sample: u64) {
        let place = self.place();
        if window != Window::AbCandidate && window != Window::AbDefault {
            let value = self.measured(place);
            self.tried.push(Measured {
                place: named(place),
                value,
                ci95: Some(0.02 * value),
                measurements: 1,
            });
        }
        let (phase, detail) = match window {
            Window::Default => (
                "default",
                "the settings of the start are measured".to_owned(),
            ),
            Window::Search => (
                "search",
                format!("sample {sample} of about {}", TRIED.len()),
            ),
            _ => ("comparison", "of the candidate with the default".to_owned()),
        };
        let next = TRIED.get(sample as usize).copied();
        self.dash.publish(Event::Tuner(Tuner {
            phase: phase.to_owned(),
            detail,
            steps_left: Some(176 - step.min(176)),
            steps_lost: Some(step as f64 * 0.03),
            is_over: false,
        }));
        self.surface(next);
    }

    fn surface(&self, next: Option<[f64; 2]>) {
        let fusion_mb: Vec<f64> = [0.0]
            .into_iter()
            .chain((-4..=8).map(|power| 2f64.powi(power)))
            .collect();
        let cycle_ms = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0].to_vec();
        let mut predicted = Vec::new();
        for cycle in &cycle_ms {
            predicted.extend(fusion_mb.iter().map(|fusion| expected([*fusion, *cycle])));
        }
        let incumbent = self.tried.iter().min_by(|a, b| a.value.total_cmp(&b.value));
        self.dash.publish(Event::Surface(Surface {
            predicted,
            default: Some(named(DEFAULT)),
            incumbent: incumbent.map(|tried| tried.place),
            tried: self.tried.clone(),
            next: next.map(named),
            fusion_mb,
            cycle_ms,
        }));
    }

    fn verdict(&mut self, step: u64) {
        self.is_tuning = false;
        let (default, chosen) = (expected(DEFAULT), expected(BEST));
        let gain = 100.0 * (1.0 - chosen / default);
        self.dash.publish(Event::Tuner(Tuner {
            phase: "finished".to_owned(),
            detail: "the gain is checked from time to time".to_owned(),
            steps_left: None,
            steps_lost: Some(5.2),
            is_over: true,
        }));
        self.surface(None);
        self.dash.publish(Event::Verdict(Verdict {
            step,
            kept_default: false,
            reverted: false,
            settings: self.settings,
            default_value: Some(default),
            chosen_value: Some(chosen),
            gain_pct: Some([gain - 1.1, gain + 1.1]),
            steps_active: Some(step),
            steps_lost: Some(5.2),
            budget_steps: Some(20.0),
            payback_step: Some(step + 24),
            text: format!(
                "fusion {}: step {chosen:.1} ms instead of {default:.1} ms, {:.1} to {:.1} % \
                 faster (95 % interval; {step} steps; cost 5.2 steps, budget 20, paid back at step \
                 {})",
                self.settings,
                gain - 1.1,
                gain + 1.1,
                step + 24,
            ),
        }));
        self.log(Some(step), LogKind::Tuner, "the verdict is reached");
        self.dash.publish(Event::Recheck(Recheck {
            step: step + 100,
            default_ms: Some(default),
            chosen_ms: Some(chosen),
            gain_pct: Some([gain - 4.0, gain + 4.0]),
            is_confirmed: true,
            text: format!("{gain:.1} % faster than the default in one pair of visits"),
        }));
    }

    fn ranks(&mut self, step: u64) {
        let rows = [5, 11, 2, 14, 7, 0, 9, 3].into_iter().zip(0u8..);
        let rows = rows.map(|(rank, place)| RankTimes {
            rank,
            late_ms: Some((8.0 - f64::from(place)) * (0.9 + 0.2 * self.noise())),
            wait_ms: Some(1.0 + f64::from(place) * 0.9),
            transfer_ms: Some(6.0 + self.noise()),
        });
        let rows = rows.collect();
        self.dash.publish(Event::Ranks(Ranks { step, rows }));
    }
}

fn named([fusion_mb, cycle_ms]: [f64; 2]) -> Place {
    Place {
        fusion_mb,
        cycle_ms,
    }
}

/// Step time of a setting, ms: more messages and a longer cycle cost more, and so does a threshold
/// beyond which nothing overlaps.
fn expected([fusion_mb, cycle_ms]: [f64; 2]) -> f64 {
    let messages = (97.5 / fusion_mb.max(0.7)).ceil().min(161.0);
    let late = (fusion_mb.min(97.5) / 97.5).powi(2) * 7.0;
    let rounds = (4.0 / cycle_ms.max(0.1)).min(20.0) * 0.4;
    38.0 + 0.12 * messages + late + rounds + 0.35 * cycle_ms
}
