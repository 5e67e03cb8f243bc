"""Helpers of the comparisons: run a command, order a round, describe the machine and the commit, write the page."""

import datetime
import os
import pathlib
import platform
import socket
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "target" / "peers"
COMMAND_TIMEOUT_S = 900


def run(command, environment=None, timeout_s=COMMAND_TIMEOUT_S):
    """Runs a command and returns its standard output; on failure, ends with the command's own message.

    `environment`: variables set beside those of this process.
    """
    command = [str(word) for word in command]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout_s,
                              env=os.environ | (environment or {}))
    except FileNotFoundError:
        sys.exit(f"{command[0]} does not exist; build it or install it first (see benches/peers/README.md)")
    except subprocess.TimeoutExpired:
        sys.exit(f"no end after {timeout_s} s: {' '.join(command)}")
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode} from {' '.join(command)}\n{done.stderr}")
    return done.stdout


def rotated(ways, number):
    """The ways in the order of round `number`: each round begins with the next one."""
    ways = list(ways)
    turn = number % len(ways)
    return ways[turn:] + ways[:turn]


def free_port():
    """A port of the loopback interface that no program uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def spread(values):
    """Median, minimum and maximum as a cell of a table."""
    return f"{statistics.median(values):.3g} [{min(values):.3g}, {max(values):.3g}]"


def machine():
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    return f"{cpu}, {len(os.sched_getaffinity(0))} cores, Linux {platform.release()}"


def commit():
    """Commit of the tree, with "-dirty" if a file outside of results/ has changed: harnesses write results while they run."""
    changes = run(["git", "-C", ROOT, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!results"])
    return run(["git", "-C", ROOT, "describe", "--always"]).strip() + ("-dirty" if changes.strip() else "")


def circumstances(script, load_first):
    """Returns the first fields of every record. `load_first`: load average before the first round."""
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit(),
        "command": " ".join([script] + sys.argv[1:]),
        "machine": machine(), "load_first": round(load_first, 2), "load_last": round(os.getloadavg()[0], 2)}


def write_page(folder, page, name="README.md"):
    """Writes a generated page, and below it what is written by hand about it: the folder's notes.md."""
    notes = folder / "notes.md"
    below = "\n" + notes.read_text() if notes.exists() else ""
    (folder / name).write_text(page.rstrip("\n") + "\n" + below)
