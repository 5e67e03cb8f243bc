//! Formats a relative saving of step time and its interval; a negative one is a slow-down.

/// Smaller shares would be printed as 0.0 % and count as 0.
const NONE: f64 = 0.0005;

/// Direction of a change in step time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sense {
    /// Steps take less time.
    Less,
    /// The difference is shown as 0.
    Same,
    /// Steps take more time.
    More,
}

/// Relative saving of step time; below 0 steps take longer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saved {
    /// Best estimate.
    pub share: f64,
    /// Interval, lower end first.
    pub interval: Option<[f64; 2]>,
}

impl Saved {
    /// Returns the direction.
    pub fn sense(self) -> Sense {
        sense(self.share)
    }

    /// Formats the interval: `1.2 to 3.0 %` if both ends have the sign of the best estimate,
    /// otherwise `between 4.5 % longer and 0.6 % less`. `less` and `more` are the words for the two
    /// directions, `percent` formats a share.
    pub fn range(self, less: &str, more: &str, percent: fn(f64) -> String) -> Option<String> {
        let [low, high] = self.interval?;
        let plain = |from: f64, to: f64| {
            let from = percent(from.abs());
            format!("{} to {}", from.trim_end_matches(" %"), percent(to.abs()))
        };
        let named = |share: f64| match sense(share) {
            Sense::Same => "nothing".to_owned(),
            Sense::Less => format!("{} {less}", percent(share)),
            Sense::More => format!("{} {more}", percent(-share)),
        };
        Some(match (sense(low), self.sense(), sense(high)) {
            (Sense::Less | Sense::Same, Sense::Less, _) => plain(low, high),
            (_, Sense::More, Sense::More | Sense::Same) => plain(high, low),
            _ => format!("between {} and {}", named(low), named(high)),
        })
    }
}

fn sense(share: f64) -> Sense {
    if share >= NONE {
        Sense::Less
    } else if share <= -NONE {
        Sense::More
    } else {
        Sense::Same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(share: f64, interval: [f64; 2]) -> String {
        let saved = Saved {
            share,
            interval: Some(interval),
        };
        let percent = |share| format!("{:.1} %", share * 100.0);
        saved.range("less", "longer", percent).unwrap()
    }

    #[test]
    fn a_range_has_a_direction_wherever_it_has_two() {
        for (share, interval, words) in [
            (0.02, [0.012, 0.03], "1.2 to 3.0 %"),
            (0.02, [-0.012, 0.03], "between 1.2 % longer and 3.0 % less"),
            (
                -0.02,
                [-0.045, 0.006],
                "between 4.5 % longer and 0.6 % less",
            ),
            (-0.02, [-0.045, -0.006], "0.6 to 4.5 %"),
            (0.0, [-0.01, 0.01], "between 1.0 % longer and 1.0 % less"),
            // Ends that are shown as 0 have no direction.
            (0.02, [-0.0001, 0.03], "0.0 to 3.0 %"),
            (-0.02, [-0.03, 0.0001], "0.0 to 3.0 %"),
            (0.0, [-0.0001, 0.01], "between nothing and 1.0 % less"),
        ] {
            assert_eq!(range(share, interval), words, "{share} {interval:?}");
        }
    }

    #[test]
    fn what_is_shown_as_nothing_is_nothing() {
        let sense = |share| {
            Saved {
                share,
                interval: None,
            }
            .sense()
        };
        assert_eq!(
            [0.02, 0.0004, 0.0, -0.0004, -0.02].map(sense),
            [
                Sense::Less,
                Sense::Same,
                Sense::Same,
                Sense::Same,
                Sense::More
            ]
        );
        let bare = Saved {
            share: 0.1,
            interval: None,
        };
        assert_eq!(bare.range("less", "longer", |_| unreachable!()), None);
    }
}
