//! Tests of the start: ranks and hosts, variables, the secret, output.

use super::*;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Parts of a line of a rank, after its prefix.
fn words(line: &str) -> Vec<&str> {
    line.split_once(':').unwrap().1.split(' ').collect()
}

#[test]
fn ranks_of_all_hosts_get_their_place_and_one_secret() {
    let hosts = Hosts::new();
    let script = "echo $HOROVOD_RANK/$HOROVOD_SIZE $HOROVOD_LOCAL_RANK/$HOROVOD_LOCAL_SIZE \
                  $HOROVOD_CROSS_RANK/$HOROVOD_CROSS_SIZE $RONDE_BACKEND ${#RONDE_JOB_ID} \
                  $PYTHONUNBUFFERED ${HOST_NAME-here} $RONDE_TCP_SERVER \
                  $(stat -c %a $RONDE_SECRET_FILE) $(cat $RONDE_SECRET_FILE) $RONDE_SECRET_FILE";
    let out = outcome(hosts.run(5, "node1:2,me@node2:2,localhost:4", &[], script));
    assert_eq!((out.code, out.stderr.as_str()), (Some(0), ""));
    let lines = sorted(&out.stdout);
    let expected = [
        "0/5 0/2 0/3 tcp 32 1 node1",
        "1/5 1/2 0/2 tcp 32 1 node1",
        "2/5 0/2 1/3 tcp 32 1 me@node2",
        "3/5 1/2 1/2 tcp 32 1 me@node2",
        "4/5 0/1 2/3 tcp 32 1 here",
    ];
    for (rank, (line, expected)) in lines.iter().zip(expected).enumerate() {
        let start = format!("[{rank}]<stdout>:{expected} node1:");
        assert!(line.starts_with(&start), "{line}");
    }
    let first = words(lines[0]);
    let [.., server, mode, secret, _] = first.as_slice() else {
        panic!("{first:?}")
    };
    let port: u16 = server.rsplit_once(':').unwrap().1.parse().unwrap();
    assert!(port > 0);
    assert_eq!((*mode, secret.len()), ("600", 64));
    for line in &lines {
        let words = words(line);
        assert_eq!(words[7..10], [*server, "600", *secret], "{line}");
        assert!(!exists(words[10]), "{line}");
    }
    assert!(hosts.are_clean());
    let log = hosts.log();
    assert_eq!(
        log.lines().count(),
        2,
        "one connection to each other host: {log}"
    );
    assert!(log.contains("BatchMode=yes"), "{log}");
    assert!(!log.contains(secret) && !log.contains("HOROVOD"), "{log}");
}

#[test]
fn the_launchers_own_connection_of_ssh_does_not_choose_rank_0s_address() {
    let hosts = Hosts::new();
    let mut command = hosts.run(2, "localhost,node2", &[], "echo $RONDE_TCP_SERVER");
    // The user has reached this machine at an address that node2 may not reach.
    command.env("SSH_CONNECTION", "192.0.2.9 4000 192.0.2.1 22");
    let out = outcome(command);
    assert_eq!((out.code, out.stderr.as_str()), (Some(0), ""));
    assert_eq!(out.stdout.lines().count(), 2, "{}", out.stdout);
    assert!(!out.stdout.contains("192.0.2."), "{}", out.stdout);
}

#[test]
fn the_limit_of_open_files_is_raised() {
    let hosts = Hosts::new();
    let job = hosts.run(1, "localhost", &[], "ulimit -Sn");
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -Sn 200; ulimit -Hn 300; exec \"$0\" \"$@\""]);
    limited.arg(job.get_program()).args(job.get_args());
    for (name, value) in job.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited.stdout(Stdio::piped()).stderr(Stdio::piped());
    let out = outcome(limited);
    assert_eq!((out.code, out.stderr.as_str()), (Some(0), ""));
    assert_eq!(out.stdout, "[0]<stdout>:300\n");
}

#[test]
fn variables_pass_verbatim_and_an_outer_job_is_forgotten() {
    let hosts = Hosts::new();
    let script = "printf '%s|' \"$A_VALUE\" ${OMPI_COMM_WORLD_RANK-none} ${RANK-none} \
                  ${CUDA_VISIBLE_DEVICES-none} $HOROVOD_FUSION_THRESHOLD $HOROVOD_GLOO_IFACE \"$0\"; pwd";
    let options = ["--fusion-threshold-mb", "3", "--network-interface", "lo"];
    let mut command = hosts.run(1, "node1", &options, script);
    command
        .arg("it's $HOME")
        .env("A_VALUE", OsStr::from_bytes(b"a 'b\"\\ \xff $HOME"))
        .env("OMPI_COMM_WORLD_RANK", "5")
        .env("RANK", "5")
        .env("CUDA_VISIBLE_DEVICES", "5");
    let output = finish(command.spawn().unwrap());
    let folder = std::fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).unwrap();
    let mut expected =
        b"[0]<stdout>:a 'b\"\\ \xff $HOME|none|none|none|3145728|lo|it's $HOME|".to_vec();
    expected.extend_from_slice(folder.as_os_str().as_bytes());
    expected.push(b'\n');
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.stdout, expected, "{text}");
}

