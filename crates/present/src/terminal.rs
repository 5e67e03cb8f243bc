//! Terminal properties: width, colours and characters.

use std::ffi::OsString;
use std::io::IsTerminal;

use console::{Style, Term, strip_ansi_codes};

use super::Appearance;
use crate::chart::scale::grade;

/// Width if neither `COLUMNS` is set nor standard output is a terminal.
const WIDTH_DEFAULT: usize = 100;

/// Widths in use: longer lines are hard to read, and shorter ones have no space for a table's
/// columns.
const WIDTHS: std::ops::RangeInclusive<usize> = 40..=120;

/// Format of the output.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Width in columns.
    pub width: usize,
    /// Whether to use colours.
    pub colours: bool,
    /// Whether to use characters outside of ASCII.
    pub unicode: bool,
    /// Most rows of the tables of tensors.
    pub tensors: usize,
}

impl Look {
    /// The simplest terminal.
    pub const PLAIN: Look = Look {
        width: 80,
        colours: false,
        unicode: false,
        tensors: 5,
    };

    /// Format for standard output and the environment.
    pub fn of_stdout(tensors: usize) -> Self {
        let variable = |name: &str| std::env::var_os(name);
        let terminal = std::io::stdout().is_terminal();
        let size = terminal.then(|| Term::stdout().size_checked()).flatten();
        Self {
            width: width(variable, size.map(|(_, columns)| columns.into())),
            colours: terminal && colours_wanted(variable),
            unicode: unicode(variable),
            tensors,
        }
    }

    /// Formats the title of a section.
    pub fn title(&self, text: &str) -> String {
        self.style().bold().apply_to(text).to_string()
    }

    /// Formats less important text.
    pub fn dim(&self, text: &str) -> String {
        self.style().dim().apply_to(text).to_string()
    }

    /// Formats text that needs attention.
    pub fn warn(&self, text: &str) -> String {
        self.style().yellow().apply_to(text).to_string()
    }

    /// Grade of a position on a colour scale, on a background from green (0) to red (9).
    pub fn heat(&self, at: f64) -> String {
        const GROUNDS: [u8; 10] = [71, 107, 143, 149, 185, 221, 215, 209, 203, 160];
        let grade = grade(at);
        let style = self.style().on_color256(GROUNDS[grade]).black();
        style.apply_to(grade).to_string()
    }

    /// Bar of `width` characters, divided in proportion to the categories' shares; every category
    /// with a share above 0 gets at least one character.
    pub fn bar(shares: &[(&Appearance, f64)], width: usize) -> String {
        let lengths = lengths(shares.iter().map(|(_, share)| *share).collect(), width);
        let cells = shares.iter().zip(lengths).filter(|(_, length)| *length > 0);
        cells.map(|((one, _), length)| one.cells(length)).collect()
    }

    /// Text as the terminal can show it: without colours if it has none, and in ASCII if it cannot
    /// show Unicode.
    pub fn shown(&self, text: &str) -> String {
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
pub fn harmless(name: &str) -> String {
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
    let length = |exact: &f64| (*exact as usize).max(usize::from(*exact > 0.0));
    let mut lengths: Vec<usize> = exact.iter().map(length).collect();
    while lengths.iter().sum::<usize>() < width {
        let remainder = |index: &usize| exact[*index] - lengths[*index] as f64;
        let by_remainder = |a: &usize, b: &usize| remainder(a).total_cmp(&remainder(b));
        let most = (0..lengths.len()).max_by(by_remainder);
        lengths[most.expect("a sum above 0 has terms")] += 1;
    }
    while lengths.iter().sum::<usize>() > width {
        match lengths.iter_mut().max() {
            Some(longest) if *longest > 1 => *longest -= 1,
            _ => break,
        }
    }
    lengths
}

/// Characters outside of ASCII, and below them the most similar ASCII characters of the same width;
/// less than half of a character is a space.
const UNICODE: &str = "░▚▒▞▖█▌▋▊▉▏▎▍▝▘µμαβ·×–—−→…±⁹“”’\u{a0}\u{202f}";
const ASCII: &str = ".wnp<#####   >%uuab**--->~~9\"\"'  ";

/// Most similar ASCII character, of the same width.
fn ascii(c: char) -> char {
    let mut pairs = UNICODE.chars().zip(ASCII.chars());
    match pairs.find(|(unicode, _)| *unicode == c) {
        Some((_, ascii)) => ascii,
        None if c.is_ascii() => c,
        None => '?',
    }
}

/// Width in columns: that of the variable `COLUMNS`, else of the terminal.
fn width(variable: impl Fn(&str) -> Option<OsString>, terminal: Option<usize>) -> usize {
    let columns = variable("COLUMNS").and_then(|columns| columns.to_str()?.parse().ok());
    let columns = columns.filter(|columns| *columns > 0).or(terminal);
    columns
        .unwrap_or(WIDTH_DEFAULT)
        .clamp(*WIDTHS.start(), *WIDTHS.end())
}

fn colours_wanted(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let refused = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = variable("TERM").is_none_or(|term| term == "dumb");
    !refused && !dumb
}

/// Whether the locale uses Unicode: the first of these variables that is set decides, as in POSIX.
fn unicode(variable: impl Fn(&str) -> Option<OsString>) -> bool {
    let set = |name: &&str| variable(name).filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(set)
        .unwrap_or_default();
    let locale = locale.to_string_lossy().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Look = Look::PLAIN;

    #[test]
    fn a_bar_has_its_width_and_every_category_with_a_share() {
        let [a, b, c, d] = ['░', '▞', '▒', '█'].map(|cell| Appearance {
            meaning: "",
            colour: "",
            light: "",
            dark: "",
            hatch: "",
            cell,
            ansi: 1,
        });
        let shares = [(&a, 0.5), (&b, 0.0), (&c, 0.001), (&d, 0.499)];
        assert_eq!(PLAIN.shown(&Look::bar(&shares, 10)), ".....n####");
        assert_eq!(Look::bar(&[(&a, 0.0)], 10), "");
        assert_eq!(Look::bar(&[(&a, f64::NAN)], 10), "");
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
        let refused = env(&[("TERM", "xterm"), ("NO_COLOR", "1")]);
        assert!(!colours_wanted(refused) && !colours_wanted(env(&[("TERM", "dumb")])));
        assert_eq!(width(env(&[]), None), WIDTH_DEFAULT);
        assert_eq!(width(env(&[]), Some(90)), 90);
        assert_eq!(width(env(&[("COLUMNS", "64")]), Some(90)), 64);
        assert_eq!(width(env(&[("COLUMNS", "x")]), Some(500)), *WIDTHS.end());
    }

    #[test]
    fn names_cannot_command_the_terminal() {
        assert_eq!(harmless("a\x1b[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
        assert_eq!(PLAIN.shown("12 µs · α"), "12 us * a");
    }
}
