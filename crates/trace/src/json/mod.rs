//! Lenient JSON parser for traces; the text may end anywhere.
//!
//! It accepts more than the standard, because real files need it: control characters and invalid
//! UTF-8 within strings, a quote within a string if no punctuation follows (Horovod does not escape
//! tensor names), unknown escapes, `NaN` and `Infinity`, and any control character but NUL as white
//! space.

mod text;
mod time;

use std::borrow::Cow;

use memchr::memchr2;

pub(super) use self::text::Text;
pub(super) use self::time::{NS_MAX, us_as_ns};

/// Maximum nesting depth, more than any trace has: limits the recursion.
const DEPTH_MAX: u32 = 64;

/// Reason why parsing stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The text ends within the value.
    More,
    /// The text is not JSON.
    Broken,
}

/// A value within an event's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// A string.
    Text(Text<'a>),
    /// A number, or a word such as `true`.
    Word(&'a [u8]),
    /// An object or an array, brackets included.
    Nested(&'a [u8]),
}

impl<'a> Value<'a> {
    /// Characters of the string or number.
    pub(super) fn characters(self) -> &'a [u8] {
        match self {
            Self::Text(text) => text.raw,
            Self::Word(raw) | Self::Nested(raw) => raw,
        }
    }

    /// The string; a number as a string.
    pub(super) fn decode(self) -> Cow<'a, str> {
        match self {
            Self::Text(text) => text.decode(),
            Self::Word(raw) | Self::Nested(raw) => String::from_utf8_lossy(raw),
        }
    }

    /// A non-negative whole number, written as a number or a string, with or without a fraction.
    pub(super) fn count(self) -> Option<u64> {
        let number = self.number()?;
        let exact = std::str::from_utf8(self.characters())
            .ok()?
            .trim()
            .parse()
            .ok();
        // Up to 2^64; above, `as` would saturate.
        exact.or_else(|| (0.0..1.8e19).contains(&number).then_some(number as u64))
    }

    /// An integer.
    pub(super) fn integer(self) -> Option<i64> {
        let exact = std::str::from_utf8(self.characters())
            .ok()?
            .trim()
            .parse()
            .ok();
        exact.or_else(|| {
            let number = self.number()?;
            (-9e18..9e18).contains(&number).then_some(number as i64)
        })
    }

    /// A finite number.
    pub(super) fn number(self) -> Option<f64> {
        let text = std::str::from_utf8(self.characters()).ok()?.trim();
        text.parse().ok().filter(|number: &f64| number.is_finite())
    }

    /// Converts microseconds to nanoseconds.
    pub(super) fn us_as_ns(self) -> Option<i64> {
        us_as_ns(self.characters())
    }
}

/// Position in a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    /// The text.
    pub(super) text: &'a [u8],
    /// Index of the next byte.
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a [u8], at: usize) -> Self {
        Self { text, at }
    }

    /// Returns the next byte that is not white space.
    #[inline]
    pub(super) fn peek(&mut self) -> Result<u8, Stop> {
        loop {
            match self.text.get(self.at) {
                Some(1..=b' ') => self.at += 1,
                Some(&byte) => return Ok(byte),
                None => return Err(Stop::More),
            }
        }
    }

    /// Consumes `byte`, which must come next.
    #[inline]
    pub(super) fn expect(&mut self, byte: u8) -> Result<(), Stop> {
        if self.peek()? != byte {
            return Err(Stop::Broken);
        }
        self.at += 1;
        Ok(())
    }

    /// Parses a string.
    #[inline]
    pub(super) fn string(&mut self) -> Result<Text<'a>, Stop> {
        self.expect(b'"')?;
        let start = self.at;
        let mut escaped = false;
        let mut from = start;
        loop {
            let rest = self.text.get(from..).ok_or(Stop::More)?;
            let end = from + memchr2(b'"', b'\\', rest).ok_or(Stop::More)?;
            if self.text[end] == b'\\' {
                escaped = true;
                from = end + 2;
                continue;
            }
            // Punctuation must follow a string; otherwise this is an unescaped quote within it.
            let next = *self.text.get(end + 1).ok_or(Stop::More)?;
            if matches!(next, 0..=b' ' | b',' | b':' | b'}' | b']' | b'"') {
                self.at = end + 1;
                let raw = &self.text[start..end];
                return Ok(Text { raw, escaped });
            }
            from = end + 1;
        }
    }

    /// Parses a number or a word.
    #[inline]
    fn word(&mut self) -> Result<&'a [u8], Stop> {
        let start = self.at;
        let rest = &self.text[start..];
        let length = rest.iter().position(
            |byte| !matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'a'..=b'z' | b'A'..=b'Z'),
        );
        match length {
            Some(0) => Err(Stop::Broken),
            Some(length) => {
                self.at += length;
                Ok(&rest[..length])
            }
            None => Err(Stop::More),
        }
    }

    /// Parses a value of any kind.
    #[inline]
    pub(super) fn value(&mut self) -> Result<Value<'a>, Stop> {
        match self.peek()? {
            b'"' => self.string().map(Value::Text),
            b'{' | b'[' => {
                let start = self.at;
                self.skip(DEPTH_MAX)?;
                Ok(Value::Nested(&self.text[start..self.at]))
            }
            _ => self.word().map(Value::Word),
        }
    }

    /// Skips a value.
    fn skip(&mut self, depth: u32) -> Result<(), Stop> {
        match self.peek()? {
            b'"' => self.string().map(drop),
            open @ (b'{' | b'[') => {
                let depth = depth.checked_sub(1).ok_or(Stop::Broken)?;
                let close = open + 2;
                self.at += 1;
                loop {
                    let next = self.peek()?;
                    if next == close {
                        self.at += 1;
                        return Ok(());
                    }
                    if next == b',' {
                        self.at += 1;
                        continue;
                    }
                    if open == b'{' {
                        self.string()?;
                        self.expect(b':')?;
                    }
                    self.skip(depth)?;
                }
            }
            _ => self.word().map(drop),
        }
    }

    /// Parses the next key of an object whose brace has been consumed; `None` at its end.
    #[inline]
    pub(super) fn key(&mut self) -> Result<Option<Text<'a>>, Stop> {
        loop {
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Ok(None);
                }
                b'"' => {
                    let key = self.string()?;
                    self.expect(b':')?;
                    return Ok(Some(key));
                }
                _ => return Err(Stop::Broken),
            }
        }
    }
}

