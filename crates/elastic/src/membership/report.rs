//! Texts about processes and hosts, for the user.

use super::Membership;
use super::process::{Process, Stage};
use crate::health::State;
use std::time::Duration;

impl Process {
    /// Name in messages.
    pub(super) fn name(&self) -> String {
        let host = &self.host;
        match self.rank {
            Some(rank) => format!("rank {rank} on host {host}"),
            None => format!("a new process on host {host}"),
        }
    }
}

/// End of a sentence about a host that is lost: the ranks that it had.
pub(super) fn lost_ranks(ranks: &[usize]) -> String {
    match ranks {
        [] => String::new(),
        [rank] => format!("; rank {rank} is lost"),
        ranks => {
            let ranks: Vec<String> = ranks.iter().map(usize::to_string).collect();
            format!("; ranks {} are lost", ranks.join(", "))
        }
    }
}

impl Membership {
    pub(super) fn resets_exceeded(&self) -> String {
        let (resets, most) = (self.generation, self.limits.resets.unwrap_or(0));
        let cause = self.cause.as_deref().unwrap_or("the hosts have changed");
        format!("the number of resets, {resets}, exceeded limit {most} (--reset-limit): {cause}")
    }

    pub(super) fn none_starts(&self) -> String {
        let cause = self.cause.as_deref().unwrap_or("");
        match self.failed_starts {
            1 => format!("a process has failed before the first step: {cause}"),
            count => format!(
                "{count} processes have failed before the first step; the first one: {cause}"
            ),
        }
    }

    pub(super) fn all_lost(&self) -> String {
        let cause = self.failed_rank.as_ref().or(self.cause.as_ref());
        let cause = cause.map_or("their hosts were removed", String::as_str);
        format!("no rank is left that has the state of the training: {cause}")
    }

    /// Text about the slots or processes that a generation lacks, and why; `is_up`: the time for
    /// them is up.
    pub(super) fn too_few(&self, now: Duration, is_up: bool) -> String {
        let (slots, timeout) = (self.usable_slots(now), self.limits.timeout.as_secs());
        let needed = self.needed();
        let flag = if self.generation == 0 {
            "-np"
        } else {
            "--min-np"
        };
        let after = match is_up {
            true => format!("after {timeout} s (--elastic-timeout), "),
            false => String::new(),
        };
        let hosts: Vec<String> = self
            .hosts
            .iter()
            .map(|(host, slots)| format!("{host}:{slots}{}", self.reason(now, host)))
            .collect();
        let hosts = match hosts.as_slice() {
            [] => "no hosts were found".to_owned(),
            hosts => format!("hosts: {}", hosts.join(", ")),
        };
        let what = if slots < needed {
            format!("{slots} of {needed} slots are available ({flag} {needed})")
        } else {
            let ready = self.of_stage(Stage::Ready).len();
            format!("{ready} of {needed} processes have called init ({flag} {needed})")
        };
        let cause = self
            .cause
            .as_ref()
            .map_or(String::new(), |cause| format!("; {cause}"));
        format!("{after}{what}; {hosts}{cause}")
    }

    fn reason(&self, now: Duration, host: &str) -> String {
        match self.health(host).state(now) {
            State::Usable => String::new(),
            State::CoolingDown { until } => {
                format!(
                    " (failed, used again in {} s)",
                    (until - now).as_secs_f64().ceil()
                )
            }
            State::Barred => " (failed, barred)".to_owned(),
        }
    }
}
