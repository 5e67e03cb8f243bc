"""Hosts for tests of jobs: network namespaces, and a program in the place of ssh that connects to
them over their network."""

import os
import subprocess
import sys
from pathlib import Path

_SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "multihost"

# As ssh does, it ends with the connection, and the command then reads the end of its input. As with
# sshd, the command does not notice a network that has failed.
_SSH = """#!{python}
import getopt, os, socket, subprocess, sys, threading

SERVER = '''
import os, socket, sys

listener = socket.create_server((sys.argv[1], 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
os.dup2(connection.fileno(), 0)
os.dup2(connection.fileno(), 1)
os.execvp("sh", ["sh", "-c", sys.argv[2]])
'''

_, (address, *words) = getopt.getopt(sys.argv[1:], "TxNo:p:i:")
host = {hosts}.get(address)
if host is None:
    sys.stderr.write(f"ssh: Could not resolve hostname {{address}}\\n")
    sys.exit(255)
server = subprocess.Popen(
    ["{script}", "enter", host, "{python}", "-c", SERVER, address, " ".join(words)],
    env={{**os.environ, "MULTIHOST_NAME": "{name}"}},
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    start_new_session=True,
)
connection = socket.create_connection((address, int(server.stdout.readline())))


def send():
    while data := os.read(0, 1 << 16):
        connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)


threading.Thread(target=send, daemon=True).start()
while data := connection.recv(1 << 16):
    os.write(1, data)
code = server.wait()
os._exit(code if code >= 0 else 255)
"""


class NotOnHostsError(OSError):
    """The hosts lack the interpreter or the package."""


def are_possible():
    """Whether this user may make hosts."""
    return subprocess.run([_SCRIPT, "possible"], capture_output=True).returncode == 0


class Namespaces:
    """Hosts on one machine, which exist until :meth:`down` is called. Raises OSError if they
    cannot be made, and :class:`NotOnHostsError` if they lack the interpreter or the package.

    ``folder``: a folder that all hosts have, for the program in the place of ssh; not in /tmp.
    """

    def __init__(self, name, count, folder):
        self._name = name
        self._run("up", str(count))
        self.names = self._run("names").split()
        self.addresses = self._run("addresses").split()
        self.folder = folder
        ssh = folder / "ssh"
        hosts = dict(zip(self.addresses, self.names))
        ssh.write_text(_SSH.format(python=sys.executable, script=_SCRIPT, name=name, hosts=hosts))
        ssh.chmod(0o755)
        # /tmp is another folder on each host, and the interpreter or the package may be in it.
        python = [*self.enter(0), sys.executable, "-c", "import ronde"]
        if subprocess.run(python, env=self.variables(), capture_output=True).returncode:
            self.down()
            raise NotOnHostsError(
                f"{sys.executable} or ronde is not on the hosts, which have their own /tmp"
            )

    def _run(self, *words):
        done = subprocess.run(
            [_SCRIPT, *words], env=self._environment(), capture_output=True, text=True
        )
        if done.returncode:
            raise OSError(done.stderr.strip())
        return done.stdout

    def _environment(self):
        return {**os.environ, "MULTIHOST_NAME": self._name}

    def variables(self):
        """Variables with which a program finds the program in the place of ssh."""
        return {**self._environment(), "PATH": f"{self.folder}:{os.environ['PATH']}"}

    def enter(self, number):
        """Words before a command that is to run on a host."""
        return [_SCRIPT, "enter", self.names[number]]

    def cut(self, number):
        """Ends the network of a host."""
        self._run("cut", self.names[number])

    def down(self):
        """Removes the hosts."""
        self._run("down")


def folder():
    """Folder in which tests create the folder of hosts."""
    target = _SCRIPT.parents[1] / "target"
    target.mkdir(exist_ok=True)
    return target
