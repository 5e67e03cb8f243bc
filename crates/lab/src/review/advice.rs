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
    /// If the default was measured fewer than two times and another setting would replace it.
    pub(super) fn of(search: &Search, best: &Best, gain: &Gain) -> Result<Self, Withheld> {
        let advice = Self::unchecked(search, best, gain);
        let at_default = |default: &Setting| {
            let trials = search.trials.iter();
            trials
                .filter(|trial| trial.setting.is_near(default))
                .count() as u64
        };
        let against = gain
            .default
            .filter(|default| !default.is_near(&advice.setting));
        let evidence = Evidence {
            baseline_measurements: against.as_ref().map(at_default),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::tests::reviewed;
    use crate::review::trial::tests::{HOROVOD, RONDE};

    fn advice(header: &str, rows: &str) -> (f64, Reason) {
        let advice = reviewed(header, rows).advice.unwrap();
        (advice.setting.fusion_mb, advice.reason)
    }

    #[test]
    fn the_default_stays_unless_something_is_surely_faster() {
        let default = "0,0,0,1,1,128,500,default,0,10,100,2,,\n";
        let near = format!("{default}0,0,0,1,1,4,500,sample,1,8,99,2,,\n");
        assert_eq!(advice(RONDE, &near), (128.0, Reason::Default));
        let faster = format!("{default}0,0,0,1,1,4,500,sample,1,8,50,0.5,,\n");
        let once = reviewed(RONDE, &faster);
        assert_eq!(
            once.withheld,
            Some(Withheld::BaselineOnce { measurements: 1 })
        );
        assert!(once.advice.is_none());
        let again = "0,0,0,1,1,128,500,sample,2,8,100,2,,\n";
        let faster = format!("{faster}{again}");
        assert_eq!(advice(RONDE, &faster), (4.0, Reason::Choice));
        let verdict = format!("{near}{again}0,0,0,1,1,4,500,final,,60,99,,,\n");
        assert_eq!(advice(RONDE, &verdict), (4.0, Reason::Verdict));
    }

    #[test]
    fn a_lucky_choice_gives_way_to_the_favourite() {
        let mut rows = String::new();
        for i in 0..10 {
            // Fast near 32 MB, slow near 2 MB, where one trial was lucky.
            rows += &format!(
                "0,0,0, 1,5,{},{}\n0,0,0, 1,5,{},{}\n",
                30 + i,
                600 + 9 * (i % 3),
                2.0 + 0.1 * f64::from(i),
                400 + 9 * (i % 3)
            );
        }
        rows += "0,0,0, 1,5,2.45,640\n";
        let (fusion_mb, reason) = advice(HOROVOD, &rows);
        assert!(
            reason == Reason::Favourite && fusion_mb >= 30.0,
            "{fusion_mb} {reason:?}"
        );
    }
}
