#!/usr/bin/env python3
"""Compares the tuner's choices with a grid of fixed settings: for each job, the grid, then autotune
from two starts.

    cargo build --release && benches/autotune.py         # 40 minutes; writes results/autotune/ (README.md ends with notes.md)
    benches/autotune.py --runs 1 --out /tmp/a resnet50   # only the job of this name

Needs an otherwise idle machine.

The grid is measured first: each setting in a job of its own, the default repeatedly in between, so
that its spread shows the drift of the machine; then the fastest settings once more. `ronde bench
--autotune` then runs several times from the default and from a bad start. The final settings of a
run are measured again, alternating with the grid's best.
"""
import argparse
import csv
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))
from interleave import ROOT, rotated, write_page  # noqa: E402

RONDE = os.environ.get("RONDE", ROOT / "target/release/ronde")
JOBS = {
    "resnet50": "--model resnet50 -np 2 --compute-ms 40 --link 1000,2.5",
    "vgg16": "--model vgg16 -np 2 --compute-ms 40 --link 200,1",
    "high-latency": "--model resnet50 -np 2 --compute-ms 20 --link 15000,10",
    "bare": "--model resnet50 -np 2 --compute-ms 40",
    "readme": "--model bert-base -np 2 --compute-ms 40 --link 15000,10",
}
FUSION_MB = [0, 1, 4, 16, 32, 64, 128, 256]
CYCLE_MS = [0.5, 1, 5, 10, 25, 100]
DEFAULT = (128.0, 1.0)
STARTS = {"default": {}, "fusion_mb=0,cycle_ms=25": {"RONDE_AUTOTUNE_START": "fusion_mb=0,cycle_ms=25"}}
# Approximate time and number of steps of a measurement.
SECONDS = 1.2
STEPS = range(4, 21)


def bench(arguments, environment=None):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [str(word) for word in [RONDE, "bench", *arguments, "--json", out.name]]
        subprocess.run(
            command, check=True, timeout=900, stdout=subprocess.DEVNULL, env={**os.environ, **(environment or {})}
        )
        return json.loads(pathlib.Path(out.name).read_text())  # another file now has that name


def fixed(job, fusion_mb, cycle_ms, about_ms):
    """Median step of a job with fixed settings, ms."""
    steps = min(max(int(SECONDS * 1e3 / about_ms), STEPS.start), STEPS.stop - 1)
    settings = ["--fusion-threshold-mb", f"{fusion_mb:.6g}", "--cycle-time-ms", f"{cycle_ms:.6g}"]
    return bench([*job, *settings, "--steps", steps, "--warmup", 3])["step_ms"]["p50"]


def measured_grid(job):
    """Returns a row for each setting, and all measurements of the default."""
    defaults = [fixed(job, *DEFAULT, 100)]
    grid = {}
    for index, (fusion, cycle) in enumerate((f, c) for f in FUSION_MB for c in CYCLE_MS):
        if index % 6 == 5:
            defaults.append(fixed(job, *DEFAULT, defaults[0]))
        if fusion == 0 and cycle > 1:
            continue  # without fusion the cycle time hardly matters, and some of these steps take seconds
        grid[fusion, cycle] = fixed(job, fusion, cycle, 3 * defaults[0] if fusion < 8 else defaults[0])
        print(f"{fusion:g} MB, {cycle:g} ms: {grid[fusion, cycle]:.2f} ms", flush=True)
    # The minimum of many noisy values is biased: the fastest are measured again, and the median of
    # three counts.
    for cell in sorted(grid, key=grid.get)[:6]:
        grid[cell] = statistics.median([grid[cell], fixed(job, *cell, defaults[0]), fixed(job, *cell, defaults[0])])
    return grid, defaults


def tuned_runs(job, best, about_ms, runs):
    """Returns a row for each start and seed. The grid's best is measured again beside each, to
    cancel drift."""
    for start, extra in STARTS.items():
        for seed in range(1, runs + 1):
            report = bench([*job, "--autotune", "--steps", 2000], {**extra, "RONDE_AUTOTUNE_SEED": str(seed)})
            verdict = report["autotune"]
            chosen = verdict["settings"] or {}
            cell = (chosen.get("fusion_threshold_bytes", DEFAULT[0] * 2**20) / 2**20, chosen.get("cycle_time_ms", DEFAULT[1]))
            times = {"chosen": [], "best": []}
            for number in range(3):
                for name, settings in rotated([("chosen", cell), ("best", best)], number):
                    times[name].append(fixed(job, *settings, about_ms))
            ms, best_ms = (statistics.median(times[name]) for name in ("chosen", "best"))
            row = {"start": start, "seed": seed, "chosen": cell, "ms": ms, "best_ms": best_ms}
            yield {**row, "ratio": ms / best_ms, "autotune": verdict}


