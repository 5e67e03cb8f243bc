//! Recommended setting after a search.

use serde::Serialize;

use super::best::{Best, MATTERS};
use super::gain::Gain;
use super::setting::Setting;
use super::trial::{Search, Writer};
use ronde_job::gate::{Evidence, Withheld};

/// Reason for a recommendation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It is Ronde's verdict, confirmed by the comparison with the default.
    Verdict,
    /// It is the choice of the log, and no other tried setting is better.
    Choice,
    /// Its expected value is better than that of the log's choice.
    Favourite,
    /// It is the default, and no tried setting is certainly faster.
    Default,
}

/// Recommended setting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The setting.
    pub setting: Setting,
    /// The reason.
    pub reason: Reason,
}

impl Advice {
    /// Recommends a setting after a search.
    ///
    /// # Errors
    /// If a setting would replace the default, and the default was measured fewer than two times.
    pub(super) fn of(search: &Search, best: &Best, gain: &Gain) -> Result<Self, Withheld> {
        let advice = Self::unchecked(search, best, gain);
        let trials = search.trials.iter();
        let of_default = trials.filter(|trial| gain.is_default(&trial.setting));
        let replaced = !gain.is_default(&advice.setting);
        let evidence = Evidence {
            baseline_measurements: replaced.then(|| of_default.count() as u64),
            ..Evidence::default()
        };
        evidence.check().map(|()| advice)
    }

    fn unchecked(search: &Search, best: &Best, gain: &Gain) -> Self {
        let choice = best.choice.setting;
        let advice = |setting, reason| Self { setting, reason };
        match (search.writer, &gain.default) {
            (Writer::Ronde, _) if best.is_verdict => advice(choice, Reason::Verdict),
            // Unconfirmed: the default stays unless the trials show that it is slower.
            (_, Some(default)) if gain.by_trials.is_some_and(|gain| gain.low <= 0.0) => {
                advice(*default, Reason::Default)
            }
            _ if best.choice.slower.mean > MATTERS => {
                advice(best.favourite.setting, Reason::Favourite)
            }
            _ => advice(choice, Reason::Choice),
        }
    }
}
