//! Conversion of a value in the file to the value of an environment variable.

use super::keys::Target;
use super::yaml::{Node, Scalar};
use crate::knob_flags;
use ronde::knobs::{FUSION_THRESHOLD_BYTES_MAX, FlagForm, Kind, Knob, Knobs};
use std::ffi::{OsStr, OsString};

/// Returns the value for the knob's variable, or as an error the accepted values.
pub(super) fn written(target: Target, node: &Node) -> Result<OsString, String> {
    let knob = target.knob;
    let form = knob.flag.map(|flag| flag.form);
    let unfit = || expected(knob, form);
    let Node::Scalar(scalar) = node else {
        return Err(unfit());
    };
    let text = match (form, knob.kind) {
        (Some(FlagForm::Switch { .. }), _) => {
            let on = scalar.boolean().ok_or_else(unfit)? != target.inverted;
            if on { "1".into() } else { "0".into() }
        }
        (Some(FlagForm::Megabytes), _) => {
            let mib = scalar.number().ok_or_else(unfit)?;
            knob_flags::bytes(OsStr::new(mib))
                .ok_or_else(unfit)?
                .to_string()
        }
        (_, Kind::Count { .. } | Kind::Real { .. }) => {
            scalar.number().ok_or_else(unfit)?.to_owned()
        }
        _ => scalar.word().ok_or_else(unfit)?.to_owned(),
    };
    let value = OsString::from(text);
    // An empty variable counts as unset, but an empty text in the file does not mean "unset".
    let reads = !value.is_empty() && is_valid(knob, &value);
    if reads { Ok(value) } else { Err(unfit()) }
}

/// Whether the knob's variable may have this value.
pub(crate) fn is_valid(knob: &Knob, value: &OsStr) -> bool {
    let knobs = Knobs::from_lookup(|env| (env == knob.env).then_some(value));
    knobs.is_ok_and(|knobs| knobs.warnings.is_empty()) // an unknown log level is a warning
}

/// Accepted values of a knob, for messages.
pub(crate) fn expected(knob: &Knob, form: Option<FlagForm>) -> String {
    match (form, knob.kind) {
        (Some(FlagForm::Switch { .. }), _) => "true or false".into(),
        (Some(FlagForm::Megabytes), _) => {
            format!(
                "a number from 0 to {} (MiB)",
                FUSION_THRESHOLD_BYTES_MAX >> 20
            )
        }
        (_, Kind::Foreign) => "a number or a word".into(),
        (_, kind) => kind.expected(),
    }
}

impl Scalar {
    /// The value as a boolean of YAML 1.1, which horovodrun reads, or as 1 or 0.
    fn boolean(&self) -> Option<bool> {
        let words = |words: &[&str]| {
            words
                .iter()
                .any(|word| self.text.eq_ignore_ascii_case(word))
        };
        match self.plain {
            true if words(&["true", "yes", "on", "1"]) => Some(true),
            true if words(&["false", "no", "off", "0"]) => Some(false),
            _ => None,
        }
    }

    /// Text of the value if it is a number.
    fn number(&self) -> Option<&str> {
        let is_number = self.plain && self.text.parse::<f64>().is_ok();
        is_number.then_some(self.text.as_str())
    }

    /// Text of the value unless it is a boolean: a file named `no` is more probably a mistake.
    fn word(&self) -> Option<&str> {
        let is_boolean = self.boolean().is_some() && self.text.parse::<f64>().is_err();
        (!is_boolean).then_some(self.text.as_str())
    }
}
