//! Command lines that start agents: of `ssh`, and of this program.

use super::plan::HostPlan;
use crate::argv::quoted;
use crate::program;
use crate::run::mpirun::SSH_OPTIONS;
use std::ffi::OsString;
use std::time::Duration;

/// Interval of `ssh`'s own messages to a silent server, and the number of them that may stay
/// unanswered before it gives up.
const ALIVE: [&str; 2] = ["ServerAliveInterval=5", "ServerAliveCountMax=3"];

/// How many seconds before the end of the time for a start `ssh` gives up.
const CONNECT_SLACK: u64 = 2;

/// Options for `ssh`.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct SshOptions {
    pub(in super::super) port: Option<u16>,
    pub(in super::super) identity_file: Option<OsString>,
    /// Command that starts this program on the other hosts.
    pub(in super::super) agent: Vec<OsString>,
    /// Name of the hidden subcommand that runs the agent.
    pub(in super::super) subcommand: &'static str,
    pub(in super::super) timeout: Duration,
}

/// Command line of the agent of `host`.
pub(in super::super) fn agent_line(host: &HostPlan, options: &SshOptions) -> Vec<OsString> {
    if host.is_this_machine {
        return program::again_with([options.subcommand.into()]);
    }
    // Its reason is better than the launcher's, which is only that the host is not ready.
    let seconds = options
        .timeout
        .as_secs()
        .saturating_sub(CONNECT_SLACK)
        .max(1);
    let timeout = format!("ConnectTimeout={seconds}");
    let mut line: Vec<OsString> = ["ssh", "-T", "-x"].map(OsString::from).to_vec();
    let own = [
        "ClearAllForwardings=yes",
        "RemoteCommand=none", // of the user's configuration
        &timeout,
    ];
    for option in SSH_OPTIONS.into_iter().chain(own).chain(ALIVE) {
        line.extend(["-o".into(), option.into()]);
    }
    if let Some(port) = options.port {
        line.extend(["-p".into(), port.to_string().into()]);
    }
    if let Some(file) = &options.identity_file {
        line.extend(["-i".into(), file.clone()]);
    }
    line.extend(["--".into(), host.destination().into()]);
    line.push(format!("exec {} {}", quoted(&options.agent), options.subcommand).into());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_gets_its_options_and_one_command_for_the_shell() {
        let mut options = SshOptions {
            agent: ["/opt/my env/bin/python", "-m", "ronde"]
                .map(OsString::from)
                .to_vec(),
            subcommand: "__agent",
            timeout: Duration::from_secs(30),
            ..SshOptions::default()
        };
        let host = HostPlan {
            name: "me@[fd00::1]".into(),
            is_this_machine: false,
            ranks: 0..1,
        };
        let line = |options: &SshOptions| quoted(&agent_line(&host, options));
        assert_eq!(
            line(&options),
            "ssh -T -x -o BatchMode=yes -o StrictHostKeyChecking=accept-new \
             -o ClearAllForwardings=yes -o RemoteCommand=none -o ConnectTimeout=28 \
             -o ServerAliveInterval=5 -o ServerAliveCountMax=3 -- me@fd00::1 \
             \"exec '/opt/my env/bin/python' -m ronde __agent\""
        );
        options.port = Some(2222);
        options.identity_file = Some("my key".into());
        let line = line(&options);
        assert!(line.contains(" -p 2222 -i 'my key' -- "), "{line}");
    }
}
