//! Line splitter: divides a stream of bytes into lines, whatever the sizes of the reads.

/// Largest number of bytes that are buffered until the end of a line; a longer line is cut into
/// pieces of about this size.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Unfinished line of a stream. `\n`, `\r` and `\r\n` all end a line, so that progress bars are
/// lines too.
#[derive(Debug)]
pub(super) struct Lines {
    partial: Vec<u8>,
    bytes_max: usize,
    /// Whether the last byte was `\r`: a following `\n` belongs to the same line end.
    after_return: bool,
}

impl Default for Lines {
    fn default() -> Self {
        Self::with_room(0)
    }
}

impl Lines {
    /// Lines that may be longer than usual by `bytes`: another process has put a prefix before
    /// them.
    pub(super) fn with_room(bytes: usize) -> Self {
        Self {
            partial: Vec::new(),
            bytes_max: LINE_BYTES_MAX + bytes,
            after_return: false,
        }
    }

    /// Adds bytes and calls `line` with each completed line, without its line end.
    pub(super) fn feed(&mut self, bytes: &[u8], mut line: impl FnMut(&[u8])) {
        for byte in bytes {
            match byte {
                b'\n' if self.after_return => {}
                b'\n' | b'\r' => {
                    line(&self.partial);
                    self.partial.clear();
                }
                _ => {
                    self.partial.push(*byte);
                    if self.partial.len() >= self.bytes_max {
                        let cut = character_start(&self.partial);
                        line(&self.partial[..cut]);
                        self.partial.drain(..cut);
                    }
                }
            }
            self.after_return = *byte == b'\r';
        }
    }

    /// Calls `line` with the last line if it has no line end.
    pub(super) fn finish(&mut self, line: impl FnOnce(&[u8])) {
        if !self.partial.is_empty() {
            line(&self.partial);
            self.partial.clear();
        }
    }
}

/// Position near the end of `bytes` at which a cut does not split a UTF-8 character.
fn character_start(bytes: &[u8]) -> usize {
    // A character has at most 4 bytes: an incomplete one begins within the last 3.
    let tail = bytes.len().saturating_sub(3);
    let start = (tail..bytes.len()).rev().find(|i| bytes[*i] & 0xc0 != 0x80);
    match start {
        Some(start)
            if std::str::from_utf8(&bytes[start..]).is_err()
                && bytes[start] >= 0xc0
                && start > 0 =>
        {
            start
        }
        _ => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(chunks: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for chunk in chunks {
            lines.feed(chunk, |line| found.push(line.to_vec()));
        }
        lines.finish(|line| found.push(line.to_vec()));
        found
    }

    #[test]
    fn returns_and_newlines_end_lines() {
        let table: [(&[u8], &[&[u8]]); 6] = [
            (b"a\nb\n", &[b"a", b"b"]),
            (b"a\r\nb", &[b"a", b"b"]),
            (b"1%\r2%\r3%\n", &[b"1%", b"2%", b"3%"]),
            (b"\n\n", &[b"", b""]),
            (b"a\n\rb", &[b"a", b"", b"b"]),
            (b"", &[]),
        ];
        for (text, expected) in table {
            assert_eq!(split(&[text]), expected, "{text:?}");
        }
    }

    #[test]
    fn long_lines_are_cut_between_characters() {
        let line = "é".repeat(LINE_BYTES_MAX); // two bytes each
        let text = format!("x{line}\n"); // odd length, so that a limit falls inside of a character
        let pieces = split(&[text.as_bytes()]);
        assert!(pieces.len() > 1);
        assert!(
            pieces
                .iter()
                .all(|piece| std::str::from_utf8(piece).is_ok())
        );
        assert_eq!(pieces.concat(), text.trim_end().as_bytes());
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_bytes_arrive(
            text in "[ab\\n\\ré]{0,60}",
            cut in 0..60usize,
            second in 0..60usize,
        ) {
            let bytes = text.as_bytes();
            let first = cut.min(bytes.len());
            let second = (first + second).min(bytes.len());
            let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
            prop_assert_eq!(split(&pieces), split(&[bytes]));
        }
    }
}
