//! Stall inspector: reports the tensors that some ranks wait for, and the ranks that have not
//! submitted them.
//!
//! Rank 0 passes the outstanding tensors. The inspector returns the text of a warning, in Horovod's
//! form (`horovod/common/stall_inspector.cc`), and an error once the shutdown limit has passed. It
//! reads no clock and writes no log, except for one warning when it is made.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use crate::clock::Nanos;
use crate::error::{Error, NegotiationError};

/// Number of names listed for each missing rank.
const NAMES_MAX: usize = 6;

/// A tensor that some ranks have submitted and others have not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outstanding<'a> {
    /// Name of the tensor.
    pub tensor: &'a str,
    /// Time since which it is outstanding.
    pub since: Nanos,
    /// Its ranks; `None` if they are not known yet.
    pub ranks: Option<&'a PendingRanks>,
}

/// Job ranks that have submitted a tensor, and those that have not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PendingRanks {
    pub(crate) submitted: Vec<usize>,
    pub(crate) missing: Vec<usize>,
}

/// Result of a check; empty if no tensor has stalled.
#[derive(Clone, Debug, Default)]
pub(crate) struct StallReport {
    /// Text for the log: a warning, or an error if `error` is set.
    pub text: Option<String>,
    /// Error to end the job with: the shutdown limit has passed.
    pub error: Option<Error>,
    /// A report is due, and follows when the ranks of all tensors are known.
    pub needs_ranks: bool,
}

/// Limits, and the tensors that were reported.
#[derive(Clone, Debug)]
pub(crate) struct StallInspector {
    warn_after: Duration,
    shutdown_after: Option<Duration>,
    warned: Option<Nanos>,
    next_check: Nanos,
}

impl StallInspector {
    /// Makes an inspector that warns about tensors that have waited for `warn_after`, again after
    /// each such interval, and ends the job after `shutdown_after`. A shutdown limit below the
    /// warning time is ignored with a warning, as in Horovod.
    pub(crate) fn new(warn_after: Duration, shutdown_after: Option<Duration>) -> Self {
        let kept = shutdown_after.filter(|limit| *limit >= warn_after);
        if let (Some(limit), None) = (shutdown_after, kept) {
            tracing::warn!(
                "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS={} is ignored: it is below \
                 HOROVOD_STALL_CHECK_TIME_SECONDS={}; set it to at least that",
                limit.as_secs(),
                warn_after.as_secs()
            );
        }
        Self {
            warn_after,
            shutdown_after: kept,
            warned: None,
            next_check: Nanos(0),
        }
    }

    /// Returns the earliest time at which another check can report a tensor, from the last
    /// [`check`](Self::check). Earlier checks are harmless.
    pub(crate) fn next_check(&self) -> Nanos {
        self.next_check
    }

    /// Checks all tensors that are outstanding at `now`.
    pub(crate) fn check<'a>(
        &mut self,
        now: Nanos,
        outstanding: impl IntoIterator<Item = Outstanding<'a>>,
    ) -> StallReport {
        let may_warn = self
            .warned
            .is_none_or(|warned| now >= warned + self.warn_after);
        let mut stalled: Vec<Outstanding<'a>> = Vec::new();
        // A tensor that begins to wait from now on is reported later than this.
        let mut next_check = now + self.warn_after;
        let mut over = false;
        for tensor in outstanding {
            let since = tensor.since;
            if let Some(limit) = self.shutdown_after {
                over |= now >= since + limit;
                next_check = next_check.min(since + limit);
            }
            if now >= since + self.warn_after {
                stalled.push(tensor);
            } else {
                next_check = next_check.min(since + self.warn_after);
            }
        }
        let mut report = StallReport::default();
        if !stalled.is_empty() && (may_warn || over) {
            report.needs_ranks = stalled.iter().any(|stalled| stalled.ranks.is_none());
            if !report.needs_ranks {
                stalled.sort_unstable_by_key(|stalled| (stalled.since, stalled.tensor));
                report = self.report(now, &stalled);
                self.warned = Some(now);
            }
        } else if let Some(warned) = self.warned.filter(|_| !stalled.is_empty()) {
            next_check = next_check.min(warned + self.warn_after);
        }
        self.next_check = next_check;
        report
    }

    /// Writes the report of the `stalled` tensors, oldest first.
    fn report(&self, now: Nanos, stalled: &[Outstanding<'_>]) -> StallReport {
        let mut lines: BTreeMap<usize, Line<'_>> = BTreeMap::new();
        let mut error = None;
        for &Outstanding {
            tensor,
            since,
            ranks,
        } in stalled
        {
            let Some(ranks) = ranks else { continue };
            let limit = self.shutdown_after.filter(|limit| now >= since + *limit);
            for &rank in &ranks.missing {
                let line = lines.entry(rank).or_default();
                line.over |= limit.is_some();
                if line.names.len() < NAMES_MAX {
                    line.names.push(tensor);
                } else {
                    line.more = true;
                }
            }
            if let (Some(limit), None) = (limit, &error) {
                error = Some(Error::Negotiation(NegotiationError::Stalled {
                    tensor: tensor.to_owned(),
                    submitted: ranks.submitted.clone(),
                    missing: ranks.missing.clone(),
                    waited_seconds: now.since(since).as_secs(),
                    limit_seconds: limit.as_secs(),
                }));
            }
        }
        let mut text = format!(
            "Some ranks have been waiting for more than {} s for tensors that others have not submitted. Every rank \
             must submit the same tensors: check whether the missing ranks take another branch, have run out of data, \
             or are busy elsewhere.",
            self.warn_after.as_secs()
        );
        if error.is_some() {
            text.push_str(" Will shutdown.");
        }
        text.push_str("\nMissing ranks:");
        for (rank, line) in &lines {
            let (mark, more) = (
                if line.over { "!" } else { "" },
                if line.more { " ..." } else { "" },
            );
            // Writing to a `String` cannot fail.
            let _ = write!(text, "\n{rank}{mark}: [{}{more}]", line.names.join(", "));
        }
        StallReport {
            text: Some(text),
            error,
            needs_ranks: false,
        }
    }
}

