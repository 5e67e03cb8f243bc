#!/usr/bin/env python3
"""Compares `ronde bench` with its peers, interleaved: step times with spread and ratio.

    scripts/bench-peers                            # all: 5 rounds of 30 steps, 2 ranks; once, Horovod's autotune
    scripts/bench-peers --quick --out /tmp/peers   # a smoke test: 1 round of 3 steps, two small models
    scripts/bench-peers --only python --rounds 9   # Ronde and Horovod through Python alone

One round starts every contestant once per model, each in fresh processes, so that a slow minute of
the machine or an unlucky placement of pages affects all of them; the order rotates each round. A
cell is the median over rounds of the round's median step; its spread is the smallest and largest of
them. Ratios are computed within a round and then summarised in the same way: of programs to `ronde bench`,
of Horovod to Ronde through the same Python program. Writes DIR/peers.json (everything) and
DIR/README.md (the tables).

Horovod's autotune is run to its end once for each model before the rounds (--retune: again); its
log stays in target/peers. It takes most of the time: on two cores some 40 minutes for the four
models; the rounds take some 12 minutes with the default numbers.
"""

import argparse
import collections
import json
import os
import pathlib
import statistics
import sys
import time

import hvd_peers
from interleave import BUILD, ROOT, circumstances, run

LATENCY_STEPS_FACTOR = 50  # a 4-byte step is short, so take more of them
OURS = "ronde"
LATENCY = "4-byte"
MODELS = "resnet50,vgg16,bert-base,many-small"
QUICK_MODELS = "resnet50,many-small"
# Seconds on two cores that a step of all ways together takes, for the estimate: programs, Python,
# Horovod's search.
STEP_S = {
    "resnet50": (0.75, 0.18, 0.12),
    "vgg16": (3.3, 0.95, 0.4),
    "bert-base": (2.7, 0.65, 0.35),
    "many-small": (0.02, 0.05, 0.1),
    LATENCY: (0.01, 0.1, 0),
}
START_S = 3  # of a contestant, with its warm-up
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


class Contest:
    """The contestants, each a function from (model, element list) to {way: median step in ms}."""

    def __init__(self, options):
        self.options = options
        self.versions = {}
        self.idle_percent = collections.defaultdict(
            list
        )  # way: CPU time of an idle rank, a value for each round
        self.python = hvd_peers.Python(options)
        self.contestants = []
        if "programs" in options.only:
            self.contestants += [self.ronde, self.mpi, self.gloo]
        if "python" in options.only:
            horovods = [self.horovod(way, settings) for way, settings in hvd_peers.SETTINGS.items()]
            self.contestants += [self.python_ronde, *horovods, self.horovod_tuned]

    def bench(self, source, steps):
        """Runs `ronde bench` once; returns its report."""
        report = BUILD / "ronde.json"
        run(
            [
                self.options.ronde,
                "bench",
                *source,
                "-np",
                self.options.np,
                "--steps",
                steps,
                "--json",
                report,
            ]
        )
        return json.loads(report.read_text())

    def ronde(self, model, elements):
        if model == LATENCY:
            report = self.bench(["--profile", elements], self.options.steps * LATENCY_STEPS_FACTOR)
            return {OURS: report["step_ms"]["p50"]}
        report = self.bench(["--model", model], self.options.steps)
        memcpy_ms = report["bytes_per_step"] / (report["memcpy_gb_per_s"] * 1e6)
        return {OURS: report["step_ms"]["p50"], "memcpy of the same bytes": memcpy_ms}

    def mpi(self, model, elements):
        options = self.options
        return self.peer(
            "MPI",
            model,
            ["mpirun", "-np", options.np, BUILD / "mpi_allreduce", elements, options.steps],
        )

    def gloo(self, model, elements):
        script = ROOT / "benches" / "peers" / "ddp_gloo.py"
        options = self.options
        return self.peer(
            "gloo",
            model,
            ["/usr/bin/python3", script, elements, "--np", options.np, "--steps", options.steps],
        )

    def peer(self, label, model, command):
        report = json.loads(run(command))
        self.versions[label] = report["peer"]
        ways = {way: times["p50"] for way, times in report["step_ms"].items()}
        latency = {"latency_4_bytes": ways.pop("latency_4_bytes")}
        return {f"{label} {way}": ms for way, ms in (latency if model == LATENCY else ways).items()}

    def python_ronde(self, model, elements):
        return self.through_python(
            hvd_peers.OURS,
            model,
            lambda steps, latency: self.python.ronde(elements, steps, latency),
        )

    def horovod(self, way, settings):
        def contestant(model, elements):
            measure = lambda steps, latency: self.python.horovod(
                settings, elements, steps, latency
            )  # noqa: E731
            return self.through_python(way, model, measure)

        return contestant

    def horovod_tuned(self, model, elements):
        if model == LATENCY:  # a tensor at a time: there is nothing to fuse, and no search
            return {}
        settings = self.python.tuned_settings(model)
        measure = lambda steps, latency: self.python.horovod(
            settings, elements, steps, latency
        )  # noqa: E731
        return self.through_python(hvd_peers.TUNED, model, measure)

    def through_python(self, way, model, measure):
        latency = model == LATENCY
        report = measure(self.options.steps * (LATENCY_STEPS_FACTOR if latency else 1), latency)
        if latency:
            self.idle_percent[way].append(report["idle_cpu_percent"])
        return {way: report["step_ms"]["p50"]}


