#!/usr/bin/env python3
"""Benchmark of Ronde over TCP between hosts, which are network namespaces (scripts/multihost).

Compares an averaged model's gradients with a raw socket exchange of the same bytes, with gloo's and
with Open MPI's allreduce over TCP; a small tensor with the round trip of a raw socket; and measures
negotiation and idle jobs.

    scripts/bench-hosts [--parts latency,idle,unshaped,10,1] [--rounds 5] [--models resnet50,bert-base] [--out DIR]
    scripts/bench-hosts --page     # writes DIR/README.md again, from what is recorded

One round starts each way once in fresh processes, beginning with the next one each time. A cell is
the median over rounds of the round's median step; brackets: smallest and largest round. Ratios are
computed within a round and then summarised in the same way. Writes DIR/hosts.json (everything; parts
that are not measured stay as they are) and DIR/README.md (the tables, and what DIR/notes.md says about them).
"""

import argparse
import json
import os
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
from interleave import BUILD, ROOT, circumstances, rotated, run, write_page  # noqa: E402

HOSTS = ROOT / "scripts" / "multihost"
RONDE = ROOT / "target" / "release" / "ronde"
RANK = BUILD / "hosts_rank"
MPI = BUILD / "mpi_allreduce"
GLOO = ROOT / "benches" / "peers" / "ddp_gloo.py"
PYTHON = "/usr/bin/python3"  # Debian's, with Debian's torch
NAME = os.environ.get("MULTIHOST_NAME", "ronde")

LATENCY_STEPS, NEGOTIATION_STEPS, IDLE_S = 2000, 200, 10
ROUNDS_MIN = 3  # for a verdict
# Steps of a link by model: a step takes from 0.1 to 4 s.
STEPS = {"1": {"resnet50": 4, "bert-base": 2}, "10": {"resnet50": 10, "bert-base": 4}, "unshaped": {"resnet50": 15, "bert-base": 5}}


def tcp(ranks, *command):
    return [HOSTS, "tcp", "-np", ranks, *command]


def rank(ranks, mode, *options, **variables):
    """Runs a mode of the program on all ranks; the step, and the CPU time of all ranks as a share of a core."""
    os.environ["MULTIHOST_PLACE"] = "blocks"
    lines = run(tcp(ranks, RANK, mode, *options), variables).splitlines()
    reports = sorted((json.loads(line) for line in lines if line.startswith("{")), key=lambda report: report["rank"])
    assert len(reports) == ranks, lines
    return {"ms": reports[0]["step_ms"]["p50"], "cores": sum(one["cpu_s"] / one["wall_s"] for one in reports),
            "cpu_percent": [100 * one["cpu_s"] / one["wall_s"] for one in reports]}


def gloo(ranks, elements, steps, ways):
    """Runs torch's gloo on all ranks; {way: step}."""
    script = ("export RANK=$HOROVOD_RANK WORLD_SIZE=$HOROVOD_SIZE MASTER_ADDR=${RONDE_TCP_SERVER%:*} MASTER_PORT=${RONDE_TCP_SERVER#*:} "
              "GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1; exec \"$@\"")
    command = ["sh", "-c", script, "sh", PYTHON, GLOO, elements, "--steps", steps, "--warmup", 1, "--ways", ",".join(ways)]
    report = json.loads(run(tcp(ranks, *command)))
    return {way: {"ms": report["step_ms"][way]["p50"], "cores": report["step_ms"][way]["cores"]} for way in ways}


def mpi(ranks, elements, steps, way):
    os.environ["MULTIHOST_PLACE"] = "blocks"
    report = json.loads(run([HOSTS, "mpirun", "-np", ranks, "-x", "MPI_ALLREDUCE_WARMUP", MPI, elements, steps, way], {"MPI_ALLREDUCE_WARMUP": "1"}))
    return {"ms": report["step_ms"][way]["p50"], "cores": report["step_ms"][way]["cores"]}


def interleaved(ways, rounds, label):
    """Runs every way once a round; {way: [its result each round]}. A way may give several results."""
    results = {}
    for number in range(rounds):
        for way in rotated(ways, number):
            result = ways[way]()
            for name, one in (result if "ms" not in result else {way: result}).items():
                results.setdefault(name, []).append(one)
        print(f"bench-hosts: {label}: round {number + 1} of {rounds} done", file=sys.stderr)
    return results


def gradients(link, options):
    """{model, ranks: {way: results}} over one link."""
    run([HOSTS, "up", 2, *([] if link == "unshaped" else ["--rate", f"{link}gbit"])])
    try:
        return {f"{model}, 2×{ranks // 2}": ways_of(link, model, ranks, options)
                for model in options.models for ranks in (2, 4)}
    finally:
        run([HOSTS, "down"])