/// Line of the report for one rank: the tensors that it has not submitted.
#[derive(Debug, Default)]
struct Line<'a> {
    names: Vec<&'a str>,
    more: bool,
    over: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    fn waiting<'a>(tensor: &'a str, since: u64, missing: &[usize]) -> Outstanding<'a> {
        let ranks = PendingRanks {
            submitted: vec![0],
            missing: missing.to_vec(),
        };
        Outstanding {
            tensor,
            since: at(since),
            ranks: Some(Box::leak(Box::new(ranks))),
        }
    }

    fn inspector(warn: u64, shutdown: Option<u64>) -> StallInspector {
        StallInspector::new(Duration::from_secs(warn), shutdown.map(Duration::from_secs))
    }

    const HEAD: &str = "Some ranks have been waiting for more than 60 s for tensors that others have not submitted. \
                        Every rank must submit the same tensors: check whether the missing ranks take another branch, \
                        have run out of data, or are busy elsewhere.";

    #[test]
    fn the_warning_names_ranks_and_up_to_six_tensors_each() {
        let names: Vec<String> = (0..8).map(|k| format!("g{k}")).collect();
        let mut outstanding: Vec<_> = names.iter().map(|name| waiting(name, 10, &[3])).collect();
        outstanding.push(waiting("loss", 5, &[1, 3]));
        outstanding.push(waiting("young", 30, &[2]));
        let report = inspector(60, None).check(at(75), outstanding);
        let expected =
            format!("{HEAD}\nMissing ranks:\n1: [loss]\n3: [loss, g0, g1, g2, g3, g4 ...]");
        assert_eq!(report.text.as_deref(), Some(&*expected));
        assert!(report.error.is_none());
    }

    #[test]
    fn it_warns_again_each_interval_and_returns_the_next_check() {
        let mut inspector = inspector(60, None);
        let mut check = |now| {
            let warned = inspector
                .check(at(now), [waiting("a", 10, &[1])])
                .text
                .is_some();
            (warned, inspector.next_check())
        };
        assert_eq!(check(20), (false, at(70)));
        assert_eq!(check(69), (false, at(70)));
        assert_eq!(check(70), (true, at(130)));
        assert_eq!(check(100), (false, at(130)));
        assert_eq!(check(130), (true, at(190)));
        let none: [Outstanding<'_>; 0] = [];
        assert!(inspector.check(at(200), none).text.is_none());
        assert_eq!(inspector.next_check(), at(260));
    }

    #[test]
    fn a_due_report_waits_until_the_ranks_of_all_tensors_are_known() {
        let mut inspector = inspector(60, Some(90));
        let unknown = Outstanding {
            ranks: None,
            ..waiting("b", 20, &[1])
        };
        let mut check = |now, other| {
            let report = inspector.check(at(now), [waiting("a", 0, &[2]), other]);
            (
                report.needs_ranks,
                report.text.is_some(),
                report.error.is_some(),
            )
        };
        // `b` is not reported yet, so its ranks are not needed.
        assert_eq!(check(59, unknown), (false, false, false));
        assert_eq!(check(70, unknown), (false, true, false));
        assert_eq!(check(85, unknown), (false, false, false), "it has warned");
        assert_eq!(check(90, unknown), (true, false, false));
        assert_eq!(check(90, waiting("b", 20, &[1])), (false, true, true));
    }

    #[test]
    fn beyond_the_shutdown_limit_the_ranks_are_marked_and_the_job_ends() {
        let mut inspector = inspector(60, Some(90));
        let outstanding = || [waiting("a", 0, &[2]), waiting("b", 20, &[1])];
        assert!(inspector.check(at(80), outstanding()).error.is_none());
        assert_eq!(inspector.next_check(), at(90));
        let report = inspector.check(at(90), outstanding());
        let expected = format!("{HEAD} Will shutdown.\nMissing ranks:\n1: [b]\n2!: [a]");
        assert_eq!(report.text.as_deref(), Some(&*expected));
        let text = report.error.map(|error| error.to_string());
        let expected = "tensor a was submitted by ranks [0] and missing on ranks [2] for 90 s \
                        (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=90); \
                        make every rank submit the same tensors";
        assert_eq!(text.as_deref(), Some(expected));
    }

    #[test]
    fn a_shutdown_limit_below_the_warning_time_is_ignored() {
        let report = inspector(60, Some(30)).check(at(100), [waiting("a", 0, &[1])]);
        assert!(report.text.is_some() && report.error.is_none());
    }
}
