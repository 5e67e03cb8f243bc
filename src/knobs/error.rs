//! Errors and warnings in the values of settings.

/// Error for a value that a knob does not accept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{env}={found} does not fit knob {name}: expected {expected}; correct it or unset {env}{}", default_clause(.default))]
pub struct KnobError {
    /// The environment variable.
    pub env: &'static str,
    /// The knob's name.
    pub name: &'static str,
    /// The value found; bytes that are not UTF-8 are replaced.
    pub found: String,
    /// The values accepted.
    pub expected: String,
    /// The value in force when the variable is unset; empty means "none".
    pub default: &'static str,
}

fn default_clause(default: &str) -> String {
    if default.is_empty() {
        String::new()
    } else {
        format!(" (default {default})")
    }
}

/// Probable mistake in the environment; the runtime goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KnobWarning {
    /// A `RONDE_*` variable that names no knob.
    #[error("{env} is not a setting of Ronde and has no effect{}", nearest_clause(.nearest))]
    Unknown {
        /// The variable found.
        env: String,
        /// The variable of a knob with the most similar name, if one is similar.
        nearest: Option<&'static str>,
    },
    /// An unknown log level means `warning`, as in Horovod.
    #[error(
        "HOROVOD_LOG_LEVEL={found} is unknown and means warning; the levels are trace, debug, \
         info, warning, error and fatal"
    )]
    LogLevel {
        /// The level found.
        found: String,
    },
    /// The stall shutdown time is below the warning time and therefore ignored, as in Horovod.
    #[error(
        "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS={shutdown_seconds} is ignored: it is below \
         HOROVOD_STALL_CHECK_TIME_SECONDS={warning_seconds}; raise it above the warning time"
    )]
    StallShutdownIgnored {
        /// The shutdown time found, in seconds.
        shutdown_seconds: u64,
        /// The warning time in force, in seconds.
        warning_seconds: u64,
    },
}

fn nearest_clause(nearest: &Option<&'static str>) -> String {
    nearest.map_or_else(
        || "; `ronde knobs` lists them".into(),
        |env| format!("; did you mean {env}?"),
    )
}
