//! The sets of surfaces.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::model::Model;
use super::network::{Effects, Network};
use super::recorded::Recorded;
use super::simulation::Simulation;
use super::surface::{Source, Surface};

/// A set of surfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Truth {
    /// The 14 of `facts/tuner.md` §2.
    Lab,
    /// The same with effects that no cost model knows.
    Unmodelled,
    /// The same with other such effects, which nobody looked at while the tuner was made.
    HeldOut,
    /// Real models' gradient lists.
    Gradients,
    /// Real runs.
    Recorded,
}

impl Truth {
    /// All of them.
    pub(crate) const ALL: [Self; 5] = [
        Self::Lab,
        Self::Unmodelled,
        Self::HeldOut,
        Self::Gradients,
        Self::Recorded,
    ];
}

impl fmt::Display for Truth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lab => "lab",
            Self::Unmodelled => "unmodelled",
            Self::HeldOut => "held-out",
            Self::Gradients => "gradients",
            Self::Recorded => "recorded",
        })
    }
}

impl FromStr for Truth {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|truth| truth.to_string() == name);
        found.ok_or_else(|| {
            let names: Vec<String> = Self::ALL.iter().map(Self::to_string).collect();
            format!("no truth {name:?}; there are {}", names.join(", "))
        })
    }
}

type Net = fn(u32, u32) -> Network;

/// A row of the table in `facts/tuner.md` §2.
struct Row {
    name: &'static str,
    model: fn() -> Model,
    net: Net,
    ranks: u32,
    ranks_per_host: u32,
    /// How much faster than the model's own times the machine computes.
    speedup: f64,
    sigma: f64,
    wanders: bool,
}

/// Positional, to read like the lab's own table.
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
    row("vgg16/nv", Model::vgg16, Network::nv, 2, 2, 3.0, 0.02, false),
    row("vgg16/g25", Model::vgg16, Network::g25, 16, 1, 1.0, 0.05, false),
    row("vgg16/g1", Model::vgg16, Network::g1, 2, 1, 1.0, 0.035, true),
    row("bert/nv", Model::bert, Network::nv, 128, 8, 2.0, 0.035, false),
    row("bert/g25", Model::bert, Network::g25, 128, 8, 1.0, 0.02, true),
    row("bert/g1", Model::bert, Network::g1, 16, 4, 1.0, 0.05, false),
    row("small/g25", Model::small, Network::g25, 16, 1, 1.0, 0.035, false),
    row("small/g1", Model::small, Network::g1, 128, 8, 1.0, 0.05, true),
    row("small/nv", Model::small, Network::nv, 2, 2, 1.0, 0.02, false),
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

/// A gradient list, the net that it runs on here, and what the model computes, ms forward and backward: chosen so that on some
/// communication dominates, on some computation, and on some neither.
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

/// A truth as tables name it, with what was changed about it: the noise, and what rank 0's view is off by if not by 30 %.
pub(crate) fn label(truth: Truth, noise: Option<f64>, error: f64) -> String {
    let noise = noise.map(|noise| format!(", noise {} %", 100.0 * noise));
    let error = (error != 0.3).then(|| format!(", costs seen {}x off", 1.0 + error));
    format!(
        "{truth}{}{}",
        noise.unwrap_or_default(),
        error.unwrap_or_default()
    )
}

/// Where the gradient lists lie, if they do.
fn lists() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/traces/tensor-elements")
}

/// Where recorded surfaces lie.
fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("results/tuner/recorded")
}

/// The surfaces of a truth. `network` is a factor on what crosses hosts, `sigma` replaces the surfaces' own noise. Empty, and said
/// so, where the files are not there.
pub(crate) fn surfaces(truth: Truth, network: f64, sigma: Option<f64>) -> Result<Vec<Surface>, String> {
    match truth {
        Truth::Lab => Ok(lab(Effects::LAB, network, sigma)),
        Truth::Unmodelled => Ok(lab(Effects::UNMODELLED, network, sigma)),
        Truth::HeldOut => Ok(lab(Effects::HELD_OUT, network, sigma)),
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
            Source::Simulated(simulation),
            sigma.unwrap_or(row.sigma),
            row.wanders,
        )
    };
    LAB.iter().map(surface).collect()
}

fn gradients(slower: f64, sigma: Option<f64>) -> Result<Vec<Surface>, String> {
    let folder = lists();
    if !folder.is_dir() {
        eprintln!("no gradient lists in {}: left out", folder.display());
        return Ok(Vec::new());
    }
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
            Source::Simulated(simulation),
            sigma.unwrap_or(list.sigma),
            list.wanders,
        ))
    };
    LISTS.iter().map(surface).collect()
}

