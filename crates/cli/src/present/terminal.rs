//! Terminal properties: width, colours and characters.

use std::ffi::OsString;
use std::io::IsTerminal;

use console::{Style, Term, strip_ansi_codes};

use ronde_trace::analysis::report::PartKind;

use super::part::cells;

/// Width if standard output is not a terminal.
const WIDTH_DEFAULT: usize = 100;

/// Widths in use: longer lines are hard to read, and shorter ones have no space for a table's
/// columns.
const WIDTHS: std::ops::RangeInclusive<usize> = 40..=120;

/// Format of the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Width in columns.
    pub(crate) width: usize,
    /// Whether to use colours.
    pub(crate) colours: bool,
    /// Whether to use characters outside of ASCII.
    pub(crate) unicode: bool,
    /// Most rows of the tables of tensors.
    pub(crate) tensors: usize,
}

impl Look {
    /// The simplest terminal.
    #[cfg(test)]
    pub(crate) const PLAIN: Look = Look {
        width: 80,
        colours: false,
        unicode: false,
        tensors: 5,
    };

    /// Format for standard output and the environment.
    pub(crate) fn of_stdout(tensors: usize) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let columns = terminal.then(|| Term::stdout().size_checked()).flatten();
        let width = columns.map_or(WIDTH_DEFAULT, |(_, columns)| usize::from(columns));
        Self {
            width: width.clamp(*WIDTHS.start(), *WIDTHS.end()),
            colours: terminal && colours_wanted(|name| std::env::var_os(name)),
            unicode: unicode(|name| std::env::var_os(name)),
            tensors,
        }
    }

    /// Formats the title of a section.
    pub(crate) fn title(&self, text: &str) -> String {
        self.style().bold().apply_to(text).to_string()
    }

    /// Formats less important text.
    pub(crate) fn dim(&self, text: &str) -> String {
        self.style().dim().apply_to(text).to_string()
    }

    /// Formats text that needs attention.
    pub(crate) fn warn(&self, text: &str) -> String {
        self.style().yellow().apply_to(text).to_string()
    }

    /// Formats `text` on a background from green (grade 0) to red (grade 9).
    pub(crate) fn heat(&self, grade: usize, text: &str) -> String {
        const GROUNDS: [u8; 10] = [71, 107, 143, 149, 185, 221, 215, 209, 203, 160];
        let ground = GROUNDS[grade.min(GROUNDS.len() - 1)];
        self.style()
            .on_color256(ground)
            .black()
            .apply_to(text)
            .to_string()
    }

    /// Bar of `width` characters, divided in proportion to the parts' shares; every part with a
    /// share above 0 gets at least one character.
    pub(crate) fn bar(shares: &[(PartKind, f64)], width: usize) -> String {
        let lengths = lengths(shares.iter().map(|(_, share)| *share).collect(), width);
        let parts = shares.iter().zip(lengths).filter(|(_, length)| *length > 0);
        parts
            .map(|((part, _), length)| cells(*part, length))
            .collect()
    }

    /// Text as the terminal can show it: without colours if it has none, and in ASCII if it cannot
    /// show Unicode.
    pub(crate) fn shown(&self, text: &str) -> String {
        let text = if self.colours {
            text.into()
        } else {
            strip_ansi_codes(text)
        };
        if self.unicode {
            return text.into_owned();
        }
        let text: String = text.chars().map(ascii).collect();
        text.replace(" \n", "\n")
    }

    fn style(&self) -> Style {
        Style::new().force_styling(self.colours)
    }
}

/// Name from a file without control characters, which the terminal would execute or which would
/// break the line.
pub(crate) fn harmless(name: &str) -> String {
    let harmless = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    name.chars().map(harmless).collect()
}

