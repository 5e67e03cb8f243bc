//! Escaping of text for HTML and of data for scripts.

use maud::{Escaper, Render};
use serde::Serialize;
use std::fmt::Write;

/// Text from a file or a user, escaped for HTML by maud. Characters that HTML forbids or that
/// control the display are made visible: control characters become their symbols, and characters
/// that change the writing direction become �.
pub struct Foreign<'a>(pub &'a str);

impl Render for Foreign<'_> {
    fn render_to(&self, buffer: &mut String) {
        // Escaping into a String cannot fail.
        let _ = write!(Escaper::new(buffer), "{}", visible(self.0));
    }
}

/// Replaces control characters by visible ones, as `Foreign` does.
pub fn visible(text: &str) -> String {
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

/// Shortens the text to at most `most` characters by cutting its middle, since names differ at
/// their ends.
pub fn shortened(text: &str, most: usize) -> String {
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

/// JSON that is safe inside a `<script>` element: it can neither end the element nor begin a
/// comment.
pub fn embedded_json(value: &impl Serialize) -> String {
    // Serialization fails only for maps without string keys and for types that return an error;
    // pages embed neither.
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
