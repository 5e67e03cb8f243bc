"""A job of `ronde run` with a discovery script: its start, its processes, and what it prints."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

MARK = "ELASTIC_BENCH_JOB"
POLL_S = 0.02

SCRIPT = """\
#!/bin/sh
# Prints the hosts, or does what the fault says.
fault=$(cat {folder}/script-fault 2>/dev/null)
case $fault in
    fails) exit 3 ;;
    nonsense) echo "<html>503 Service Unavailable</html>"; exit 0 ;;
    zero) sed 's/:.*/:0/' {folder}/hosts; exit 0 ;;
    twice) cat {folder}/hosts {folder}/hosts; exit 0 ;;
    hangs) exec sleep 1000 ;;
esac
echo >> {folder}/polls
cat {folder}/hosts
"""


class Hang(Exception):
    """The job did not do within the deadline what it had to."""


class Launched:
    """A job on `hosts`, with its files in `folder`. `slots`: of each host that can be used."""

    def __init__(self, hosts, folder, slots, mark):
        self.hosts, self.folder, self.slots = hosts, folder, dict(slots)
        self.mark = f"{os.getpid()}-{mark}"
        self.output = folder / "output"
        self.process = None

    def start(self, flags, program):
        """Starts `program` with as many ranks as there are slots."""
        self.write_hosts()
        script = self.folder / "hosts.sh"
        script.write_text(SCRIPT.format(folder=self.folder))
        script.chmod(0o755)
        flags = ["-np", sum(self.slots.values()), *flags, "--host-discovery-script", script]
        words = [sys.executable, "-m", "ronde", "run", *flags, *self.hosts.flags, "--", *program]
        environment = os.environ | {MARK: self.mark, "OMP_NUM_THREADS": "1"}
        if self.hosts.path:
            environment["PATH"] = f"{self.hosts.path}:{environment['PATH']}"
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                self.hosts.command([str(word) for word in words]),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def write_hosts(self):
        text = "".join(f"{host}:{slots}\n" for host, slots in self.slots.items())
        new = self.folder / "hosts.new"
        new.write_text(text)
        new.rename(self.folder / "hosts")

    def wait(self, condition, what, seconds):
        """Waits for a condition; Hang if it takes too long or the job ends."""
        deadline = time.monotonic() + seconds
        while True:
            has_ended = self.process.poll() is not None
            if result := condition():
                return result
            if has_ended:
                raise Hang(f"the job ended with code {self.process.returncode} before {what}")
            if time.monotonic() > deadline:
                raise Hang(f"{what}: not within {seconds} s")
            time.sleep(POLL_S)

    def printed(self, pattern):
        """All matches of a pattern in what the job has printed."""
        return re.findall(pattern, self.output.read_text(errors="replace"), re.MULTILINE)

    def sizes(self):
        """Numbers of ranks after each reset."""
        return [int(size) for size in self.printed(r"^ronde run: reset \d+: (\d+) rank")]

    def processes(self):
        """Processes of this job that run, with their environments."""
        wanted = f"{MARK}={self.mark}".encode()
        found = {}
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                environment = pathlib.Path("/proc", entry, "environ").read_bytes().split(b"\0")
            except OSError:
                continue  # it has ended meanwhile
            if wanted in environment and is_alive(int(entry)):
                pairs = (line.split(b"=", 1) for line in environment if b"=" in line)
                found[int(entry)] = dict(pairs)
        return found

    def ranks(self):
        """Ranks by the number of their process, in the order of their starts."""
        name = b"RONDE_ELASTIC_MEMBER"
        processes = self.processes().items()
        ranks = {int(known[name]): pid for pid, known in processes if name in known}
        return dict(sorted(ranks.items()))

    def kill_rest(self):
        """Kills what is left."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()


def is_alive(pid):
    """Whether the process runs; a zombie does not."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"
