//! Description of a knob: names, accepted values, default and scope.

use ronde_job::settings::{CYCLE_TIME_MS_MAX, FUSION_THRESHOLD_BYTES_MAX};

/// One knob of Ronde, as a row of [`KNOBS`](super::KNOBS). The environment, flags, `ronde knobs`
/// and the documentation are generated from these fields.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// Name in snake case, unit last; also the name of the field in [`Knobs`](super::Knobs).
    pub name: &'static str,
    /// Environment variable.
    pub env: &'static str,
    /// Command-line flag that writes the variable, if it has one.
    pub flag: Option<Flag>,
    /// Accepted values.
    pub kind: Kind,
    /// Value in force when the variable is unset, written as in the environment; empty means
    /// "none".
    pub default: &'static str,
    /// Whether the tuner may change it; a tunable knob that the environment sets is fixed, as in
    /// Horovod.
    pub tunable: bool,
    /// Component that reads it.
    pub scope: Scope,
    /// Description in one or two sentences.
    pub doc: &'static str,
}

/// Component that reads a knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// By the runtime of every rank, at initialization.
    Runtime,
    /// By `ronde run` as well as by the runtime.
    Launcher,
    /// At the start, to determine this process's rank and size. The launcher sets it.
    Identity,
    /// Horovod's variable without effect here; the text gives the reason. It is accepted without a
    /// warning.
    NotHere(&'static str),
}

/// Values that a knob accepts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// An integer, on when greater than 0 (Horovod's meaning).
    Switch,
    /// An integer, on when not 0. Horovod has switches of this kind too.
    SwitchNonzero,
    /// An integer within an inclusive range.
    Count {
        /// Unit of the count.
        unit: &'static str,
        /// Smallest value accepted.
        min: u64,
        /// Largest value accepted.
        max: u64,
    },
    /// A finite number within an inclusive range.
    Real {
        /// Unit of the number.
        unit: &'static str,
        /// Smallest value accepted.
        min: f64,
        /// Largest value accepted.
        max: f64,
    },
    /// A number of bytes, optionally with a binary suffix: `K`, `M`, `G`, also as `MB` or `MiB`
    /// (all 1024-based).
    Bytes {
        /// Largest value accepted.
        max: u64,
    },
    /// One word of a list, in any case.
    Choice(&'static [&'static str]),
    /// A file.
    Path,
    /// A folder.
    Folder,
    /// `FIRST..LAST`, both included; `FIRST..` has no end.
    Steps,
    /// A file, or the word `DYNAMIC`.
    Timeline,
    /// Printable ASCII without spaces, of at most this many characters.
    Label {
        /// Most characters accepted.
        max: usize,
    },
    /// Core numbers separated by commas.
    Cores,
    /// `ALPHA_US,GB_PER_S`: latency in µs and bandwidth in 10⁹ bytes per second.
    Link,
    /// `fusion_mb=X,cycle_ms=Y`, either part alone too.
    Start,
    /// Any value that Horovod accepts; not checked.
    Foreign,
}

impl Kind {
    /// Returns the accepted values, as a phrase that follows "expected".
    pub fn expected(&self) -> String {
        match *self {
            Kind::Switch => "an integer, on when greater than 0 (write 1 or 0)".into(),
            Kind::SwitchNonzero => "an integer, on when not 0 (write 1 or 0)".into(),
            Kind::Count {
                unit,
                min,
                max: u64::MAX,
            } => format!("an integer of at least {min} ({unit})"),
            Kind::Count { unit, min, max } => format!("an integer from {min} to {max} ({unit})"),
            Kind::Real { unit, min, max } => format!("a number from {min} to {max} ({unit})"),
            Kind::Bytes { max } => {
                format!("an integer from 0 to {max} (bytes), or one with a suffix such as 64MB")
            }
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::Path => "a file".into(),
            Kind::Folder => "a folder".into(),
            Kind::Steps => "FIRST..LAST (steps from 1, both included) or FIRST..".into(),
            Kind::Timeline => "a file, or DYNAMIC".into(),
            Kind::Label { max } => format!("1 to {max} printable ASCII characters without spaces"),
            Kind::Cores => format!("core numbers from 0 to {CORE_MAX}, separated by commas"),
            Kind::Link => {
                format!(
                    "ALPHA_US,GB_PER_S: two numbers, from 0 to {ALPHA_US_MAX} and from {GB_PER_S_MIN} to {GB_PER_S_MAX}"
                )
            }
            Kind::Start => format!(
                "fusion_mb=X,cycle_ms=Y (either alone too): numbers from 0 to {} and from 0 to {CYCLE_TIME_MS_MAX}",
                FUSION_THRESHOLD_BYTES_MAX >> 20
            ),
            Kind::Foreign => "Horovod's values".into(),
        }
    }

