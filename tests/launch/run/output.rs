//! Tests of the ranks' output: complete, prefixed, in files, live.

use super::*;
use ronde_cli::run::LaunchSpec;
use std::io::{BufRead, BufReader};
use std::path::Path;

#[test]
fn output_after_a_ranks_end_is_not_lost() {
    // The process left behind prints once the rank is a zombie, with no program that it has to
    // start.
    let is_rank_alive = "read -r _ _ state _ < /proc/$$/stat && test \"$state\" != Z";
    let outcome = outcome(run_script(
        1,
        &format!(
            "(while {is_rank_alive}; do :; done; echo late) & echo early; printf unfinished >&2"
        ),
    ));
    assert_eq!(outcome.stdout, "[0]<stdout>:early\n[0]<stdout>:late\n");
    assert_eq!(outcome.stderr, "[0]<stderr>:unfinished\n");
}

#[test]
fn files_get_each_ranks_output() {
    let dir = tempfile::tempdir().unwrap();
    let read = |path: &str| std::fs::read_to_string(dir.path().join(path)).unwrap();
    let run = |ranks: &str, to: &Path| {
        let to = to.to_str().unwrap();
        let script = "echo out $HOROVOD_RANK; echo err >&2";
        assert_eq!(
            outcome(ronde(&[
                "run",
                "-np",
                ranks,
                "--output-filename",
                to,
                "sh",
                "-c",
                script
            ]))
            .code,
            Some(0)
        );
    };
    run("1", &dir.path().join("one"));
    assert_eq!(read("one/rank.0/stdout"), "[0]<stdout>:out 0\n");
    run("11", &dir.path().join("eleven"));
    assert_eq!(read("eleven/rank.07/stdout"), "[7]<stdout>:out 7\n");
    assert_eq!(read("eleven/rank.10/stderr"), "[10]<stderr>:err\n");

    let refused = outcome(ronde(&[
        "run",
        "-np",
        "1",
        "--output-filename",
        "/dev/null/no",
        "true",
    ]));
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("/dev/null/no"),
        "{}",
        refused.stderr
    );
}

#[test]
fn prefixes_can_have_the_time_or_be_left_away() {
    let plain = outcome(ronde(&[
        "run",
        "-np",
        "1",
        "--no-prefix",
        "printf",
        r"1%%\r2%%\r\nend",
    ]));
    assert_eq!(plain.stdout, "1%\n2%\nend\n");
    let timed = outcome(ronde(&[
        "run",
        "-np",
        "1",
        "--prefix-output-with-timestamp",
        "echo",
        "x",
    ]));
    let digits_out: String = timed
        .stdout
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    assert!(
        digits_out.ends_with(" 00:00:00 0000[0]<stdout>:x\n"),
        "{}",
        timed.stdout
    );
}

#[test]
fn lines_stay_whole_whatever_the_ranks_do() {
    let script =
        "i=0; while [ $i -lt 300 ]; do printf 'begin-é-'; printf '%s-end\\n' $i; i=$((i+1)); done";
    let outcome = outcome(run_script(4, script));
    let mut next = [0; 4];
    for line in outcome.stdout.lines() {
        let rank: usize = line[1..2].parse().unwrap();
        assert_eq!(line, format!("[{rank}]<stdout>:begin-é-{}-end", next[rank]));
        next[rank] += 1;
    }
    assert_eq!(next, [300; 4]);
}

#[test]
fn a_closed_standard_output_ends_the_job() {
    let mut child = run_script(2, "echo $$; while echo more; do :; done; sleep 1000")
        .spawn()
        .unwrap();
    let pids = {
        let mut pids = Vec::new();
        let lines = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map(Result::unwrap);
        for line in lines {
            pids.extend(line.rsplit_once(':').unwrap().1.parse::<u32>());
            if pids.len() == 2 {
                break;
            }
        }
        pids // the pipe is closed here
    };
    assert_eq!(of(finish(child)).code, Some(141));
    assert_all_end(&pids);
}

#[test]
fn a_full_disk_costs_the_output_and_not_the_job() {
    for options in [&[][..], &["--tcp"], &["--min-np", "1"]] {
        let mut arguments = vec!["run", "-np", "1"];
        arguments.extend(options);
        // The rank goes on after its first line has failed.
        let script = "echo out; sleep 0.3; echo out; echo err >&2; touch \"$GATE\"";
        arguments.extend(["--", "sh", "-c", script]);
        let gate = Gate::new();
        let full = std::fs::File::options().write(true).open("/dev/full");
        let mut command = ronde(&arguments);
        command.env("GATE", gate.file()).stdout(full.unwrap());
        let outcome = outcome(command);
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert!(gate.file().exists(), "{}", outcome.stderr);
        let lines = sorted(&outcome.stderr);
        assert!(
            lines.len() == 2
                && lines[0] == "[0]<stderr>:err"
                && lines[1].contains("No space left on device"),
            "{}",
            outcome.stderr
        );
    }
}

/// Live output leaves rank 0 the launcher's own standard output, so this test observes it from
/// outside: it starts itself again as the launcher.
#[test]
fn live_output_is_rank_0s_own() {
    const LAUNCHER: &str = "TEST_RONDE_LIVE_LAUNCHER";
    if std::env::var_os(LAUNCHER).is_some() {
        // Rank 1 ends the job with its code, once rank 0 has printed.
        let script = "test $HOROVOD_RANK = 1 && while ! test -e $GATE; do sleep 0.01; done; \
                      echo out $HOROVOD_RANK; echo err $HOROVOD_RANK >&2; touch $GATE; exit $HOROVOD_RANK";
        let code = ronde_cli::run::launch(&LaunchSpec {
            label: "live".into(),
            command: ["sh", "-c", script].map(Into::into).to_vec(),
            num_proc: 2,
            environment: Vec::new(),
            output: ronde_cli::run::Output::Live,
            output_dir: None,
            verbose: false,
            guard: Vec::new(),
        });
        std::process::exit(code.unwrap().into());
    }
    let gate = Gate::new();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "run::output::live_output_is_rank_0s_own",
            "--nocapture",
        ])
        .env(LAUNCHER, "1")
        .env("GATE", gate.file());
    let outcome = of(finish(
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    ));
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    let (stdout, stderr) = (outcome.stdout, outcome.stderr);
    assert!(
        stdout.contains("out 0\n") && !stdout.contains("]<stdout>:") && !stdout.contains("out 1"),
        "{stdout}"
    );
    assert!(
        stderr.contains("[1]<stderr>:err 1\n")
            && stderr.contains("live: rank 1 exited with code 1"),
        "{stderr}"
    );
    assert!(
        stderr.contains("err 0\n") && !stderr.contains("[0]<stderr>"),
        "{stderr}"
    );
}
