//! Step signatures: which steps are measured for tuning. A step's signature is a hash of its
//! operations, types and sizes.
//!
//! A job may have steps of several signatures: a phase that trains other layers, a validation whose
//! steps are marked, a last batch of another size. Times of different signatures cannot be
//! compared, so only the steps of one are measured, and the others are skipped. When another
//! signature occurs for so long that it is no exception, the search turns to it; sooner if it has a
//! search of that signature, or has no results yet. In a job that changes back and forth it turns
//! more and more slowly, so that it tunes a signature and not the change.
//!
//! If hardly any two steps are alike (tensors that are still in flight at the marks), signatures
//! are useless, and all steps count.

use std::collections::VecDeque;

/// Consecutive steps of another signature after which the search turns to it; and the number if
/// little is lost by that.
const STEPS_TO_TURN: u32 = 8;
const STEPS_TO_RETURN: u32 = 3;
/// A turn sooner than this after the last doubles the steps that the next one needs, up to this
/// factor.
const CALM_STEPS: u64 = 64;
const PATIENCE_MOST: u32 = 16;
/// Length of the history; number of steps in it that make a signature common, and number below
/// which it is rare.
const LOOK_BACK: usize = 32;
const COMMON: usize = 8;
const RARE: usize = 4;
/// Consecutive steps of the same signature that determine the job's first one.
const ALIKE: u32 = 2;

/// Role of a step for the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// A step that is measured.
    Ours,
    /// A step of another signature.
    Other,
    /// A step of another signature, which is now the job's: [`Signatures::turn_to`] follows, or the
    /// search stays.
    Turned,
}

/// Tracks the signatures of the steps, and selects the one that is tuned.
#[derive(Debug)]
pub(super) struct Signatures {
    ours: Option<u64>,
    /// Consecutive steps with the last step's signature.
    run: u32,
    /// Signatures of the last steps.
    recent: VecDeque<u64>,
    steps: u64,
    /// Number of the step of the last turn.
    turned: Option<u64>,
    patience: u32,
}

impl Default for Signatures {
    fn default() -> Self {
        Self {
            ours: None,
            run: 0,
            recent: VecDeque::new(),
            steps: 0,
            turned: None,
            patience: 1,
        }
    }
}

impl Signatures {
    /// Number of steps so far, except those without tensors.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the tuned signature, if the last steps had it.
    pub(super) fn settled(&self) -> Option<u64> {
        let is_last = |ours: &u64| self.recent.back() == Some(ours) && self.run >= ALIKE;
        self.ours.filter(is_last)
    }

    /// Classifies a step of `signature`; `soon`: the search may turn to it after fewer steps.
    pub(super) fn observe(&mut self, signature: u64, soon: bool) -> Seen {
        if signature == 0 {
            return Seen::Other; // no data was moved: settings have no effect on it
        }
        self.steps += 1;
        self.run = if self.recent.back() == Some(&signature) {
            self.run.saturating_add(1)
        } else {
            1
        };
        if self.recent.len() == LOOK_BACK {
            self.recent.pop_front();
        }
        self.recent.push_back(signature);
        let ours = *self.ours.get_or_insert(signature);
        if signature == ours {
            return Seen::Ours;
        }
        let needed = if soon { STEPS_TO_RETURN } else { STEPS_TO_TURN };
        if self.run >= needed * self.patience {
            return Seen::Turned;
        }
        if self.recent.len() < LOOK_BACK || self.count(ours) >= RARE {
            return Seen::Other;
        }
        // The tuned signature is rare now, and no other one occurs in consecutive steps.
        let most = self
            .recent
            .iter()
            .map(|&signature| self.count(signature))
            .max();
        match most {
            Some(most) if most < COMMON => Seen::Ours, // signatures cannot be distinguished
            Some(most) if most == self.count(signature) => Seen::Turned,
            _ => Seen::Other,
        }
    }

    /// Selects `signature` at the start of tuning: the earlier choice was not typical of the job.
    pub(super) fn begin_with(&mut self, signature: u64) {
        self.ours = Some(signature);
    }

