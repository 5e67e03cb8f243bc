//! Which steps are those that are tuned.
//!
//! A job may have steps of several shapes: a phase that trains other layers, a validation whose steps are marked, a last batch of
//! another size. Times of different shapes do not compare, so the steps of one alone are measured, and the others pass by.
//! When another shape comes for so long that it is no exception, the search turns to it, sooner to one that it knows, or if it
//! knows nothing yet. In a job that goes to and fro all the time it becomes more patient, so that a shape is tuned and not the change.
//!
//! Where hardly any two steps are alike (marks that tensors run past) they cannot be told apart, and all count.

use std::collections::VecDeque;

/// Steps in a row of another shape, after which the job is taken to be of it; and where little is lost by that.
const STEPS_TO_TURN: u32 = 8;
const STEPS_TO_RETURN: u32 = 3;
/// A turn sooner than this after the last doubles what the next one takes, up to this many times.
const CALM_STEPS: u64 = 64;
const PATIENCE_MOST: u32 = 16;
/// Steps that are looked back on; so many of one shape are the job's, and so few are an exception.
const LOOK_BACK: usize = 32;
const COMMON: usize = 8;
const RARE: usize = 4;
/// Steps in a row of the same shape that settle the question of what the job's first one is.
const ALIKE: u32 = 2;

/// What a step is to the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// One that counts.
    Ours,
    /// One of another shape.
    Other,
    /// One of another shape, which is now the job's: [`Shapes::turn_to`] follows, or the search stays.
    Turned,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Shapes {
    ours: Option<u64>,
    /// Steps in a row of the last step's shape.
    run: u32,
    /// Shapes of the last steps.
    recent: VecDeque<u64>,
    steps: u64,
    /// The step of the last turn.
    turned: Option<u64>,
    patience: u32,
}

impl Default for Shapes {
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

impl Shapes {
    /// Steps so far, but for those without tensors.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// The shape that is tuned, if the last steps were of it.
    pub(super) fn settled(&self) -> Option<u64> {
        let is_last = |ours: &u64| self.recent.back() == Some(ours) && self.run >= ALIKE;
        self.ours.filter(is_last)
    }

    /// Takes in a step of `shape`, to which the search would turn `soon`.
    pub(super) fn observe(&mut self, shape: u64, soon: bool) -> Seen {
        if shape == 0 {
            return Seen::Other; // nothing was moved: no setting matters to it
        }
        self.steps += 1;
        self.run = if self.recent.back() == Some(&shape) {
            self.run.saturating_add(1)
        } else {
            1
        };
        if self.recent.len() == LOOK_BACK {
            self.recent.pop_front();
        }
        self.recent.push_back(shape);
        let ours = *self.ours.get_or_insert(shape);
        if shape == ours {
            return Seen::Ours;
        }
        let needed = if soon { STEPS_TO_RETURN } else { STEPS_TO_TURN };
        if self.run >= needed * self.patience {
            return Seen::Turned;
        }
        if self.recent.len() < LOOK_BACK || self.count(ours) >= RARE {
            return Seen::Other;
        }
        // What is tuned hardly comes any more, and nothing else comes in a row.
        let most = self.recent.iter().map(|&shape| self.count(shape)).max();
        match most {
            Some(most) if most < COMMON => Seen::Ours, // there is no telling them apart
            Some(most) if most == self.count(shape) => Seen::Turned,
            _ => Seen::Other,
        }
    }

    /// Steps of `shape` are those that count: what was taken for them before was none of the job's.
    pub(super) fn begin_with(&mut self, shape: u64) {
        self.ours = Some(shape);
    }

    /// Steps of `shape` count from now on.
    pub(super) fn turn_to(&mut self, shape: u64) {
        let hasty = self.turned.is_some_and(|turned| self.steps - turned < CALM_STEPS);
        self.patience = if hasty {
            (2 * self.patience).min(PATIENCE_MOST)
        } else {
            1
        };
        self.turned = Some(self.steps);
        self.ours = Some(shape);
    }

    fn count(&self, shape: u64) -> usize {
        self.recent.iter().filter(|&&recent| recent == shape).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of steps of these shapes, a letter each, of which those in `known` were tuned before: `.` ours, `-` others,
    /// `>` a turn.
    fn seen(shapes: &mut Shapes, known: &str, steps: &str) -> String {
        let seen = |letter: char| match shapes.observe(u64::from(letter), known.contains(letter)) {
            Seen::Ours => '.',
            Seen::Other => '-',
            Seen::Turned => {
                shapes.turn_to(u64::from(letter));
                '>'
            }
        };
        steps.chars().map(seen).collect()
    }

    #[test]
    fn a_step_now_and_then_of_another_shape_passes_by() {
        let mut shapes = Shapes::default();
        assert_eq!(
            seen(&mut shapes, "", "aaaabaaaabbbbbbbaab"),
            "....-....-------..-"
        );
        assert_eq!(shapes.settled(), None);
        assert_eq!(seen(&mut shapes, "", "a"), ".");
        assert_eq!(shapes.settled(), None);
        assert_eq!(seen(&mut shapes, "", "a"), ".");
        assert_eq!(shapes.settled(), Some(u64::from('a')));
        assert_eq!(shapes.observe(0, false), Seen::Other);
        assert_eq!(shapes.steps(), 21);
    }

    #[test]
    fn a_new_shape_needs_eight_in_a_row_and_a_known_one_three() {
        let mut shapes = Shapes::default();
        seen(&mut shapes, "", &"a".repeat(100));
        assert_eq!(seen(&mut shapes, "", "bbbbbbbbb"), "------->.");
        seen(&mut shapes, "a", &"b".repeat(100));
        assert_eq!(seen(&mut shapes, "a", "aabaaaa"), "--.-->.");
    }

    #[test]
    fn who_goes_to_and_fro_is_followed_ever_more_patiently() {
        let mut shapes = Shapes::default();
        let job = "aaaaabbbbb".repeat(100);
        let turns = seen(&mut shapes, "ab", &job).matches('>').count();
        // Three in a row turn it twice; then it takes six.
        assert_eq!(turns, 2);
        // The last five and one more; and from then on phases are long, and followed at once again.
        assert_eq!(seen(&mut shapes, "ab", &"b".repeat(80)).find('>'), Some(0));
        assert_eq!(seen(&mut shapes, "ab", &"a".repeat(80)).find('>'), Some(2));
        assert_eq!(seen(&mut shapes, "ab", "bbb"), "-->");
    }

    #[test]
    fn in_a_mixture_the_commonest_shape_is_tuned() {
        let mut shapes = Shapes::default();
        // One `a` at the start, then two of three steps are `b`.
        let mixture = format!("a{}", "bbc".repeat(40));
        let told = seen(&mut shapes, "", &mixture);
        assert_eq!(shapes.ours, Some(u64::from('b')));
        assert_eq!(told.matches('>').count(), 1, "{told}");
        assert!(told.ends_with("..-..-..-"), "{told}");
    }

    #[test]
    fn where_no_two_steps_are_alike_all_count() {
        let mut shapes = Shapes::default();
        let told: Vec<Seen> = (1..200).map(|shape| shapes.observe(shape, false)).collect();
        assert!(
            told[LOOK_BACK..].iter().all(|&seen| seen == Seen::Ours),
            "{told:?}"
        );
        assert_eq!(shapes.settled(), None);
    }
}
