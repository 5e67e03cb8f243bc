#!/usr/bin/env python3
"""Is the tuner's choice near the optimum? A small grid of fixed settings, then autotune from several starts.

    cargo build --release && benches/autotune.py        # writes results/autotune/

The grid is measured first (each setting in a job of its own, the default again after every few: drift of the machine
shows as its spread); then `ronde bench --autotune` runs from the default and from a bad start, several times, and once on
bare shared memory. `ronde sweep` will take the grid's place.
"""
import argparse
import csv
import json
import os
import pathlib
import platform
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RONDE = ROOT / "target/release/ronde"
DEFAULT = (128.0, 1.0)


def bench(arguments, environment=None):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [RONDE, "bench", *arguments, "--json", out.name]
        subprocess.run(
            command, check=True, timeout=600, stdout=subprocess.DEVNULL, env={**os.environ, **(environment or {})}
        )
        return json.load(out)


def fixed(job, fusion_mb, cycle_ms, steps):
    settings = ["--fusion-mb", str(fusion_mb), "--cycle-ms", str(cycle_ms)]
    return bench([*job, *settings, "--steps", str(steps)])["step_ms"]["p50"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", default="--model resnet50 -np 2 --compute-ms 20 --link 15000,10")
    parser.add_argument("--fusion-mb", default="0,8,32,128")
    parser.add_argument("--cycle-ms", default="0.1,1,5,10,20,40,100")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--runs", type=int, default=3, help="autotune runs from each start")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results/autotune")
    options = parser.parse_args()
    job = options.job.split()
    grid, defaults = [], []
    cells = [(float(f), float(c)) for f in options.fusion_mb.split(",") for c in options.cycle_ms.split(",")]
    for index, (fusion, cycle) in enumerate(cells):
        if fusion == 0 and cycle > 1:
            continue  # without fusion the cycle time hardly matters, and each of these steps takes seconds
        if index % 5 == 0:
            defaults.append(fixed(job, *DEFAULT, options.steps))
        steps = 3 if fusion == 0 else options.steps
        grid.append({"fusion_mb": fusion, "cycle_ms": cycle, "step_ms_p50": fixed(job, fusion, cycle, steps)})
        print(grid[-1], flush=True)
    default = statistics.median(defaults)
    best = min(grid, key=lambda cell: cell["step_ms_p50"])

    runs = []
    starts = {"default": {}, "fusion_mb=0,cycle_ms=25": {"RONDE_AUTOTUNE_START": "fusion_mb=0,cycle_ms=25"}}
    for start, environment in starts.items():
        for seed in range(1, options.runs + 1):
            environment = {**environment, "RONDE_AUTOTUNE_SEED": str(seed)}
            report = bench([*job, "--autotune", "--steps", "2000"], environment)
            runs.append({"start": start, "seed": seed, "step_ms_p50": report["step_ms"]["p50"], **report["autotune"]})
            print(runs[-1], flush=True)
    bare = bench(["--model", "resnet50", "-np", "2", "--autotune", "--steps", "2000"])["autotune"]

    options.out.mkdir(parents=True, exist_ok=True)
    machine = {"machine": platform.machine(), "cores": os.cpu_count(), "kernel": platform.release()}
    record = {"job": options.job, **machine, "default_ms": defaults, "grid": grid, "runs": runs, "bare": bare}
    (options.out / "autotune.json").write_text(json.dumps(record, indent=1) + "\n")
    with open(options.out / "grid.csv", "w", newline="") as file:
        table = csv.DictWriter(file, grid[0].keys())
        table.writeheader()
        table.writerows(grid)
    write_summary(options, record, default, best)


def write_summary(options, record, default, best):
    def share(ms):
        return f"{ms / best['step_ms_p50']:.3f}"

    cycles = sorted({cell["cycle_ms"] for cell in record["grid"]})
    fusions = sorted({cell["fusion_mb"] for cell in record["grid"]})
    at = {(cell["fusion_mb"], cell["cycle_ms"]): cell["step_ms_p50"] for cell in record["grid"]}
    lines = [
        "# Autotune against a grid",
        "",
        "Made by `cargo build --release && benches/autotune.py`, on "
        f"{record['cores']} cores ({record['machine']}, Linux {record['kernel']}).",
        f"Job: `ronde bench {options.job}` (a shaped link, not this machine's own).",
        "",
        f"Default (128 MB, 1 ms): {default:.1f} ms (median of {len(record['default_ms'])} jobs, "
        f"{min(record['default_ms']):.1f} to {max(record['default_ms']):.1f}); best of the grid: "
        f"{best['step_ms_p50']:.1f} ms at {best['fusion_mb']:g} MB, {best['cycle_ms']:g} ms. "
        f"The default is {100 * (default / best['step_ms_p50'] - 1):.0f} % slower than that.",
        "",
        "Step time, p50, ms:",
        "",
        "| fusion MB \\ cycle ms | " + " | ".join(f"{cycle:g}" for cycle in cycles) + " |",
        "| --- |" + " --- |" * len(cycles),
    ]
    for fusion in fusions:
        cells = [f"{at[fusion, cycle]:.1f}" if (fusion, cycle) in at else "" for cycle in cycles]
        lines.append(f"| {fusion:g} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "Autotune, cold (no prior), one row a run; `final / best` compares 20 timed steps after the verdict with the grid's best:",
        "",
        "| start | seed | final ms | final / best | gain % (95 %) | settings | steps to the verdict | of them lost |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for run in record["runs"]:
        settings = run["settings"] or {}
        chosen = f"{settings.get('fusion_threshold_bytes', 0) / 2**20:.3g} MB, {settings.get('cycle_time_ms', 0):.3g} ms"
        gain = "default kept" if run["kept_default"] else "{:.1f} to {:.1f}".format(*run["gain_pct"])
        lines.append(
            f"| {run['start']} | {run['seed']} | {run['step_ms_p50']:.1f} | {share(run['step_ms_p50'])} | {gain} | {chosen} | "
            f"{run['steps_active']} | {run['steps_lost']:.0f} |"
        )
    bare = record["bare"]
    kept = "the default is kept" if bare["kept_default"] else f"gain {bare['gain_pct']}"
    lines += ["", f"On bare shared memory (no link, no compute): {kept} after {bare['steps_active']} steps.", ""]
    (options.out / "README.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
