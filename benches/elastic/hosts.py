"""Where the ranks of a job run: on this machine, or on hosts that are network namespaces."""

import os
import pathlib
import shlex
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MULTIHOST = ROOT / "scripts" / "multihost"
REMOTE_SHELL = pathlib.Path(__file__).resolve().parent / "remote_shell.py"


class ThisMachine:
    """One host."""

    names = ["localhost"]
    flags = ()
    path = None

    def command(self, words):
        """Words that start the launcher."""
        return words

    def close(self):
        pass


class Namespaces:
    """Several hosts, of which the first one has the launcher. `name`: of their network, at most 9
    letters. `folder`: for the program that plays ssh's part."""

    flags = ("--tcp", "--network-interface", "eth0")

    def __init__(self, count, name, folder):
        self.environment = {"MULTIHOST_NAME": name}
        self.script("up", count)
        self.spaces = self.script("names").split()
        addresses = self.script("addresses").split()
        self.names = ["localhost", *addresses[1:]]
        cases = "\n".join(
            f"    {address}) space={space} ;;" for address, space in zip(addresses, self.spaces)
        )
        self.path = folder
        ssh = folder / "ssh"
        program = shlex.join([sys.executable, str(REMOTE_SHELL)])
        ssh.write_text(SSH.format(cases=cases, name=name, program=program))
        ssh.chmod(0o755)

    def script(self, *words):
        command = [MULTIHOST, *map(str, words)]
        environment = os.environ | self.environment
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        return done.stdout

    def command(self, words):
        return ["env", f"MULTIHOST_NAME={self.environment['MULTIHOST_NAME']}", str(MULTIHOST)] + [
            "enter",
            self.spaces[0],
            *words,
        ]

    def link(self, host, state):
        """Connects a host to the network (`up`), or takes it off (`down`)."""
        device = f"{self.spaces[self.names.index(host)]}-o"
        subprocess.run(["ip", "link", "set", device, state], check=True)

    def processes(self, host):
        space = self.spaces[self.names.index(host)]
        pids = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True)
        return list(map(int, pids.stdout.split()))

    def vanish(self, host):
        """Takes the host off the network and kills everything that runs there, except for the
        process that holds the namespaces."""
        self.link(host, "down")
        space = self.spaces[self.names.index(host)]
        holder = pathlib.Path(f"/run/{self.environment['MULTIHOST_NAME']}-multihost/{space}.pid")
        kept = int(holder.read_text())
        stat = pathlib.Path(f"/proc/{kept}/stat").read_text()
        parent = int(stat.rsplit(")", 1)[1].split()[1])
        for pid in set(self.processes(host)) - {kept, parent}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def close(self):
        self.script("down")


# Options, a host, and words for the shell there.
SSH = """\
#!/usr/bin/env bash
while getopts TxNo:p:i: option; do :; done
shift $((OPTIND - 1))
host=$1
shift
case $host in
{cases}
    *) echo "ssh: unknown host $host" >&2; exit 255 ;;
esac
export MULTIHOST_NAME={name}
exec {program} "$host" "$space" "$*"
"""
