//! Tests of the membership: one story each, without faults of the network.

use super::*;
use crate::{Cooldown, Hosts, Seat};

/// Job with one clock, in which processes are what the actions say.
struct Job {
    membership: Membership,
    now: Duration,
}

fn limits(least: usize, most: usize, start: usize) -> Limits {
    Limits {
        least,
        most,
        start,
        timeout: Duration::from_secs(60),
        are_hosts_fixed: false,
        resets: None,
        cooldown: Cooldown::new(10, 100).ok(),
    }
}

impl Job {
    fn new(limits: Limits) -> Self {
        let membership = Membership::new(limits);
        let now = Duration::from_secs(1);
        Self { membership, now }
    }

    fn hosts(&mut self, text: &str) -> Vec<Action> {
        let hosts = Hosts::parse(text, None).unwrap();
        self.membership.hosts(self.now, hosts)
    }

    fn ready(&mut self, member: u64, why: Ready) -> Vec<Action> {
        self.membership.ready(self.now, MemberId(member), why)
    }

    fn failed(&mut self, member: u64, lost: &[usize]) -> Vec<Action> {
        let generation = self.membership.generation();
        let lost = lost.to_vec();
        self.ready(
            member,
            Ready::Failed {
                generation,
                has_state: true,
                lost,
            },
        )
    }

    fn killed(&mut self, member: u64) -> Vec<Action> {
        let exit = Exit::Failure("was killed by signal 9 (SIGKILL)".into());
        self.membership.exited(self.now, MemberId(member), exit)
    }

    fn later(&mut self, seconds: u64) -> Vec<Action> {
        self.now += Duration::from_secs(seconds);
        self.membership.tick(self.now)
    }

    /// Job whose processes 1 to `count` run on the hosts.
    fn running(limits: Limits, hosts: &str, count: u64) -> Self {
        let mut job = Self::new(limits);
        job.hosts(hosts);
        for member in 1..=count {
            job.ready(member, Ready::Started);
        }
        assert_eq!(job.membership.generation(), 1);
        job
    }
}

/// Members that are seated, by rank.
fn seated(actions: &[Action]) -> Vec<u64> {
    let mut seats: Vec<(&Seat, u64)> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Seat { member, seat } => Some((seat, member.0)),
            _ => None,
        })
        .collect();
    seats.sort_by_key(|(seat, _)| seat.rank);
    seats.into_iter().map(|(_, member)| member).collect()
}

fn started(actions: &[Action]) -> Vec<(u64, &str)> {
    let started = actions.iter().filter_map(|action| match action {
        Action::Start { member, host } => Some((member.0, host.as_str())),
        _ => None,
    });
    started.collect()
}

fn failure(actions: &[Action]) -> &str {
    match actions {
        [.., Action::End(Outcome::Failure(text))] => text,
        other => panic!("no failure: {other:?}"),
    }
}

#[test]
fn the_first_generation_waits_for_all_processes_and_then_gets_its_ranks_host_by_host() {
    let mut job = Job::new(limits(2, 8, 3));
    assert_eq!(started(&job.hosts("a:1")), []); // fewer slots than -np
    assert_eq!(
        started(&job.hosts("a:1\nb:2")),
        [(1, "a"), (2, "b"), (3, "b")]
    );
    assert_eq!(job.ready(2, Ready::Started), []);
    assert_eq!(job.ready(1, Ready::Started), []);
    assert_eq!(seated(&job.ready(3, Ready::Started)), [1, 2, 3]);
}

#[test]
fn survivors_continue_at_once_and_the_host_gets_a_new_process_after_its_cooldown() {
    let mut job = Job::running(limits(2, 4, 4), "a:2\nb:2", 4);
    let actions = job.killed(2);
    let over = |member| Action::Over {
        member: MemberId(member),
        generation: 1,
    };
    for member in [1, 3, 4] {
        assert!(actions.contains(&over(member)), "{actions:?}");
    }
    job.failed(1, &[1]);
    job.failed(3, &[1]);
    assert_eq!(seated(&job.failed(4, &[1])), [1, 3, 4]);
    assert_eq!(started(&job.later(9)), []);
    assert_eq!(started(&job.later(1)), [(5, "a")]);
    // Ranks are interrupted when the new process is ready, not before.
    let updated = |member| Action::Updated {
        member: MemberId(member),
        added: true,
        removed: false,
    };
    assert_eq!(
        job.ready(5, Ready::Started),
        [updated(1), updated(3), updated(4)]
    );
    job.ready(3, Ready::Interrupted);
    job.ready(1, Ready::Interrupted);
    assert_eq!(seated(&job.ready(4, Ready::Interrupted)), [1, 5, 3, 4]);
}

