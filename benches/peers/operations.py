#!/usr/bin/env python3
"""Benchmark of allgather, broadcast, reducescatter, alltoall and allreduce, interleaved with Open
MPI's, and of starvation among many ranks.

    scripts/bench-operations [--rounds 5] [--steps 30] [--np 2] [--bytes 64000000] [--ranks 64] [--out DIR]

One round starts each side once in fresh processes, alternating which is first. A cell is the median over
rounds of the round's median step; brackets: smallest and largest round. Ratios are computed within a round and then
summarised in the same way. After the rounds `ronde bench --model many-small` runs on --ranks
ranks, and a benchmark that reports each rank.
Writes DIR/operations.json (everything) and DIR/README.md (the tables).
"""

import argparse
import json
import os
import pathlib
import statistics
import sys

from interleave import BUILD, ROOT, circumstances, run

OPERATIONS = ["allgather", "broadcast", "reducescatter", "alltoall", "allreduce"]
OURS, WHOLE, CHUNKED = "ronde", "whole", "chunked"


def bench_program():
    """Builds benches/operations; returns the path that cargo reports."""
    messages = run(["cargo", "bench", "--quiet", "--manifest-path", ROOT / "Cargo.toml", "--bench", "operations", "--no-run",
                    "--message-format", "json"])
    built = [json.loads(line) for line in messages.splitlines()]
    return next(message["executable"] for message in built
                if message.get("executable") and message["target"]["name"] == "operations")


class Sides:
    """The two sides, each a function that returns {operation: {way: median step in ms}}."""

    def __init__(self, options):
        self.options = options
        self.version = None
        self.sides = [self.ronde, self.mpi]

    def ronde(self):
        options, report = self.options, BUILD / "operations.json"
        run([options.bench, "--bench", "--ranks", options.np, "--steps", options.steps, "--bytes", options.bytes,
             "--json", report])
        operations = json.loads(report.read_text())["operations"]
        return {name: {OURS: times["runtime_ms"]["p50"], "bare": times["bare_ms"]["p50"]}
                for name, times in operations.items()}

    def mpi(self):
        options = self.options
        report = json.loads(run(["mpirun", "-np", options.np, BUILD / "mpi_operations", options.bytes, options.steps]))
        self.version = report["peer"]
        return {name: {way: times["p50"] for way, times in ways.items()} for name, ways in report["step_ms"].items()}

    def round(self, number):
        times = {}
        for side in self.sides[number % 2:] + self.sides[:number % 2]:
            for name, ways in side().items():
                times.setdefault(name, {}).update(ways)
        return times


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def summarise(rounds):
    """Returns for each operation the summary of every way, and of the ratios of MPI's call to ours.
    The best chunk size is chosen by its median over all rounds, so that single fast rounds do not
    select it."""
    summary = {}
    for name in OPERATIONS:
        ways = {way: [times[name][way] for times in rounds] for way in rounds[0][name]}
        best = min((way for way in ways if way.startswith(CHUNKED)), key=lambda way: statistics.median(ways[way]))
        ratios = {which: spread([theirs / ours for theirs, ours in zip(ways[way], ways[OURS])])
                  for which, way in [(CHUNKED, best), (WHOLE, WHOLE)]}
        summary[name] = {"best_chunk": best, "ms": {way: spread(values) for way, values in ways.items()}, "ratio": ratios}
    return summary


def many_small(options):
    """Runs `ronde bench` as a user does, and the benchmark that reports each rank."""
    report = BUILD / "many-small.json"
    run([options.ronde, "bench", "--model", "many-small", "-np", options.ranks, "--steps", options.steps, "--json", report])
    bench = json.loads(report.read_text())
    run([options.bench, "--bench", "--many-small", "--ranks", options.ranks, "--steps", options.steps, "--json", report])
    return {"step_ms": bench["step_ms"], "each_rank": json.loads(report.read_text())}


def cell(summary, digits="{:.2f}"):
    return "{} [{}, {}]".format(*(digits.format(summary[key]) for key in ["median", "min", "max"]))


