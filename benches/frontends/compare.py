#!/usr/bin/env python3
"""Overhead of the front ends for TensorFlow and JAX over the runtime's call, and comparison of
training steps with the frameworks' own communication; writes DIR/frontends.json and DIR/README.md.

    scripts/bench-frontends [--rounds 5] [--steps 20] [--only ROW,…] [--add]
        [--out results/frontends]

Runs with the Python that has TensorFlow, JAX and the installed ronde. In each round every job is
started once, in turn, beginning with the next one each time, and so are the variants within a job:
all see the same machine. `--add` adds rounds to those of earlier runs. Files are written after each
round. A round's value is the median over steps of the slowest rank's time; ratios are of one round;
a cell is the median over rounds.
"""
import argparse
import importlib.metadata
import itertools
import json
import math
import os
import pathlib
import socket
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "peers")]
from interleave import ROOT, circumstances, rotated, run, spread, write_page  # noqa: E402
from timing import ALONE, GRADIENTS, PEER, RONDE, SMALL  # noqa: E402

ROWS = ["gradients", "small", "training", "delayed"]
DELAY_MS = 200
SMALL_GOAL_MS = 3
PEERS = {"TensorFlow": "MultiWorkerMirroredStrategy, RING", "JAX": "jax.distributed, gloo"}
PROGRAMS = {"TensorFlow": HERE / "rank_tensorflow.py", "JAX": HERE / "rank_jax.py"}
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "CUDA_VISIBLE_DEVICES": "",
    "KERAS_BACKEND": "tensorflow",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


def free_ports():
    """The first of two ports that no program uses."""
    for port in range(20000 + os.getpid() % 20000, 60000, 2):
        try:
            for candidate in (port, port + 1):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", candidate))
            return port
        except OSError:
            continue
    sys.exit("no two ports are free")


class Runner:
    """Starts the jobs of round `number`. `call`: the program of benches/frontends/main.rs."""

    def __init__(self, folder, steps, call, number):
        self.folder, self.steps, self.call = pathlib.Path(folder), steps, call
        self.number = number

    def ranks(self, count, *command, **environment):
        launcher = [sys.executable, "-m", "ronde", "run", "-np", count, "--no-prefix", "--"]
        return run([*launcher, *command], environment={**ENVIRONMENT, **environment})

    def rust(self, shapes):
        """Median of the out-of-place call from Rust, ms."""
        path = self.folder / "elements"
        path.write_text("\n".join(str(math.prod(shape)) for shape in shapes))
        output = self.ranks(2, self.call, "--bench", "--elements", path, "--steps", self.steps)
        return statistics.median(json.loads(output))

    def front(self, name, job, count=2, with_peer=False, **environment):
        """Medians of the variants of a job, ms."""
        out = self.folder / "rank0.json"
        more = ["--port", free_ports()] if with_peer else []
        command = [sys.executable, PROGRAMS[name], job, "--out", out, "--steps", self.steps]
        self.ranks(count, *command, "--round", self.number, *more, **environment)
        return json.loads(out.read_text())

    def round(self, rows):
        """Values of one round, by row and variant."""
        values = {}
        for row, shapes in (("gradients", GRADIENTS), ("small", SMALL)):
            if row in rows:
                values[row] = {}
                for name in rotated(["Rust", *PROGRAMS], self.number):
                    if name == "Rust":
                        values[row][name] = self.rust(shapes)
                    else:
                        values[row].update(labelled(name, self.front(name, row)))
        if "training" in rows:
            values["training"] = {}
            for name, count in rotated(itertools.product(PROGRAMS, (2, 1)), self.number):
                ways = self.front(name, "training", count, with_peer=count > 1)
                ways = ways if count > 1 else {"one process": ways[ALONE]}
                values["training"].update(labelled(name, ways))
        if "delayed" in rows:
            # A long cycle: all gradients are there when it begins.
            slow = {"RONDE_LINK": f"{1000 * DELAY_MS},1000", "HOROVOD_CYCLE_TIME": "10"}
            values["delayed"] = self.front("TensorFlow", "delayed", **slow)
        return values


def labelled(name, medians):
    """The medians, with the framework's name before that of the variant."""
    return {f"{name} {way}": ms for way, ms in medians.items()}


def add(record, values):
    """Adds the values of a round to the record, whose values are lists."""
    for row, ways in values.items():
        for way, ms in ways.items():
            record["values"].setdefault(row, {}).setdefault(way, []).append(ms)


def percent(values):
    return f"{statistics.median(values):+.0f} % [{min(values):+.0f}, {max(values):+.0f}]"


def without_alone(values, way="TensorFlow function"):
    """Steps minus the same without reduction."""
    return [step - alone for step, alone in zip(values[way], values[f"{way} alone"])]