    /// Returns the unit of the value, empty if it has none.
    pub fn unit(&self) -> &'static str {
        match *self {
            Kind::Count { unit, .. } | Kind::Real { unit, .. } => unit,
            Kind::Bytes { .. } => "bytes",
            Kind::Link => "us,GB/s",
            _ => "",
        }
    }

    /// Returns the accepted values in a few characters, for a column of a table.
    pub fn range(&self) -> String {
        match *self {
            Kind::Switch | Kind::SwitchNonzero => "0|1".into(),
            Kind::Count {
                min, max: u64::MAX, ..
            } => format!("{min}.."),
            Kind::Count { min, max, .. } => format!("{min}..{max}"),
            Kind::Real { min, max, .. } => format!("{min}..{max}"),
            Kind::Bytes { max } => format!("0..{max}"),
            Kind::Choice(words) => words.join("|"),
            Kind::Path => "file".into(),
            Kind::Folder => "folder".into(),
            Kind::Steps => "FIRST..LAST".into(),
            Kind::Timeline => "file|DYNAMIC".into(),
            Kind::Label { max } => format!("text, at most {max}"),
            Kind::Cores => "0,1,…".into(),
            Kind::Link => "ALPHA_US,GB_PER_S".into(),
            Kind::Start => "fusion_mb=X,cycle_ms=Y".into(),
            Kind::Foreign => "as Horovod".into(),
        }
    }
}

/// Largest core number accepted in an affinity list; Linux is built for at most 8192 processors.
pub(super) const CORE_MAX: usize = 8191;
/// Longest latency of a shaped link: 10 s.
pub(super) const ALPHA_US_MAX: f64 = 10_000_000.0;
/// Slowest shaped link, 1 kB/s: a division by it stays finite, and a mistyped 0 is an error.
pub(super) const GB_PER_S_MIN: f64 = 1e-6;
/// Fastest shaped link.
pub(super) const GB_PER_S_MAX: f64 = 1e6;

/// Command-line flag that writes a knob's environment variable. Long names are Horovod's where
/// Horovod has the flag.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Canonical name, without dashes.
    pub long: &'static str,
    /// Other names for it.
    pub aliases: &'static [&'static str],
    /// Conversion of the flag's value.
    pub form: FlagForm,
}

/// Conversion of a [`Flag`]'s value to its variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagForm {
    /// The value, unchanged.
    Value,
    /// The value, unchanged, after `=`; the flag alone writes this value.
    OptionalValue(&'static str),
    /// The value in MiB, converted to bytes.
    Megabytes,
    /// `1`; the opposite flag, which has its own names, writes `0` (and so fixes a tunable knob).
    Switch {
        /// Canonical name of the opposite flag.
        off: &'static str,
        /// Other names for the opposite flag.
        off_aliases: &'static [&'static str],
    },
}

impl Flag {
    /// Flag whose value is written unchanged.
    pub(super) const fn value(long: &'static str) -> Option<Flag> {
        Some(Flag {
            long,
            aliases: &[],
            form: FlagForm::Value,
        })
    }

    /// Flag that may have a value; without one it writes `alone`.
    pub(super) const fn optional(long: &'static str, alone: &'static str) -> Option<Flag> {
        Some(Flag {
            long,
            aliases: &[],
            form: FlagForm::OptionalValue(alone),
        })
    }

    /// Pair of flags: `long` switches on, `off` switches off.
    pub(super) const fn switch(long: &'static str, off: &'static str) -> Option<Flag> {
        Some(Flag {
            long,
            aliases: &[],
            form: FlagForm::Switch {
                off,
                off_aliases: &[],
            },
        })
    }
}