def element_lists(options):
    """Writes each model's element list and the one-element list of the latency row; returns their
    paths."""
    BUILD.mkdir(parents=True, exist_ok=True)
    paths = {}
    for model in options.models:
        paths[model] = BUILD / f"{model}.txt"
        paths[model].write_text(run([options.ronde, "bench", "--model", model, "--print-elements"]))
    paths[LATENCY] = BUILD / "one-element.txt"
    paths[LATENCY].write_text("1\n")
    return paths


def is_python(way):
    return way == hvd_peers.OURS or way == hvd_peers.TUNED or way in hvd_peers.SETTINGS


def ours(way):
    """Returns the reference of a ratio: the same work through the same language."""
    return hvd_peers.OURS if is_python(way) else OURS


def summarise(rounds):
    """Returns {way: figures over the rounds} for one model, ours first; ratios are theirs over ours,
    round by round."""
    rows = {}
    for way in rounds[0]:
        times = [times[way] for times in rounds]
        ratios = [times[way] / times[ours(way)] for times in rounds]
        rows[way] = {
            "ms": statistics.median(times),
            "ms_min": min(times),
            "ms_max": max(times),
            "ratio": statistics.median(ratios),
            "ratio_min": min(ratios),
            "ratio_max": max(ratios),
        }
    return dict(
        sorted(
            rows.items(), key=lambda row: (is_python(row[0]), row[0] != ours(row[0]), row[1]["ms"])
        )
    )


def table(rows):
    lines = ["| program | step ms | its step / Ronde's |", "| --- | --- | --- |"]
    for way, row in rows.items():
        ratio = (
            ""
            if way == ours(way)
            else f"{row['ratio']:.3g} [{row['ratio_min']:.3g}, {row['ratio_max']:.3g}]"
        )
        lines.append(
            f"| {way} | {row['ms']:.4g} [{row['ms_min']:.4g}, {row['ms_max']:.4g}] | {ratio} |"
        )
    return lines + [""]


