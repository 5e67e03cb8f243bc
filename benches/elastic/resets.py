"""Many resets of one job under the launcher, and what they leave behind: memory, descriptors,
threads and shared memory of the launcher and of the ranks that stay.

Two ways: operations that fail (python/tests/single/resets.py), and a slot that is added and removed
in turn, for which a process starts and leaves again.
"""

import os
import pathlib
import statistics
import sys
import tempfile
import time

from hosts import ROOT, ThisMachine
from launched import Hang, Launched

RANK = pathlib.Path(__file__).resolve().parent / "rank.py"
FAILING = ROOT / "python" / "tests" / "single" / "resets.py"
FIGURES = ("memory_bytes", "descriptors", "threads", "mappings")
WARM_UP = 0.1  # share of the resets that fill caches, and are not compared
READ_S = 0.1
READINGS = 10  # of which the median counts, as messages are on their way
DEADLINE_S = 300  # for a reset: a busy machine takes a minute to start a process


def operations_fail(parent, resets):
    """A job of two ranks whose operations fail again and again."""
    with tempfile.TemporaryDirectory(prefix="resets-", dir=parent) as folder:
        job = Launched(ThisMachine(), pathlib.Path(folder), {"localhost": 2}, "resets")
        job.start(["--min-np", 2], [sys.executable, FAILING, resets])
        watch = Watch(job)
        try:
            while job.process.poll() is None:
                watch.read(len(job.sizes()))
                time.sleep(READ_S)
            if job.process.returncode:
                raise Hang(f"the job ended with code {job.process.returncode}")
        finally:
            job.kill_rest()
        return watch.outcome(resets)


def slots_change(parent, resets):
    """A job of two ranks and of three, in turn."""
    with tempfile.TemporaryDirectory(prefix="resets-", dir=parent) as folder:
        job = Launched(ThisMachine(), pathlib.Path(folder), {"localhost": 2}, "changes")
        program = [sys.executable, RANK, folder, "--step-ms", "50"]
        job.start(["--min-np", 2], program)
        watch = Watch(job)
        try:
            logs = pathlib.Path(folder, "logs")
            job.wait(lambda: len(list(logs.glob("*.jsonl"))) == 2, "the first ranks", DEADLINE_S)
            for reset in range(1, resets + 1):
                size = 2 + reset % 2
                job.slots = {"localhost": size}
                job.write_hosts()
                job.wait(lambda: len(job.sizes()) >= reset, f"reset {reset}", DEADLINE_S)
                if job.sizes()[-1] != size:
                    raise Hang(f"reset {reset} is not one to {size} ranks")
                if size == 2:
                    # The process that is no longer needed has ended.
                    job.wait(lambda: len(job.ranks()) == 2, "the end of a process", DEADLINE_S)
                    watch.read(reset)
        except Hang:
            print(job.output.read_text(errors="replace")[-4000:], file=sys.stderr)
            raise
        finally:
            job.kill_rest()
        return watch.outcome(resets)


class Watch:
    """Readings of the launcher and of the first two ranks, with the number of resets so far."""

    def __init__(self, job):
        self.job = job
        self.began = time.monotonic()
        self.readings = []  # (resets, {process: figures})
        self.shm = len(os.listdir("/dev/shm"))

    def read(self, resets):
        ranks = self.job.ranks()
        watched = {"launcher": self.job.process.pid}
        watched |= {f"rank {number - 1}": ranks[number] for number in (1, 2) if number in ranks}
        try:
            figures = {name: of_process(pid) for name, pid in watched.items()}
        except OSError:
            return  # one has ended meanwhile
        if len(figures) == 3:
            self.readings.append((resets, figures))

    def outcome(self, resets):
        """Figures after the warm-up and at the end."""
        after_warm_up = [reading for reading in self.readings if reading[0] >= WARM_UP * resets]
        # The last reset may be followed by the end of the ranks.
        running = [reading for reading in after_warm_up if reading[0] < resets]
        first, last = running[:READINGS], running[-READINGS:]
        names = after_warm_up[0][1]
        return {
            "resets": self.readings[-1][0],
            "seconds": time.monotonic() - self.began,
            "between": [first[0][0], last[-1][0]],
            "processes": {
                name: {
                    figure: [
                        statistics.median_low([reading[1][name][figure] for reading in part])
                        for part in (first, last)
                    ]
                    for figure in FIGURES
                }
                for name in names
            },
            "shm": [self.shm, len(os.listdir("/dev/shm"))],
        }


def of_process(pid):
    folder = pathlib.Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    # The runtime's memory has no name in /dev/shm; other jobs may have files there.
    maps = (folder / "maps").read_text().splitlines()
    return {
        "memory_bytes": int(status["VmRSS"].split()[0]) << 10,
        "descriptors": len(os.listdir(folder / "fd")),
        "threads": int(status["Threads"]),
        "mappings": sum("memfd:ronde" in line or "/dev/shm/" in line for line in maps),
    }


def grown(outcome):
    """What has grown, as sentences."""
    found = []
    for name, figures in outcome["processes"].items():
        for figure in FIGURES[1:]:
            before, after = figures[figure]
            if after > before:
                found.append(f"{figure} of the {name}: {before}, then {after}")
    return found
