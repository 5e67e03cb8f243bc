//! Ranks that come late: the job starts, and those that wait for them say so meanwhile.

use std::time::Duration;

use ronde::Context;

use crate::support::start_separately;

/// Starts two ranks, of which `late` comes three seconds after the other one; returns what the
/// other one said.
fn waited_for(test: &str, backend: &str, late: usize) -> Option<String> {
    let late = late.to_string();
    let env = [
        ("RONDE_BACKEND", backend),
        ("HOROVOD_STALL_CHECK_TIME_SECONDS", "1"),
        ("TEST_RONDE_LATE", &late),
    ];
    let job = start_separately(test, 2, &env, || {
        let value = |name| std::env::var(name).expect("the test sets it");
        if value("HOROVOD_RANK") == value("TEST_RONDE_LATE") {
            std::thread::sleep(Duration::from_secs(3));
        }
        let context = Context::from_env().expect("the job starts");
        context.barrier().expect("both are there");
    })?;
    let outcomes = job.finish();
    for outcome in &outcomes {
        assert!(outcome.status.success(), "{}", outcome.output);
    }
    let waiting = outcomes.into_iter().nth(usize::from(late == "0"));
    Some(waiting.expect("two ranks").output)
}

fn check(test: &str, backend: &str, expected: [&str; 2]) {
    for (late, expected) in expected.into_iter().enumerate() {
        let Some(said) = waited_for(test, backend, late) else {
            return;
        };
        let (began, limit) = ("for the start of the job: ", "the limit is 30 s");
        assert!(said.contains(&format!("{began}{expected}")), "{said}");
        assert!(said.contains(limit), "{said}");
    }
}

#[test]
fn a_late_rank_of_this_host_is_named() {
    let test = "late::a_late_rank_of_this_host_is_named";
    let expected = ["rank 0 has not come yet", "rank 1 has not come yet"];
    check(test, "local", expected);
}

#[test]
fn a_late_rank_is_named_over_tcp() {
    let test = "late::a_late_rank_is_named_over_tcp";
    let expected = [
        "no connection to rank 0 at 127.0.0.1:",
        "rank 1 has not come yet",
    ];
    check(test, "tcp", expected);
}
