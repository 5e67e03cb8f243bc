//! Tests of hosts and ranks that fail: the error names the host, no rank is left, and no rank is
//! started unless all hosts can start theirs.

use super::*;

#[track_caller]
fn assert_fails(out: &Outcome, code: i32, parts: &[&str]) {
    assert_eq!(out.code, Some(code), "{}", out.stderr);
    for part in parts {
        assert!(out.stderr.contains(part), "{part} in: {}", out.stderr);
    }
}

#[test]
fn hosts_that_cannot_be_reached_are_named_with_what_to_try() {
    let hosts = Hosts::new();
    for (host, parts) in [
        ("password", &["Permission denied", "ssh-copy-id"][..]),
        ("unknown", &["Could not resolve", "correct the name"]),
        ("refused", &["Connection refused", "--ssh-port"]),
        ("silent", &["ssh cannot connect", "BatchMode=yes"]),
        (
            "empty",
            &["cannot be started there", "/no/such/ronde", "--agent"],
        ),
        ("old", &["has version 0.0.1", "same version"]),
        ("garbage", &["\"what?\""]),
        ("foreign", &["\"o0 a line of another host's rank\""]),
    ] {
        let out = outcome(hosts.run(3, &format!("node1,{host}:2"), &[], "echo started"));
        assert_fails(&out, 1, parts);
        let named = format!("ronde run: {host}");
        assert!(out.stderr.contains(&named), "{}", out.stderr);
        // The invalid report comes after the start.
        assert!(
            host == "foreign" || out.stdout.is_empty(),
            "{host}: {}",
            out.stdout
        );
    }
    assert!(hosts.are_clean());
}

#[test]
fn a_host_that_does_not_answer_is_reported_in_time() {
    let hosts = Hosts::new();
    // In which the other hosts are ready, on a loaded machine too.
    let options = ["--start-timeout", "6"];
    let out = outcome(hosts.run(3, "node1,hangs,localhost", &options, "echo started"));
    assert_fails(
        &out,
        1,
        &["hangs is not ready within 6 s", "--start-timeout"],
    );
    assert!(out.stdout.is_empty(), "{}", out.stdout);
    assert!(hosts.are_clean());
}

#[test]
fn the_rank_and_the_host_that_failed_are_named() {
    let hosts = Hosts::new();
    let run = |script: &str| outcome(hosts.run(4, "node1:2,node2:2", &[], script));
    let out = run("test $HOROVOD_RANK = 2 && exit 3; sleep 1000");
    assert_fails(
        &out,
        3,
        &["node2: rank 2 exited with code 3; ending the other ranks"],
    );
    let out = run("test $HOROVOD_RANK = 1 && kill -9 $$; sleep 1000");
    assert_fails(
        &out,
        137,
        &["node1: rank 1 was killed by signal 9 (SIGKILL)"],
    );
    // The others fail because it was killed, and after that.
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "if test $HOROVOD_RANK = 3; then
             echo $$ > '{0}.next'; mv '{0}.next' '{0}'; kill -9 $$
         fi
         while ! test -e '{0}'; do sleep 0.01; done; read -r pid < '{0}'
         while read -r _ _ state _ < /proc/$pid/stat && test \"$state\" != Z; do sleep 0.01; done
         exit 1",
        folder.path().join("pid").display()
    );
    let out = run(&script);
    assert_fails(
        &out,
        137,
        &["node2: rank 3 was killed by signal 9 (SIGKILL)"],
    );
    let out = outcome(hosts.command(&[
        "run",
        "--tcp",
        "-np",
        "2",
        "-H",
        "node1,node2",
        "--",
        "no-such-command",
    ]));
    assert_fails(&out, 127, &["cannot start no-such-command as rank"]);
    assert!(hosts.are_clean());
}

#[test]
fn the_other_ranks_have_time_after_sigterm_on_all_hosts() {
    let hosts = Hosts::new();
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "if test $HOROVOD_RANK = 0; then
             while test $(ls '{0}' | wc -l) -lt 3; do sleep 0.05; done
             kill -9 $$
         fi
         trap 'sleep 1; echo saved; exit 0' TERM; : > '{0}'/$HOROVOD_RANK
         sleep 1000 & wait",
        folder.path().display()
    );
    let out = outcome(hosts.run(4, "node1:2,node2:2", &[], &script));
    assert_fails(&out, 137, &["node1: rank 0 was killed by signal 9"]);
    let saved = [1, 2, 3].map(|rank| format!("[{rank}]<stdout>:saved"));
    assert_eq!(sorted(&out.stdout), saved, "{}", out.stderr);
}

#[test]
fn lists_of_hosts_and_interfaces_that_cannot_be_are_refused() {
    let hosts = Hosts::new();
    let run =
        |ranks, list: &str, options: &[&str]| outcome(hosts.run(ranks, list, options, "true"));
    assert_fails(&run(5, "node1:2,node2:2", &[]), 2, &["(5)", "(4)"]);
    assert_fails(
        &run(4, "node1:2,node1:2", &[]),
        2,
        &["node1 is listed twice", "node1:4"],
    );
    assert_fails(
        &run(2, "localhost,127.0.0.1", &[]),
        2,
        &["both this machine"],
    );
    assert_fails(&run(65, "node1:65", &[]), 2, &["node1 would get 65 ranks"]);
    let several = ["--network-interfaces", "eth99,eth98"];
    assert_fails(
        &run(2, "node1,node2", &several),
        1,
        &["one network interface: eth99", "no network interface eth99"],
    );
    let out = run(2, "node1,node2", &["--network-interface", "eth99"]);
    assert_fails(&out, 1, &["no network interface eth99", "lo (127.0.0.1)"]);
    let mut command = hosts.run(1, "node1", &["--agent", "a 'b"], "true");
    assert_fails(&outcome(command), 2, &["--agent", "open quote"]);
    command = hosts.run(1, "node1", &[], "true");
    command.env("RONDE_TCP_SERVER", "node1");
    assert_fails(&outcome(command), 2, &["RONDE_TCP_SERVER", "29400"]);
}

#[test]
fn the_user_can_choose_the_port_unless_it_is_in_use() {
    let hosts = Hosts::new();
    let port = crate::support::free_port();
    let listener = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    let server = format!("127.0.0.1:{port}");
    let run = || {
        let mut command = hosts.run(2, "node1,node2", &[], "echo $RONDE_TCP_SERVER");
        command.env("RONDE_TCP_SERVER", &server);
        outcome(command)
    };
    let out = run();
    assert_fails(
        &out,
        1,
        &["node1: port ", "cannot be used", "RONDE_TCP_SERVER"],
    );
    drop(listener);
    let out = run();
    let lines = [0, 1].map(|rank| format!("[{rank}]<stdout>:{server}"));
    assert_eq!(sorted(&out.stdout), lines, "{}", out.stderr);
}

#[test]
fn without_ssh_it_is_said_what_to_install() {
    let hosts = Hosts::new();
    let mut command = hosts.run(2, "node1,node2", &[], "true");
    command.env("PATH", "/nonexistent");
    assert_fails(
        &outcome(command),
        127,
        &["cannot start ssh for the host node1", "openssh-client"],
    );
}