#[test]
fn a_rank_that_does_not_answer_is_killed_but_not_on_the_word_of_an_old_generation() {
    let mut job = Job::running(limits(1, 4, 3), "a:3", 3);
    let kill = Action::Kill {
        member: MemberId(2),
    };
    let stale = Ready::Failed {
        generation: 0,
        has_state: true,
        lost: vec![1],
    };
    assert!(!job.ready(1, stale).contains(&kill));
    assert!(job.failed(3, &[1, 7]).contains(&kill));
    assert_eq!(job.membership.generation(), 2);
}

#[test]
fn the_first_rank_that_gives_up_is_killed_if_another_has_waited_for_it_in_vain() {
    let mut job = Job::running(limits(1, 4, 3), "a:1\nb:2", 3);
    job.failed(2, &[]);
    job.failed(3, &[]); // it was told that the generation is over
    let actions = job.failed(1, &[1, 2]);
    let text = "rank 1 on host b has not joined the other ranks in time and is killed".to_owned();
    let kill = Action::Kill {
        member: MemberId(2),
    };
    assert_eq!(actions[..2], [kill, Action::Say(text)]);
    assert_eq!(seated(&actions), [1, 3]);
    job.killed(2);
    assert_eq!(started(&job.later(9)), [], "its host cools down");
}

#[test]
fn a_rank_that_does_not_stop_when_the_others_have_agreed_to_is_killed() {
    let mut job = Job::running(limits(1, 4, 3), "a:3", 3);
    job.later(100);
    job.ready(1, Ready::Interrupted);
    job.later(30);
    job.ready(3, Ready::Interrupted);
    assert_eq!(job.later(29), []);
    let actions = job.later(1);
    let text = "rank 1 on host a has not left its generation in time and is killed".to_owned();
    assert!(actions.contains(&Action::Say(text)), "{actions:?}");
    assert_eq!(seated(&actions), [1, 3]);
    // The next generation has its own time.
    job.killed(2);
    let actions = job.later(60);
    assert_eq!((started(&actions), actions.len()), (vec![(4, "a")], 1));
}

#[test]
fn a_process_that_does_not_call_init_is_killed() {
    let mut job = Job::new(limits(1, 1, 1));
    job.hosts("a:1");
    assert_eq!(job.later(29), []);
    let text = "a new process on host a has not called hvd.init() within 30 s (half of \
                --elastic-timeout) and is killed";
    assert_eq!(job.later(1)[1], Action::Say(text.to_owned()));
}

#[test]
fn a_lost_host_is_one_failure_and_gets_new_processes_after_its_cooldown() {
    let mut job = Job::running(limits(2, 6, 5), "a:2\nb:3", 5);
    job.later(1);
    let actions = job.membership.host_lost(job.now, "b", "b does not answer");
    let text = "b does not answer; ranks 2, 3, 4 are lost".to_owned();
    assert!(actions.contains(&Action::Say(text)), "{actions:?}");
    let over = |member| Action::Over {
        member: MemberId(member),
        generation: 1,
    };
    assert!(actions.contains(&over(1)) && actions.contains(&over(2)));
    assert!(!actions.contains(&over(3)), "it is gone");
    assert_eq!(job.killed(3), [], "its processes are unknown from now on");
    job.failed(2, &[]);
    assert_eq!(seated(&job.failed(1, &[])), [1, 2]);
    assert_eq!(started(&job.later(9)), []);
    assert_eq!(started(&job.later(1)), [(6, "b"), (7, "b"), (8, "b")]);
    // It cannot be reached: the time doubles.
    job.membership
        .host_lost(job.now, "b", "b: ssh cannot connect");
    assert_eq!(started(&job.later(19)), []);
    assert_eq!(started(&job.later(1)).len(), 3);
}

