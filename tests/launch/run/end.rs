//! Tests of the end of a job: failures, and processes left behind.

use super::*;

#[test]
fn the_first_failure_ends_the_job_with_its_code() {
    // In addition to the ranks' own sleep, each rank leaves one behind, rank 2 too.
    let gate = Gate::new();
    let script =
        "sleep 1000 & echo $$ $!; test $HOROVOD_RANK = 2 && wait_gate && exit 7; sleep 1000; true";
    let mut child = gate.run_script(4, script).spawn().unwrap();
    let pids = read_pids(&mut child, 4);
    assert_eq!(pids.len(), 8);
    gate.open();
    let outcome = of(finish(child));
    assert_eq!(outcome.code, Some(7));
    assert!(
        outcome
            .stderr
            .contains("ronde run: rank 2 exited with code 7"),
        "{}",
        outcome.stderr
    );
    assert_all_end(&pids);
}

#[test]
fn a_rank_killed_by_a_signal_is_told_as_shells_do() {
    let outcome = outcome(run_script(
        3,
        "test $HOROVOD_RANK = 1 && kill -9 $$; sleep 1000",
    ));
    assert_eq!(outcome.code, Some(137));
    let expected = "rank 1 was killed by signal 9 (SIGKILL); ending the other 2 ranks";
    assert!(outcome.stderr.contains(expected), "{}", outcome.stderr);
    let hint = "the system may have killed rank 1 for lack of memory";
    assert!(outcome.stderr.contains(hint), "{}", outcome.stderr);
}

#[test]
fn a_rank_that_ignores_sigterm_is_killed() {
    let gate = Gate::new();
    let script = "trap '' TERM; echo $$; test $HOROVOD_RANK = 0 && wait_gate && exit 3; while :; do sleep 1; done";
    let mut child = gate.run_script(2, script).spawn().unwrap();
    let pids = read_pids(&mut child, 2);
    gate.open();
    let outcome = of(finish(child));
    assert_eq!(outcome.code, Some(3));
    assert!(
        outcome
            .stderr
            .contains("some ranks have not ended; killing them"),
        "{}",
        outcome.stderr
    );
    assert_all_end(&pids);
}

#[test]
fn a_process_left_behind_cannot_hold_up_the_end() {
    let mut child = run_script(2, "sleep 1000 & echo $!").spawn().unwrap();
    let pids = read_pids(&mut child, 2);
    assert_eq!(of(finish(child)).code, Some(0));
    assert_all_end(&pids);
}

#[test]
fn a_killed_launcher_leaves_nothing() {
    let mut child = run_script(2, "sleep 1000 & echo $$ $!; wait")
        .spawn()
        .unwrap();
    let pids = read_pids(&mut child, 2);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_all_end(&pids);
}

#[test]
fn verbose_tells_start_and_end() {
    let outcome = outcome(ronde(&["run", "-np", "2", "--verbose", "true"]));
    assert!(
        outcome
            .stderr
            .contains("ronde run: started 2 ranks of: true"),
        "{}",
        outcome.stderr
    );
    assert!(
        outcome
            .stderr
            .contains("ronde run: rank 1 exited with code 0"),
        "{}",
        outcome.stderr
    );
}
