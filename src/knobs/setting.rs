//! Parsing and printing of knob values; parsing a printed value returns the same value.

use super::knob::{ALPHA_US_MAX, CORE_MAX};
use super::knob::{GB_PER_S_MAX, GB_PER_S_MIN, Kind};
use super::values::{AutotuneStart, Backend, Link, LogLevel, StepRange, TimelineTarget};
use ronde_job::settings::{CYCLE_TIME_MS_MAX, FUSION_THRESHOLD_BYTES_MAX};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// Type of a knob's value.
pub(super) trait Setting: Sized {
    /// Parses `text`; `None` if it is not one of the values that `kind` describes.
    fn read(text: &OsStr, kind: &Kind) -> Option<Self>;
    /// Prints the value so that [`Setting::read`] returns it; "none" prints as the empty text.
    fn print(&self) -> OsString;
}

impl Setting for bool {
    fn read(text: &OsStr, kind: &Kind) -> Option<bool> {
        let value: i64 = trimmed(text)?.parse().ok()?;
        match kind {
            Kind::Switch => Some(value > 0),
            Kind::SwitchNonzero => Some(value != 0),
            _ => None,
        }
    }

    fn print(&self) -> OsString {
        if *self { "1".into() } else { "0".into() }
    }
}

impl Setting for u64 {
    fn read(text: &OsStr, kind: &Kind) -> Option<u64> {
        let text = trimmed(text)?;
        match *kind {
            Kind::Count { min, max, .. } => text
                .parse()
                .ok()
                .filter(|value| (min..=max).contains(value)),
            Kind::Bytes { max } => bytes(text).filter(|value| *value <= max),
            _ => None,
        }
    }

    fn print(&self) -> OsString {
        self.to_string().into()
    }
}

impl Setting for u32 {
    fn read(text: &OsStr, kind: &Kind) -> Option<u32> {
        u64::read(text, kind)?.try_into().ok()
    }

    fn print(&self) -> OsString {
        self.to_string().into()
    }
}

impl Setting for usize {
    fn read(text: &OsStr, kind: &Kind) -> Option<usize> {
        u64::read(text, kind)?.try_into().ok()
    }

    fn print(&self) -> OsString {
        self.to_string().into()
    }
}

impl Setting for f64 {
    fn read(text: &OsStr, kind: &Kind) -> Option<f64> {
        let Kind::Real { min, max, .. } = *kind else {
            return None;
        };
        number(trimmed(text)?, min, max)
    }

    fn print(&self) -> OsString {
        self.to_string().into()
    }
}

impl Setting for PathBuf {
    fn read(text: &OsStr, _: &Kind) -> Option<PathBuf> {
        (!text.is_empty()).then(|| text.into())
    }

    fn print(&self) -> OsString {
        self.clone().into()
    }
}

impl Setting for String {
    fn read(text: &OsStr, kind: &Kind) -> Option<String> {
        let Kind::Label { max } = *kind else {
            return None;
        };
        let text = trimmed(text)?;
        let printable = text.bytes().all(|byte| byte.is_ascii_graphic());
        (printable && (1..=max).contains(&text.len())).then(|| text.to_owned())
    }

    fn print(&self) -> OsString {
        self.into()
    }
}

impl Setting for LogLevel {
    fn read(text: &OsStr, _: &Kind) -> Option<LogLevel> {
        Some(LogLevel::ALL[word(text, LogLevel::WORDS)?])
    }

    fn print(&self) -> OsString {
        LogLevel::WORDS[*self as usize].into()
    }
}

impl Setting for Backend {
    fn read(text: &OsStr, _: &Kind) -> Option<Backend> {
        Some(Backend::ALL[word(text, Backend::WORDS)?])
    }

    fn print(&self) -> OsString {
        Backend::WORDS[*self as usize].into()
    }
}

impl Setting for TimelineTarget {
    fn read(text: &OsStr, kind: &Kind) -> Option<TimelineTarget> {
        if text == "DYNAMIC" {
            return Some(TimelineTarget::Dynamic);
        }
        PathBuf::read(text, kind).map(TimelineTarget::File)
    }

    fn print(&self) -> OsString {
        match self {
            TimelineTarget::File(path) => path.print(),
            TimelineTarget::Dynamic => "DYNAMIC".into(),
        }
    }
}

impl Setting for Vec<usize> {
    fn read(text: &OsStr, _: &Kind) -> Option<Vec<usize>> {
        let core = |part: &str| part.trim().parse().ok().filter(|core| *core <= CORE_MAX);
        match trimmed(text)? {
            "" => Some(Vec::new()),
            text => text.split(',').map(core).collect(),
        }
    }

    fn print(&self) -> OsString {
        self.iter()
            .map(usize::to_string)
            .collect::<Vec<_>>()
            .join(",")
            .into()
    }
}

impl Setting for Link {
    fn read(text: &OsStr, _: &Kind) -> Option<Link> {
        let (alpha, bandwidth) = trimmed(text)?.split_once(',')?;
        Some(Link {
            alpha_us: number(alpha.trim(), 0.0, ALPHA_US_MAX)?,
            gb_per_s: number(bandwidth.trim(), GB_PER_S_MIN, GB_PER_S_MAX)?,
        })
    }

    fn print(&self) -> OsString {
        format!("{},{}", self.alpha_us, self.gb_per_s).into()
    }
}

