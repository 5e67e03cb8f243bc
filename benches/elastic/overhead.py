"""Step times of an elastic job in which nothing happens, compared with those of a plain job."""

import operator
import pathlib
import statistics
import subprocess
import sys
import tempfile

from logs import Logs
from training import COMMIT_STEPS

RANK = pathlib.Path(__file__).resolve().parent / "rank.py"
STEPS = 1500
WARMUP_COMMITS = 20
RANKS = 2
WAYS = {"plain": [], "elastic": ["--min-np", "1"]}


def pair(parent):
    """Time per step in ms of both jobs, which run one after the other."""
    return {way: step_ms(parent, flags) for way, flags in WAYS.items()}


def step_ms(parent, flags):
    """Median time of a step over the ranks, in groups of steps with one commit each."""
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        folder = pathlib.Path(folder)
        launcher = [sys.executable, "-m", "ronde", "run", "-np", str(RANKS), *flags, "--"]
        program = [sys.executable, RANK, folder, "--step-ms", "0", "--steps", str(STEPS)]
        subprocess.run([*launcher, *program], check=True, capture_output=True)
        logs = Logs(folder / "logs")
        logs.update()
        logs.close()
    times = []
    for process in logs.processes.values():
        commits = [record["t"] for record in process.all("committed")][WARMUP_COMMITS:]
        times.append(statistics.median(map(operator.sub, commits[1:], commits)))
    return 1e3 * statistics.mean(times) / COMMIT_STEPS
