#!/usr/bin/env python3
"""Benchmark of Ronde over MPI, of negotiation, and of the cost of an idle job.

Compares MPI with shared memory and Open MPI on one host, and hierarchical with flat operations on
two hosts.

    scripts/bench-mpi [--rounds 5] [--steps 30] [--link-rounds 3] [--link-steps 4] [--rates 1,10] [--idle 20] [--out DIR]

One round starts each way once in fresh processes, beginning with the next one each time. A cell is
the median over rounds of the round's median step; brackets: smallest and largest round. Ratios are
computed within a round and then summarised in the same way.
Hosts are network namespaces (scripts/multihost), joined by links of --rates Gbit/s each way. Writes DIR/mpi.json
(everything) and DIR/README.md (the tables).
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

from interleave import BUILD, ROOT, circumstances, rotated, run

RONDE = ROOT / "target" / "release" / "ronde"
IDLE = ROOT / "target" / "release" / "examples" / "idle"
HOSTS = ROOT / "scripts" / "multihost"
FIRST_HOST = os.environ.get("MULTIHOST_NAME", "ronde") + "-a"
MODEL = "resnet50"
WARMUP_STEPS = 1  # of the runs on two hosts; one more is run at their end, to be checked in full
TENSORS, RANKS = 160, 8  # of the negotiation


def bench(launcher, arguments, steps):
    """Runs `ronde bench` once; returns its report."""
    report = BUILD / "hosts.json"
    run([*launcher, RONDE, "bench", *arguments, "--steps", steps, "--json", report])
    return json.loads(report.read_text())


def mpirun(ranks):
    return ["mpirun", "-np", ranks]


def on_hosts(ranks, **variables):
    exports = [word for name, value in variables.items() for word in ["-x", f"{name}={value}"]]
    return [HOSTS, "mpirun", "-np", ranks, *exports]


def interleaved(ways, rounds, label):
    """Runs every way once a round; {way: [its result each round]}."""
    results = {way: [] for way in ways}
    for number in range(rounds):
        for way in rotated(ways, number):
            results[way].append(ways[way]())
        print(f"bench-mpi: {label}: round {number + 1} of {rounds} done", file=sys.stderr)
    return results


def one_host(options):
    """Two ranks of this host: shared memory under both launchers, pure MPI, and MPI's own allreduce; ms."""
    elements = BUILD / f"{MODEL}.txt"
    elements.write_text(run([RONDE, "bench", "--model", MODEL, "--print-elements"]))
    model = ["--model", MODEL]

    def ronde(launcher, arguments):
        return lambda: bench(launcher, model + arguments, options.steps)["step_ms"]["p50"]

    def raw():
        command = [*mpirun(2), BUILD / "mpi_allreduce", elements, options.steps, "chunked_1_mib"]
        return json.loads(run(command))["step_ms"]["chunked_1_mib"]["p50"]

    return interleaved({
        "ronde run": ronde([RONDE, "run", "-np", 2, "--"], []),
        "mpirun": ronde(mpirun(2), []),
        "pure MPI": ronde(mpirun(2), ["--backend", "mpi"]),
        "MPI_Allreduce, 1 MiB chunks": raw,
    }, options.rounds, "one host")


def sent_over_the_link():
    """Returns the bytes that the first host has sent, as counted by the other end of its link."""
    return int(pathlib.Path(f"/sys/class/net/{FIRST_HOST}-o/statistics/rx_bytes").read_text())


def two_hosts(options, rate):
    """Two hosts of two ranks: step in ms, and bytes that a step sends over a host's link."""
    run([HOSTS, "up", 2, "--rate", f"{rate}gbit"])

    def way(hierarchical):
        def once():
            before = sent_over_the_link()
            launcher = on_hosts(4, HOROVOD_HIERARCHICAL_ALLREDUCE=hierarchical)
            report = bench(launcher, ["--model", MODEL, "--warmup", WARMUP_STEPS], options.link_steps)
            steps = options.link_steps + WARMUP_STEPS + 1
            return {"ms": report["step_ms"]["p50"], "link_bytes": (sent_over_the_link() - before) / steps,
                    "bytes": report["bytes_per_step"]}
        return once

    try:
        return interleaved({"hierarchical": way(1), "flat": way(0)}, options.link_rounds, f"{rate} Gbit/s")
    finally:
        run([HOSTS, "down"])


