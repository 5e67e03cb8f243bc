"""Time of an elastic job in which nothing happens, compared with that of a plain job."""

import operator
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

from interleave import rotated
from logs import Logs
from training import COMMIT_STEPS

RANK = pathlib.Path(__file__).resolve().parent / "rank.py"
STEPS = 1000
WARMUP_COMMITS = 20
RANKS = 2
WAYS = {"plain": [], "elastic": ["--min-np", "1"]}


def pair(parent, number):
    """Both jobs, one after the other, beginning with the other one in each pair: median time of a
    step in ms, and CPU time of the whole job in seconds."""
    return {way: job(parent, WAYS[way]) for way in rotated(WAYS, number)}


def job(parent, flags):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        folder = pathlib.Path(folder)
        launcher = [sys.executable, "-m", "ronde", "run", "-np", str(RANKS), *flags, "--"]
        program = [sys.executable, RANK, folder, "--step-ms", "0", "--steps", str(STEPS)]
        subprocess.run([*launcher, *program], check=True, capture_output=True)
        logs = Logs(folder / "logs")
        logs.update()
        logs.close()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"step_ms": step_ms(logs), "cpu_s": cpu_s}


def step_ms(logs):
    """Median over groups of steps with one commit each, mean of the ranks."""
    times = []
    for process in logs.processes.values():
        commits = [record["t"] for record in process.all("committed")][WARMUP_COMMITS:]
        times.append(statistics.median(map(operator.sub, commits[1:], commits)))
    return 1e3 * statistics.mean(times) / COMMIT_STEPS
