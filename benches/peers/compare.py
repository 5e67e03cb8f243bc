#!/usr/bin/env python3
"""Runs `ronde bench` and its peers interleaved and writes what each needs for a step, with spread and ratio.

    scripts/bench-peers [--rounds 5] [--steps 30] [--np 2] [--models resnet50,vgg16,bert-base,many-small] [--out DIR]

One round starts every contestant once per model, each in fresh processes, so that a slow minute of the machine or an
unlucky placement of pages hits all alike; the order turns by one each round. A cell is the median over rounds of the
round's median step; its spread is the smallest and largest of them. Ratios are taken inside a round, then summarised
the same way. Writes DIR/peers.json (everything) and DIR/README.md (the tables).
"""

import argparse
import collections
import json
import os
import pathlib
import statistics
import sys

from interleave import BUILD, ROOT, circumstances, run

LATENCY_STEPS_FACTOR = 50  # a 4-byte step is short, so take more of them
OURS = "ronde"


class Contest:
    """The contestants, each a function from (model, element list) to {way: median step in ms}."""

    def __init__(self, options):
        self.options = options
        self.contestants = [self.ronde, self.mpi, self.gloo]
        self.versions = {}

    def bench(self, source, steps):
        """One `ronde bench`; returns its report."""
        report = BUILD / "ronde.json"
        run([self.options.ronde, "bench", *source, "-np", self.options.np, "--steps", steps, "--json", report])
        return json.loads(report.read_text())

    def ronde(self, model, elements):
        if model == "4-byte":
            report = self.bench(["--profile", elements], self.options.steps * LATENCY_STEPS_FACTOR)
            return {OURS: report["step_ms"]["p50"]}
        report = self.bench(["--model", model], self.options.steps)
        memcpy_ms = report["bytes_per_step"] / (report["memcpy_gb_per_s"] * 1e6)
        return {OURS: report["step_ms"]["p50"], "memcpy of the same bytes": memcpy_ms}

    def mpi(self, model, elements):
        options = self.options
        return self.peer("MPI", model, ["mpirun", "-np", options.np, BUILD / "mpi_allreduce", elements, options.steps])

    def gloo(self, model, elements):
        script = ROOT / "benches" / "peers" / "ddp_gloo.py"
        options = self.options
        return self.peer("gloo", model, ["/usr/bin/python3", script, elements, "--np", options.np, "--steps", options.steps])

    def peer(self, label, model, command):
        report = json.loads(run(command))
        self.versions[label] = report["peer"]
        ways = {way: times["p50"] for way, times in report["step_ms"].items()}
        latency = {"latency_4_bytes": ways.pop("latency_4_bytes")}
        return {f"{label} {way}": ms for way, ms in (latency if model == "4-byte" else ways).items()}


def element_lists(options):
    """Writes each model's element list and the one-element list of the latency row; returns their paths."""
    BUILD.mkdir(parents=True, exist_ok=True)
    paths = {}
    for model in options.models:
        paths[model] = BUILD / f"{model}.txt"
        paths[model].write_text(run([options.ronde, "bench", "--model", model, "--print-elements"]))
    paths["4-byte"] = BUILD / "one-element.txt"
    paths["4-byte"].write_text("1\n")
    return paths


def summarise(rounds):
    """{way: figures over the rounds} for one model, ours first; ratios are theirs over ours, round by round."""
    rows = {}
    for way in rounds[0]:
        times = [times[way] for times in rounds]
        ratios = [times[way] / times[OURS] for times in rounds]
        rows[way] = {
            "ms": statistics.median(times), "ms_min": min(times), "ms_max": max(times),
            "ratio": statistics.median(ratios), "ratio_min": min(ratios), "ratio_max": max(ratios)}
    return dict(sorted(rows.items(), key=lambda row: (row[0] != OURS, row[1]["ms"])))


def markdown(result):
    lines = [
        "# Step times against peers", "",
        f"{result['date']}, commit {result['commit']}, {result['np']} ranks, {result['rounds']} interleaved rounds of "
        f"{result['steps']} steps.",
        f"{result['machine']}. Load average from {result['load_first']} at the start to {result['load_last']} at the end.",
        ", ".join(result["versions"].values()) + ".", "",
        "Median over rounds of the median step of the slowest rank; brackets: smallest and largest round. "
        "Ratio: their step over ours in the same round.", "",
        f"Made by `{result['command']}`. What each row does: `benches/peers/README.md`.", ""]
    for model, rows in result["models"].items():
        lines += [f"## {model}", "", "| way | step ms | theirs / ours |", "| --- | --- | --- |"]
        for way, row in rows.items():
            ratio = "" if way == OURS else f"{row['ratio']:.3g} [{row['ratio_min']:.3g}, {row['ratio_max']:.3g}]"
            lines.append(f"| {way} | {row['ms']:.4g} [{row['ms_min']:.4g}, {row['ms_max']:.4g}] | {ratio} |")
        lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="bench-peers", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--models", type=lambda names: names.split(","), default="resnet50,vgg16,bert-base,many-small")
    parser.add_argument("--ronde", default=ROOT / "target" / "release" / "ronde")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results" / "peers")
    options = parser.parse_args()
    if min(options.rounds, options.steps, options.np) < 1:
        parser.error("--rounds, --steps and --np must be at least 1")

    contest = Contest(options)
    lists = element_lists(options)
    load_first = os.getloadavg()[0]
    rounds = collections.defaultdict(list)
    for number in range(options.rounds):
        turn = number % len(contest.contestants)
        for model, elements in lists.items():
            times = {}
            for contestant in contest.contestants[turn:] + contest.contestants[:turn]:
                times.update(contestant(model, elements))
            rounds[model].append(times)
        print(f"bench-peers: round {number + 1} of {options.rounds} done", file=sys.stderr)
        write(options, contest, rounds, load_first)  # after every round: a late failure loses nothing
    print((options.out / "README.md").read_text())


def write(options, contest, rounds, load_first):
    result = circumstances("scripts/bench-peers", load_first) | {
        "np": options.np, "steps": options.steps, "rounds": min(len(done) for done in rounds.values()),
        "versions": contest.versions,
        "models": {model: summarise(done) for model, done in rounds.items()},
        "rounds_ms": rounds}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "peers.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.out / "README.md").write_text(markdown(result))


if __name__ == "__main__":
    main()