#[test]
fn hosts_that_cannot_be_reached_do_not_count_as_a_program_that_fails() {
    let mut job = Job::new(limits(2, 4, 4));
    job.hosts("a:2\nb:2");
    for _ in 0..3 {
        let actions = job
            .membership
            .host_lost(job.now, "b", "b: ssh cannot connect");
        let text = "b: ssh cannot connect".to_owned();
        assert_eq!(actions[0], Action::Say(text));
        assert!(
            !matches!(actions.last(), Some(Action::End(_))),
            "{actions:?}"
        );
        job.later(100);
    }
}

#[test]
fn ranks_of_a_host_that_was_removed_leave_at_their_next_commit() {
    let mut job = Job::running(limits(1, 4, 3), "a:1\nb:2", 3);
    let updated = |member| Action::Updated {
        member: MemberId(member),
        added: false,
        removed: true,
    };
    assert_eq!(job.hosts("b:1"), [updated(1), updated(2), updated(3)]);
    job.ready(2, Ready::Interrupted);
    let leave = |member| Action::Leave {
        member: MemberId(member),
    };
    assert_eq!(job.ready(3, Ready::Interrupted), [leave(3)]);
    let actions = job.ready(1, Ready::Interrupted);
    assert_eq!(actions[0], leave(1));
    assert_eq!(seated(&actions), [2]);
}

#[test]
fn a_job_with_too_few_ranks_waits_and_then_says_what_is_missing() {
    let mut limits = limits(2, 4, 2);
    limits.cooldown = None;
    let mut job = Job::running(limits, "a:1\nb:1", 2);
    job.killed(2);
    assert_eq!(seated(&job.failed(1, &[1])), []);
    assert_eq!(job.later(59), []);
    assert_eq!(
        failure(&job.later(2)),
        "after 60 s (--elastic-timeout), 1 of 2 slots are available (--min-np 2); hosts: a:1, b:1 \
         (failed, barred); rank 1 on host b was killed by signal 9 (SIGKILL)"
    );
}

#[test]
fn a_job_whose_hosts_are_fixed_does_not_wait_in_vain() {
    let mut limits = limits(2, 4, 2);
    (limits.cooldown, limits.are_hosts_fixed) = (None, true);
    let mut job = Job::running(limits, "a:2", 2);
    job.killed(2);
    assert_eq!(
        failure(&job.failed(1, &[1])),
        "1 of 2 slots are available (--min-np 2); hosts: a:2 (failed, barred); rank 1 on host a was \
         killed by signal 9 (SIGKILL)"
    );
}

#[test]
fn a_job_waits_for_its_fixed_hosts_to_be_told() {
    let mut limits = limits(1, 4, 1);
    limits.are_hosts_fixed = true;
    let mut job = Job::new(limits);
    assert_eq!(job.later(1), []);
    assert_eq!(started(&job.hosts("a:1")), [(1, "a")]);
}

#[test]
fn new_processes_cannot_continue_without_a_rank_that_has_the_state() {
    let mut job = Job::running(limits(1, 4, 2), "a:2", 2);
    job.hosts("a:2\nb:1");
    job.ready(3, Ready::Started);
    job.killed(1);
    assert_eq!(
        failure(&job.killed(2)),
        "no rank is left that has the state of the training: rank 0 on host a was killed by signal \
         9 (SIGKILL)"
    );
}

#[test]
fn a_job_ends_after_its_limit_of_resets() {
    let mut limits = limits(1, 4, 3);
    limits.resets = Some(1);
    let mut job = Job::running(limits, "a:3", 3);
    job.killed(3);
    job.failed(1, &[2]);
    assert_eq!(seated(&job.failed(2, &[2])), [1, 2]);
    job.killed(2);
    assert_eq!(
        failure(&job.failed(1, &[1])),
        "the number of resets, 2, exceeded limit 1 (--reset-limit): rank 1 on host a was killed by \
         signal 9 (SIGKILL)"
    );
}

#[test]
fn a_job_has_succeeded_when_its_ranks_have_and_failed_if_one_has_not() {
    for (second, outcome) in [
        (Exit::Success, Outcome::Success),
        (
            Exit::Failure("exited with code 3".into()),
            Outcome::Failure("rank 1 on host a exited with code 3".into()),
        ),
    ] {
        let mut job = Job::running(limits(1, 4, 2), "a:2", 2);
        assert_eq!(
            job.membership.exited(job.now, MemberId(1), Exit::Success),
            []
        );
        let actions = job.membership.exited(job.now, MemberId(2), second);
        assert_eq!(actions.last(), Some(&Action::End(outcome)));
        assert_eq!(job.later(1), []);
    }
}

