//! Sections of a text with several logs: the first line of each, and its separator of fields.

use super::{LogError, REQUIRED};

/// Separators of fields. Logs have commas; spreadsheets save the others.
const SEPARATORS: [u8; 3] = [b',', b';', b'\t'];
/// Characters of a header that an error shows.
const SHOWN: usize = 200;

/// One log of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Section<'a> {
    /// Its header and its rows.
    pub(super) text: &'a str,
    /// Lines before it.
    pub(super) lines_before: u64,
    /// Separator of its fields.
    pub(super) separator: u8,
}

/// The logs of a text, at least one.
///
/// # Errors
/// [`LogError::Empty`]; [`LogError::Header`] if the first line with anything in it is no header.
pub(super) fn sections(text: &str) -> Result<Vec<Section<'_>>, LogError> {
    let lines = || lines(text);
    let Some((first, first_line)) = lines().find(|(_, line)| !blank(line)) else {
        return Err(LogError::Empty);
    };
    let before = |offset: usize| lines().take_while(|(at, _)| *at < offset).count() as u64;
    if separator(first_line).is_none() {
        return Err(LogError::Header {
            line: before(first) + 1,
            missing: missing(first_line),
            header: first_line.trim_end().chars().take(SHOWN).collect(),
        });
    }
    let mut starts: Vec<(usize, u64, u8)> = Vec::new();
    for (number, (offset, line)) in lines().enumerate() {
        if let Some(separator) = separator(line) {
            starts.push((offset, number as u64, separator));
        }
    }
    let ends = starts
        .iter()
        .skip(1)
        .map(|start| start.0)
        .chain([text.len()]);
    let section = |(&(offset, lines_before, separator), end): (&(usize, u64, u8), usize)| Section {
        text: &text[offset..end],
        lines_before,
        separator,
    };
    Ok(starts.iter().zip(ends).map(section).collect())
}

/// The lines with where they begin; they end as on Unix, on Windows or as on old Macs.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let rest = text.get(offset..).filter(|rest| !rest.is_empty())?;
        let end = rest.find(['\n', '\r']).map_or(rest.len(), |end| {
            end + if rest[end..].starts_with("\r\n") {
                2
            } else {
                1
            }
        });
        let line = (offset, &rest[..end]);
        offset += end;
        Some(line)
    })
}

fn blank(line: &str) -> bool {
    line.bytes()
        .all(|b| b.is_ascii_whitespace() || SEPARATORS.contains(&b) || b == b'"')
}

/// Separator of the fields of `line`, if it is a header.
fn separator(line: &str) -> Option<u8> {
    // Most lines are rows: the longest name tells it without taking them apart.
    if !line.contains(REQUIRED[1]) {
        return None;
    }
    let separates = |separator: &u8| {
        let has = |name: &&str| fields(line, *separator).any(|field| field == *name);
        REQUIRED.iter().all(has)
    };
    SEPARATORS.into_iter().find(separates)
}

/// The required columns that no separator finds in `line`.
fn missing(line: &str) -> Vec<&'static str> {
    let of = |separator: u8| -> Vec<&'static str> {
        let has = |name: &&str| fields(line, separator).any(|field| field == *name);
        REQUIRED.into_iter().filter(|name| !has(name)).collect()
    };
    let by_separator = SEPARATORS.map(of);
    by_separator
        .into_iter()
        .min_by_key(Vec::len)
        .unwrap_or_default()
}

fn fields(line: &str, separator: u8) -> impl Iterator<Item = &str> {
    line.split(char::from(separator))
        .map(|field| field.trim().trim_matches('"').trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "cycle_time_ms,tensor_fusion_threshold,score";

    #[test]
    fn a_header_in_the_middle_begins_another_log() {
        let text = format!(
            "\n{HEADER}\r\n1,2,3\r\n{}\n1;2;3\n",
            HEADER.replace(',', " ; ")
        );
        let sections = sections(&text).unwrap();
        assert_eq!(sections.len(), 2);
        assert_eq!(
            (
                sections[0].lines_before,
                sections[0].separator,
                sections[0].text
            ),
            (1, b',', format!("{HEADER}\r\n1,2,3\r\n").as_str())
        );
        assert_eq!((sections[1].lines_before, sections[1].separator), (3, b';'));
        assert!(sections[1].text.ends_with("1;2;3\n"));
    }

    #[test]
    fn what_is_no_header_is_described() {
        assert_eq!(sections(" \n;;\n"), Err(LogError::Empty));
        let error = sections("\nscore;cycle_time_ms\n1;2\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "not an autotune log: the header (line 2) has no tensor_fusion_threshold; it is \"score;cycle_time_ms\""
        );
        let long = sections(&"x".repeat(10_000)).unwrap_err().to_string();
        assert!(long.len() < 400, "{long}");
    }

    #[test]
    fn lines_end_in_three_ways() {
        let text = "a\nb\r\nc\rd";
        let lines: Vec<_> = lines(text).collect();
        assert_eq!(lines, [(0, "a\n"), (2, "b\r\n"), (5, "c\r"), (7, "d")]);
    }
}
