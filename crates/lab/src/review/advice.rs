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
        let keeps_default = gain
            .default
            .is_some_and(|default| default.is_near(&advice.setting));
        let is_default = |setting: &Setting| gain.default.is_some_and(|of| of.is_near(setting));
        let measurements = search
            .trials
            .iter()
            .filter(|trial| is_default(&trial.setting))
            .count();
        let evidence = Evidence {
            baseline_measurements: (!keeps_default).then_some(measurements as u64),
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
        let again = "0,0,0,1,1,128,500,sample,2,8,100,2,,\n";
        assert_eq!(
            advice(RONDE, &format!("{faster}{again}")),
            (4.0, Reason::Choice)
        );
        let verdict = format!("{near}{again}0,0,0,1,1,4,500,final,,60,99,,,\n");
        assert_eq!(advice(RONDE, &verdict), (4.0, Reason::Verdict));
    }

    #[test]
    fn a_default_that_was_not_measured_twice_supports_no_recommendation() {
        let of_ronde =
            "0,0,0,1,1,128,500,default,0,10,100,2,,\n0,0,0,1,1,4,500,sample,1,8,50,0.5,,\n";
        let never = "0,0,0, 1,5,4,424\n0,0,0, 1,50,32,491\n0,0,0, 1,25,16,480\n";
        let once = format!("{never}0,0,0, 1,1,128,300\n");
        for (header, rows, measurements) in [
            (RONDE, of_ronde, 1),
            (HOROVOD, never, 0),
            (HOROVOD, &once, 1),
        ] {
            let review = reviewed(header, rows);
            assert_eq!(
                review.withheld,
                Some(Withheld::BaselineOnce { measurements })
            );
            assert!(review.advice.is_none() && review.best.is_some());
        }
        let twice = reviewed(
            HOROVOD,
            &format!("{once}0,0,0, 1,1,128,301\n0,0,0, 1,50,32,490\n"),
        );
        assert!(
            twice.withheld.is_none() && twice.advice.is_some(),
            "{:?}",
            twice.withheld
        );
    }

    #[test]
    fn a_lucky_choice_gives_way_to_the_favourite() {
        // Fast near 32 MiB, slow near 2 MiB, where one trial was lucky; the default is slowest.
        let row = |i: usize| {
            let (fast, slow) = (600 + 9 * (i % 3), 400 + 9 * (i % 3));
            let slowest = 200 + 9 * (i % 3);
            let (large, small) = (30 + i, 2.0 + 0.1 * i as f64);
            format!(
                "0,0,0, 1,5,{large},{fast}\n0,0,0, 1,5,{small},{slow}\n0,0,0, 1,1,128,{slowest}\n"
            )
        };
        let rows: String = (0..10).map(row).collect();
        let (fusion_mb, reason) = advice(HOROVOD, &(rows + "0,0,0, 1,5,2.45,640\n"));
        assert!(
            reason == Reason::Favourite && fusion_mb >= 30.0,
            "{fusion_mb} {reason:?}"
        );
    }
}
