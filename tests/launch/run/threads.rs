//! Tests of the ranks' threads: the launcher sets `OMP_NUM_THREADS` if it is not set.

use super::*;

/// Returns the variable's value on two ranks and the launcher's message; `value` is the user's.
fn seen(value: Option<&str>, flags: &[&str]) -> (Vec<String>, String) {
    let script = "echo ${OMP_NUM_THREADS-unset}";
    let mut command = ronde(&[&["run", "-np", "2"], flags, &["sh", "-c", script]].concat());
    match value {
        Some(value) => command.env("OMP_NUM_THREADS", value),
        None => command.env_remove("OMP_NUM_THREADS"),
    };
    let outcome = outcome(command);
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let ranks = sorted(&outcome.stdout);
    let of = |line: &&str| line.split_once(':').unwrap().1.to_owned();
    (ranks.iter().map(of).collect(), outcome.stderr)
}

#[test]
fn ranks_share_the_cores_of_this_machine_and_one_line_says_so() {
    let cores = std::thread::available_parallelism().unwrap().get();
    let each = (cores / 2).max(1).to_string();
    for flags in [&[][..], &["-H", "localhost:2"]] {
        let (values, told) = seen(None, flags);
        assert_eq!(values, [each.clone(), each.clone()]);
        assert!(
            told.starts_with(&format!("ronde run: OMP_NUM_THREADS={each} for each rank")),
            "{told}"
        );
        assert!(
            told.lines().count() == 1 && told.contains("--no-thread-limit"),
            "{told}"
        );
    }
}

#[test]
fn a_value_that_is_set_stays_and_the_limit_can_be_left_away() {
    for value in ["7", ""] {
        let (values, told) = seen(Some(value), &[]);
        assert_eq!((values, told.as_str()), (vec![value.to_owned(); 2], ""));
    }
    let (values, told) = seen(None, &["--no-thread-limit"]);
    assert_eq!((values, told.as_str()), (vec!["unset".to_owned(); 2], ""));
}

#[test]
fn one_core_is_one_thread() {
    let mut command = Command::new("taskset");
    let ronde = env!("CARGO_BIN_EXE_ronde");
    command
        .args([
            "-c",
            "0",
            ronde,
            "run",
            "-np",
            "1",
            "sh",
            "-c",
            "echo $OMP_NUM_THREADS",
        ])
        .env_remove("OMP_NUM_THREADS");
    let Ok(output) = command.output() else { return }; // `taskset` is not installed
    assert_eq!(String::from_utf8_lossy(&output.stdout), "[0]<stdout>:1\n");
}
