//! Presets: parameters, ranges, places of values and metrics of well-known programs.
//!
//! Sources: PyTorch's `DistributedDataParallel` (`bucket_cap_mb`, 25 by default); DeepSpeed's
//! `zero_optimization` (`reduce_bucket_size` and `allgather_bucket_size`, 5e8 elements by default)
//! and `ThroughputTimer`; Megatron-LM's `megatron/core/distributed` (`bucket_size` in parameters,
//! max(40,000,000, 1,000,000 × data-parallel ranks) by default) and `training_log`; XLA's
//! `collective_utils.h` (30 MiB + 7 bytes); NCCL's user guide, "Environment Variables".

use std::ffi::OsString;

use crate::template::{Config, placeholder};

/// A preset.
#[derive(Debug)]
pub struct Preset {
    /// Name.
    pub name: &'static str,
    /// Settings that it tunes, with their unit.
    pub tunes: &'static str,
    /// Parameters, as `--parameter` takes them.
    pub parameters: &'static [&'static str],
    /// Way of the values to the program.
    pub passed: &'static str,
    /// Source of the figure.
    pub measured: &'static str,
    /// Requirements and side effects; empty if there are none.
    pub note: &'static str,
    /// Expression of the metric, if the program prints one.
    pub metric: Option<&'static str>,
    /// Whether a higher figure is better.
    pub maximize: bool,
    /// Option of the command, and the parameter that is its value.
    argument: Option<(&'static str, &'static str)>,
    /// Variables that are set, with placeholders.
    variables: &'static [(&'static str, &'static str)],
    /// Variable to which flags are added, and the flags.
    flags: Option<(&'static str, &'static [(&'static str, &'static str)])>,
    /// Places in the configuration file, with placeholders.
    sets: &'static [&'static str],
}

const NONE: Preset = Preset {
    name: "",
    tunes: "",
    parameters: &[],
    passed: "",
    measured: "",
    note: "",
    metric: None,
    maximize: false,
    argument: None,
    variables: &[],
    flags: None,
    sets: &[],
};

