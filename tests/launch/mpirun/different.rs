//! Ranks that are started with different settings: all of them report the first difference at once.

use super::mpirun_after;
use crate::support::output::texts;

/// Returns the output of a job that cannot start, whose ranks first run `line`.
fn refusal(line: &str, arguments: &str) -> Option<String> {
    let output = mpirun_after(line, 3, arguments)?;
    let (out, err) = texts(&output);
    assert!(!output.status.success(), "{out}{err}");
    Some(err)
}

#[test]
fn knobs_that_must_be_the_same_are_compared() {
    let line = "[ \"$rank\" = 0 ] || export HOROVOD_CACHE_CAPACITY=$((512 / rank))";
    let mut backends = vec![("local", "HOROVOD_CACHE_CAPACITY 512, rank 0 has 1024")];
    if super::has_mpi() {
        backends.push(("mpi", "HOROVOD_CACHE_CAPACITY 1024, rank 1 on "));
    }
    for (backend, text) in backends {
        let Some(err) = refusal(
            line,
            &format!("bench --model many-small --steps 2 --backend {backend}"),
        ) else {
            return;
        };
        // Rank 0 may receive either of the other ranks first.
        let other = text.replace("512", "256");
        assert!(
            err.contains(text) || err.contains(&other),
            "{backend}: {err}"
        );
    }
}

#[test]
fn settings_are_rank_0s_whatever_the_others_have() {
    let line = "export HOROVOD_FUSION_THRESHOLD=$((1024 * rank)) HOROVOD_CYCLE_TIME=$((1 + rank))";
    let Some(output) = mpirun_after(line, 3, "bench --model many-small --steps 3") else {
        return;
    };
    let (out, err) = texts(&output);
    assert!(
        output.status.success() && out.contains("no fusion, cycle 1 ms"),
        "{out}{err}"
    );
}

#[test]
fn models_and_steps_are_compared() {
    let table = [
        (
            "--model vgg16 --steps 2",
            "rank 0 has 1000 tensors, rank 2 has 32;",
        ),
        (
            "--model many-small --steps 3",
            "rank 0 has 2 timed steps, rank 2 has 3;",
        ),
    ];
    for (other, text) in table {
        let line = format!("[ \"$rank\" != 2 ] || set -- bench {other}");
        let Some(err) = refusal(&line, "bench --model many-small --steps 2") else {
            return;
        };
        let says = err.contains("the ranks run different benchmarks") && err.contains(text);
        assert!(says, "{text:?} in {err}");
    }
}
