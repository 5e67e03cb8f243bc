//! Sets of surfaces: simulated jobs, real gradient lists, and recorded runs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::foreign::{Foreign, JOBS};
use super::model::Model;
use super::network::{Effects, Network};
use super::recorded::Recorded;
use super::simulation::Simulation;
use super::surface::{Source, Surface};

/// A set of surfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Truth {
    /// 14 simulated jobs: the table in `results/tuner/README.md`.
    Lab,
    /// These jobs with effects that the tuner's ensemble of replays draws as well.
    Drawn,
    /// These jobs with other effects, which the ensemble does not draw.
    HeldOut,
    /// Jobs of a simulator of its own, with effects drawn for each.
    Foreign,
    /// Gradient lists of real models.
    Gradients,
    /// Real runs.
    Recorded,
}

impl Truth {
    /// All sets.
    pub(crate) const ALL: [Self; 6] = [
        Self::Lab,
        Self::Drawn,
        Self::HeldOut,
        Self::Foreign,
        Self::Gradients,
        Self::Recorded,
    ];
}

impl fmt::Display for Truth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lab => "lab",
            Self::Drawn => "drawn",
            Self::HeldOut => "held-out",
            Self::Foreign => "foreign",
            Self::Gradients => "gradients",
            Self::Recorded => "recorded",
        })
    }
}

impl FromStr for Truth {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL
            .into_iter()
            .find(|truth| truth.to_string() == name);
        found.ok_or_else(|| {
            let names: Vec<String> = Self::ALL.iter().map(Self::to_string).collect();
            format!("no truth {name:?}; there are {}", names.join(", "))
        })
    }
}

type Net = fn(u32, u32) -> Network;

/// A row of the table in `results/tuner/README.md`.
struct Row {
    name: &'static str,
    model: fn() -> Model,
    net: Net,
    ranks: u32,
    ranks_per_host: u32,
    /// Speed of the machine relative to the model's own times.
    speedup: f64,
    sigma: f64,
    wanders: bool,
}

/// Positional, to read like the table in `results/tuner/README.md`.
#[allow(clippy::too_many_arguments)]
const fn row(
    name: &'static str,
    model: fn() -> Model,
    net: Net,
    ranks: u32,
    ranks_per_host: u32,
    speedup: f64,
    sigma: f64,
    wanders: bool,
) -> Row {
    Row {
        name,
        model,
        net,
        ranks,
        ranks_per_host,
        speedup,
        sigma,
        wanders,
    }
}

const LAB: [Row; 14] = [
    row(
        "resnet50/nv",
        Model::resnet50,
        Network::nv,
        16,
        8,
        3.0,
        0.02,
        false,
    ),
    row(
        "resnet50/g25",
        Model::resnet50,
        Network::g25,
        16,
        4,
        3.0,
        0.035,
        true,
    ),
    row(
        "resnet50/g25",
        Model::resnet50,
        Network::g25,
        128,
        8,
        1.0,
        0.035,
        false,
    ),
    row(
        "resnet50/g1",
        Model::resnet50,
        Network::g1,
        16,
        1,
        1.0,
        0.05,
        true,
    ),
    row(
        "vgg16/nv",
        Model::vgg16,
        Network::nv,
        2,
        2,
        3.0,
        0.02,
        false,
    ),
    row(
        "vgg16/g25",
        Model::vgg16,
        Network::g25,
        16,
        1,
        1.0,
        0.05,
        false,
    ),
    row(
        "vgg16/g1",
        Model::vgg16,
        Network::g1,
        2,
        1,
        1.0,
        0.035,
        true,
    ),
    row(
        "bert/nv",
        Model::bert,
        Network::nv,
        128,
        8,
        2.0,
        0.035,
        false,
    ),
    row(
        "bert/g25",
        Model::bert,
        Network::g25,
        128,
        8,
        1.0,
        0.02,
        true,
    ),
    row("bert/g1", Model::bert, Network::g1, 16, 4, 1.0, 0.05, false),
    row(
        "small/g25",
        Model::small,
        Network::g25,
        16,
        1,
        1.0,
        0.035,
        false,
    ),
    row(
        "small/g1",
        Model::small,
        Network::g1,
        128,
        8,
        1.0,
        0.05,
        true,
    ),
    row(
        "small/nv",
        Model::small,
        Network::nv,
        2,
        2,
        1.0,
        0.02,
        false,
    ),
    row(
        "resnet50/g1",
        Model::resnet50,
        Network::g1,
        128,
        1,
        1.0,
        0.035,
        false,
    ),
];

