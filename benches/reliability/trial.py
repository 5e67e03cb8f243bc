"""Runs one trial: starts the job, triggers the fault, waits for the survivors, and looks for
processes, sockets and files that are left behind."""

import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import threading
import time

import plan

POLL_S = 0.01
NO_FAULT_S = 30  # a job in which no fault has happened by then is stuck
LEFTOVER_WAIT_S = 1  # the kernel takes a moment to end processes that have been killed
MARK = "RELIABILITY_TRIAL"
SIGNALS = {
    "kill": signal.SIGKILL,
    "term": signal.SIGTERM,
    "abort": signal.SIGABRT,
    "stop": signal.SIGSTOP,
}
FOREIGN = (
    "HOROVOD_",
    "RONDE_",
    "BYTEPS_",
    "OMPI_",
    "PMI",
    "PMIX_",
    "SLURM_",
    "WORLD_SIZE",
    "RANK",
    "LOCAL_",
)


@dataclasses.dataclass
class Rank:
    """The log of one rank, and how it ended (`None`: not, or the launcher has not
    said)."""

    events: list
    output: str = ""
    code: int | None = None  # as subprocess gives it: -n after signal n

    def first(self, event):
        return next((record for record in self.events if record["event"] == event), None)

    def time(self, event):
        record = self.first(event)
        return record and record["t"]


@dataclasses.dataclass
class Outcome:
    """The outcome of a trial. Times are CLOCK_MONOTONIC in seconds."""

    ranks: list
    started: float
    fault: float | None  # None: it did not happen
    ended: float | None  # when all survivors had ended, or the launcher; None: the driver gave up
    launcher_code: int | None
    launcher_text: str
    leftovers: list


def read_log(path):
    """Returns the events of a rank's log; an incomplete line is skipped."""
    events = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        try:
            events.append(json.loads(line))
        except ValueError:
            pass
    return events


def marked_processes(mark):
    """Returns the processes, other than zombies, that have inherited the trial's mark: [(pid, state,
    command)]."""
    found = []
    wanted = f"{MARK}={mark}".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            if wanted not in pathlib.Path("/proc", entry, "environ").read_bytes().split(b"\0"):
                continue
            stat = pathlib.Path("/proc", entry, "stat").read_text()
        except OSError:  # it has ended meanwhile
            continue
        command = stat[stat.index("(") + 1 : stat.rindex(")")]
        state = stat[stat.rindex(")") + 2]
        if state not in "ZX":
            found.append((int(entry), state, command))
    return found


def abstract_sockets(keys):
    """Returns the names of abstract sockets that contain one of the keys."""
    names = (line.rsplit(" ", 1)[-1] for line in open("/proc/net/unix", errors="replace"))
    return sorted(
        {
            name.strip()
            for name in names
            if name.startswith("@") and any(key in name for key in keys)
        }
    )


def shared_memory():
    return set(os.listdir("/dev/shm"))


