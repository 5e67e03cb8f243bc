//! One event of a Chrome trace, borrowed from the text.

use super::json::{Cursor, Stop, Text, Value, us_as_ns};

/// A `pid` or `tid`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Id<'a> {
    /// Missing.
    #[default]
    None,
    /// A number, written as a number or as a string.
    Number(i64),
    /// Any other string, with its escapes.
    Text(&'a [u8]),
}

impl<'a> Id<'a> {
    fn new(value: Value<'a>) -> Self {
        match (value.integer(), value) {
            (Some(number), _) => Self::Number(number),
            (None, Value::Text(text)) => Self::Text(text.raw),
            (None, _) => Self::None,
        }
    }
}

/// A time or duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Time {
    /// Missing.
    #[default]
    Missing,
    /// Not a number, or out of range.
    Bad,
    /// Nanoseconds.
    Ns(i64),
}

impl Time {
    fn new(value: Value<'_>) -> Self {
        us_as_ns(value.characters()).map_or(Self::Bad, Self::Ns)
    }
}

/// One event.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Event<'a> {
    /// The whole object, braces included.
    pub(super) raw: &'a [u8],
    /// Letter of the event's type (`ph`); 0 if missing, in which case the object is not an event.
    pub(super) phase: u8,
    /// Its name.
    pub(super) name: Text<'a>,
    /// Its category.
    pub(super) category: Text<'a>,
    /// Time of the event, or of its start.
    pub(super) at: Time,
    /// Duration.
    pub(super) duration: Time,
    /// Process (`pid`).
    pub(super) process: Id<'a>,
    /// Thread (`tid`).
    pub(super) thread: Id<'a>,
    /// Arguments, braces included; empty if there are none.
    pub(super) arguments: &'a [u8],
}

/// Whether `key` is the name of a member of an event. The scanner looks for these in damaged text.
pub(super) fn is_event_key(key: &[u8]) -> bool {
    matches!(
        key,
        b"ph"
            | b"name"
            | b"cat"
            | b"ts"
            | b"dur"
            | b"pid"
            | b"tid"
            | b"args"
            | b"id"
            | b"s"
            | b"bp"
            | b"tts"
    )
}

impl<'a> Event<'a> {
    /// Reads the object whose brace is at `at`, and returns it with the position after it.
    pub(super) fn read(text: &'a [u8], at: usize) -> Result<(Self, usize), Stop> {
        let mut cursor = Cursor::new(text, at);
        cursor.expect(b'{')?;
        let mut event = Self::default();
        while let Some(key) = cursor.key()? {
            let value = cursor.value()?;
            match key.raw {
                b"ph" => event.phase = value.characters().first().copied().unwrap_or(0),
                b"name" => event.name = text_of(value),
                b"cat" => event.category = text_of(value),
                b"ts" => event.at = Time::new(value),
                b"dur" => event.duration = Time::new(value),
                b"pid" => event.process = Id::new(value),
                b"tid" => event.thread = Id::new(value),
                b"args" => {
                    if let Value::Nested(object) = value {
                        event.arguments = object;
                    }
                }
                _ => {}
            }
        }
        event.raw = &text[at..cursor.at];
        Ok((event, cursor.at))
    }

    /// Returns an argument by its key.
    pub(super) fn argument(&self, key: &str) -> Option<Value<'a>> {
        super::json::member(self.arguments, key)
    }
}

/// Returns a name as text; it may be a number without quotes.
fn text_of(value: Value<'_>) -> Text<'_> {
    match value {
        Value::Text(text) => text,
        Value::Word(raw) => Text {
            raw,
            escaped: false,
        },
        Value::Nested(_) => Text::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_in_any_order_and_form() {
        let text = br#"  {"args": {"name": "x"}, "tid":"total","ts":"1.5", "pid" : "12","dur": NaN, "ph":"X","name":7,"z":[{}]} rest"#;
        let (event, end) = Event::read(text, 0).unwrap();
        assert_eq!(&text[end..], b" rest");
        assert_eq!((event.phase, event.name.raw), (b'X', &b"7"[..]));
        assert_eq!((event.at, event.duration), (Time::Ns(1_500), Time::Bad));
        assert_eq!(
            (event.process, event.thread),
            (Id::Number(12), Id::Text(b"total"))
        );
        assert_eq!(event.argument("name").unwrap().decode(), "x");
    }

    #[test]
    fn every_beginning_of_an_event_wants_more() {
        let text =
            br#"{"ph": "E", "ts": 25900, "pid": 1, "args": {"dtype": "float32", "shape": "[4, 1001]"}}"#;
        for length in 0..text.len() {
            assert_eq!(
                Event::read(&text[..length], 0).unwrap_err(),
                Stop::More,
                "{length}"
            );
        }
        assert_eq!(Event::read(text, 0).unwrap().1, text.len());
    }
}