impl Setting for StepRange {
    fn read(text: &OsStr, _: &Kind) -> Option<StepRange> {
        let (first, last) = trimmed(text)?.split_once("..")?;
        let first = first.trim().parse().ok().filter(|&first| first > 0)?;
        let last = match last.trim() {
            "" => None,
            last => Some(last.parse().ok().filter(|&last| last >= first)?),
        };
        Some(StepRange { first, last })
    }

    fn print(&self) -> OsString {
        let last = self.last.map_or_else(String::new, |last| last.to_string());
        format!("{}..{last}", self.first).into()
    }
}

impl Setting for AutotuneStart {
    fn read(text: &OsStr, _: &Kind) -> Option<AutotuneStart> {
        let fusion_mb_max = (FUSION_THRESHOLD_BYTES_MAX >> 20) as f64;
        let mut start = AutotuneStart::default();
        for part in trimmed(text)?.split(',') {
            let (name, value) = part.split_once('=')?;
            let (slot, max) = match name.trim() {
                "fusion_mb" => (&mut start.fusion_mb, fusion_mb_max),
                "cycle_ms" => (&mut start.cycle_ms, CYCLE_TIME_MS_MAX),
                _ => return None,
            };
            if slot.replace(number(value.trim(), 0.0, max)?).is_some() {
                return None; // the setting is given twice
            }
        }
        Some(start)
    }

    fn print(&self) -> OsString {
        let part = |name, value: Option<f64>| value.map(|value| format!("{name}={value}"));
        let parts = [
            part("fusion_mb", self.fusion_mb),
            part("cycle_ms", self.cycle_ms),
        ];
        parts
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(",")
            .into()
    }
}

impl<T: Setting> Setting for Option<T> {
    fn read(text: &OsStr, kind: &Kind) -> Option<Option<T>> {
        if text.is_empty() {
            Some(None)
        } else {
            T::read(text, kind).map(Some)
        }
    }

    fn print(&self) -> OsString {
        self.as_ref().map_or_else(OsString::new, T::print)
    }
}

fn trimmed(text: &OsStr) -> Option<&str> {
    text.to_str().map(str::trim)
}

fn number(text: &str, min: f64, max: f64) -> Option<f64> {
    // The range test also refuses NaN and the infinities, which `parse` accepts.
    text.parse()
        .ok()
        .filter(|value| (min..=max).contains(value))
}

pub(super) fn word(text: &OsStr, words: &[&str]) -> Option<usize> {
    let text = trimmed(text)?;
    words
        .iter()
        .position(|word| word.eq_ignore_ascii_case(text))
}

/// Parses `134217728`, `128M`, `128MB` or `128MiB` as a number of bytes.
fn bytes(text: &str) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let shift = match text[digits..].trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_binary_suffixes() {
        let table = [
            ("0", Some(0)),
            ("134217728", Some(128 << 20)),
            ("64MB", Some(64 << 20)),
            ("1 MiB", Some(1 << 20)),
            ("3k", Some(3072)),
            ("2G", Some(2 << 30)),
            ("", None),
            ("MB", None),
            ("-1", None),
            ("1.5M", None),
            ("1T", None),
            ("18446744073709551615K", None),
        ];
        for (text, expected) in table {
            assert_eq!(bytes(text), expected, "{text:?}");
        }
    }

    #[test]
    fn switches_have_two_styles_and_refuse_invalid_text() {
        let table = [
            ("1", Some(true), Some(true)),
            ("7", Some(true), Some(true)),
            ("0", Some(false), Some(false)),
            ("-1", Some(false), Some(true)),
            ("true", None, None),
            ("1.0", None, None),
        ];
        for (text, positive, nonzero) in table {
            let read = |kind| bool::read(OsStr::new(text), &kind);
            assert_eq!(read(Kind::Switch), positive, "{text:?}");
            assert_eq!(read(Kind::SwitchNonzero), nonzero, "{text:?}");
        }
    }

    #[test]
    fn numbers_that_are_not_finite_are_refused() {
        let kind = Kind::Real {
            unit: "ms",
            min: 0.0,
            max: 10.0,
        };
        for text in ["nan", "inf", "-0.1", "10.01", "", "1ms"] {
            assert_eq!(f64::read(OsStr::new(text), &kind), None, "{text:?}");
        }
        assert_eq!(f64::read(OsStr::new(" 0.25 "), &kind), Some(0.25));
    }

    #[test]
    fn a_start_gives_each_setting_at_most_once() {
        let read = |text| AutotuneStart::read(OsStr::new(text), &Kind::Start);
        assert_eq!(
            read("fusion_mb=0,cycle_ms=25"),
            Some(AutotuneStart {
                fusion_mb: Some(0.0),
                cycle_ms: Some(25.0)
            })
        );
        assert_eq!(
            read("cycle_ms=2.5"),
            Some(AutotuneStart {
                fusion_mb: None,
                cycle_ms: Some(2.5)
            })
        );
        for text in [
            "fusion_mb",
            "fusion_mb=1,fusion_mb=2",
            "cache=1",
            "cycle_ms=-1",
            "cycle_ms=1,",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }

    #[test]
    fn links_need_both_numbers() {
        let read = |text| Link::read(OsStr::new(text), &Kind::Link);
        assert_eq!(
            read("1000,2.5"),
            Some(Link {
                alpha_us: 1000.0,
                gb_per_s: 2.5
            })
        );
        for text in ["1000", "1000,0", "-1,1", "1,2,3", "a,b"] {
            assert_eq!(read(text), None, "{text:?}");
        }
    }
}
