//! Comparison of a plan with other arguments: with `--resume`, only the budget may change.

use std::path::PathBuf;

use super::Plan;
use super::given::{NP_DEFAULT, design, settings};
use crate::bench::LoadArgs;
use crate::sweep::args::Args;
use crate::sweep::error::Error;
use ronde_lab::sweep::Design;

impl Plan {
    /// Arguments in `args` that differ from this plan, each with its flag.
    ///
    /// # Errors
    /// Invalid settings.
    pub(in crate::sweep) fn differences(&self, args: &Args) -> Result<Vec<String>, Error> {
        let mut differences = Vec::new();
        let mut compare = |flag: &str, given: Option<String>, planned: String| {
            if let Some(given) = given.filter(|given| *given != planned) {
                differences.push(format!("{flag} is {planned} there and {given} here"));
            }
        };
        let (was, now) = (&self.load, args.load.resolved());
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "not given".to_owned());
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let paths = |paths: &[PathBuf]| {
            let paths = paths
                .iter()
                .filter_map(|path| std::path::absolute(path).ok());
            let texts: Vec<String> = paths.map(|path| path.display().to_string()).collect();
            (!texts.is_empty()).then(|| texts.join(" "))
        };
        compare("--replay", paths(&args.replay), text(&paths(&self.replay)));
        let number = |number: Option<u32>| number.map(|number| number.to_string());
        compare("--verify", number(args.verify), text(&number(self.verify)));
        compare("--model", args.load.model.clone(), text(&was.model));
        let given = args.load.profile.as_ref().and(path(&now.profile));
        compare("--profile", given, text(&path(&was.profile)));
        compare(
            "--compute-ms",
            args.load.compute_ms.map(|ms| ms.to_string()),
            was.compute_ms().to_string(),
        );
        let kind = args.load.compute_kind.map(|kind| kind.as_str().to_owned());
        compare(
            "--compute-kind",
            kind,
            was.compute_kind().as_str().to_owned(),
        );
        let slow = |load: &LoadArgs| {
            load.slow_rank
                .map(|slow| format!("{},{}", slow.rank, slow.ms))
        };
        compare("--slow-rank", slow(&args.load), text(&slow(was)));

        let (was, now) = (&self.design, design(args, NP_DEFAULT));
        let given = |is_given: bool, list: String| is_given.then_some(list);
        compare(
            "-np",
            given(!args.np.is_empty(), list(&now.np)),
            list(&was.np),
        );
        compare(
            "--fusion-mb",
            given(args.fusion_mb.is_some(), list_mb(&now)),
            list_mb(was),
        );
        compare(
            "--cycle-ms",
            given(args.cycle_ms.is_some(), list(&now.cycle_time_ms)),
            list(&was.cycle_time_ms),
        );
        compare(
            "--cache",
            given(!args.cache.is_empty(), switches(&now.cache)),
            switches(&was.cache),
        );
        compare(
            "--hierarchical-allreduce",
            given(
                !args.hierarchical_allreduce.is_empty(),
                switches(&now.hierarchical_allreduce),
            ),
            switches(&was.hierarchical_allreduce),
        );
        compare("--hosts", args.hosts.clone(), text(&self.hosts));
        compare("--mpi-args", args.mpi_args.clone(), text(&self.mpi_args));
        compare("--repeats", number(args.repeats), was.repeats.to_string());
        compare("--confirm", number(args.confirm), was.confirm.to_string());
        compare("--steps", number(args.steps), was.steps.to_string());
        compare("--warmup", number(args.warmup), was.warmup.to_string());
        compare(
            "--seed",
            args.seed.map(|seed| seed.to_string()),
            was.seed.to_string(),
        );
        for (variable, now) in settings(args)? {
            let was = self.settings.get(&variable).cloned();
            compare(
                &variable,
                Some(now),
                was.unwrap_or_else(|| "unset".to_owned()),
            );
        }
        Ok(differences)
    }
}

fn switches(values: &[bool]) -> String {
    let words = values.iter().map(|&value| if value { "on" } else { "off" });
    words.collect::<Vec<_>>().join(",")
}

fn list<T: ToString>(values: &[T]) -> String {
    values
        .iter()
        .map(T::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

fn list_mb(design: &Design) -> String {
    let mb = |&bytes: &u64| bytes as f64 / f64::from(1 << 20);
    list(
        &design
            .fusion_threshold_bytes
            .iter()
            .map(mb)
            .collect::<Vec<_>>(),
    )
}