/// All presets.
pub const ALL: [Preset; 5] = [
    Preset {
        name: "ddp",
        tunes: "the bucket size of PyTorch's DistributedDataParallel, in MiB",
        parameters: &["bucket_cap_mb=1..256,log,start=25"],
        passed: "where the command or --env has {bucket_cap_mb}: DDP has neither a flag nor a \
                 variable for it, so the script passes DistributedDataParallel(model, \
                 bucket_cap_mb=…) what it gets",
        measured: "DDP prints no step time: give --metric for what the script prints; otherwise \
                   it is the wall time",
        ..NONE
    },
    Preset {
        name: "deepspeed",
        tunes: "the buckets of DeepSpeed's ZeRO, in elements",
        parameters: &[
            "reduce_bucket_size=1e6..1e9,log,levels=13,start=5e8",
            "allgather_bucket_size=1e6..1e9,log,levels=13,start=5e8",
        ],
        passed: "in a copy of the JSON file of --config, at zero_optimization.reduce_bucket_size \
                 and zero_optimization.allgather_bucket_size; the command has {config} where the \
                 file's path is",
        measured: "CurrSamplesPerSec, which DeepSpeed logs every steps_per_print steps; higher is \
                   better",
        note: "the JSON file needs steps_per_print. DeepSpeed 0.19.8 logs CurrSamplesPerSec only \
               if the program calls deepspeed.utils.set_log_level_from_string(\"info\"). A bucket \
               size in the file is the start value; with \"auto\" there, the start is a guess: give \
               --parameter with start=. allgather_bucket_size matters in stages 1 and \
               2 only. Give --check: with some versions the loss depends on the bucket size",
        metric: Some("CurrSamplesPerSec=([0-9.]+)"),
        maximize: true,
        sets: &[
            "zero_optimization.reduce_bucket_size={reduce_bucket_size}",
            "zero_optimization.allgather_bucket_size={allgather_bucket_size}",
        ],
        ..NONE
    },
    Preset {
        name: "megatron",
        tunes: "the gradient buckets of Megatron-LM, in parameters",
        parameters: &["ddp_bucket_size=4000000..1000000000,log,start=40000000"],
        passed: "as --ddp-bucket-size, which is added at the end of the command unless the \
                 command has {ddp_bucket_size}",
        measured: "\"elapsed time per iteration (ms)\", which Megatron-LM prints every \
                   --log-interval iterations",
        note: "only --overlap-grad-reduce uses buckets; Megatron's default is 40,000,000, or \
               1,000,000 for each data-parallel rank if that is more. To compare losses: --check \
               'lm loss: ([0-9.E+-]+)'",
        metric: Some(r"elapsed time per iteration \(ms\): ([0-9.]+)"),
        argument: Some(("--ddp-bucket-size", "ddp_bucket_size")),
        ..NONE
    },
    Preset {
        name: "xla",
        tunes: "up to which size XLA combines collectives on GPUs, in bytes (JAX, TensorFlow)",
        parameters: &[
            "all_reduce=1MiB..1GiB,log,levels=11,start=31457287",
            "all_gather=1MiB..1GiB,log,levels=11,start=31457287",
            "reduce_scatter=1MiB..1GiB,log,levels=11,start=31457287",
        ],
        passed: "as --xla_gpu_all_reduce_combine_threshold_bytes, and the same for all_gather and \
                 reduce_scatter, added to XLA_FLAGS; flags that are there already stay",
        measured: "XLA prints no step time: give --metric for what the script prints; otherwise \
                   it is the wall time, compilation included",
        flags: Some((
            "XLA_FLAGS",
            &[
                ("--xla_gpu_all_reduce_combine_threshold_bytes", "all_reduce"),
                ("--xla_gpu_all_gather_combine_threshold_bytes", "all_gather"),
                (
                    "--xla_gpu_reduce_scatter_combine_threshold_bytes",
                    "reduce_scatter",
                ),
            ],
        )),
        ..NONE
    },
    Preset {
        name: "nccl",
        tunes: "NCCL's buffers, threads and channels",
        parameters: &[
            "buffsize=1MiB..16MiB,log,levels=5,start=4MiB",
            "nthreads=64|128|256|512,start=512",
            "min_nchannels=1|2|4|8|16|32",
        ],
        passed: "as NCCL_BUFFSIZE, NCCL_NTHREADS and NCCL_MIN_NCHANNELS",
        measured: "NCCL prints no step time: give --metric for what the program prints; otherwise \
                   it is the wall time",
        note: "the starts are NCCL's defaults on recent GPUs; larger buffers take GPU memory, \
               once per channel and peer",
        variables: &[
            ("NCCL_BUFFSIZE", "{buffsize}"),
            ("NCCL_NTHREADS", "{nthreads}"),
            ("NCCL_MIN_NCHANNELS", "{min_nchannels}"),
        ],
        ..NONE
    },
];

/// A preset that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PresetError {
    /// There is no such preset.
    #[error(
        "there is no preset {name:?}; there are {}, and --preset list explains each",
        names()
    )]
    Unknown {
        /// Name that the user gave.
        name: String,
    },
    /// A variable of the preset is set.
    #[error(
        "preset {preset} sets {variable}, which is {value:?} already; unset it, or pass it \
         yourself: leave --preset out and give --parameter and --env"
    )]
    VariableSet {
        /// Preset.
        preset: &'static str,
        /// Variable, or flag in a variable.
        variable: String,
        /// Its value.
        value: String,
    },
    /// The command has the option that the preset adds.
    #[error(
        "preset {preset} adds {option}, which the command has already; leave it out of the \
         command, or write {option} {{{parameter}}}"
    )]
    ArgumentSet {
        /// Preset.
        preset: &'static str,
        /// Option of the command.
        option: &'static str,
        /// Parameter.
        parameter: &'static str,
    },
    /// The preset needs a configuration file.
    #[error(
        "preset {preset} sets values in a JSON file: give its path with --config FILE, and write \
         {{config}} in the command"
    )]
    NoConfig {
        /// Preset.
        preset: &'static str,
    },
}

/// A start that need not be the value in use.
#[derive(Clone, Debug, PartialEq)]
pub struct Guess {
    /// Name of the parameter.
    pub name: &'static str,
    /// Its place in the configuration file.
    pub place: &'static str,
    /// Value there, as JSON.
    pub found: String,
    /// The parameter without its start, as `--parameter` takes it.
    pub range: &'static str,
}