def ways_of(link, model, ranks, options):
    elements = BUILD / f"{model}.txt"
    elements.write_text(run([RONDE, "bench", "--model", model, "--print-elements"]))
    steps = STEPS[link][model]
    count = ["--steps", steps, "--warmup", 1]
    ways = {
        "raw sockets": lambda: rank(2, "exchange", elements, *count),
        "Ronde": lambda: rank(ranks, "gradients", elements, *count),
        "gloo": lambda: {{"ddp_buckets": "gloo, DDP", "flat": "gloo, flat"}[way]: step
                         for way, step in gloo(ranks, elements, steps, ["ddp_buckets", "flat"]).items()},
    }
    if ranks == 2:
        # Four ranks of Open MPI 4.1.4 on two cores report "connect() failed: Operation now in
        # progress" or "peer hung up", with mpi_yield_when_idle too, and do not end.
        ways["Open MPI, 1 MiB chunks"] = lambda: mpi(ranks, elements, steps, "chunked_1_mib")
    if ranks > 2:
        ways["Ronde, hierarchical"] = lambda: rank(ranks, "gradients", elements, *count, HOROVOD_HIERARCHICAL_ALLREDUCE="1")
    if options.only_ronde:
        ways = {way: ways[way] for way in ways if way.startswith(("raw", "Ronde"))}
    return interleaved(ways, options.rounds, f"{link}: {model}, {ranks} ranks")