/// Bar for one number: `share` of `width` characters, in eighths of a character.
pub(super) fn gauge(share: f64, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// Divides `width` characters in proportion to `shares`. The rest goes to the largest remainders,
/// and every share above 0 gets at least one character.
fn lengths(shares: Vec<f64>, width: usize) -> Vec<usize> {
    let sum: f64 = shares.iter().sum();
    if !sum.is_finite() || sum <= 0.0 {
        return vec![0; shares.len()];
    }
    let exact: Vec<f64> = shares
        .iter()
        .map(|share| share / sum * width as f64)
        .collect();
    let least = |share: f64| usize::from(share > 0.0);
    let mut lengths: Vec<usize> = exact
        .iter()
        .map(|exact| (*exact as usize).max(least(*exact)))
        .collect();
    let remainder = |lengths: &[usize], index: usize| exact[index] - lengths[index] as f64;
    while lengths.iter().sum::<usize>() < width {
        let most = (0..lengths.len()).max_by(|left, right| {
            remainder(&lengths, *left).total_cmp(&remainder(&lengths, *right))
        });
        lengths[most.expect("a sum above 0 has terms")] += 1;
    }
    while lengths.iter().sum::<usize>() > width {
        let Some(longest) = (0..lengths.len()).max_by_key(|index| lengths[*index]) else {
            break;
        };
        if lengths[longest] <= 1 {
            break;
        }
        lengths[longest] -= 1;
    }
    lengths
}

/// Most similar ASCII character, of the same width.
fn ascii(c: char) -> char {
    match c {
        '░' => '.',
        '▚' => 'w',
        '▒' => 'n',
        '▞' => 'p',
        '▖' => '<',
        '█' | '▌' | '▋' | '▊' | '▉' => '#',
        '▏' | '▎' | '▍' => ' ', // less than half of a character
        '▝' => '>',
        '▘' => '%',
        'µ' | 'μ' => 'u',
        'α' => 'a',
        'β' => 'b',
        '·' | '×' => '*',
        '–' | '—' | '−' => '-',
        '→' => '>',
        '…' => '~',
        '±' => '~',
        '⁹' => '9',
        '“' | '”' => '"',
        '’' => '\'',
        '\u{a0}' | '\u{202f}' => ' ',
        c if c.is_ascii() => c,
        _ => '?',
    }
}

fn colours_wanted(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let refused = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = variable("TERM").is_none_or(|term| term == "dumb");
    !refused && !dumb
}

/// Whether the locale uses Unicode: the first of these variables that is set decides, as in POSIX.
fn unicode(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let set = |name: &&str| variable(name).filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set);
    let locale = locale
        .unwrap_or_default()
        .to_string_lossy()
        .to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Look = Look::PLAIN;

    #[test]
    fn a_bar_has_its_width_and_every_part_that_is_there() {
        let shares = [
            (PartKind::Compute, 0.5),
            (PartKind::Prepare, 0.0),
            (PartKind::Negotiation, 0.001),
            (PartKind::Collective, 0.499),
        ];
        assert_eq!(PLAIN.shown(&Look::bar(&shares, 10)), ".....n####");
        assert_eq!(Look::bar(&[(PartKind::Compute, 0.0)], 10), "");
        assert_eq!(Look::bar(&[(PartKind::Compute, f64::NAN)], 10), "");
        assert_eq!(lengths(vec![1.0; 7], 3), [1; 7]); // no space: one each
        assert_eq!(lengths(vec![2.0, 1.0], 4), [3, 1]); // 2.67 and 1.33
    }

    #[test]
    fn a_gauge_in_eighths() {
        assert_eq!(gauge(0.5, 3), "█▌");
        assert_eq!(PLAIN.shown(&gauge(0.5, 3)), "##");
        assert_eq!(gauge(f64::NAN, 3), "");
    }

    #[test]
    fn the_environment_decides() {
        let env = |pairs: &'static [(&str, &str)]| {
            move |name: &str| {
                let pair = pairs.iter().find(|(key, _)| *key == name);
                pair.map(|(_, value)| OsString::from(value))
            }
        };
        assert!(unicode(env(&[("LANG", "de_DE.UTF-8")])));
        assert!(!unicode(env(&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")])));
        assert!(unicode(env(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8")])));
        assert!(!unicode(env(&[])));
        assert!(colours_wanted(env(&[("TERM", "xterm"), ("NO_COLOR", "")])));
        assert!(!colours_wanted(env(&[
            ("TERM", "xterm"),
            ("NO_COLOR", "1")
        ])));
        assert!(!colours_wanted(env(&[("TERM", "dumb")])));
    }

    #[test]
    fn names_cannot_command_the_terminal() {
        assert_eq!(harmless("a\x1b[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
        assert_eq!(PLAIN.shown("12 µs · α"), "12 us * a");
    }
}
