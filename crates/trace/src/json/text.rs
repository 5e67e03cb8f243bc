//! JSON strings and their escapes.

use std::borrow::Cow;

/// A string in the file, without its quotes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text<'a> {
    /// Bytes with escapes.
    pub(crate) raw: &'a [u8],
    /// Whether the string has escapes.
    pub(crate) escaped: bool,
}

impl<'a> Text<'a> {
    /// Decodes the string; invalid UTF-8 is replaced.
    pub(crate) fn decode(self) -> Cow<'a, str> {
        if self.escaped {
            Cow::Owned(String::from_utf8_lossy(&unescaped(self.raw)).into_owned())
        } else {
            String::from_utf8_lossy(self.raw)
        }
    }
}

/// Replaces escapes by their characters; an unknown escape is kept.
fn unescaped(raw: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(backslash) = memchr::memchr(b'\\', rest) {
        plain.extend_from_slice(&rest[..backslash]);
        rest = &rest[backslash + 1..];
        let Some((&code, after)) = rest.split_first() else {
            plain.push(b'\\');
            break;
        };
        rest = after;
        match code {
            b'n' => plain.push(b'\n'),
            b't' => plain.push(b'\t'),
            b'r' => plain.push(b'\r'),
            b'b' => plain.push(8),
            b'f' => plain.push(12),
            b'"' | b'\\' | b'/' => plain.push(code),
            b'u' => match unicode(rest) {
                Some((character, length)) => {
                    plain.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                    rest = &rest[length..];
                }
                None => plain.extend_from_slice(b"\\u"),
            },
            other => plain.extend_from_slice(&[b'\\', other]),
        }
    }
    plain.extend_from_slice(rest);
    plain
}

/// Decodes an escape after its `\u`. Returns the character and the length of the rest of the
/// escape. Half a surrogate pair becomes the replacement character.
fn unicode(rest: &[u8]) -> Option<(char, usize)> {
    let unit = |at: usize| {
        let digits = rest.get(at..at + 4)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let first = unit(0)?;
    let second = (rest.get(4..6) == Some(b"\\u"))
        .then(|| unit(6))
        .flatten()
        .filter(|second| (0xdc00..0xe000).contains(second));
    match second {
        Some(second) if (0xd800..0xdc00).contains(&first) => {
            let decoded = char::decode_utf16([first, second]).next()?.ok()?;
            Some((decoded, 10))
        }
        _ => Some((
            char::from_u32(first.into()).unwrap_or(char::REPLACEMENT_CHARACTER),
            4,
        )),
    }
}