/// Members of an object that [`Cursor::value`] has returned.
pub(super) fn members<'a>(object: &'a [u8]) -> impl Iterator<Item = (Text<'a>, Value<'a>)> {
    let mut cursor = Cursor::new(object, 0);
    let open = cursor.expect(b'{').is_ok();
    std::iter::from_fn(move || {
        if !open {
            return None;
        }
        let key = cursor.key().ok().flatten()?;
        // The text includes the object's closing brace, so a word before it is complete.
        Some((key, cursor.value().ok()?))
    })
}

/// Returns the object's member with this key.
pub(super) fn member<'a>(object: &'a [u8], key: &str) -> Option<Value<'a>> {
    let mut members = members(object);
    members.find_map(|(found, value)| (found.raw == key.as_bytes()).then_some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(text: &str) -> Result<String, Stop> {
        Cursor::new(text.as_bytes(), 0)
            .string()
            .map(|text| text.decode().into_owned())
    }

    #[test]
    fn strings_of_real_files() {
        assert_eq!(
            string("\"a\"b\"}").unwrap(),
            "a\"b",
            "Horovod escapes nothing"
        );
        assert_eq!(
            string("\"a\nb\t\",").unwrap(),
            "a\nb\t",
            "raw control characters"
        );
        assert_eq!(
            string(r#""\u00e9\ud83d\ude00\ud83d\q\/":"#).unwrap(),
            "é😀\u{fffd}\\q/"
        );
        assert_eq!(string("\"cut"), Err(Stop::More));
        assert_eq!(string("\"cut\\"), Err(Stop::More));
        let text = Text {
            raw: b"a\xffb",
            escaped: false,
        };
        assert_eq!(text.decode(), "a\u{fffd}b");
    }

    #[test]
    fn values_of_an_object() {
        let object = br#"{"a": 1, "b" : "x", "c":{"d":[1,{"e":"}"}]}, "f":NaN}"#;
        let found: Vec<_> = members(object)
            .map(|(key, value)| (key.decode().into_owned(), value.decode().into_owned()))
            .collect();
        let expected = [
            ("a", "1"),
            ("b", "x"),
            ("c", r#"{"d":[1,{"e":"}"}]}"#),
            ("f", "NaN"),
        ];
        assert!(
            found
                .iter()
                .map(|(key, value)| (&**key, &**value))
                .eq(expected)
        );
        assert_eq!(member(object, "a").and_then(Value::count), Some(1));
        assert_eq!(member(object, "f").and_then(Value::number), None);
    }

    #[test]
    fn nesting_has_an_end() {
        let deep = "[".repeat(100_000);
        assert_eq!(Cursor::new(deep.as_bytes(), 0).value(), Err(Stop::Broken));
        assert_eq!(Cursor::new(b"{\"a\":1,{", 0).value(), Err(Stop::Broken));
        assert_eq!(Cursor::new(b"{\"a\":1,", 0).value(), Err(Stop::More));
    }
}