def markdown(result):
    lines = [
        "# Operations against Open MPI", "",
        f"{result['date']}, commit {result['commit']}, {result['np']} ranks, {result['rounds']} interleaved rounds of "
        f"{result['steps']} steps, {result['bytes']:,} bytes of float32.",
        f"{result['machine']}. Load average from {result['load_first']} at the start to {result['load_last']} at the end.",
        f"{result['version']}.", "",
        "Bytes: input of each rank for an allreduce, reducescatter and alltoall; data of the root for a broadcast; output for an "
        "allgather. Median over rounds of the median step of the slowest rank, ms; brackets: minimum and maximum over rounds. "
        "Ratios: Open MPI's step divided by Ronde's in the same round. Chunked: the chunk size with the best median.", "",
        f"Made by `{result['command']}`. `benches/peers/README.md` describes the programs.", "",
        "| operation | Ronde | MPI chunked | best chunk size | MPI whole | chunked / Ronde | whole / Ronde |",
        "| --- | --- | --- | --- | --- | --- | --- |"]
    for name, operation in result["operations"].items():
        ms, ratio, best = operation["ms"], operation["ratio"], operation["best_chunk"]
        lines.append(f"| {name} | {cell(ms[OURS])} | {cell(ms[best])} | {best} | {cell(ms[WHOLE])} | "
                     f"{cell(ratio[CHUNKED])} | {cell(ratio[WHOLE])} |")
    lines += ["", "Without names, negotiation and handles (data path only): "
              + ", ".join(f"{name} {cell(operation['ms']['bare'])}" for name, operation in result["operations"].items())
              + ".", ""]
    if "many_small" in result:
        lines += many_small_markdown(result)
    return "\n".join(lines)


def many_small_markdown(result):
    ranks, step_ms, each = result["ranks"], result["many_small"]["step_ms"], result["many_small"]["each_rank"]
    over = each["over_ranks"]
    starving = ", ".join(map(str, each["starving"])) or "none"
    between = lambda name: "{:.1f} to {:.1f}".format(*over[name])
    return [
        f"## many-small on {ranks} ranks", "",
        f"1000 tensors of 1 KiB per step. `ronde bench --model many-small -np {ranks} --steps {result['steps']}`: step of the "
        f"slowest rank p50 {step_ms['p50']:.1f} ms, p90 {step_ms['p90']:.1f} ms.", "",
        "Starvation: all ranks wait for each other, so a rank that gets too little CPU time delays all. Its lag would be large: "
        "the time from the first rank's last result of a step to its own, on one clock. A rank starves if its median lag is "
        f"above {each['lag_steps_max']:g} median step, or one lag is above {each['lag_steps_once_max']:g}. **Starving: {starving}.** "
        f"All {ranks} ranks completed all {each['steps']} steps with correct results.", "",
        "| minimum to maximum over the ranks, ms | |", "| --- | --- |",
        f"| step, p50 | {between('step_p50')} |", f"| step, p90 | {between('step_p90')} |",
        f"| longest step | {between('step_max')} |", f"| lag behind the first rank, p50 | {between('lag_p50')} |",
        f"| longest lag | {between('lag_max')} |", f"| CPU time over all steps | {between('cpu')} |",
        f"| step of the slowest rank in this run | p50 {each['p50']:.1f}, p90 {each['p90']:.1f} |", ""]


def main():
    parser = argparse.ArgumentParser(prog="bench-operations", description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--bytes", type=int, default=64_000_000)
    parser.add_argument("--ranks", type=int, default=64, help="of many-small; 0 leaves it out")
    parser.add_argument("--ronde", type=pathlib.Path, default=ROOT / "target" / "release" / "ronde")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results" / "operations")
    options = parser.parse_args()
    if min(options.rounds, options.steps, options.np) < 1 or options.bytes % (4 * options.np) != 0:
        parser.error("--rounds, --steps and --np must be at least 1, --bytes as many float32 for each rank")

    options.bench = bench_program()
    sides, rounds, load_first = Sides(options), [], os.getloadavg()[0]
    for number in range(options.rounds):
        rounds.append(sides.round(number))
        print(f"bench-operations: round {number + 1} of {options.rounds} done", file=sys.stderr)
        write(options, sides, rounds, load_first)  # after every round: a late failure loses nothing
    if options.ranks > 0:
        write(options, sides, rounds, load_first, {"ranks": options.ranks, "many_small": many_small(options)})
    print((options.out / "README.md").read_text())


def write(options, sides, rounds, load_first, more=None):
    result = circumstances("scripts/bench-operations", load_first) | {
        "np": options.np, "steps": options.steps, "bytes": options.bytes, "rounds": len(rounds),
        "version": sides.version, "operations": summarise(rounds), "rounds_ms": rounds} | (more or {})
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "operations.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.out / "README.md").write_text(markdown(result))


if __name__ == "__main__":
    main()
