//! Foreign text made safe to show, and data made safe to embed.

use maud::{Escaper, Render};
use serde::Serialize;
use std::fmt::Write;

/// Text from a file or a user, as it can stand in a page: maud's escaping, and what HTML forbids or a browser would
/// obey made visible (control characters as their pictures, marks that turn the writing direction as �).
pub(crate) struct Foreign<'a>(pub(crate) &'a str);

impl Render for Foreign<'_> {
    fn render_to(&self, buffer: &mut String) {
        // Escaping a string cannot fail: the writer is a String.
        let _ = write!(Escaper::new(buffer), "{}", visible(self.0));
    }
}

/// The text with nothing in it that is not seen.
pub(crate) fn visible(text: &str) -> String {
    text.chars().map(visible_char).collect()
}

fn visible_char(c: char) -> char {
    match c {
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'),
        '\u{7f}' => '␡',
        '\u{80}'..='\u{9f}' => '\u{fffd}',
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        '\u{fdd0}'..='\u{fdef}' => '\u{fffd}',
        c if u32::from(c) & 0xfffe == 0xfffe => '\u{fffd}', // noncharacters
        c => c,
    }
}

/// At most `most` characters: the middle gives way, since names differ at their ends.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return text.to_owned();
    }
    let kept = most.saturating_sub(1);
    let head = kept / 2;
    let tail = kept - head;
    let mut short: String = text.chars().take(head).collect();
    short.push('…');
    short.extend(text.chars().skip(length - tail));
    short
}

/// JSON that can stand inside a `<script>` element: no character of it can end the element or begin a comment.
pub(crate) fn embedded_json(value: &impl Serialize) -> String {
    // Only maps with keys that are no strings, and types that refuse, can fail; pages embed neither.
    let json = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => safe.push_str("\\u003c"),
            '>' => safe.push_str("\\u003e"),
            '&' => safe.push_str("\\u0026"),
            '\u{2028}' => safe.push_str("\\u2028"),
            '\u{2029}' => safe.push_str("\\u2029"),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use maud::html;

    #[test]
    fn foreign_text_can_neither_open_a_tag_nor_hide() {
        let name = "a</script><b c=\"d\">&\0\u{1b}\u{202e}x";
        assert_eq!(
            html!((Foreign(name))).into_string(),
            "a&lt;/script&gt;&lt;b c=&quot;d&quot;&gt;&amp;␀␛\u{fffd}x"
        );
    }

    #[test]
    fn embedded_json_is_the_same_json() {
        let text = "</script><!--\u{2028}&\"\n";
        let json = embedded_json(&text);
        assert!(!json.contains(['<', '>', '&', '\u{2028}']), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(shortened("abcdefghij", 10), "abcdefghij");
        assert_eq!(shortened("abcdefghijk", 5), "ab…jk");
        assert_eq!(shortened("ä".repeat(9).as_str(), 3), "ä…ä");
        assert_eq!(shortened("abc", 0), "…");
    }
}