def negotiation(options):
    """Measures a step of 160 tensors of one float: almost only negotiation."""
    elements = BUILD / "ones.txt"
    elements.write_text("1\n" * TENSORS)
    profile = ["--profile", elements]

    def way(launcher, arguments):
        def once():
            report = bench(launcher, profile + arguments, 10 * options.steps)
            return {"ms": report["step_ms"]["p50"], "mpi": report["mpi"]}
        return once

    ways = {
        "shared memory, one host": way(mpirun(RANKS), []),
        "MPI, one host": way(mpirun(RANKS), ["--backend", "mpi"]),
    }
    if options.rates:
        run([HOSTS, "up", 2])
        ways["MPI, two hosts"] = way(on_hosts(RANKS), [])
    try:
        return interleaved(ways, options.rounds, "negotiation")
    finally:
        if options.rates:
            run([HOSTS, "down"])


def idle(options):
    """Measures CPU (percent of a core) and messages a second of each rank of an idle job."""
    ways = {"shared memory, one host": mpirun(RANKS), "MPI, one host": [*mpirun(RANKS), "-x", "RONDE_BACKEND=mpi"]}
    if options.rates:
        run([HOSTS, "up", 2])
        ways["MPI, two hosts"] = on_hosts(RANKS)
    result = {}
    try:
        for way, launcher in ways.items():
            lines = [line.split() for line in run([*launcher, IDLE, options.idle]).splitlines() if "cpu" in line]
            result[way] = {"cpu_percent": [float(words[-2]) for words in lines],
                           "messages_per_s": [float(words[2]) for words in lines]}
    finally:
        if options.rates:
            run([HOSTS, "down"])
    return result


def spread(values):
    values = list(values)
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratios(these, those):
    return spread(this / that for this, that in zip(these, those))


def share(rate, step):
    """Returns the used share of the link's rate: 2 B (h - 1) / h bytes each way, so B for two hosts."""
    return step["bytes"] * 8 / (rate * 1e6) / step["ms"]


def cell(summary, digits="{:.2f}"):
    return "{} [{}, {}]".format(*(digits.format(summary[key]) for key in ["median", "min", "max"]))


def met(value, bound, is_most):
    return "yes" if (value <= bound if is_most else value >= bound) else "**no**"


def targets(result):
    lines = ["| what | target | measured | met |", "| --- | --- | --- | --- |"]
    here = result["one_host"]
    launched, pure = ratios(here["mpirun"], here["ronde run"]), ratios(here["MPI_Allreduce, 1 MiB chunks"], here["pure MPI"])
    lines.append(f"| ResNet-50 step, `mpirun -np 2` on one host / `ronde run` | ≤ 1.05 | {cell(launched)} | "
                 f"{met(launched['median'], 1.05, True)} |")
    lines.append(f"| rate of the pure MPI path / that of `MPI_Allreduce` over 1 MiB chunks of one flat buffer | ≥ 0.85 | "
                 f"{cell(pure)} | {met(pure['median'], 0.85, False)} |")
    for rate, ways in result["two_hosts"].items():
        steps = {way: [step["ms"] for step in runs] for way, runs in ways.items()}
        gain = ratios(steps["flat"], steps["hierarchical"])
        of_rate = spread(share(float(rate), step) for step in ways["hierarchical"])
        bounds = (1.3, 0.9) if float(rate) == 1 else (None, None)
        for what, bound, value in [("flat / hierarchical step", bounds[0], gain),
                                   ("share of the link's rate, hierarchical", bounds[1], of_rate)]:
            verdict = ("none", "") if bound is None else (f"≥ {bound}", met(value["median"], bound, False))
            lines.append(f"| 2 hosts × 2 ranks, {rate} Gbit/s: {what} | {verdict[0]} | {cell(value)} | {verdict[1]} |")
    return lines