#[test]
fn without_mpi_other_hosts_are_reached_through_ssh() {
    let hosts = Hosts::new();
    let arguments = [
        "run",
        "-np",
        "1",
        "-H",
        "node1:1",
        "--",
        "sh",
        "-c",
        "echo $HOST_NAME",
    ];
    let run = |arguments: &[&str]| {
        let mut command = hosts.command(arguments);
        command.env("RONDE_MPI_PLUGINS", "/nonexistent");
        outcome(command)
    };
    let out = run(&arguments);
    assert_eq!(
        (out.code, out.stdout.as_str()),
        (Some(0), "[0]<stdout>:node1\n")
    );
    let mut gloo = arguments.to_vec();
    gloo.insert(1, "--gloo");
    assert_eq!(run(&gloo).stdout, out.stdout);
    let conflict = outcome(hosts.run(1, "node1", &["--backend", "local"], "true"));
    assert_eq!(conflict.code, Some(2), "{}", conflict.stderr);
    assert!(
        conflict.stderr.contains("--backend tcp"),
        "{}",
        conflict.stderr
    );
}

#[test]
fn options_for_ssh_and_another_agent() {
    let hosts = Hosts::new();
    let agent = format!("'{}'", env!("CARGO_BIN_EXE_ronde"));
    let options = [
        "-p",
        "2222",
        "-i",
        "my key",
        "--start-timeout",
        "7",
        "--agent",
        &agent,
    ];
    let out = outcome(hosts.run(1, "node1", &options, "true"));
    assert_eq!((out.code, out.stderr.as_str()), (Some(0), ""));
    let log = hosts.log();
    for part in ["-p 2222", "-i my key", "ConnectTimeout=5", "-- node1 exec "] {
        assert!(log.contains(part), "{part} in: {log}");
    }
}

#[test]
fn output_is_printed_and_stored_by_the_launcher() {
    let hosts = Hosts::new();
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("logs");
    // One line is as long as a line may be, with the rank's number before it.
    let script = "echo out $HOROVOD_RANK; echo err $HOROVOD_RANK >&2; \
                  test $HOROVOD_RANK = 0 || head -c 65535 /dev/zero | tr '\\0' x; printf last";
    let options = ["--output-filename", logs.to_str().unwrap()];
    let out = outcome(hosts.run(2, "chatty,node2", &options, script));
    assert_eq!(out.code, Some(0), "{}", out.stderr);
    let long = "x".repeat(65_535);
    let expected = [
        "[0]<stdout>:last".to_owned(),
        "[0]<stdout>:out 0".to_owned(),
        "[1]<stdout>:ast".to_owned(),
        "[1]<stdout>:out 1".to_owned(),
        format!("[1]<stdout>:{long}l"),
    ];
    assert_eq!(sorted(&out.stdout), expected);
    let mut errors = sorted(&out.stderr);
    errors.retain(|line| !line.starts_with("[1]"));
    let greeting = [
        "ronde run: chatty: no end",
        "ronde run: chatty: to this host",
        "ronde run: chatty: welcome",
    ];
    assert_eq!(errors, [&["[0]<stderr>:err 0"][..], &greeting].concat());
    let file = std::fs::read_to_string(logs.join("rank.1/stderr")).unwrap();
    assert_eq!(file, "[1]<stderr>:err 1\n");
    let plain = outcome(hosts.run(1, "node1", &["--no-prefix"], "echo z0; echo '  a b'"));
    assert_eq!(plain.stdout, "z0\n  a b\n");
}

#[test]
fn a_closed_standard_error_is_no_failure() {
    let hosts = Hosts::new();
    for elastic in ["--tcp", "--min-np=1"] {
        let list = "localhost:1,node1:1";
        let flags = ["run", "-np", "2", "--verbose", elastic, "-H", list];
        let mut command = hosts.command(&[&flags[..], &["--", "true"]].concat());
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        command.stderr(writer);
        assert_eq!(outcome(command).code, Some(0), "{elastic}");
    }
}

#[test]
fn the_ranks_of_a_host_share_its_cores() {
    let hosts = Hosts::new();
    let run = |options: &[&str]| {
        let mut command = hosts.run(2, "node1:2", options, "echo ${OMP_NUM_THREADS-none}");
        command.env_remove("OMP_NUM_THREADS");
        outcome(command)
    };
    let cores = std::thread::available_parallelism().unwrap().get();
    let each = (cores / 2).max(1);
    let out = run(&[]);
    let lines = [0, 1].map(|rank| format!("[{rank}]<stdout>:{each}"));
    assert_eq!(sorted(&out.stdout), lines);
    let note = format!("ronde run: node1: OMP_NUM_THREADS={each} for each rank");
    assert!(out.stderr.starts_with(&note), "{}", out.stderr);
    let out = run(&["--no-thread-limit"]);
    assert!(
        out.stdout.contains("none") && out.stderr.is_empty(),
        "{}",
        out.stderr
    );
}