def python_tables(result):
    """Returns the figures of the Python rows other than step times."""
    if not result["idle_percent"]:
        return []
    lines = [
        "## Idle, through Python",
        "",
        "CPU time of a rank, the busier one, in percent of a core, while the program sleeps after an allreduce.",
        "",
        "| way | % of a core |",
        "| --- | --- |",
    ]
    for way, values in result["idle_percent"].items():
        lines.append(
            f"| {way} | {statistics.median(values):.2f} [{min(values):.2f}, {max(values):.2f}] |"
        )
    lines += [
        "",
        "## Horovod's autotune",
        "",
        "Run to its end once for each model, before the rounds; the row above is measured at what it ended with.",
        "",
        "| model | fusion threshold MiB | cycle time ms | cache | samples | steps | minutes |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for model, best in result["horovod_autotune"].items():
        minutes = "" if best["seconds"] is None else f"{best['seconds'] / 60:.1f}"
        lines.append(
            f"| {model} | {best['fusion_threshold_mib']:.4g} | {best['cycle_time_ms']:.4g} | {best['cache_enabled']} "
            f"| {best['samples']} | {best['steps']} | {minutes} |"
        )
    return lines + [""]


def markdown(result):
    lines = [
        "# Step times against peers",
        "",
        f"{result['date']}, commit {result['commit']}, {result['np']} ranks, {result['rounds']} interleaved rounds of "
        f"{result['steps']} steps.",
        f"{result['machine']}. Load average from {result['load_first']} at the start to {result['load_last']} at the end.",
        ", ".join(result["versions"].values()) + ".",
        "",
        "Median over rounds of the median step of the slowest rank; brackets: minimum and maximum over "
        "rounds. Ratio: step divided by Ronde's in the same round.",
        "",
        f"Made by `{result['command']}`. `benches/peers/README.md` describes the rows.",
        "",
    ]
    for model, rows in result["models"].items():
        lines += [f"## {model}", ""]
        programs = {way: row for way, row in rows.items() if not is_python(way)}
        python = {way: row for way, row in rows.items() if is_python(way)}
        lines += table(programs) if programs else []
        lines += (
            ["Through Python (`horovod.torch`), compared with Ronde through Python:", ""]
            + table(python)
            if python
            else []
        )
    return "\n".join(lines + python_tables(result))


def estimate_s(options):
    """Estimates the seconds of the rounds, and of Horovod's searches before them, on two cores."""
    rounds = searches = 0
    for model in options.models + [LATENCY]:
        programs, python, search = STEP_S.get(model, (1, 0.3, 0.2))
        if "programs" in options.only:
            rounds += programs * (options.steps + 10) + 3 * START_S
        if "python" in options.only:
            rounds += python * (options.steps + 10) + 4 * START_S
            searches += search * hvd_peers.Autotune(options.quick).steps()
    return options.rounds * rounds, searches


def main():
    names = lambda text: text.split(",")  # noqa: E731
    parser = argparse.ArgumentParser(
        prog="bench-peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, help="5; with --quick 1")
    parser.add_argument("--steps", type=int, help="of a round and model: 30; with --quick 3")
    parser.add_argument("--np", type=int, default=2, help="ranks (2)")
    parser.add_argument("--models", type=names, help=f"{MODELS}; with --quick {QUICK_MODELS}")
    parser.add_argument(
        "--only",
        type=names,
        default=["programs", "python"],
        help="programs (Rust, C and torch's gloo), python (Ronde, Horovod)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test; its figures mean nothing"
    )
    parser.add_argument(
        "--retune", action="store_true", help="run Horovod's autotune again where its log is there"
    )
    parser.add_argument("--ronde", type=pathlib.Path, default=TARGET / "release" / "ronde")
    parser.add_argument(
        "--ronde-python",
        type=pathlib.Path,
        default=BUILD / "ronde" / "bin" / "python",
        help="of an environment with Ronde and its shim",
    )
    parser.add_argument(
        "--horovod-python",
        type=pathlib.Path,
        default=BUILD / "horovod" / "bin" / "python",
        help="of an environment with Horovod",
    )
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results" / "peers")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.steps = options.steps or (3 if options.quick else 30)
    options.models = options.models or (QUICK_MODELS if options.quick else MODELS).split(",")
    if min(options.rounds, options.steps, options.np) < 1:
        parser.error("--rounds, --steps and --np must be at least 1")
    if set(options.only) - {"programs", "python"}:
        parser.error("--only takes programs and python")
    if "python" in options.only:
        hvd_peers.available(options)

    contest = Contest(options)
    lists = element_lists(options)
    load_first = os.getloadavg()[0]
    rounds_s, searches_s = estimate_s(options)
    searches = (
        f", before them at most {searches_s / 60:.0f} for Horovod's autotune" if searches_s else ""
    )
    print(
        f"bench-peers: some {rounds_s / 60:.0f} minutes for {options.rounds} rounds{searches}",
        file=sys.stderr,
    )
    if "python" in options.only:
        for model in options.models:
            contest.python.tune(model, lists[model])
    rounds = collections.defaultdict(list)
    began = time.monotonic()
    for number in range(options.rounds):
        turn = number % len(contest.contestants)
        for model, elements in lists.items():
            times = {}
            for contestant in contest.contestants[turn:] + contest.contestants[:turn]:
                times.update(contestant(model, elements))
            rounds[model].append(times)
            print(
                f"bench-peers: round {number + 1} of {options.rounds}: {model} done",
                file=sys.stderr,
            )
        left = (time.monotonic() - began) / (number + 1) * (options.rounds - number - 1)
        print(
            f"bench-peers: round {number + 1} of {options.rounds} done, {left / 60:.0f} minutes left",
            file=sys.stderr,
        )
        write(
            options, contest, rounds, load_first
        )  # after every round: a late failure loses nothing
    print((options.out / "README.md").read_text())


def write(options, contest, rounds, load_first):
    result = circumstances("scripts/bench-peers", load_first) | {
        "np": options.np,
        "steps": options.steps,
        "rounds": min(len(done) for done in rounds.values()),
        "versions": contest.versions | contest.python.versions,
        "idle_percent": contest.idle_percent,
        "horovod_autotune": contest.python.tuned,
        "models": {model: summarise(done) for model, done in rounds.items()},
        "rounds_ms": rounds,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "peers.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.out / "README.md").write_text(markdown(result))


if __name__ == "__main__":
    main()