fn recorded(sigma: Option<f64>) -> Result<Vec<Surface>, String> {
    let folder = recordings();
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("no recorded surfaces in {}: left out", folder.display());
        return Ok(Vec::new());
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "csv"))
        .collect();
    paths.sort();
    let surface = |path: &PathBuf| {
        let recorded = Recorded::read(path).map_err(|error| error.to_string())?;
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        // The recorded scatter is the noise, unless more is asked for.
        Ok(Surface::new(
            name,
            Source::Recorded(recorded),
            sigma.unwrap_or(0.0),
            false,
        ))
    };
    paths.iter().map(surface).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::truth::{MIB, Setting};

    /// Surface, optimum in ms, its threshold in MiB, cycle in ms and hierarchical; 128 MB 1 ms, 64 MB 5 ms and no fusion as multiples of
    /// it: the table of `facts/tuner.md` §2, printed there by another program.
    const PUBLISHED: [(&str, f64, f64, f64, bool, f64, f64, f64); 14] = [
        ("resnet50/nv 16x8", 61.4, 2.30, 0.75, true, 1.001, 1.028, 1.22),
        ("resnet50/g25 16x4", 119.6, 1.74, 0.42, true, 1.199, 1.220, 1.90),
        ("resnet50/g25 128x8", 193.0, 6.96, 1.33, true, 1.095, 1.104, 6.08),
        ("resnet50/g1 16x1", 1816.3, 21.11, 1.33, false, 1.002, 1.002, 1.14),
        ("vgg16/nv 2x2", 65.7, 84.45, 0.42, true, 1.292, 1.318, 1.29),
        ("vgg16/g25 16x1", 515.8, 6.96, 1.00, false, 1.087, 1.035, 1.02),
        ("vgg16/g1 2x1", 5011.3, 1.00, 0.75, false, 1.011, 1.006, 1.00),
        ("bert/nv 128x8", 128.3, 84.45, 1.00, true, 1.025, 1.055, 3.31),
        ("bert/g25 128x8", 549.5, 6.96, 0.75, true, 1.108, 1.090, 3.05),
        ("bert/g1 16x4", 6034.3, 5.28, 0.75, true, 1.248, 1.248, 1.28),
        ("small/g25 16x1", 37.6, 0.33, 1.33, false, 1.002, 1.064, 21.11),
        ("small/g1 128x8", 94.9, 3.03, 2.37, true, 1.435, 1.370, 161.77),
        ("small/nv 2x2", 35.4, 0.06, 0.18, false, 1.012, 1.084, 1.23),
        (
            "resnet50/g1 128x1",
            1948.1,
            111.43,
            2.37,
            false,
            1.001,
            1.006,
            2.22,
        ),
    ];

    #[test]
    fn the_labs_surfaces_are_reproduced() {
        let surfaces = surfaces(Truth::Lab, 1.0, None).unwrap();
        for (surface, published) in surfaces.iter().zip(PUBLISHED) {
            let (name, best_ms, fusion_mb, cycle_ms, hierarchical, default, old, unfused) = published;
            let optimum = surface.optimum();
            let there = Setting {
                hierarchical,
                ..Setting::of(fusion_mb, cycle_ms)
            };
            let no_fusion = Setting::of(0.0, 1.0);
            println!(
                "{name:18} {:9.2} ms (published {best_ms:8.1}) at {:6.2} MB {:5.2} ms h{}; there {:.4}; default {:.4} ({default}), old {:.4} ({old}), unfused {:.3} ({unfused}), worst {:.2}, near {:.2}",
                optimum.step_us / 1e3,
                optimum.setting.fusion_bytes as f64 / MIB,
                optimum.setting.cycle_ms,
                u8::from(optimum.setting.hierarchical),
                surface.relative(&there),
                surface.relative(&Setting::DEFAULT),
                surface.relative(&Setting::OLD),
                surface.relative(&no_fusion),
                optimum.worst,
                optimum.near,
            );
            let close = |found: f64, published: f64, what: &str| {
                let error = (found / published - 1.0).abs();
                assert!(error < 0.01, "{name}: {what}: {found} instead of {published}");
            };
            assert_eq!(surface.name, name);
            close(optimum.step_us / 1e3, best_ms, "optimum");
            close(
                surface.relative(&there),
                1.0,
                "step time at the published optimum",
            );
            close(surface.relative(&Setting::DEFAULT), default, "default");
            close(surface.relative(&Setting::OLD), old, "old default");
            close(surface.relative(&no_fusion), unfused, "no fusion");
            assert!(optimum.setting.cache, "{name}: the cache is on at every optimum");
        }
    }

    #[test]
    fn the_labs_unmodelled_truth_is_reproduced() {
        // `facts/tuner.md` §4: staying at the default is 1.023 / 1.204 / 1.075 (median, p90, mean over the surfaces).
        let surfaces = surfaces(Truth::Unmodelled, 1.0, None).unwrap();
        let mut defaults: Vec<f64> = surfaces.iter().map(|s| s.relative(&Setting::DEFAULT)).collect();
        for (surface, default) in surfaces.iter().zip(&defaults) {
            println!("{:18} default {default:.4}", surface.name);
        }
        let close = |found: f64, published: f64| {
            assert!(
                (found / published - 1.0).abs() < 0.01,
                "{found} instead of {published}"
            );
        };
        close(defaults[8], 1.13); // bert/g25 128x8
        close(defaults[2], 1.04); // resnet50/g25 128x8
        close(defaults.iter().sum::<f64>() / 14.0, 1.075);
        defaults.sort_by(f64::total_cmp);
        close((defaults[6] + defaults[7]) / 2.0, 1.023);
        close(defaults[11] + 0.7 * (defaults[12] - defaults[11]), 1.204);
    }
}