#[test]
fn a_rank_that_is_killed_has_failed() {
    let mut job = Job::running(limits(1, 4, 2), "a:2", 2);
    job.membership.exited(job.now, MemberId(1), Exit::Success);
    let killed = job.membership.silent(job.now, MemberId(2));
    assert!(killed.contains(&Action::Kill {
        member: MemberId(2)
    }));
    let text = "rank 1 on host a does not answer and is killed";
    assert_eq!(failure(&killed), text);
}

#[test]
fn a_process_that_ends_before_it_is_a_rank_is_no_success_of_the_job() {
    let mut job = Job::running(limits(1, 3, 2), "a:2", 2);
    assert_eq!(started(&job.hosts("a:2\nb:1")), [(3, "b")]);
    job.membership.exited(job.now, MemberId(3), Exit::Success);
    // The training goes on with the others after a failure.
    job.killed(2);
    assert_eq!(seated(&job.failed(1, &[1])), [1]);
}

#[test]
fn a_process_that_is_starting_does_not_delay_the_end() {
    let mut job = Job::running(limits(1, 3, 2), "a:2", 2);
    assert_eq!(started(&job.hosts("a:2\nb:1")), [(3, "b")]);
    let kill = Action::Kill {
        member: MemberId(3),
    };
    let actions = job.membership.exited(job.now, MemberId(1), Exit::Success);
    assert_eq!(actions, [kill]);
    let actions = job.membership.exited(job.now, MemberId(2), Exit::Success);
    assert_eq!(actions.last(), Some(&Action::End(Outcome::Success)));
}

#[test]
fn a_process_that_leaves_slowly_is_no_failure_of_its_host() {
    let mut job = Job::running(limits(1, 4, 2), "a:2", 2);
    job.hosts("a:1");
    for member in [1, 2] {
        job.ready(member, Ready::Interrupted);
    }
    let killed = job.later(6);
    assert!(killed.contains(&Action::Kill {
        member: MemberId(2)
    }));
    job.killed(2);
    assert_eq!(started(&job.hosts("a:2")), [(3, "a")]);
}

#[test]
fn slots_that_no_rank_uses_vanish_without_a_reset() {
    let mut job = Job::running(limits(1, 4, 3), "a:2\nb:1", 3);
    job.membership.host_lost(job.now, "b", "host b is lost");
    job.failed(1, &[2]);
    assert_eq!(seated(&job.failed(2, &[2])), [1, 2]);
    assert_eq!(job.hosts("a:2"), []);
    let told = job.hosts("a:1");
    assert!(!told.is_empty(), "a rank has to leave");
}

#[test]
fn a_program_that_fails_at_its_start_ends_the_job() {
    let mut job = Job::new(limits(1, 4, 2));
    job.hosts("a:1\nb:1\nc:1\nd:1");
    let failed = |job: &mut Job, member| {
        let exit = Exit::Failure("exited with code 1".into());
        job.membership.exited(job.now, MemberId(member), exit)
    };
    failed(&mut job, 2);
    failed(&mut job, 1);
    assert_eq!(
        failure(&failed(&mut job, 3)),
        "3 processes have failed before the first step; the first one: a new process on host b \
         exited with code 1"
    );
}

#[test]
fn a_program_that_fails_on_all_hosts_that_there_are_ends_the_job() {
    let mut limits = limits(1, 4, 2);
    let failed = |job: &mut Job, member| {
        let exit = Exit::Failure("exited with code 1".into());
        job.membership.exited(job.now, MemberId(member), exit)
    };
    let mut job = Job::new(limits);
    job.hosts("a:2");
    failed(&mut job, 1);
    assert!(!matches!(failed(&mut job, 2).last(), Some(Action::End(_))));
    assert_eq!(started(&job.later(10)).len(), 2, "the host has cooled down");
    limits.cooldown = None;
    let mut job = Job::new(limits);
    job.hosts("a:2");
    failed(&mut job, 1);
    assert_eq!(
        failure(&failed(&mut job, 2)),
        "2 processes have failed before the first step; the first one: a new process on host a \
         exited with code 1"
    );
    limits.start = 1;
    let mut job = Job::new(limits);
    job.hosts("a:1");
    assert_eq!(
        failure(&failed(&mut job, 1)),
        "a process has failed before the first step: a new process on host a exited with code 1"
    );
}
