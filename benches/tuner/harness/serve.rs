//! Server of jobs for other programs: reads a JSON object per line and writes one, so that tuners
//! in any language get the same truth, noise and metrics.
//!
//! ```text
//! {"do":"surfaces","truth":"lab"}                        -> {"surfaces":["resnet50/nv 16x8", …]}
//! {"do":"reset","tuner":"tpe","truth":"lab","surface":"vgg16/nv 2x2","seed":3}
//!                                                        -> {"seed":12345}: to seed the tuner
//! {"do":"lattice"}                                       -> {"fusion_mb":[0.0, …],"cycle_ms":[0.1, …]}
//! {"do":"sample","setting":{…}}                          -> {"ms":65.2,"done":false,"best":{…}}
//! {"do":"asked","ms":41.5}                               -> {}
//! {"do":"end","setting":{…}}                             -> {"outcome":{…}}: a line for `--add`
//! ```
//!
//! A setting is `{"fusion_mb":128,"cycle_ms":1,"hierarchical":false}`. A sample is the median of 10
//! steps, or of fewer if they are clearly worse; `done` is whether the search is to end
//! (sampling.rs). The answer to an invalid request is `{"error":"…"}`; the next line is then read.

use std::collections::HashMap;
use std::io::{BufRead, Write};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::job::Job;
use super::outcome::Outcome;
use super::run::seed;
use super::sampling::Sampling;
use super::split::Part;
use super::truth::{Setting, Surface, Truth, label, surfaces};

/// Tuners outside do not use rank 0's view: their runs are listed with those of the usual error.
const NO_VIEW: f64 = 0.3;
/// Most steps of a job.
const STEPS_MOST: usize = 1_000_000;

#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
enum Request {
    Surfaces {
        truth: String,
    },
    Reset {
        tuner: String,
        truth: String,
        surface: String,
        seed: u64,
    },
    Lattice {},
    Sample {
        setting: Wire,
    },
    Asked {
        ms: f64,
    },
    End {
        setting: Wire,
    },
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    fusion_mb: f64,
    cycle_ms: f64,
    hierarchical: bool,
}

impl From<Setting> for Wire {
    fn from(setting: Setting) -> Self {
        Self {
            fusion_mb: setting.fusion_mb(),
            cycle_ms: setting.cycle_ms,
            hierarchical: setting.hierarchical,
        }
    }
}

impl TryFrom<Wire> for Setting {
    type Error = String;

    fn try_from(wire: Wire) -> Result<Self, String> {
        let Wire {
            fusion_mb,
            cycle_ms,
            ..
        } = wire;
        if !(0.0..=1e6).contains(&fusion_mb) {
            return Err(format!("fusion_mb {fusion_mb}: expected 0 to 1e6"));
        }
        if !(1e-3..=1e6).contains(&cycle_ms) {
            return Err(format!("cycle_ms {cycle_ms}: expected 0.001 to 1e6"));
        }
        Ok(Self {
            hierarchical: wire.hierarchical,
            ..Self::of(fusion_mb, cycle_ms)
        })
    }
}

/// The current job.
struct Running {
    tuner: String,
    truth: String,
    number: u64,
    job: Job<'static>,
    sampling: Sampling,
}

/// Surfaces requested so far; kept until the program ends, with their computed step times.
struct Stock {
    noise: Option<f64>,
    part: Part,
    by_truth: HashMap<String, &'static [Surface]>,
}

impl Stock {
    fn surfaces(&mut self, truth: &str) -> Result<&'static [Surface], String> {
        if let Some(known) = self.by_truth.get(truth) {
            return Ok(known);
        }
        let name = truth.parse::<Truth>()?;
        let mut made = surfaces(name, 1.0, self.noise)?;
        made.retain(|surface| self.part.has(name, surface));
        let made: &'static [Surface] = made.leak();
        self.by_truth.insert(truth.into(), made);
        Ok(made)
    }
}

/// Answers requests until there are none.
///
/// # Errors
/// The streams cannot be read or written.
pub(crate) fn serve(
    input: impl BufRead,
    mut output: impl Write,
    noise: Option<f64>,
    part: Part,
) -> std::io::Result<()> {
    let mut stock = Stock {
        noise,
        part,
        by_truth: HashMap::new(),
    };
    let mut running = None;
    for line in input.lines() {
        let line = line?;
        let answer = serde_json::from_str(&line)
            .map_err(|error| error.to_string())
            .and_then(|request| answer(request, &mut stock, &mut running));
        let answer = answer.unwrap_or_else(|error| json!({ "error": error }));
        writeln!(output, "{answer}")?;
        output.flush()?;
    }
    Ok(())
}

fn current(running: &mut Option<Running>) -> Result<&mut Running, String> {
    let running = running.as_mut();
    running.ok_or_else(|| "no job: send a reset first".to_owned())
}

