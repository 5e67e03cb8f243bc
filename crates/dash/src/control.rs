//! Controls: the body of a POST as a command.

use std::path::{Component, Path};
use std::time::Duration;

use ronde_job::settings::{PartialSettings, Settings};
use serde::Deserialize;

use crate::Command;

/// Bytes of one MiB.
const MIB: f64 = 1_048_576.0;

/// Body of a control.
#[derive(Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
enum Body {
    StopTuning {},
    Set {
        fusion_mb: Option<f64>,
        cycle_ms: Option<f64>,
        cache: Option<bool>,
        hierarchical_allreduce: Option<bool>,
        hierarchical_allgather: Option<bool>,
    },
    StartTimeline {
        path: String,
    },
    StopTimeline {},
}

/// Reads a command.
///
/// # Errors
/// The body is not one, or has a value outside of its range; the text says which.
pub(crate) fn command(body: &[u8]) -> Result<Command, String> {
    let body: Body =
        serde_json::from_slice(body).map_err(|error| format!("the command is invalid: {error}"))?;
    match body {
        Body::StopTuning {} => Ok(Command::StopTuning),
        Body::StopTimeline {} => Ok(Command::StopTimeline),
        Body::StartTimeline { path } => timeline(path),
        Body::Set {
            fusion_mb,
            cycle_ms,
            cache,
            hierarchical_allreduce,
            hierarchical_allgather,
        } => {
            let not_negative = |name: &str, value: Option<f64>| match value {
                Some(value) if !(value >= 0.0 && value.is_finite()) => {
                    Err(format!("{name} must be a number from 0, not {value}"))
                }
                value => Ok(value),
            };
            let fusion_mb = not_negative("fusion_mb", fusion_mb)?;
            let cycle_ms = not_negative("cycle_ms", cycle_ms)?;
            let change = PartialSettings {
                fusion_threshold_bytes: fusion_mb.map(|mb| (mb * MIB).round() as u64),
                gpu_fusion_threshold_bytes: None,
                cycle_time: cycle_ms
                    .map(|ms| Duration::try_from_secs_f64(ms / 1e3).unwrap_or(Duration::MAX)),
                cache,
                hierarchical_allreduce,
                hierarchical_allgather,
            };
            if change == PartialSettings::default() {
                return Err("the command names no setting".to_owned());
            }
            match change.applied_to(&Settings::default()).problem() {
                Some(problem) => Err(problem),
                None => Ok(Command::Set(change)),
            }
        }
    }
}

/// A timeline is written into the job's folder or below it, so that the page cannot overwrite other
/// files.
fn timeline(path: String) -> Result<Command, String> {
    let is_below = Path::new(&path)
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    let is_name = [".json", ".json.gz"].iter().any(|end| path.ends_with(end));
    if path.chars().any(char::is_control) || !is_below || !is_name || path.len() > 255 {
        return Err(
            "the timeline's file must be in the job's folder or below it, and its name must end \
             in .json or .json.gz"
                .to_owned(),
        );
    }
    Ok(Command::StartTimeline { path })
}

impl std::fmt::Display for Command {
    /// The command in a few words, for the event log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::StopTuning => f.write_str("stop tuning"),
            Self::StopTimeline => f.write_str("stop the timeline"),
            Self::StartTimeline { path } => write!(f, "start a timeline in {path}"),
            Self::Set(change) => {
                let switch = |name: &str, on: Option<bool>| {
                    on.map(|on| format!("{name} {}", if on { "on" } else { "off" }))
                };
                let parts = [
                    change
                        .fusion_threshold_bytes
                        .map(|bytes| format!("fusion threshold {} MiB", bytes as f64 / MIB)),
                    change
                        .cycle_time
                        .map(|time| format!("cycle time {} ms", time.as_secs_f64() * 1e3)),
                    switch("response cache", change.cache),
                    switch("hierarchical allreduce", change.hierarchical_allreduce),
                    switch("hierarchical allgather", change.hierarchical_allgather),
                ];
                let parts: Vec<String> = parts.into_iter().flatten().collect();
                write!(f, "set {}", parts.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<String, String> {
        command(body.as_bytes()).map(|command| command.to_string())
    }

    #[test]
    fn commands_are_read_and_named() {
        for (body, expected) in [
            (r#"{"command":"stop_tuning"}"#, "stop tuning"),
            (r#"{"command":"stop_timeline"}"#, "stop the timeline"),
            (
                r#"{"command":"start_timeline","path":"a/t.json.gz"}"#,
                "start a timeline in a/t.json.gz",
            ),
            (
                r#"{"command":"set","fusion_mb":0.5,"cycle_ms":2.5,"cache":false}"#,
                "set fusion threshold 0.5 MiB, cycle time 2.5 ms, response cache off",
            ),
        ] {
            assert_eq!(read(body).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn invalid_commands_are_refused_with_a_reason() {
        for (body, reason) in [
            ("", "the command is invalid: EOF"),
            (r#"{"command":"exit"}"#, "unknown variant `exit`"),
            (r#"{"command":"set","ranks":3}"#, "unknown field `ranks`"),
            (r#"{"command":"set"}"#, "names no setting"),
            (r#"{"command":"set","cycle_ms":-1}"#, "cycle_ms must be"),
            (
                r#"{"command":"set","cycle_ms":1e300}"#,
                "more than 60000 ms",
            ),
            (
                r#"{"command":"set","fusion_mb":1e12}"#,
                "fusion threshold of",
            ),
        ] {
            let error = read(body).unwrap_err();
            assert!(error.contains(reason), "{body}: {error}");
        }
        for path in [
            "/etc/a.json",
            "../a.json",
            "a/../b.json",
            "a.txt",
            "",
            ".json\n.json",
        ] {
            let body = serde_json::json!({ "command": "start_timeline", "path": path });
            let error = read(&body.to_string()).unwrap_err();
            assert!(error.starts_with("the timeline's file"), "{path}: {error}");
        }
    }
}
