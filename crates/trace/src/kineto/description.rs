//! Description of a collective in a profiler's event: name, element counts, element type.

use super::super::json::{Value, members};
use super::super::model::Kind;
use super::super::vocabulary;
use ronde_job::Dtype;

/// Description taken from an event's arguments, which depend on PyTorch's version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Description {
    /// `Collective name`.
    pub(super) collective: Option<Box<str>>,
    /// `In msg nelems`, or the product of the first entry of `Input Dims`.
    pub(super) elements_in: Option<u64>,
    /// `Out msg nelems`.
    pub(super) elements_out: Option<u64>,
    /// `dtype`, or the first entry of `Input type`.
    pub(super) dtype: Option<Dtype>,
    /// Size of an element in bytes; also known for some types that Ronde does not have.
    pub(super) element_bytes: Option<u64>,
}

impl Description {
    /// Reads the description from an event's arguments.
    pub(super) fn of(arguments: &[u8]) -> Option<Self> {
        let mut found = Self::default();
        let mut dimensions = None;
        for (key, value) in members(arguments) {
            match key.raw {
                b"Collective name" => found.collective = Some(value.decode().into()),
                b"In msg nelems" => found.elements_in = value.count(),
                b"Out msg nelems" => found.elements_out = value.count(),
                b"dtype" => found.set_type(&value.decode()),
                b"Input Dims" | b"Input dims" => dimensions = first_dimensions(value),
                b"Input type" if found.dtype.is_none() => {
                    if let Some(name) = first_type(value) {
                        found.set_type(&name);
                    }
                }
                _ => {}
            }
        }
        found.elements_in = found.elements_in.or(dimensions);
        (found != Self::default()).then_some(found)
    }

    fn set_type(&mut self, name: &str) {
        self.dtype = vocabulary::dtype(name);
        self.element_bytes = vocabulary::dtype_bytes(name);
    }

    /// Fills missing fields from another description.
    pub(super) fn or(self, other: Option<&Self>) -> Self {
        let Some(other) = other else {
            return self;
        };
        Self {
            collective: self.collective.or_else(|| other.collective.clone()),
            elements_in: self.elements_in.or(other.elements_in),
            elements_out: self.elements_out.or(other.elements_out),
            dtype: self.dtype.or(other.dtype),
            element_bytes: self.element_bytes.or(other.element_bytes),
        }
    }

    /// Number of elements of the output, if known: that of the input, unless the operation
    /// concatenates or distributes the ranks' parts.
    pub(super) fn output(&self, kind: Kind) -> Option<u64> {
        let as_many = matches!(
            kind,
            Kind::Allreduce | Kind::Broadcast | Kind::Alltoall | Kind::PointToPoint
        );
        self.elements_out.or(self.elements_in.filter(|_| as_many))
    }
}

/// Product of the first entry of `[[384, 2], [], …]`; a scalar (`[]`) is not a message.
fn first_dimensions(value: Value<'_>) -> Option<u64> {
    let Value::Nested(raw) = value else {
        return None;
    };
    let text = std::str::from_utf8(raw).ok()?.trim();
    let inner = text.strip_prefix('[')?.trim_start();
    let end = inner.find(']')?;
    let first = inner[..=end].trim();
    if first
        .strip_prefix('[')?
        .strip_suffix(']')?
        .trim()
        .is_empty()
    {
        return None;
    }
    vocabulary::elements(first)
}

/// First string of an array.
fn first_type(value: Value<'_>) -> Option<String> {
    let Value::Nested(raw) = value else {
        return Some(value.decode().into_owned());
    };
    let text = String::from_utf8_lossy(raw);
    Some(text.split('"').nth(1)?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_old_and_new_versions() {
        let old =
            br#"{"External id": 1, "Input Dims": [[384, 2], [], []], "Input type": ["long", "Scalar", ""]}"#;
        let found = Description::of(old).unwrap();
        assert_eq!(
            (found.elements_in, found.dtype),
            (Some(768), Some(Dtype::I64))
        );
        let new = br#"{"Collective name": "_allgather_base", "In msg nelems": 5, "Out msg nelems": 20, "dtype": "BFloat16"}"#;
        let found = Description::of(new).unwrap();
        assert_eq!((found.elements_in, found.elements_out), (Some(5), Some(20)));
        assert_eq!(
            (found.dtype, found.element_bytes),
            (Some(Dtype::Bf16), Some(2))
        );
        assert_eq!(found.output(Kind::Allgather), Some(20));
        assert_eq!(Description::of(br#"{"stream": 7}"#), None);
        let list = br#"{"Input Dims": [[], []], "Input type": ["TensorList", ""]}"#;
        assert_eq!(Description::of(list), None);
    }
}
