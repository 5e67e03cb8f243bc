//! Error texts for an agent that has not started, or whose connection was lost.

use super::super::process::Exit;
use super::plan::HostPlan;

/// Exit code of `ssh` if it cannot connect, or loses its connection.
const SSH_FAILED: u8 = 255;

/// Most lines of `ssh`'s output in an error.
const LINES_MAX: usize = 5;

/// Parts of the output of OpenSSH's client, and what to try.
const HINTS: &[(&str, &str)] = &[
    (
        "Permission denied",
        "a key that needs no password must be accepted there: try ssh-copy-id, or name a key with \
         --ssh-identity-file",
    ),
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "if the host was installed again, remove its old key with ssh-keygen -R",
    ),
    (
        "Host key verification failed",
        "connect to it once with ssh by hand, and check its key",
    ),
    (
        "Could not resolve hostname",
        "correct the name in --hosts or in the host file, or give an address",
    ),
    (
        "Connection refused",
        "start an ssh server there, or name its port with --ssh-port",
    ),
    (
        "timed out",
        "check that the host is up and reachable, or raise --start-timeout",
    ),
    (
        "No route to host",
        "check that the host is up and reachable",
    ),
];

/// Text for the agent of `host`, which has ended with `exit` before its ranks started; `said` is
/// what it has printed until then.
pub(in super::super) fn not_started(host: &HostPlan, exit: Exit, said: &[String]) -> String {
    let reason = match (exit, host.is_this_machine) {
        (Exit::Code(SSH_FAILED), false) => "ssh cannot connect".to_owned(),
        (Exit::Code(126 | 127), false) => "ronde cannot be started there".to_owned(),
        (_, false) => format!("ronde, started there by ssh, {exit} before any rank was started"),
        (_, true) => format!("the process that starts this host's ranks {exit}"),
    };
    let has = |part: &str| said.iter().any(|line| line.contains(part));
    let said = last(said);
    let hint = HINTS.iter().find(|(part, _)| has(part));
    let hint = match (exit, hint) {
        (Exit::Code(SSH_FAILED), Some((_, hint))) => (*hint).to_owned(),
        (Exit::Code(SSH_FAILED), None) => format!(
            "`ssh -o BatchMode=yes {} true` must succeed",
            host.destination()
        ),
        _ => {
            "install Ronde there at the same path, or name the command that starts it with --agent"
                .to_owned()
        }
    };
    let colon = if said.is_empty() { "" } else { ": " };
    format!("{}: {reason}{colon}{said}; {hint}", host.name)
}

/// Last lines of an output.
fn last(said: &[String]) -> String {
    said[said.len().saturating_sub(LINES_MAX)..].join("; ")
}

/// Text for a host whose agent has ended with `exit` and has not reported the end of its ranks.
pub(in super::super) fn lost(host: &HostPlan, exit: Exit) -> String {
    match (exit, host.is_this_machine) {
        (Exit::Code(SSH_FAILED), false) => format!(
            "{}: the connection of ssh was lost; without it, the host ends its ranks",
            host.name
        ),
        _ => format!(
            "{}: the process that supervises this host's ranks {exit}",
            host.name
        ),
    }
}

/// Text for hosts that have not become ready within `seconds`, each with what it has printed until
/// then.
pub(in super::super) fn late(hosts: &[(&HostPlan, &[String])], seconds: u64) -> String {
    let names: Vec<&str> = hosts.iter().map(|(host, _)| host.name.as_str()).collect();
    let are = match names.as_slice() {
        [one] => format!("{one} is"),
        more => format!("{} are", more.join(", ")),
    };
    let printed: String = hosts
        .iter()
        .filter(|(_, said)| !said.is_empty())
        .map(|(host, said)| format!(" ({} has printed: {})", host.name, last(said)))
        .collect();
    let first = hosts.first().map(|(host, _)| host.destination());
    format!(
        "{are} not ready within {seconds} s{printed}; check that `ssh -o BatchMode=yes {} true` \
         succeeds at once, or raise --start-timeout (HOROVOD_START_TIMEOUT)",
        first.unwrap_or_default()
    )
}

/// Text for an agent of another version.
pub(in super::super) fn other_version(host: &HostPlan, version: &str) -> String {
    format!(
        "{} has version {version} of Ronde, and this host has {}; install the same version on all \
         hosts, or name the command that starts it with --agent",
        host.name,
        env!("CARGO_PKG_VERSION")
    )
}

/// Text for an agent that has sent an invalid line.
pub(in super::super) fn invalid(host: &HostPlan, line: &[u8]) -> String {
    const BYTES_MAX: usize = 80;
    let line = String::from_utf8_lossy(&line[..line.len().min(BYTES_MAX)]);
    format!(
        "{}: the process that supervises this host's ranks has sent {line:?}, which is not one of \
         its messages",
        host.name
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, is_this_machine: bool) -> HostPlan {
        HostPlan {
            name: name.into(),
            is_this_machine,
            ranks: 0..1,
        }
    }

    #[test]
    fn errors_name_the_host_and_what_to_try() {
        let of = |code, said: &str| {
            let said: Vec<String> = said.lines().map(str::to_owned).collect();
            not_started(&host("me@node2", false), Exit::Code(code), &said)
        };
        assert_eq!(
            of(255, "me@node2: Permission denied (publickey,password)."),
            "me@node2: ssh cannot connect: me@node2: Permission denied (publickey,password).; a key \
             that needs no password must be accepted there: try ssh-copy-id, or name a key with \
             --ssh-identity-file"
        );
        assert_eq!(
            of(255, ""),
            "me@node2: ssh cannot connect; `ssh -o BatchMode=yes me@node2 true` must succeed"
        );
        for (code, said, part) in [
            (
                255,
                "ssh: Could not resolve hostname a: x",
                "correct the name",
            ),
            (255, "connect to host a: Connection refused", "--ssh-port"),
            (255, "Connection timed out", "--start-timeout"),
            (255, "Host key verification failed.", "check its key"),
            (127, "sh: 1: exec: /x: not found", "--agent"),
            (1, "No module named ronde", "--agent"),
        ] {
            let text = of(code, said);
            assert!(text.contains(said) && text.contains(part), "{text}");
        }
        let changed = "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n1\n2\n3\n4\n5\nHost \
                       key verification failed.";
        assert!(of(255, changed).ends_with("remove its old key with ssh-keygen -R"));
        let hosts = [host("a", false), host("b", false)];
        let text = late(&[(&hosts[0], &[]), (&hosts[1], &[])], 30);
        let start = "a, b are not ready within 30 s; check that `ssh";
        assert!(text.starts_with(start), "{text}");
        let text = late(&[(&hosts[1], &["welcome".to_owned()])], 30);
        let start = "b is not ready within 30 s (b has printed: welcome); check";
        assert!(text.starts_with(start), "{text}");
        let text = lost(&hosts[0], Exit::Code(255));
        assert!(
            text.starts_with("a: the connection of ssh was lost"),
            "{text}"
        );
        let text = lost(&host("localhost", true), Exit::Signal(9));
        assert!(text.contains("was killed by signal 9"), "{text}");
        let long = vec![0xff; 1 << 20];
        assert!(invalid(&hosts[0], &long).len() < 1000);
    }
}