    /// Selects `signature` from now on.
    pub(super) fn turn_to(&mut self, signature: u64) {
        let hasty = self
            .turned
            .is_some_and(|turned| self.steps - turned < CALM_STEPS);
        self.patience = if hasty {
            (2 * self.patience).min(PATIENCE_MOST)
        } else {
            1
        };
        self.turned = Some(self.steps);
        self.ours = Some(signature);
    }

    fn count(&self, signature: u64) -> usize {
        self.recent
            .iter()
            .filter(|&&recent| recent == signature)
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Classifies steps of these signatures, one letter each; those in `known` were tuned before.
    /// `.`: measured, `-`: others, `>`: a turn.
    fn seen(signatures: &mut Signatures, known: &str, steps: &str) -> String {
        let seen =
            |letter: char| match signatures.observe(u64::from(letter), known.contains(letter)) {
                Seen::Ours => '.',
                Seen::Other => '-',
                Seen::Turned => {
                    signatures.turn_to(u64::from(letter));
                    '>'
                }
            };
        steps.chars().map(seen).collect()
    }

    #[test]
    fn a_step_now_and_then_of_another_shape_passes_by() {
        let mut signatures = Signatures::default();
        assert_eq!(
            seen(&mut signatures, "", "aaaabaaaabbbbbbbaab"),
            "....-....-------..-"
        );
        assert_eq!(signatures.settled(), None);
        assert_eq!(seen(&mut signatures, "", "a"), ".");
        assert_eq!(signatures.settled(), None);
        assert_eq!(seen(&mut signatures, "", "a"), ".");
        assert_eq!(signatures.settled(), Some(u64::from('a')));
        assert_eq!(signatures.observe(0, false), Seen::Other);
        assert_eq!(signatures.steps(), 21);
    }

    #[test]
    fn a_new_shape_needs_eight_in_a_row_and_a_known_one_three() {
        let mut signatures = Signatures::default();
        seen(&mut signatures, "", &"a".repeat(100));
        assert_eq!(seen(&mut signatures, "", "bbbbbbbbb"), "------->.");
        seen(&mut signatures, "a", &"b".repeat(100));
        assert_eq!(seen(&mut signatures, "a", "aabaaaa"), "--.-->.");
    }

    #[test]
    fn who_goes_to_and_fro_is_followed_ever_more_patiently() {
        let mut signatures = Signatures::default();
        let job = "aaaaabbbbb".repeat(100);
        let turns = seen(&mut signatures, "ab", &job).matches('>').count();
        // Three consecutive steps turn it twice; then it needs six.
        assert_eq!(turns, 2);
        // The last five and one more. From then on phases are long, and it turns at once again.
        assert_eq!(
            seen(&mut signatures, "ab", &"b".repeat(80)).find('>'),
            Some(0)
        );
        assert_eq!(
            seen(&mut signatures, "ab", &"a".repeat(80)).find('>'),
            Some(2)
        );
        assert_eq!(seen(&mut signatures, "ab", "bbb"), "-->");
    }

    #[test]
    fn in_a_mixture_the_commonest_shape_is_tuned() {
        let mut signatures = Signatures::default();
        // One `a` at the start, then two of three steps are `b`.
        let mixture = format!("a{}", "bbc".repeat(40));
        let told = seen(&mut signatures, "", &mixture);
        assert_eq!(signatures.ours, Some(u64::from('b')));
        assert_eq!(told.matches('>').count(), 1, "{told}");
        assert!(told.ends_with("..-..-..-"), "{told}");
    }

    #[test]
    fn where_no_two_steps_are_alike_all_count() {
        let mut signatures = Signatures::default();
        let told: Vec<Seen> = (1..200)
            .map(|signature| signatures.observe(signature, false))
            .collect();
        assert!(
            told[LOOK_BACK..].iter().all(|&seen| seen == Seen::Ours),
            "{told:?}"
        );
        assert_eq!(signatures.settled(), None);
    }
}