def markdown(result):
    lines = [
        "# Over MPI", "",
        f"{result['date']}, commit {result['commit']}; rounds and steps: {result['rounds']} × {result['steps']} on one host, "
        f"{result['link_rounds']} × {result['link_steps']} on two.",
        f"{result['machine']}. Load average from {result['load_first']} at the start to {result['load_last']} at the end.",
        f"{result['version']}.", "",
        "Median over interleaved rounds of the median step of the slowest rank; brackets: minimum and maximum over rounds. Ratios "
        "are of one round. Hosts are network namespaces of this machine: their ranks share its cores, which also execute the "
        "kernel's network code, so results with a fast link are limited by the processor.", "",
        f"Made by `{result['command']}`.", "", *targets(result), ""]
    lines += ["## ResNet-50 on one host, 2 ranks", "", "| way | step ms |", "| --- | --- |"]
    lines += [f"| {way} | {cell(spread(times))} |" for way, times in result["one_host"].items()]
    lines += ["", "Ronde's rows include the whole step: 161 named tensors, negotiation, and an average. The loop of "
              "`MPI_Allreduce` sums one buffer in place.", ""]
    if result["two_hosts"]:
        lines += ["## ResNet-50 on two hosts of 2 ranks", "",
                  "| link, each way | way | step ms | MB a step over a host's link, counted there | share of the link's rate |",
                  "| --- | --- | --- | --- | --- |"]
        for rate, ways in result["two_hosts"].items():
            for way, steps in ways.items():
                lines.append(f"| {rate} Gbit/s | {way} | {cell(spread(step['ms'] for step in steps), '{:.0f}')} | "
                             f"{cell(spread(step['link_bytes'] / 1e6 for step in steps), '{:.0f}')} | "
                             f"{cell(spread(share(float(rate), step) for step in steps))} |")
        lines += ["", "For *B* bytes, at least 2·*B*·(*h* − 1)/*h* are sent over the link of each of *h* hosts in each direction: "
                  "*B*, 102 MB, for two hosts. Share: the time of these bytes at the link's rate, divided by the step.", ""]
    lines += [f"## Negotiation: {TENSORS} tensors of one float, {RANKS} ranks on {os.cpu_count()} cores, cached", "",
              "| ranks | step ms | messages a step | MPI collectives a step |", "| --- | --- | --- | --- |"]
    for way, runs in result["negotiation"].items():
        sent = [run["mpi"] for run in runs if run["mpi"]]
        counts = [cell(spread(one[kind] for one in sent)) if sent else "0" for kind in ["messages", "collectives"]]
        lines.append(f"| {way} | {cell(spread(run['ms'] for run in runs), '{:.3f}')} | {counts[0]} | {counts[1]} |")
    lines += ["", "A step is a negotiation and an allreduce of 640 bytes. Counts are those of the rank that sends the most messages, "
              "including heartbeats.", "",
              f"## Idle: {RANKS} ranks, {result['idle_s']} s after the last operation", "",
              "| ranks | messages a second, all ranks | CPU of a rank, % of a core |", "| --- | --- | --- |"]
    for way, ranks in result["idle"].items():
        lines.append(f"| {way} | {sum(ranks['messages_per_s']):.1f} | {cell(spread(ranks['cpu_percent']))} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(prog="bench-mpi", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--link-rounds", type=int, default=3)
    parser.add_argument("--link-steps", type=int, default=4)
    parser.add_argument("--rates", type=lambda rates: rates.split(",") if rates else [], default="1,10",
                        help="of the hosts' links, Gbit/s; empty: no hosts")
    parser.add_argument("--idle", type=int, default=20, metavar="S")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results" / "mpi")
    options = parser.parse_args()
    if min(options.rounds, options.steps, options.link_rounds, options.link_steps, options.idle) < 1:
        parser.error("--rounds, --steps, --link-rounds, --link-steps and --idle must be at least 1")
    if options.rates and subprocess.run([HOSTS, "possible"], check=False).returncode != 0:
        print("bench-mpi: left out: two hosts (network namespaces need root and iproute2)", file=sys.stderr)
        options.rates = []

    BUILD.mkdir(parents=True, exist_ok=True)
    load_first = os.getloadavg()[0]
    parts = {
        "version": run(["mpirun", "--version"]).splitlines()[0],
        "rounds": options.rounds, "steps": options.steps,
        "link_rounds": options.link_rounds, "link_steps": options.link_steps, "idle_s": options.idle,
        "one_host": one_host(options),
        "two_hosts": {rate: two_hosts(options, rate) for rate in options.rates},
        "negotiation": negotiation(options),
        "idle": idle(options)}
    result = circumstances("scripts/bench-mpi", load_first) | parts
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "mpi.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.out / "README.md").write_text(markdown(result))
    print((options.out / "README.md").read_text())


if __name__ == "__main__":
    main()