fn answer(
    request: Request,
    stock: &mut Stock,
    running: &mut Option<Running>,
) -> Result<Value, String> {
    match request {
        Request::Surfaces { truth } => {
            let names = stock
                .surfaces(&truth)?
                .iter()
                .map(|surface| surface.name.as_str());
            Ok(json!({"surfaces": names.collect::<Vec<_>>()}))
        }
        Request::Reset {
            tuner,
            truth,
            surface,
            seed: number,
        } => {
            let all = stock.surfaces(&truth)?;
            let found = all.iter().find(|known| known.name == surface);
            let found = found.ok_or_else(|| format!("no surface {surface:?} in {truth}"))?;
            let truth = label(truth.parse()?, stock.noise, NO_VIEW);
            let seed = seed(&surface, number);
            *running = Some(Running {
                tuner,
                truth,
                number,
                job: Job::new(found, seed, None),
                sampling: Sampling::default(),
            });
            Ok(json!({"seed": seed.rotate_left(17) >> 33})) // 31 bits, as many libraries want
        }
        Request::Lattice {} => {
            let lattice = Setting::lattice();
            Ok(json!({
                "fusion_mb": levels(&lattice, Setting::fusion_mb),
                "cycle_ms": levels(&lattice, |setting| setting.cycle_ms),
            }))
        }
        Request::Sample { setting } => {
            let Running { job, sampling, .. } = current(running)?;
            if job.steps() >= STEPS_MOST {
                return Err(format!("at most {STEPS_MOST} steps in all"));
            }
            let ms = sampling.sample(job, &setting.try_into()?) / 1e3;
            let best = sampling.best().map(Wire::from);
            Ok(json!({"ms": ms, "done": sampling.is_done(), "best": best}))
        }
        Request::Asked { ms } => {
            current(running)?.job.asked(ms);
            Ok(json!({}))
        }
        Request::End { setting } => {
            let setting = setting.try_into()?;
            let mut ended = running.take().ok_or("no job: send a reset first")?;
            let (tuner, truth) = (&ended.tuner, &ended.truth);
            let outcome = Outcome::new(tuner, truth, ended.number, &mut ended.job, &setting);
            Ok(json!({ "outcome": outcome }))
        }
    }
}

/// Returns the distinct values of a parameter on the lattice without its first setting, the
/// default, ascending.
fn levels(lattice: &[Setting], of: impl Fn(&Setting) -> f64) -> Vec<f64> {
    let mut levels: Vec<f64> = lattice[1..].iter().map(of).collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    fn talk(lines: &str) -> Vec<Value> {
        let mut output = Vec::new();
        serve(lines.as_bytes(), &mut output, None, Part::All).unwrap();
        let text = String::from_utf8(output).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    const SETTING: &str = r#"{"fusion_mb":128,"cycle_ms":1,"hierarchical":true}"#;

    #[test]
    fn a_run_from_outside() {
        let answers = talk(&format!(
            r#"{{"do":"surfaces","truth":"lab"}}
{{"do":"reset","tuner":"t","truth":"lab","surface":"vgg16/nv 2x2","seed":3}}
{{"do":"lattice"}}
{{"do":"sample","setting":{SETTING}}}
{{"do":"asked","ms":1.5}}
{{"do":"end","setting":{SETTING}}}
{{"do":"end","setting":{SETTING}}}"#
        ));
        assert_eq!(answers[0]["surfaces"].as_array().unwrap().len(), 14);
        assert_eq!(answers[2]["fusion_mb"].as_array().unwrap().len(), 17);
        assert_eq!(answers[2]["cycle_ms"].as_array().unwrap().len(), 13);
        let ms = answers[3]["ms"].as_f64().unwrap();
        assert!((60.0..80.0).contains(&ms), "{ms}");
        assert_eq!(answers[3]["done"], false);
        assert_eq!(answers[3]["best"]["hierarchical"], true);
        let outcome: Outcome = serde_json::from_value(answers[5]["outcome"].clone()).unwrap();
        assert_eq!(
            (outcome.active, outcome.changes, outcome.within_3),
            (11, 1, Some(11))
        );
        assert!(outcome.end < 1.03 && outcome.asked_ms == [1.5]);
        assert_eq!(answers[6], json!({"error": "no job: send a reset first"}));
    }

    #[test]
    fn nonsense_is_answered() {
        let answers = talk(
            "x\n{}\n{\"do\":\"dance\"}\n{\"do\":\"surfaces\",\"truth\":\"false\"}\n\
             {\"do\":\"reset\",\"tuner\":\"t\",\"truth\":\"lab\",\"surface\":\"s\",\"seed\":1}\n\
             {\"do\":\"sample\",\"setting\":{\"fusion_mb\":-1}}\n",
        );
        assert_eq!(answers.len(), 6);
        assert!(
            answers.iter().all(|answer| answer["error"].is_string()),
            "{answers:?}"
        );
        assert_eq!(answers[4]["error"], "no surface \"s\" in lab");
    }
}
