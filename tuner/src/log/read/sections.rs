//! Sections of a text with several logs: the first line of each, and its separator of fields.

use super::{LogError, REQUIRED};

/// Separators of fields. Logs have commas; spreadsheets save the others.
const SEPARATORS: [u8; 3] = [b',', b';', b'\t'];

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
    let mut sections: Vec<Section> = Vec::new();
    for (lines_before, (offset, line)) in (0..).zip(lines(text)) {
        // Most lines are rows: the longest name tells it without taking them apart.
        if blank(line) || !sections.is_empty() && !line.contains(REQUIRED[1]) {
            continue;
        }
        let (separator, missing) = header(line);
        if missing.is_empty() {
            let rest = &text[offset..];
            if let Some(last) = sections.last_mut() {
                last.text = &last.text[..last.text.len() - rest.len()];
            }
            sections.push(Section {
                text: rest,
                lines_before,
                separator,
            });
        } else if sections.is_empty() {
            return Err(LogError::Header {
                line: lines_before + 1,
                missing,
                header: line.trim_end().chars().take(200).collect(),
            });
        }
    }
    let is_any = !sections.is_empty();
    is_any.then_some(sections).ok_or(LogError::Empty)
}

/// The lines with where they begin; they end as on Unix, on Windows or as on old Macs.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let rest = text.get(offset..).filter(|rest| !rest.is_empty())?;
        let is_pair = |at: usize| rest[at..].starts_with("\r\n");
        let end = rest.find(['\n', '\r']);
        let end = end.map_or(rest.len(), |at| at + 1 + usize::from(is_pair(at)));
        let line = (offset, &rest[..end]);
        offset += end;
        Some(line)
    })
}

fn blank(line: &str) -> bool {
    line.bytes()
        .all(|b| b.is_ascii_whitespace() || SEPARATORS.contains(&b) || b == b'"')
}

/// The separator at which `line` has the most required columns, and those that it does not have.
fn header(line: &str) -> (u8, Vec<&'static str>) {
    let missing = |separator: u8| -> Vec<&'static str> {
        let fields = || line.split(char::from(separator));
        let has = |name: &str| fields().any(|field| field.trim().trim_matches('"').trim() == name);
        REQUIRED.into_iter().filter(|name| !has(name)).collect()
    };
    let found = SEPARATORS.map(|separator| (separator, missing(separator)));
    let best = found.into_iter().min_by_key(|(_, missing)| missing.len());
    best.unwrap_or_default()
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
