#!/usr/bin/env python3
"""Whether a setting has the same step time in fresh jobs and after other settings in one job.

    cargo build --release && benches/entries.py          # 2 minutes; writes results/autotune/entries.md and .json
    RONDE=/path/of/another/ronde benches/entries.py --out /tmp/before

Needs an otherwise idle machine. The job is README's first command, over a link of 15 ms, at 111 MB and 2.37 ms. The setting is
measured in --count fresh jobs (`ronde bench`), and entered --count times within one job, after other settings in random order
(`ronde sweep`). A two-sample Kolmogorov-Smirnov test by permutation compares the medians of the visits.
"""
import argparse
import csv
import datetime
import json
import os
import pathlib
import platform
import random
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RONDE = os.environ.get("RONDE", ROOT / "target/release/ronde")
JOB = "--model resnet50 -np 2 --compute-ms 20 --link 15000,10"
FUSION_MB, CYCLE_MS = 111, 2.37
# Beside the default, which a sweep always has: one batch for each step, and many.
OTHER_FUSION_MB, OTHER_CYCLE_MS = 64, 25
PERMUTATIONS = 10_000


def run(*words):
    subprocess.run([str(word) for word in [RONDE, *words]], check=True, timeout=1800, stdout=subprocess.DEVNULL)


def fresh(options):
    """Median step of each fresh job, ms."""
    settings = ["--fusion-threshold-mb", FUSION_MB, "--cycle-time-ms", CYCLE_MS]
    times = []
    for _ in range(options.count):
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            run("bench", *JOB.split(), *settings, "--steps", options.steps, "--warmup", 6, "--json", out.name)
            report = json.loads(pathlib.Path(out.name).read_text())  # another file now has that name
            times.append(report["step_ms"]["p50"])
    return times


def entries(options):
    """Median step of each visit within one job, ms."""
    lists = ["--fusion-mb", f"{OTHER_FUSION_MB},{FUSION_MB}", "--cycle-ms", f"{CYCLE_MS},{OTHER_CYCLE_MS}"]
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "sweep"
        counts = ["--steps", options.steps, "--warmup", 6, "--repeats", options.count]
        run("sweep", *JOB.split(), *lists, *counts, "--confirm", 0, "--out", out)
        rows = list(csv.DictReader((out / "sweep.csv").read_text().splitlines()))
    ours = (str(FUSION_MB << 20), CYCLE_MS)
    return [
        float(row["step_ms_p50"]) for row in rows
        if (row["fusion_threshold_bytes"], float(row["cycle_time_ms"])) == ours and row["status"] in ("done", "cut")
    ]


def distance(some, others):
    """Largest difference of the two empirical distribution functions."""
    below = lambda values, at: sum(value <= at for value in values) / len(values)
    return max(abs(below(some, at) - below(others, at)) for at in some + others)


def same_distribution(some, others):
    """Probability of a distance this large if both have the same distribution, by permutation."""
    observed, everything = distance(some, others), some + others
    draws = random.Random(1)
    count = 0
    for _ in range(PERMUTATIONS):
        draws.shuffle(everything)
        count += distance(everything[: len(some)], everything[len(some):]) >= observed
    return (count + 1) / (PERMUTATIONS + 1)


def row(name, times):
    return f"| {name} | {len(times)} | {min(times):.2f} | {statistics.median(times):.2f} | {max(times):.2f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results/autotune")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    jobs, visits = fresh(options), entries(options)
    probability = same_distribution(jobs, visits)
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    record = {
        "date": datetime.date.today().isoformat(), "commit": commit, "machine": platform.machine(), "cores": os.cpu_count(),
        "load": round(load, 2), "job": JOB, "fusion_mb": FUSION_MB, "cycle_ms": CYCLE_MS, "fresh_ms": jobs, "entries_ms": visits,
        "p_same": probability,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "entries.json").write_text(json.dumps(record, indent=1) + "\n")
    lines = [
        "# One setting in fresh jobs and after other settings", "",
        f"`benches/entries.py`, `ronde bench {JOB}` at {FUSION_MB} MB and {CYCLE_MS} ms; {record['date']}, commit {commit}, "
        f"{record['cores']} cores, load average {record['load']} at the start. Medians of {options.steps} steps, ms.", "",
        "| | number | least | median | most |", "| --- | --- | --- | --- | --- |",
        row("fresh jobs", jobs), row("entries within one job", visits), "",
        f"Kolmogorov-Smirnov test of the two rows, by permutation: p = {probability:.2g}.", "",
    ]
    (options.out / "entries.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