def measure(name, runs):
    job = JOBS[name].split()
    grid, defaults = measured_grid(job)
    best = min(grid, key=grid.get)
    rows = []
    for row in tuned_runs(job, best, grid[best], runs):
        rows.append(row)
        print(f"{name}, from {row['start']}, seed {row['seed']}: {row['ratio']:.4f} of the best, {row['chosen']}", flush=True)
    cells = [{"job": name, "fusion_mb": f, "cycle_ms": c, "step_ms_p50": round(ms, 3)} for (f, c), ms in grid.items()]
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    return {"job": name, "command": JOBS[name], "commit": head, "default_ms": defaults, "best": best, "runs": rows}, cells


def of_job(record, cells):
    """The section of one job in the page."""
    at = {(cell["fusion_mb"], cell["cycle_ms"]): cell["step_ms_p50"] for cell in cells}
    best = at[tuple(record["best"])]
    default = statistics.median(record["default_ms"])
    near = sum(run["ratio"] <= 1.03 for run in record["runs"])
    lines = [
        f"## {record['job']}: within 3 % of the grid's best in {near} of {len(record['runs'])} runs",
        "",
        f"`ronde bench {record['command']}`, commit {record['commit']}. Default (128 MB, 1 ms): {default:.1f} ms (median of {len(record['default_ms'])} "
        f"jobs, {min(record['default_ms']):.1f} to {max(record['default_ms']):.1f}); best of the grid: {best:.1f} ms at "
        f"{record['best'][0]:g} MB, {record['best'][1]:g} ms. The default is {100 * (default / best - 1):.1f} % slower than that. "
        "Step time, p50, ms:",
        "",
        "| fusion MB \\ cycle ms | " + " | ".join(f"{cycle:g}" for cycle in CYCLE_MS) + " |",
        "| --- |" + " --- |" * len(CYCLE_MS),
    ]
    for fusion in FUSION_MB:
        row = [f"{at[fusion, cycle]:.1f}" if (fusion, cycle) in at else "" for cycle in CYCLE_MS]
        lines.append(f"| {fusion:g} | " + " | ".join(row) + " |")
    lines += [
        "",
        "| start | seed | final ms | final / best | gain over the start, % (95 %) | settings | steps to the verdict | of them lost |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for run in record["runs"]:
        verdict = run["autotune"]
        if verdict["gain_pct"] is None:
            gain = "no verdict"
        else:
            gain = "start kept" if verdict["kept_default"] else "{:.1f} to {:.1f}".format(*verdict["gain_pct"])
        lines.append(
            f"| {run['start']} | {run['seed']} | {run['ms']:.1f} | {run['ratio']:.3f} | {gain} | "
            f"{run['chosen'][0]:.3g} MB, {run['chosen'][1]:.3g} ms | {verdict['steps_active']} | {verdict['steps_lost'] or 0:.0f} |"
        )
    return [*lines, ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="*", choices=[[], *JOBS], help="all unless said")
    parser.add_argument("--runs", type=int, default=5, help="autotune runs from each start")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results/autotune")
    parser.add_argument("--page", action="store_true", help="write the page from existing measurements")
    options = parser.parse_args()
    measured = [] if options.page else [measure(name, options.runs) for name in options.jobs or JOBS]

    options.out.mkdir(parents=True, exist_ok=True)
    record, cells = options.out / "autotune.json", options.out / "grid.csv"
    # Keeps the measurements of jobs that were not run now.
    jobs = {job["job"]: job for job in json.loads(record.read_text())["jobs"]} if record.exists() else {}
    jobs |= {job["job"]: job for job, _ in measured}
    jobs = [jobs[name] for name in JOBS if name in jobs]
    of = {}
    if cells.exists():
        for row in csv.DictReader(cells.read_text().splitlines()):
            numbers = {key: float(row[key]) for key in ["fusion_mb", "cycle_ms", "step_ms_p50"]}
            of.setdefault(row["job"], []).append({"job": row["job"], **numbers})
    of |= {job["job"]: cells_of_job for job, cells_of_job in measured}
    machine = {"machine": platform.machine(), "cores": os.cpu_count(), "kernel": platform.release()}
    record.write_text(json.dumps({**machine, "jobs": jobs}, indent=1) + "\n")
    with open(cells, "w", newline="") as file:
        table = csv.DictWriter(file, ["job", "fusion_mb", "cycle_ms", "step_ms_p50"])
        table.writeheader()
        table.writerows(cell for job in jobs for cell in of[job["job"]])
    lines = [
        "# Autotune against a grid",
        "",
        f"`cargo build --release && benches/autotune.py`, 2 ranks on {machine['cores']} cores ({machine['machine']}, Linux "
        f"{machine['kernel']}). Links are shaped. The only prior of a run is the replay of its own job. Final / best: step time "
        "with the final setting of a run, divided by that with the best setting of the grid; both are measured in turn after "
        "the run (medians of three jobs each).",
        "",
    ]
    for job in jobs:
        lines += of_job(job, of[job["job"]])
    write_page(options.out, "\n".join(lines))


if __name__ == "__main__":
    main()