/// Name of a parameter, of its text.
fn name_of(text: &'static str) -> &'static str {
    text.split('=').next().unwrap_or_default()
}

/// Names of a place in the configuration file, outermost first.
fn names_of(place: &str) -> Vec<&str> {
    place.split('.').collect()
}

fn names() -> String {
    ALL.map(|preset| preset.name).join(", ")
}

/// The preset of this name.
///
/// # Errors
/// There is none.
pub fn find(name: &str) -> Result<&'static Preset, PresetError> {
    let found = ALL.iter().find(|preset| preset.name == name);
    found.ok_or_else(|| PresetError::Unknown {
        name: name.to_owned(),
    })
}

impl Preset {
    /// Texts of the places in the configuration file.
    ///
    /// # Errors
    /// There is no configuration file although the preset needs one.
    pub fn sets(&self, has_config: bool) -> Result<&'static [&'static str], PresetError> {
        match self.sets.is_empty() || has_config {
            true => Ok(self.sets),
            false => Err(PresetError::NoConfig { preset: self.name }),
        }
    }

    /// Texts of the parameters. A number in the configuration file is the start.
    pub fn parameters(&self, config: Option<&Config>) -> Vec<String> {
        let started = |text: &&'static str| {
            let place = self.place(name_of(text));
            let number = place.and_then(|place| config?.number(&names_of(place)));
            match (number, text.rsplit_once(",start=")) {
                (Some(number), Some((range, _))) => format!("{range},start={number}"),
                _ => (*text).to_owned(),
            }
        };
        self.parameters.iter().map(started).collect()
    }

    /// Parameters whose start is a guess, because the configuration file has a value that is not a
    /// number: another program than this one replaces it, as transformers does for `"auto"`.
    pub fn guesses(&self, config: Option<&Config>) -> Vec<Guess> {
        let guess = |text: &&'static str| {
            let name = name_of(text);
            let place = self.place(name)?;
            let found = config?.value(&names_of(place))?;
            let (range, _) = text.rsplit_once(",start=")?;
            (!found.is_number()).then(|| Guess {
                name,
                place,
                found: found.to_string(),
                range,
            })
        };
        self.parameters.iter().filter_map(guess).collect()
    }

    /// Place of a parameter in the configuration file.
    fn place(&self, name: &str) -> Option<&'static str> {
        let placeholder = placeholder(name);
        let mut sets = self.sets.iter();
        let set = sets.find(|set| set.ends_with(&placeholder))?;
        set.split('=').next()
    }

    /// Adds the option of the preset to the command, unless it has the placeholder.
    ///
    /// # Errors
    /// The command has the option with another value.
    pub fn extend(&self, command: &mut Vec<OsString>) -> Result<(), PresetError> {
        let Some((option, parameter)) = self.argument else {
            return Ok(());
        };
        let placeholder = placeholder(parameter);
        let mut words = command.iter().filter_map(|word| word.to_str());
        if words.clone().any(|word| word.contains(&placeholder)) {
            return Ok(());
        }
        if words.any(|word| word == option || word.starts_with(&format!("{option}="))) {
            return Err(PresetError::ArgumentSet {
                preset: self.name,
                option,
                parameter,
            });
        }
        command.extend([option.into(), placeholder.into()]);
        Ok(())
    }

    /// Variables for the command, given a reader of those that are set.
    ///
    /// # Errors
    /// One of them, or a flag in one, is set already.
    pub fn variables(
        &self,
        read: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<(String, String)>, PresetError> {
        let already_set = |variable: &str, value: String| PresetError::VariableSet {
            preset: self.name,
            variable: variable.to_owned(),
            value,
        };
        let mut variables = Vec::new();
        for (name, text) in self.variables {
            if let Some(value) = read(name) {
                return Err(already_set(name, value));
            }
            variables.push(((*name).to_owned(), (*text).to_owned()));
        }
        if let Some((variable, flags)) = self.flags {
            let mut text = read(variable).unwrap_or_default();
            for (flag, parameter) in flags {
                let mut words = text.split_whitespace();
                let own = words.find(|word| word.split('=').next() == Some(flag));
                if let Some(own) = own {
                    return Err(already_set(
                        &format!("{flag} in {variable}"),
                        own.to_owned(),
                    ));
                }
                let gap = if text.is_empty() { "" } else { " " };
                text = format!("{text}{gap}{flag}={}", placeholder(parameter));
            }
            variables.push((variable.to_owned(), text));
        }
        Ok(variables)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Parameter, Pattern, Plan, Template};

    #[test]
    fn presets_are_consistent() {
        for preset in &ALL {
            let parameters = preset.parameters(None);
            let parameters: Vec<Parameter> = parameters
                .iter()
                .map(|text| text.parse().unwrap())
                .collect();
            Plan::new(parameters.clone(), 20).unwrap();
            if let Some(metric) = preset.metric {
                Pattern::new("--metric", metric).unwrap();
            }
            let mut command = vec!["python".into()];
            if preset.name == "ddp" {
                command.push("{bucket_cap_mb}".into());
            }
            preset.extend(&mut command).unwrap();
            let sets = preset
                .sets(true)
                .unwrap()
                .iter()
                .map(|set| (*set).to_owned());
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("c.json");
            std::fs::write(&path, "{}").unwrap();
            let config = Config::read(&path, &sets.collect::<Vec<_>>()).unwrap();
            command.push("{config}".into());
            let variables = preset.variables(|_| None).unwrap();
            let template = Template {
                command,
                variables,
                config: Some(config),
            };
            template.check(&parameters).unwrap();
        }
    }

    #[test]
    fn what_is_set_already_is_named() {
        let xla = find("xla").unwrap();
        let flags = |value: &'static str| {
            xla.variables(move |_| Some(value.to_owned()))
                .map(|variables| variables[0].1.clone())
        };
        let added = flags("--xla_gpu_enable_x=true").unwrap();
        assert!(added.starts_with(
            "--xla_gpu_enable_x=true --xla_gpu_all_reduce_combine_threshold_bytes={all_reduce} "
        ));
        let error = flags("--a --xla_gpu_all_gather_combine_threshold_bytes=1")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("--xla_gpu_all_gather_combine_threshold_bytes in XLA_FLAGS"),
            "{error}"
        );
        let nccl = find("nccl").unwrap();
        let error = nccl.variables(|name| (name == "NCCL_NTHREADS").then(|| "64".to_owned()));
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("NCCL_NTHREADS, which is \"64\" already")
        );
        let megatron = find("megatron").unwrap();
        let extended = |words: &[&str]| {
            let mut command: Vec<OsString> = words.iter().map(OsString::from).collect();
            megatron.extend(&mut command).map(|()| command.len())
        };
        assert_eq!(extended(&["a"]), Ok(3));
        assert_eq!(
            extended(&["a", "--ddp-bucket-size={ddp_bucket_size}"]),
            Ok(2)
        );
        assert!(
            extended(&["a", "--ddp-bucket-size=5"])
                .unwrap_err()
                .to_string()
                .contains("has already")
        );
        assert!(
            find("deepspeed")
                .unwrap()
                .sets(false)
                .unwrap_err()
                .to_string()
                .contains("--config FILE")
        );
        assert!(
            find("x")
                .unwrap_err()
                .to_string()
                .contains("ddp, deepspeed, megatron, xla, nccl")
        );
    }

    #[test]
    fn a_number_in_the_configuration_is_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ds.json");
        let text =
            r#"{"zero_optimization":{"reduce_bucket_size":2e8,"allgather_bucket_size":"auto"}}"#;
        std::fs::write(&path, text).unwrap();
        let config = Config::read(&path, &[]).unwrap();
        let parameters = find("deepspeed").unwrap().parameters(Some(&config));
        assert!(
            parameters[0].ends_with(",start=200000000"),
            "{parameters:?}"
        );
        assert!(parameters[1].ends_with(",start=5e8"));
    }

    #[test]
    fn a_start_is_a_guess_where_the_configuration_has_no_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ds.json");
        let guesses = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let config = Config::read(&path, &[]).unwrap();
            find("deepspeed").unwrap().guesses(Some(&config))
        };
        let auto =
            r#"{"zero_optimization":{"reduce_bucket_size":2e8,"allgather_bucket_size":"auto"}}"#;
        let [guess] = &guesses(auto)[..] else {
            panic!("one value is not a number");
        };
        assert_eq!(
            (guess.name, guess.found.as_str()),
            ("allgather_bucket_size", "\"auto\"")
        );
        assert_eq!(guess.range, "allgather_bucket_size=1e6..1e9,log,levels=13");
        // Without a value in the file, DeepSpeed's default is in use.
        assert_eq!(guesses("{}"), []);
    }
}