def latency(options):
    run([HOSTS, "up", 2])
    elements = BUILD / "one.txt"
    elements.write_text("1\n")
    ways = {
        "raw round trip": lambda: rank(2, "round-trip", "--steps", LATENCY_STEPS),
        "Ronde, 2×1": lambda: rank(2, "small", "--steps", LATENCY_STEPS),
        "Ronde, 2×4: 160 cached tensors": lambda: rank(8, "negotiation", "--steps", NEGOTIATION_STEPS),
    }
    if not options.only_ronde:
        ways["gloo, 2×1"] = lambda: gloo(2, elements, LATENCY_STEPS // 20, ["latency_4_bytes"])["latency_4_bytes"]
        ways["Open MPI, 2×1"] = lambda: mpi(2, elements, LATENCY_STEPS // 50, "latency_4_bytes")
    try:
        return interleaved(ways, options.rounds, "latency")
    finally:
        run([HOSTS, "down"])


def idle(options):
    run([HOSTS, "up", 2])
    ways = {f"2×{ranks // 2}": lambda ranks=ranks: rank(ranks, "idle", "--steps", IDLE_S, "--warmup", 1) for ranks in (2, 8)}
    try:
        return interleaved(ways, min(options.rounds, ROUNDS_MIN), "idle")
    finally:
        run([HOSTS, "down"])


def spread(values):
    values = list(values)
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def ratios(these, those):
    return spread(this["ms"] / that["ms"] for this, that in zip(these, those))


def cell(summary, digits="{:.2f}"):
    return "{} [{}, {}]".format(*(digits.format(summary[key]) for key in ["median", "min", "max"]))


def row(what, bound, value, is_most=False):
    relation, met = ("≤" if is_most else "≥"), (value["median"] <= bound if is_most else value["median"] >= bound)
    verdict = "–" if value["n"] < ROUNDS_MIN else "yes" if met else "**no**"
    return f"| {what} | {relation} {bound} | {value['n']} | {cell(value)} | {verdict} |"


def goals(result):
    lines = ["| what | goal | n | measured | met |", "| --- | --- | --- | --- | --- |"]
    for link, bound in [("1", 0.93), ("10", 0.8)]:
        for case, ways in result.get(link, {}).items():
            lines.append(row(f"{link} Gbit/s, {case}: raw sockets / Ronde", bound, ratios(ways["raw sockets"], ways["Ronde"])))
    for link in ["1", "10", "unshaped"]:
        label = link if link == "unshaped" else f"{link} Gbit/s"
        for case, ways in result.get(link, {}).items():
            for peer, bound in [("gloo, DDP", 1.2), ("gloo, flat", 1.2), ("Open MPI, 1 MiB chunks", 0.9 if link == "unshaped" else 1.0)]:
                if peer in ways:
                    lines.append(row(f"{label}, {case}: {peer} / Ronde", bound, ratios(ways[peer], ways["Ronde"])))
    if ways := result.get("latency"):
        lines.append(row("4 bytes, 2×1: Ronde / raw round trip", 1.5, ratios(ways["Ronde, 2×1"], ways["raw round trip"]), True))
        step = spread(one["ms"] for one in ways["Ronde, 2×4: 160 cached tensors"])
        lines.append(row("160 cached tensors, 2×4, ms", 1, step, True))
    for case, runs in result.get("idle", {}).items():
        busiest = spread(max(one["cpu_percent"]) for one in runs["results"])
        lines.append(row(f"idle, {case}: busiest rank, % of a core", 0.2, busiest, True))
    return lines


def priority():
    """Nice value of this process's scheduling group: negative if other work of the machine has to stand back."""
    group = pathlib.Path("/proc/self/autogroup")
    return int(group.read_text().split()[-1]) if group.exists() else 0


def made_rows(made):
    """A row for each run of this program, with the parts that it measured."""
    parts = {}
    for part, one in made.items():
        parts.setdefault(tuple(one.items()), []).append(part)
    for items, names in parts.items():
        one = dict(items)
        nice = f", in a scheduling group of nice value {one['nice']}" if one["nice"] < 0 else ""
        yield (f"| {', '.join(names)} | `{one['command']}` | {one['date']}, {one['commit']} | {one['machine']}; load average "
               f"{one['load_first']} to {one['load_last']}{nice} |")


def markdown(result):
    lines = [
        "# Between hosts, over TCP", "",
        "Median over interleaved rounds of the median step of the slowest rank; brackets: minimum and maximum over rounds; "
        f"*n*: number of rounds; fewer than {ROUNDS_MIN} give no verdict (–). Ratios "
        "are of one round; above 1 Ronde is faster, except in rows with ≤. Hosts are network namespaces of this machine, joined "
        "by veth and a bridge: all ranks share its cores, which also execute the kernel's network code. So without a limit and at "
        "10 Gbit/s the processor limits every way. `2×2` is two hosts of two ranks. *Cores*: CPU time of all ranks, divided by "
        "the time of the steps. Open MPI is measured with two ranks only: four of version 4.1.4 report that "
        "they cannot connect (*Operation now in progress*) or that a peer hung up, and do not end.", "",
        "| part, model | made by | date, commit | machine |", "| --- | --- | --- | --- |", *made_rows(result["made"]), "",
        *goals(result), ""]
    for link in ["1", "10", "unshaped"]:
        if link not in result:
            continue
        lines += [f"## {link} Gbit/s" if link != "unshaped" else "## Unshaped veth", "", "| gradients | way | n | step ms | cores |",
                  "| --- | --- | --- | --- | --- |"]
        for case, ways in result[link].items():
            lines += [f"| {case} | {way} | {len(runs)} | {cell(spread(one['ms'] for one in runs), '{:.1f}')} | "
                      f"{cell(spread(one['cores'] for one in runs))} |" for way, runs in ways.items()]
        lines.append("")
    if "latency" in result:
        lines += ["## Latency, unshaped veth", "", "| way | n | step ms | cores |", "| --- | --- | --- | --- |"]
        lines += [f"| {way} | {len(runs)} | {cell(spread(one['ms'] for one in runs), '{:.4f}')} | {cell(spread(one['cores'] for one in runs))} |"
                  for way, runs in result["latency"].items()]
        lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(prog="bench-hosts", description=__doc__.splitlines()[0])
    parser.add_argument("--parts", type=lambda text: text.split(","), default="latency,idle,unshaped,10,1".split(","))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", type=lambda text: text.split(","), default=["resnet50", "bert-base"])
    parser.add_argument("--only-ronde", action="store_true", help="without gloo and Open MPI")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results" / "hosts")
    options = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    written = options.out / "hosts.json"
    before = json.loads(written.read_text()) if written.exists() else {}
    if options.page:
        write_page(options.out, markdown(before))
        return
    load_first = os.getloadavg()[0]
    measured, names = {}, []
    for part in options.parts:
        names += [part] if part in ["latency", "idle"] else [f"{part} {model}" for model in options.models]
        if part == "latency":
            measured[part] = latency(options)
        elif part == "idle":
            measured[part] = {case: {"results": runs} for case, runs in idle(options).items()}
        else:
            measured[part] = before.get(part, {}) | gradients(part, options)
    made = circumstances("scripts/bench-hosts", load_first) | {"nice": priority()}
    result = before | {"made": before.get("made", {}) | {name: made for name in names}} | measured
    written.write_text(json.dumps(result, indent=1) + "\n")
    write_page(options.out, markdown(result))
    print((options.out / "README.md").read_text())


if __name__ == "__main__":
    main()
