"""One job of the fault campaign: starts it, causes the faults of its schedule, and waits for its
end."""

import dataclasses
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import schedule
from logs import Logs

RANK = pathlib.Path(__file__).resolve().parent / "rank.py"
MARK = "ELASTIC_CAMPAIGN_JOB"
POLL_S = 0.02
RECOVERY_S = 60  # a job that has not continued by then hangs: longer than its own timeouts
START_S = 150  # for the start of processes, which a busy machine delays
LEFTOVER_S = 5  # by then the processes of a job whose launcher has ended are gone

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

SCRIPT_FAULTS = {
    "script fails": "fails",
    "script prints nonsense": "nonsense",
    "script prints zero slots": "zero",
    "script prints a host twice": "twice",
    "script hangs": "hangs",
}


class Hang(Exception):
    """The job did not do within the deadline what it had to."""


@dataclasses.dataclass
class Outcome:
    """What has happened. Times in seconds; `faults`: by kind, those that took effect."""

    number: int
    hosts: int
    slots: int
    faults: list
    end: str
    problems: list
    resets: int
    steps: int
    recoveries: dict  # kind of fault: times from it to the first step of the survivors
    arrivals: list  # (time from a new slot to the first step there, of which imports)
    seconds: float


class Job:
    def __init__(self, drawn, hosts, folder):
        self.drawn, self.hosts, self.folder = drawn, hosts, folder
        self.mark = f"{os.getpid()}-{drawn.number}"
        self.slots = {host: drawn.slots for host in hosts.names[: drawn.hosts]}
        self.logs = Logs(folder / "logs")
        self.gone = set()  # processes that were killed or stopped
        self.faults, self.recoveries, self.arrivals = [], {}, []
        self.last_death = 0.0
        self.is_settled = True  # the ranks went on after the last death, before the next fault
        self.has_failed = False  # a host may cool down
        self.output = folder / "output"
        self.process = None

    def run(self):
        began = time.monotonic()
        self.start()
        problems, end = [], None
        try:
            self.wait(lambda: self.steps_since(0), "the first step", START_S)
            for fault in self.drawn.faults:
                self.cause(fault)
            end = self.finish()
        except Hang as error:
            problems = [f"hangs: {error}"]
            end = "hang"
        finally:
            problems += self.clean_up(end == "hang")
        self.logs.update()
        self.logs.close()
        generations = self.logs.generations()
        steps = [r["step"] for p in self.logs.processes.values() for r in p.all("done")]
        return Outcome(
            number=self.drawn.number,
            hosts=self.drawn.hosts,
            slots=self.drawn.slots,
            faults=self.faults,
            end=end,
            problems=problems,
            resets=len(generations) - 1,
            steps=max(steps, default=0),
            recoveries=self.recoveries,
            arrivals=self.arrivals,
            seconds=time.monotonic() - began,
        )

    def start(self):
        (self.folder / "logs").mkdir(parents=True)
        self.write_hosts()
        script = self.folder / "hosts.sh"
        script.write_text(SCRIPT.format(folder=self.folder))
        script.chmod(0o755)
        count = sum(self.slots.values())
        flags = ["-np", count, "--min-np", 1, "--blacklist-cooldown-range", 1, 60]
        flags += ["--host-discovery-script", script, "--elastic-timeout", START_S]
        launcher = [sys.executable, "-m", "ronde", "run", *flags, *self.hosts.flags, "--"]
        words = [str(word) for word in [*launcher, sys.executable, RANK, self.folder]]
        environment = os.environ | {MARK: self.mark, "OMP_NUM_THREADS": "1"}
        if self.hosts.path:
            environment["PATH"] = f"{self.hosts.path}:{environment['PATH']}"
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                self.hosts.command(words),
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

    # What the job does.

    def wait(self, condition, what, seconds=RECOVERY_S):
        """Waits for a condition on the logs; Hang if it takes too long or the job ends."""
        deadline = time.monotonic() + seconds
        while True:
            has_ended = self.process.poll() is not None
            self.logs.update()
            if result := condition():
                return result
            if has_ended:
                raise Hang(f"the job ended with code {self.process.returncode} before {what}")
            if time.monotonic() > deadline:
                raise Hang(f"{what}: not within {seconds} s")
            time.sleep(POLL_S)

    def steps_since(self, since):
        """Time of the first step of a generation that began after a time, if there is one."""
        new = [g for g in self.logs.generations() if g.began > since and g.first_done]
        return new[0].first_done if new else None

    def goes_on(self, since):
        """Whether a step has ended after a time, in whatever generation."""
        return any(g.last_done and g.last_done > since for g in self.logs.generations())

    def live(self):
        """Ranks of the last generation that run: {rank: process}."""
        generations = self.logs.generations()
        if not generations:
            return {}
        members = generations[-1].members
        return {
            rank: pid
            for rank, pid in members.items()
            if pid not in self.gone and is_alive(pid)
        }

    def size(self):
        generations = [g for g in self.logs.generations() if g.first_done]
        return generations[-1].size if generations else 0

    # Faults.

    def cause(self, fault):
        time.sleep(fault.pause_s)
        self.logs.update()
        self.is_settled = bool(self.steps_since(self.last_death))
        random_ = random.Random(fault.seed)
        if fault.kind in SCRIPT_FAULTS:
            took_effect = self.break_script(fault.kind)
        elif fault.kind in ("add slots", "remove slots"):
            took_effect = self.change_slots(1 if fault.kind == "add slots" else -1, random_)
        elif fault.kind in schedule.HOST_FAULTS:
            took_effect = self.change_hosts(fault, random_)
        elif fault.kind == schedule.ALL:
            took_effect = self.kill_all()
        else:
            took_effect = self.kill(fault, random_)
        if took_effect:
            self.faults.append(fault.kind)

    def kill(self, fault, random_):
        """Kills or stops ranks, and waits for the first step without them."""
        deaths = 2 if fault.kind in ("two at once", "kill during a reset") else 1
        if sum(self.slots.values()) <= deaths:
            return False  # no rank would be left
        # Lost ranks are replaced after their host's cool-down, which doubles with each failure.
        seconds = START_S + 2 ** len(self.faults)
        self.wait(lambda: len(self.live()) > deaths, f"{deaths + 1} ranks", seconds)
        live = self.live()
        ranks = random_.sample(sorted(live), deaths)
        if fault.kind == "kill rank 0":
            ranks = [min(live)]
        if fault.kind == "kill in a commit":
            return self.kill_in_commit(fault, random_)
        for index, rank in enumerate(ranks):
            if index and fault.kind == "kill during a reset":
                time.sleep(random_.choice([0.01, 0.05, 0.2, 1]) * random_.random())
            self.signal(live[rank], fault.kind == "stop")
        self.died(fault, time.monotonic())
        return True

    def kill_in_commit(self, fault, random_):
        rank = random_.choice([0, max(self.live())])
        order = self.folder / "die"
        order.write_text(f"{rank} {random_.choice(['before', 'after'])}")

        def deaths():
            dying = (process.first("dies") for process in self.logs.processes.values())
            return [record["t"] for record in dying if record and record["t"] > before]

        before = time.monotonic()
        try:
            # The ranks may be fewer by now, and none with this number left.
            death = max(self.wait(deaths, "the end of a rank in a commit", 10))
        except Hang:
            order.unlink(missing_ok=True)
            if self.process.poll() is not None:
                raise
            return False
        self.died(fault, death)
        return True

    def died(self, fault, death):
        """Waits for the first step without the ranks that have died, if the fault is awaited."""
        self.last_death, self.has_failed = time.monotonic(), True
        if fault.is_awaited:
            what = f"a step after {fault.kind!r}"
            first = self.wait(lambda: self.steps_since(death), what)
            if self.is_settled:  # otherwise the job also waited for something else
                self.recoveries.setdefault(fault.kind, []).append(first - death)

    def signal(self, pid, is_stop):
        self.gone.add(pid)
        try:
            os.kill(pid, signal.SIGSTOP if is_stop else signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has just ended in another way

    def kill_all(self):
        self.wait(self.live, "ranks that can be killed")
        # Also those that are starting.
        for pid in [pid for pid in self.logs.processes if is_alive(pid)]:
            self.signal(pid, False)
        return True

    def change_slots(self, change, random_):
        host = random_.choice(sorted(self.slots))
        if not 1 <= self.slots[host] + change <= self.drawn.slots + 1:
            return False
        self.slots[host] += change
        wanted = sum(self.slots.values())
        is_measured = change > 0 and not self.has_failed and self.size() == wanted - 1
        began = time.monotonic()
        self.write_hosts()
        if self.has_failed:
            return True  # after a failure, the host's cool-down decides when
        self.wait(lambda: self.size() == wanted, f"{wanted} ranks", START_S)
        if is_measured:
            self.arrived(began)
        return True

    def arrived(self, since):
        """Records the first step of a process that was started after a time."""
        for process in self.logs.processes.values():
            start, first = process.first("start"), process.first("done")
            if start and first and start["started"] > since:
                imports = start["t"] - start["started"]
                self.arrivals.append((first["t"] - since, imports))

    def change_hosts(self, fault, random_):
        kind = fault.kind
        others = [host for host in self.hosts.names[1:] if host in self.slots]
        unused = [host for host in self.hosts.names if host not in self.slots]
        if not (unused if kind == "add a host" else others):
            return False
        host = random_.choice(unused if kind == "add a host" else others)
        if kind in ("link down", "host vanishes"):
            # A rank that has the state of the training is left on another host.
            def elsewhere():
                return set(self.live().values()) - set(self.hosts.processes(host))

            seconds = START_S + 2 ** len(self.faults)
            self.wait(elsewhere, f"a rank that is not on {host}", seconds)
        before = time.monotonic()
        if kind == "add a host":
            self.slots[host] = self.drawn.slots
            self.write_hosts()
            self.wait(lambda: self.runs_on(host), f"a step on {host}")
            self.arrived(before)
            return True
        del self.slots[host]
        if kind == "remove a host":
            self.write_hosts()
            self.wait(lambda: self.steps_since(before), f"a step without {host}")
            return True
        ranks = [pid for pid in self.hosts.processes(host) if pid in self.logs.processes]
        has_ranks = self.runs_on(host)
        if kind == "link down":
            self.hosts.link(host, "down")
        else:
            self.hosts.vanish(host)
        if has_ranks:
            self.died(fault, before)
        else:  # its processes had not joined the others yet
            self.wait(lambda: self.goes_on(before + 1), f"a step after {kind!r}")
        # A rank on a host that has lost its network ends by itself.
        self.wait(lambda: not any(map(is_alive, ranks)), f"the end of the ranks on {host}")
        self.write_hosts()
        self.hosts.link(host, "up")
        return True

    def runs_on(self, host):
        """Whether a rank of the last generation is on a host."""
        pids = set(self.hosts.processes(host))
        generations = [g for g in self.logs.generations() if g.first_done]
        return bool(generations) and any(pid in pids for pid in generations[-1].members.values())

    def break_script(self, kind):
        """Breaks the discovery script until the launcher has reported it; the job continues."""
        reports = self.reports()
        order = self.folder / "script-fault"
        order.write_text(SCRIPT_FAULTS[kind])
        self.wait(lambda: self.reports() > reports, f"a report that the {kind}")
        order.unlink()
        reported, polls = time.monotonic(), self.polls()

        # The launcher does not report the same problem twice in a row.
        def is_over():
            return self.goes_on(reported) and self.polls() > polls + 1

        self.wait(is_over, f"a step after the {kind}")
        return True

    def polls(self):
        """Number of times that the script has printed the hosts."""
        return (self.folder / "polls").stat().st_size

    def reports(self):
        return self.output.read_bytes().count(b"ronde run: the discovery script")

    # The end.

    def finish(self):
        if self.drawn.ends_by_itself:
            self.wait(lambda: self.steps_since(self.last_death), "a step after the last fault")
            (self.folder / "end").touch()
        self.wait(lambda: self.process.poll() is not None, "the end of the job")
        code = self.process.returncode
        if self.drawn.ends_by_itself:
            return "finished" if code == 0 else f"code {code}"
        # The launcher names the signal that ended the last rank.
        return "all ranks lost" if code == 128 + signal.SIGKILL else f"code {code}"

    def clean_up(self, is_hanging):
        """Ends what is left, and returns what should not have been there."""
        deadline = time.monotonic() + (0 if is_hanging else LEFTOVER_S)
        while (left := self.marked()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        return [] if is_hanging or not left else [f"{len(left)} processes are left"]

    def marked(self):
        """Processes of this job that run."""
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                environment = pathlib.Path("/proc", entry, "environ").read_bytes()
            except OSError:
                continue  # it has ended meanwhile
            if wanted in environment.split(b"\0") and is_alive(int(entry)):
                found.append(int(entry))
        return found


def is_alive(pid):
    """Whether the process runs; a zombie does not."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"
