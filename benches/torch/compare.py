#!/usr/bin/env python3
"""Training steps under Ronde and under PyTorch's DDP, and what Python adds; writes DIR/torch.json
and DIR/README.md.

    scripts/bench-torch [--rounds 7] [--steps 20] [--out results/torch]

Runs with the Python that has torch and the installed ronde (scripts/test-torch creates it). All
variants of a step are measured in one run, alternating. A round's value is the median step of its
slowest rank; ratios are taken within a round; a cell is the median over rounds.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "peers"))
from contest import ALONE, DDP, RONDE  # noqa: E402
from interleave import ROOT, circumstances, free_port, run, spread  # noqa: E402

RUN = [sys.executable, "-m", "ronde", "run", "-np", "2", "--no-prefix", "--"]
CONTEST = [sys.executable, str(HERE / "contest.py")]
IMPORTS = 15


def ranks(*arguments, **environment):
    """Runs both ranks of contest.py."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_PORT": str(free_port()), **environment}
    subprocess.run([*RUN, *CONTEST, *map(str, arguments)], check=True, env=environment, timeout=1800)


def exposed(job, steps, folder):
    """Communication per step of `job` that is not overlapped, and in total: medians, ms."""
    timeline = pathlib.Path(folder, "t.json")
    ranks("--job", job, "--steps", steps, HOROVOD_TIMELINE=str(timeline))
    report = json.loads(run([sys.executable, "-m", "ronde", "timeline", timeline, "--json", "-"]))
    moving = [part for part in report["steady"]["parts"] if part["kind"] != "compute"]
    return [sum(part[which]["p50"] for part in moving) for which in ("exposed_ms", "total_ms")]


def import_ms():
    """Time of `import ronde` minus that of starting Python, ms."""
    def started(code):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return 1e3 * (time.perf_counter() - began)

    return statistics.median(started("import ronde, ronde._ronde") - started("pass") for _ in range(IMPORTS))


def rust_scalar_us(folder):
    """A synchronous allreduce of one number from Rust, µs, to compare Python's with."""
    profile = pathlib.Path(folder, "scalar.json")
    tensor = {"name": "scalar", "op": "allreduce", "dtype": "float32", "elements": 1, "ready_us": 0}
    profile.write_text(json.dumps({"ronde_profile": 1, "np": 2, "tensors": [tensor]}))
    out = pathlib.Path(folder, "scalar_bench.json")
    run([sys.executable, "-m", "ronde", "bench", "--profile", profile, "-np", 2, "--steps", 5000, "--json", out])
    return 1e3 * json.loads(out.read_text())["step_ms"]["p50"]


def markdown(record):
    lines = [
        "# PyTorch", "",
        f"{record['date']}, commit {record['commit']}, torch {record['torch']}, 2 ranks, one thread each.",
        f"{record['machine']}. Load average {record['load_first']} before, {record['load_last']} after.", "",
        f"Made by `{record['command']}`. Median over rounds of the slowest rank's median step; brackets: minimum and maximum over rounds.",
        "Ratios are of one round. *Added*: difference to the same step without reduction.", "",
        "| job | no reduction, ms | DDP (gloo), ms | Ronde, ms | DDP / Ronde | added: DDP, ms | Ronde, ms | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for job, ways in record["steps"].items():
        alone, ddp, ronde = (ways[way] for way in (ALONE, DDP, RONDE))
        added = [[step - base for step, base in zip(steps, alone)] for steps in (ddp, ronde)]
        ratios = [a / b for a, b in zip(ddp, ronde)]
        added_ratios = [a / b for a, b in zip(*added) if b > 0]
        cells = [job, *map(spread, (alone, ddp, ronde)), spread(ratios), *map(spread, added)]
        lines.append("| " + " | ".join([*cells, spread(added_ratios) if added_ratios else ""]) + " |")
    lines += ["", "Communication, from Ronde's timeline (rank 0, median step):", "",
              "| job | exposed, ms | total, ms | overlaps computation |", "| --- | --- | --- | --- |"]
    for job, (shown, total) in record["exposed"].items():
        lines.append(f"| {job} | {shown:.2f} | {total:.2f} | {100 * (1 - shown / total):.0f} % |")
    lines += [
        "", "| what | |", "| --- | --- |",
        f"| 1,000 × 1 KiB: `allreduce_async_` each, then `synchronize` | {spread(record['small_ms'])} ms |",
        f"| the same tensors in one call, as the optimizer submits small gradients | {spread(record['small_batch_ms'])} ms |",
        f"| one number: `synchronize(allreduce_async_(…))` | {spread(record['scalar_us'])} µs |",
        f"| the same from Rust (`ronde bench`) | {record['rust_scalar_us']:.3g} µs |",
        f"| the same on one rank: cost of the calls | {record['alone_us']:.3g} µs |",
        f"| `import ronde` | {record['import_ms']:.0f} ms |",
        f"| wheel | {record['wheel_mb']:.1f} MB |" if record["wheel_mb"] else "",
    ]
    return "\n".join(line for line in lines if line is not None).rstrip() + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results/torch")
    options = parser.parse_args()
    load_first = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "contest.json")
        ranks("--out", out, "--rounds", options.rounds, "--steps", options.steps)
        record = json.loads(out.read_text())
        trained = list(record["steps"])[2:]
        record["exposed"] = {job: exposed(job, 3 * options.steps, folder) for job in trained}
        record["rust_scalar_us"] = rust_scalar_us(folder)
        alone = pathlib.Path(folder, "alone.json")
        subprocess.run([*CONTEST, "--alone", "--out", str(alone)], check=True)
        record["alone_us"] = json.loads(alone.read_text())
    record["import_ms"] = import_ms()
    wheels = sorted((ROOT / "target/wheels").glob("ronde-*.whl"))
    record["wheel_mb"] = wheels[-1].stat().st_size / 1e6 if wheels else None
    record.update(circumstances("scripts/bench-torch", load_first))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "torch.json").write_text(json.dumps(record, indent=1) + "\n")
    (options.out / "README.md").write_text(markdown(record))
    print(markdown(record))


if __name__ == "__main__":
    main()
