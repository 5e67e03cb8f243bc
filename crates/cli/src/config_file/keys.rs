//! Keys of a configuration file, each with the knob that it sets.

use ronde::knobs::{self, FlagForm, KNOBS, Knob, SIMILARITY_MIN};

/// Horovod's keys with the names of their knobs. A `!` before the name means that the key switches
/// the knob off.
const HOROVOD: &[(&str, &str)] = &[
    ("controller", "controller"),
    ("params.fusion_threshold_mb", "fusion_threshold_bytes"),
    ("params.cycle_time_ms", "cycle_time_ms"),
    ("params.cache_capacity", "cache_capacity"),
    ("params.hierarchical_allreduce", "hierarchical_allreduce"),
    ("params.hierarchical_allgather", "hierarchical_allgather"),
    ("params.torus_allreduce", "torus_allreduce"),
    ("autotune.enabled", "autotune"),
    ("autotune.log_file", "autotune_log"),
    ("autotune.warmup_samples", "autotune_warmup_samples"),
    ("autotune.steps_per_sample", "autotune_steps_per_sample"),
    ("autotune.bayes_opt_max_samples", "autotune_max_samples"),
    ("autotune.gaussian_process_noise", "autotune_noise"),
    ("timeline.filename", "timeline"),
    ("timeline.mark_cycles", "timeline_mark_cycles"),
    ("stall_check.enabled", "!stall_check_disable"),
    ("stall_check.warning_time_seconds", "stall_warning_seconds"),
    (
        "stall_check.shutdown_time_seconds",
        "stall_shutdown_seconds",
    ),
    ("library_options.mpi_threads_disable", "mpi_threads_disable"),
    ("library_options.num_nccl_streams", "num_nccl_streams"),
    ("library_options.thread_affinity", "thread_affinity"),
    (
        "library_options.gloo_timeout_seconds",
        "gloo_timeout_seconds",
    ),
    ("logging.level", "log_level"),
    ("logging.with_timestamp", "!log_hide_time"),
];

/// Ronde's own section; its keys are the flags' names.
const RONDE: &str = "ronde";

/// Knob that a key sets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) knob: &'static Knob,
    /// Whether the value true switches the knob off.
    pub(super) inverted: bool,
}

/// Whether this top-level key is a section.
pub(super) fn is_section(key: &str) -> bool {
    let sections = || HOROVOD.iter().filter_map(|(key, _)| key.split_once('.'));
    key == RONDE || sections().any(|(section, _)| section == key)
}

/// Returns the target of the key `section.key`, or `None` if the key is unknown.
pub(super) fn find(key: &str) -> Option<Target> {
    if let Some(flag) = key
        .strip_prefix(RONDE)
        .and_then(|key| key.strip_prefix('.'))
    {
        // The words of a flag are joined by dashes, those of the other sections' keys by
        // underscores.
        let flag = flag.replace('_', "-");
        return KNOBS.iter().find_map(|knob| by_flag(knob, &flag));
    }
    let (_, name) = HOROVOD.iter().find(|(horovods, _)| *horovods == key)?;
    let (name, inverted) = name
        .strip_prefix('!')
        .map_or((*name, false), |name| (name, true));
    let knob = knobs::find(name)?;
    Some(Target { knob, inverted })
}

/// Returns the known key most similar to `key`, if one is similar. The section has a small weight,
/// because a key is easily put into the wrong section.
pub(super) fn nearest(key: &str) -> Option<String> {
    /// Decides between keys whose last parts are equally similar.
    const SECTION_WEIGHT: f64 = 0.01;
    let split = |key: &str| {
        let (section, leaf) = key.rsplit_once('.').unwrap_or(("", key));
        (section.to_owned(), leaf.replace('-', "_"))
    };
    let (section, leaf) = split(key);
    let flags = KNOBS.iter().filter_map(|knob| knob.flag);
    let ours = flags.map(|flag| format!("{RONDE}.{}", flag.long));
    let horovods = HOROVOD.iter().map(|(key, _)| (*key).to_owned());
    // Includes the names of the sections, for a misspelt section.
    let sections = HOROVOD.iter().filter_map(|(key, _)| key.split_once('.'));
    let sections = sections
        .map(|(section, _)| section.to_owned())
        .chain([RONDE.to_owned()]);
    let score = |candidate: String| {
        let (its_section, its_leaf) = split(&candidate);
        let similarity = strsim::jaro_winkler(&its_leaf, &leaf);
        let order = similarity + SECTION_WEIGHT * strsim::jaro_winkler(&its_section, &section);
        (similarity, order, candidate)
    };
    // `max_by` returns the last of equal elements: Horovod's key.
    let scored = ours.chain(sections).chain(horovods).map(score);
    let (similarity, _, nearest) = scored.max_by(|(_, a, _), (_, b, _)| a.total_cmp(b))?;
    (similarity >= SIMILARITY_MIN).then_some(nearest)
}

/// Returns the target of the flag `name` if it is one of this knob's flags.
fn by_flag(knob: &'static Knob, name: &str) -> Option<Target> {
    let flag = knob.flag?;
    let target = |inverted| Some(Target { knob, inverted });
    if flag.long == name || flag.aliases.contains(&name) {
        return target(false);
    }
    match flag.form {
        FlagForm::Switch { off, off_aliases } if off == name || off_aliases.contains(&name) => {
            target(true)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_horovods_sets_a_knob_of_its_own() {
        let mut seen = std::collections::HashSet::new();
        for (key, _) in HOROVOD {
            let target = find(key).unwrap_or_else(|| panic!("{key} sets nothing"));
            assert!(seen.insert(target.knob.env), "{key}");
            if target.inverted {
                let flag = target.knob.flag.map(|flag| flag.form);
                assert!(matches!(flag, Some(FlagForm::Switch { .. })), "{key}");
            }
        }
    }

    #[test]
    fn every_flag_is_a_key() {
        for knob in KNOBS {
            let Some(flag) = knob.flag else { continue };
            for name in [flag.long.to_owned(), flag.long.replace('-', "_")] {
                let target = find(&format!("ronde.{name}")).unwrap();
                assert_eq!((target.knob.env, target.inverted), (knob.env, false));
            }
            if let FlagForm::Switch { off, .. } = flag.form {
                let target = find(&format!("ronde.{off}")).unwrap();
                assert_eq!((target.knob.env, target.inverted), (knob.env, true));
            }
        }
    }
}