/// A gradient list, its network, and the computation times of forward and backward pass, ms: chosen
/// so that communication dominates on some, computation on some, and neither on some.
struct List {
    name: &'static str,
    net: (&'static str, Net),
    ranks: u32,
    ranks_per_host: u32,
    compute_ms: [f64; 2],
    sigma: f64,
    wanders: bool,
}

#[allow(clippy::too_many_arguments)]
const fn list(
    name: &'static str,
    net: (&'static str, Net),
    ranks: u32,
    ranks_per_host: u32,
    forward_ms: f64,
    backward_ms: f64,
    sigma: f64,
    wanders: bool,
) -> List {
    List {
        name,
        net,
        ranks,
        ranks_per_host,
        compute_ms: [forward_ms, backward_ms],
        sigma,
        wanders,
    }
}

const NV: (&str, Net) = ("nv", Network::nv);
const G25: (&str, Net) = ("g25", Network::g25);
const G1: (&str, Net) = ("g1", Network::g1);

const LISTS: [List; 8] = [
    list("alexnet", G25, 32, 4, 20.0, 40.0, 0.035, false),
    list("deepspeech", G25, 16, 4, 60.0, 120.0, 0.05, false),
    list("inception3", G25, 64, 8, 50.0, 100.0, 0.035, true),
    list("lstm", NV, 16, 8, 15.0, 30.0, 0.02, false),
    list("nasnet", G25, 32, 8, 60.0, 140.0, 0.035, false),
    list("resnet50", NV, 64, 8, 20.0, 40.0, 0.02, true),
    list("seq2seq", G1, 8, 1, 80.0, 160.0, 0.05, false),
    list("vgg16", G25, 32, 8, 65.0, 130.0, 0.035, false),
];

/// Formats the name of a truth for tables, with its changes: the noise, and the error of rank 0's
/// view if it is not 30 %.
pub(crate) fn label(truth: Truth, noise: Option<f64>, error: f64) -> String {
    let noise = noise.map(|noise| format!(", noise {} %", 100.0 * noise));
    let error = (error != 0.3).then(|| format!(", costs seen {}x off", 1.0 + error));
    format!(
        "{truth}{}{}",
        noise.unwrap_or_default(),
        error.unwrap_or_default()
    )
}

/// Returns the path of a folder of the repository, whichever of the workspace's packages the bench
/// belongs to.
fn folder(name: &str) -> Result<PathBuf, String> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = package.ancestors().map(|folder| folder.join(name));
    let found = paths.find(|path| path.is_dir());
    found.ok_or_else(|| format!("no folder {name} above {}", package.display()))
}

/// Returns the surfaces of a truth. `network` is a factor on the costs between hosts, `sigma`
/// replaces the surfaces' own noise.
///
/// # Errors
/// A file is missing or cannot be read.
pub(crate) fn surfaces(
    truth: Truth,
    network: f64,
    sigma: Option<f64>,
) -> Result<Vec<Surface>, String> {
    match truth {
        Truth::Lab => Ok(lab(Effects::LAB, network, sigma)),
        Truth::Drawn => Ok(lab(Effects::DRAWN, network, sigma)),
        Truth::HeldOut => Ok(lab(Effects::HELD_OUT, network, sigma)),
        Truth::Foreign => Ok(foreign(network, sigma)),
        Truth::Gradients => gradients(network, sigma),
        Truth::Recorded => recorded(sigma),
    }
}

fn lab(effects: Effects, slower: f64, sigma: Option<f64>) -> Vec<Surface> {
    let surface = |row: &Row| {
        let Row {
            name,
            ranks,
            ranks_per_host,
            ..
        } = row;
        let simulation = Simulation {
            model: (row.model)().faster(row.speedup),
            network: (row.net)(*ranks, *ranks_per_host).slower(slower),
            effects,
        };
        Surface::new(
            format!("{name} {ranks}x{ranks_per_host}"),
            Source::Simulated(Box::new(simulation)),
            sigma.unwrap_or(row.sigma),
            row.wanders,
        )
    };
    LAB.iter().map(surface).collect()
}

fn foreign(slower: f64, sigma: Option<f64>) -> Vec<Surface> {
    let surface = |number: u64| {
        let job = Foreign::draw(number).slower(slower);
        let (name, own) = (job.name(number), job.sigma);
        let source = Source::Foreign(Box::new(job));
        Surface::new(name, source, sigma.unwrap_or(own), false)
    };
    (0..JOBS).map(surface).collect()
}

fn gradients(slower: f64, sigma: Option<f64>) -> Result<Vec<Surface>, String> {
    let folder = folder("tests/fixtures/tensor-elements")?;
    let surface = |list: &List| {
        let path = folder.join(format!("{}.txt", list.name));
        let [forward_ms, backward_ms] = list.compute_ms;
        let model = Model::read(&path, forward_ms, backward_ms)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let List {
            name,
            net: (net, network),
            ranks,
            ranks_per_host,
            ..
        } = list;
        let simulation = Simulation {
            model,
            network: network(*ranks, *ranks_per_host).slower(slower),
            effects: Effects::LAB,
        };
        Ok(Surface::new(
            format!("{name}/{net} {ranks}x{ranks_per_host}"),
            Source::Simulated(Box::new(simulation)),
            sigma.unwrap_or(list.sigma),
            list.wanders,
        ))
    };
    LISTS.iter().map(surface).collect()
}

fn recorded(sigma: Option<f64>) -> Result<Vec<Surface>, String> {
    let folder = folder("results/sweep")?;
    let entries = std::fs::read_dir(&folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path().join("sweep.csv")))
        .filter(|path| path.is_file())
        .collect();
    if paths.is_empty() {
        return Err(format!("no sweeps in {}", folder.display()));
    }
    paths.sort();
    let surface = |path: &PathBuf| {
        let recorded = Recorded::read(path).map_err(|error| error.to_string())?;
        let name = path.parent().and_then(Path::file_name).unwrap_or_default();
        // The recorded scatter is the noise, unless more is requested.
        Ok(Surface::new(
            name.to_string_lossy().into_owned(),
            Source::Recorded(recorded),
            sigma.unwrap_or(0.0),
            false,
        ))
    };
    paths.iter().map(surface).collect()
}

#[cfg(test)]
mod tests;
