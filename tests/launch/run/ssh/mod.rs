//! Tests of jobs on several hosts without MPI, with a program in place of `ssh` that runs the
//! command on this machine.

mod elastic;
mod end;
mod failures;
mod start;

use super::*;
use crate::support::program::{until, write_program};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Like `ssh`: some options, `--`, the host, and a command for a shell there. The shell gets almost
/// none of this process's variables. The name of the host chooses what goes wrong.
const SSH: &str = r#"#!/bin/sh
printf '%s\n' "$*" >> "$0.log"
while [ "$1" != -- ]; do shift; done
host=$2
shift 2
case $host in
    password) echo "me@password: Permission denied (publickey,password)." >&2; exit 255 ;;
    unknown) echo "ssh: Could not resolve hostname unknown: Name or service not known" >&2; exit 255 ;;
    refused) echo "ssh: connect to host refused port 22: Connection refused" >&2; exit 255 ;;
    silent) exit 255 ;;
    hangs) exec sleep 1000 ;;
    empty) exec sh -c "exec /no/such/ronde __agent" ;;
    old) echo "ronde agent 0.0.1"; exec cat > /dev/null ;;
    garbage) echo "ronde agent VERSION"; echo "what?"; exec cat > /dev/null ;;
    foreign) echo "ronde agent VERSION"; echo "r"; read task; read start; echo "o0 a line of another host's rank"; exec cat > /dev/null ;;
    chatty) echo "welcome"; echo "to this host" >&2; printf "no end" ;;
esac
env --default-signal=INT,QUIT -i PATH="$PATH" TMPDIR="$(dirname "$0")/tmp" HOST_NAME=$host sh -c "$*" &
echo $! > "$0.$host.agent"
echo $$ > "$0.$host.ssh"
wait $!
"#;

/// Hosts that the program in place of `ssh` reaches.
struct Hosts(tempfile::TempDir);

impl Hosts {
    fn new() -> Self {
        let hosts = Self(tempfile::tempdir().unwrap());
        let text = SSH.replace("VERSION", env!("CARGO_PKG_VERSION"));
        // Standard input of a background process is empty, unless it is another descriptor's.
        let text = text.replace("sh -c \"$*\" &", "sh -c \"$*\" <&3 &");
        let text = text.replacen("#!/bin/sh\n", "#!/bin/sh\nexec 3<&0\n", 1);
        write_program(&hosts.ssh(), &text);
        std::fs::create_dir(hosts.temporary()).unwrap();
        hosts
    }

    fn ssh(&self) -> PathBuf {
        self.0.path().join("ssh")
    }

    /// Folder for temporary files of the hosts.
    fn temporary(&self) -> PathBuf {
        self.0.path().join("tmp")
    }

    /// Command lines of `ssh`.
    fn log(&self) -> String {
        std::fs::read_to_string(self.0.path().join("ssh.log")).unwrap()
    }

    /// Process that stands for `ssh` (`"ssh"`), or for the agent (`"agent"`), of a host.
    fn process(&self, host: &str, kind: &str) -> u32 {
        let file = self.0.path().join(format!("ssh.{host}.{kind}"));
        // The program writes it after it has started the agent.
        until(|| {
            let text = std::fs::read_to_string(&file).ok()?;
            text.strip_suffix('\n').map(|pid| pid.parse().unwrap())
        })
    }

    /// Whether no host has a file left.
    fn are_clean(&self) -> bool {
        let start = Instant::now();
        let is_empty = || std::fs::read_dir(self.temporary()).unwrap().count() == 0;
        while !is_empty() && start.elapsed() < DEADLINE {
            std::thread::sleep(Duration::from_millis(5));
        }
        is_empty()
    }

    /// Returns the command `ronde run --tcp -np <ranks> -H <hosts> <options> -- sh -c <script>`.
    fn run(&self, ranks: usize, hosts: &str, options: &[&str], script: &str) -> Command {
        let ranks = ranks.to_string();
        let mut arguments = vec!["run", "--tcp", "-np", &ranks, "-H", hosts];
        arguments.extend(options);
        arguments.extend(["--", "sh", "-c", script]);
        self.command(&arguments)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = ronde(arguments);
        command
            .env("PATH", self.path())
            .env("TMPDIR", self.temporary());
        for name in [
            "RONDE_TCP_SERVER",
            "RONDE_BACKEND",
            "HOROVOD_GLOO_IFACE",
            "SSH_CONNECTION",
        ] {
            command.env_remove(name);
        }
        command
    }

    fn path(&self) -> std::ffi::OsString {
        let path = std::env::var_os("PATH").unwrap();
        let folders = [self.0.path().to_owned()].into_iter();
        std::env::join_paths(folders.chain(std::env::split_paths(&path))).unwrap()
    }
}

fn exists(path: &str) -> bool {
    Path::new(path).exists()
}