def gradients_table(values):
    rust = values["Rust"]
    cells = {
        "out-of-place call from Rust": rust,
        "TensorFlow, eager": values["TensorFlow eager"],
        "TensorFlow, `tf.function`: step minus the same without reduction": without_alone(values),
        "JAX, `jit`, donated arrays, in place": values["JAX jit"],
    }
    head = "| ResNet-50's gradients, 102 MB | ms | beyond Rust (goal: ≤ 15 %) |"
    lines = [head, "| --- | --- | --- |"]
    for name, times in cells.items():
        beyond = [100 * (ms / base - 1) for ms, base in zip(times, rust)]
        cell = "" if times is rust else percent(beyond)
        lines.append(f"| {name} | {spread(times)} | {cell} |")
    lines += [
        "",
        "JAX reduces in place, because the arrays are donated; the call from Rust writes other "
        "memory. The row of JAX includes that difference.",
    ]
    return lines


def small_table(values):
    head = f"| 1,000 × 1 KiB | ms | ≤ {SMALL_GOAL_MS}: met | without reduction | difference |"
    lines = [head, "| --- | --- | --- | --- | --- |"]
    cells = {
        "out-of-place call from Rust": "Rust",
        "TensorFlow, `grouped_allreduce`, eager; without: `tf.identity_n`": "TensorFlow eager",
        "… in a `tf.function`": "TensorFlow function",
        "JAX, `allreduce_tree` within `jit`": "JAX jit",
        "… outside of `jit`": "JAX eager",
    }
    for name, way in cells.items():
        own = values.get(f"{way} alone")
        more = f"{spread(own)} | {spread(without_alone(values, way))}" if own else " | "
        met = "yes" if statistics.median(values[way]) <= SMALL_GOAL_MS else "**no**"
        lines.append(f"| {name} | {spread(values[way])} | {met} | {more} |")
    return lines


def training_table(values):
    head = (
        "| CNN on digits | one process | both ranks, no reduction | Ronde | peer "
        "| share: Ronde | peer | ratio (goal: ≤ 0.8) | beyond *no reduction*: ratio |"
    )
    lines = [head, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for name, peer in PEERS.items():
        ways = ("one process", ALONE, RONDE, PEER)
        alone, base, ronde, other = measured = [values[f"{name} {way}"] for way in ways]
        shares = [[step - first for step, first in zip(steps, alone)] for steps in (ronde, other)]
        added = [[step - first for step, first in zip(steps, base)] for steps in (ronde, other)]
        ratios, added_ratios = ([a / b for a, b in zip(*parts)] for parts in (shares, added))
        cells = map(spread, (*measured, *shares, ratios, added_ratios))
        lines.append("| " + " | ".join([f"{name}; peer: {peer}", *cells]) + " |")
    return lines


def delayed_table(values):
    return [
        f"| eight gradients in one `tf.function`, each message delayed by {DELAY_MS} ms, "
        "one inter-op thread | ms (goal: ≤ 250) |",
        "| --- | --- |",
        f"| from the call to its return | {spread(values['function'])} |",
    ]


TABLES = {
    "gradients": gradients_table,
    "small": small_table,
    "training": training_table,
    "delayed": delayed_table,
}


def markdown(record):
    lines = [
        "# TensorFlow and JAX", "",
        f"{record['date']}, commit {record['commit']}, TensorFlow {record['tensorflow']}, "
        f"JAX {record['jax']}, 2 ranks.",
        f"{record['machine']}. Load average {record['load_first']} before, "
        f"{record['load_last']} after.", "",
        f"Made by `scripts/bench-frontends`, in rounds of {record['steps']} steps. "
        "Median over rounds of the",
        "median over steps of the slowest rank's time, in ms; brackets: minimum and maximum over "
        "rounds. Ratios are of one",
        "round. *Share*: step minus that of one process alone.",
    ]
    for row in ROWS:
        if values := record["values"].get(row):
            rounds = len(next(iter(values.values())))
            lines += ["", f"Rounds: {rounds}.", "", *TABLES[row](values)]
    return "\n".join(lines) + "\n"


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    rows = {"type": lambda text: text.split(","), "default": ROWS}
    parser.add_argument("--only", **rows, help="rows to measure")
    parser.add_argument("--add", action="store_true", help="add to the rounds in the folder")
    program = "the program of benches/frontends/main.rs"
    parser.add_argument("--call", type=pathlib.Path, required=True, help=program)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results/frontends")
    options = parser.parse_args()
    if unknown := set(options.only) - set(ROWS):
        parser.error(f"--only: {', '.join(unknown)}; expected {', '.join(ROWS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "frontends.json"
    record = {"values": {}}
    if options.add:
        record = json.loads(path.read_text())
        if record["steps"] != options.steps:
            parser.error(f"--add: the rounds in {path} are of {record['steps']} steps")
    record.update(
        tensorflow=importlib.metadata.version("tensorflow_cpu"),
        jax=importlib.metadata.version("jax"),
        steps=options.steps,
    )
    load_first = os.getloadavg()[0]
    recorded = (len(times) for ways in record["values"].values() for times in ways.values())
    first = max(recorded, default=0)
    for number in range(first, first + options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            runner = Runner(folder, options.steps, options.call, number)
            add(record, runner.round(options.only))
        record.update(circumstances("scripts/bench-frontends", load_first))
        path.write_text(json.dumps(record, indent=1) + "\n")
        write_page(options.out, markdown(record))
    print(markdown(record))


if __name__ == "__main__":
    main()