class Run:
    """Running trial."""

    def __init__(self, trial, programs, folder, give_up_s):
        self.trial, self.programs, self.folder, self.give_up_s = trial, programs, folder, give_up_s
        self.out, self.tmp = folder / "out", folder / "tmp"
        self.mark = f"{os.getpid()}-{trial.name}"
        self.key = f"reliability-{self.mark}."  # no other trial's begins like it
        self.sent = None  # when the driver sent the signal
        self.processes = {}  # rank: process; without a rank it is the launcher

    def run(self):
        self.out.mkdir(parents=True)
        self.tmp.mkdir()
        before = shared_memory()
        started = time.monotonic()
        timer = self.start_launcher() if self.trial.launcher else self.start_ranks()
        try:
            ended = self.wait(started)
        finally:
            if timer:
                timer.cancel()
                timer.join()
        leftovers = self.clean_up(ended)
        ranks = self.ranks()
        launcher = self.processes.get(None)
        text = (self.folder / "launcher.out").read_text(errors="replace") if launcher else ""
        victim = ranks[self.trial.victim]
        outcome = Outcome(
            ranks=ranks,
            started=started,
            fault=self.sent if self.trial.outside else victim.time("fault"),
            ended=ended,
            launcher_code=launcher and launcher.returncode,
            launcher_text=text,
            leftovers=leftovers,
        )
        keys = [self.key] + [
            start["job"]
            for start in (rank.first("start") for rank in ranks)
            if start and start["job"]
        ]
        outcome.leftovers += [f"abstract socket {name}" for name in abstract_sockets(keys)]
        new = shared_memory() - before
        outcome.leftovers += [
            f"/dev/shm/{name}"
            for name in new
            if "ronde" in name or any(key in name for key in keys)
        ]
        outcome.leftovers += self.unexpected_files()
        return outcome

    def start_launcher(self):
        command = [
            self.programs["ronde"],
            "run",
            "-np",
            str(self.trial.ranks),
            "--verbose",
            "--no-prefix",
            "--output-filename",
            self.folder / "output",
            "--",
            self.programs["rank"],
            *plan.arguments(self.trial, self.folder),
        ]
        self.processes[None] = self.spawn(command, "launcher.out", {})

    def start_ranks(self):
        """Starts the ranks, in random order, and the timer of a fault that the driver triggers."""
        trial, timer = self.trial, None
        order = list(range(trial.ranks))
        random.Random(trial.seed).shuffle(order)
        command = [self.programs["rank"], *plan.arguments(trial, self.folder)]
        for rank in order:
            variables = {
                "HOROVOD_RANK": str(rank),
                "HOROVOD_SIZE": str(trial.ranks),
                "RONDE_JOB_ID": self.key,
            }
            self.processes[rank] = self.spawn(command, f"rank.{rank}.out", variables)
            if trial.outside and rank == trial.victim:
                timer = threading.Timer(trial.delay_us / 1e6, self.send)
                timer.start()
        return timer

    def spawn(self, command, output, variables):
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)
        }
        environment |= plan.environment(self.trial, self.out) | variables
        environment |= {"TMPDIR": str(self.tmp), MARK: self.mark}
        with open(self.folder / output, "wb") as file:
            return subprocess.Popen(
                [str(word) for word in command],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def send(self):
        self.sent = time.monotonic()
        self.processes[self.trial.victim].send_signal(SIGNALS[self.trial.fault])

    def wait(self, started):
        """Waits for the launcher, or for all survivors; returns the time of their end, or `None` after
        too long a wait."""
        trial = self.trial
        waited_for = [process for rank, process in self.processes.items() if rank != trial.victim]
        fault, is_settled = None, False
        while any(process.poll() is None for process in waited_for):
            now = time.monotonic()
            if fault is None:
                log = Rank(read_log(self.folder / f"rank.{trial.victim}.log"))
                fault = self.sent if trial.outside else log.time("fault")
            if now > (fault + self.give_up_s if fault else started + NO_FAULT_S + self.give_up_s):
                return None
            if trial.launcher and trial.stops and fault and not is_settled:
                is_settled = self.end_stopped_rank()
            time.sleep(POLL_S)
        return time.monotonic()

    def end_stopped_rank(self):
        """Under the launcher: kills the stopped rank when all others have left without an error, because
        then the launcher does not kill it."""
        others = [rank for rank in range(self.trial.ranks) if rank != self.trial.victim]
        logs = [Rank(read_log(self.folder / f"rank.{rank}.log")) for rank in others]
        if not all(log.first("left") and not log.first("error") for log in logs):
            return False
        start = Rank(read_log(self.folder / f"rank.{self.trial.victim}.log")).first("start")
        stopped = [
            pid
            for pid, state, _ in marked_processes(self.mark)
            if start and pid == start["pid"] and state == "T"
        ]
        for pid in stopped:
            os.kill(pid, signal.SIGKILL)
        return bool(stopped)

    def clean_up(self, ended):
        """Ends remaining processes, and returns those that should not exist."""
        expected = set()
        if ended and self.trial.stops and not self.trial.launcher:
            process = self.processes[self.trial.victim]
            expected.add(process.pid)  # nobody but us could end it
            process.kill()
            process.wait()
        deadline = time.monotonic() + LEFTOVER_WAIT_S
        while (left := marked_processes(self.mark)) and ended and time.monotonic() < deadline:
            time.sleep(POLL_S)
        for pid, _, _ in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self.processes.values():
            process.wait()
        return [
            f"process {pid} ({command}, state {state})"
            for pid, state, command in left
            if pid not in expected and ended
        ]

    def ranks(self):
        ranks = []
        for number in range(self.trial.ranks):
            rank = Rank(read_log(self.folder / f"rank.{number}.log"))
            outputs = [
                self.folder / f"rank.{number}.out",
                *self.folder.glob(f"output/rank.{number}/*"),
            ]
            rank.output = "".join(
                path.read_text(errors="replace") for path in outputs if path.exists()
            )
            if number in self.processes:
                rank.code = self.processes[number].returncode
            ranks.append(rank)
        return ranks

    def unexpected_files(self):
        """Returns unexpected files in the folders of the job: working folder, outputs,
        temporary files."""
        trial = self.trial
        known = {"out", "tmp"} | ({"launcher.out", "output"} if trial.launcher else set())
        known |= {f"rank.{rank}.{kind}" for rank in range(trial.ranks) for kind in ("log", "out")}
        end = ".json.gz" if trial.variant == "compressed" else ".json"
        stems = ["t", "t0", "t1", "t2"] if trial.phase == "timeline" else []
        outputs = {"a.csv", "s.json"} if trial.phase == "autotune" else set()
        outputs |= {
            f"{stem}{middle}{end}"
            for stem in stems
            for middle in ["", *(f".rank{rank}" for rank in range(1, trial.ranks))]
        }
        found = [name for name in os.listdir(self.folder) if name not in known]
        found += [f"out/{name}" for name in os.listdir(self.out) if name not in outputs]
        return [f"file {name}" for name in found + [f"tmp/{name}" for name in os.listdir(self.tmp)]]
