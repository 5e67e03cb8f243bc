//! Line reader with a limit of the line length.

use std::io::{self, BufRead, Read};

use super::request::Problem;

/// Length limit of a line in bytes; a space with the maximal number of parameters has a few
/// thousand.
pub(super) const LINE_MAX: u64 = 1 << 20;

/// Returns the next line without its line end, or `None` at the end of the input. A line that is
/// too long or not UTF-8 is returned as a problem and skipped.
pub(super) fn next_line(input: &mut dyn BufRead) -> io::Result<Option<Result<String, Problem>>> {
    let mut bytes = Vec::new();
    if input.take(LINE_MAX + 1).read_until(b'\n', &mut bytes)? == 0 {
        return Ok(None);
    }
    if bytes.len() as u64 > LINE_MAX && bytes.last() != Some(&b'\n') {
        input.skip_until(b'\n')?;
        return Ok(Some(Err(Problem::new(
            format!("a line of more than {LINE_MAX} bytes"),
            "end each request with a line feed",
        ))));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        Problem::new(
            format!("byte {} is not UTF-8", error.utf8_error().valid_up_to() + 1),
            "write JSON in UTF-8",
        )
    });
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_foreign_lines_are_left_behind() {
        let mut text = b"first\n".to_vec();
        text.extend(vec![b'x'; 3 * LINE_MAX as usize]);
        text.extend(b"\nthird\n\xff\nlast");
        let mut input = io::Cursor::new(text);
        let mut next = || next_line(&mut input).unwrap();
        assert_eq!(next().unwrap().unwrap(), "first\n");
        assert!(
            next()
                .unwrap()
                .unwrap_err()
                .to_string()
                .contains("more than 1048576 bytes")
        );
        assert_eq!(next().unwrap().unwrap(), "third\n");
        assert!(
            next()
                .unwrap()
                .unwrap_err()
                .to_string()
                .contains("byte 1 is not UTF-8")
        );
        assert_eq!(next().unwrap().unwrap(), "last");
        assert!(next().is_none());
    }
}
