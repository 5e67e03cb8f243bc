"""Ronde and the real Horovod through the same Python program (hvd_allreduce.py): how they are
started, and Horovod's autotune."""

import json
import pathlib
import sys
import threading
import time

from interleave import BUILD, ROOT, run

PROGRAM = ROOT / "benches" / "peers" / "hvd_allreduce.py"
OURS = "Ronde through Python"
TUNED = "Horovod, tuned by itself"
MIB = 1 << 20
# Its settings, by row. The second is the best that we found by hand on two ranks of one machine.
SETTINGS = {
    "Horovod, default settings": {},
    "Horovod, 1 MiB and 0.1 ms": {
        "HOROVOD_FUSION_THRESHOLD": str(MIB),
        "HOROVOD_CYCLE_TIME": "0.1",
    },
}
TUNE_TIMEOUT_S = 3600


class Autotune:
    """Duration of Horovod's search: the (5 S + 1)-th execution of a tensor ends a sample of
    S steps, and there are M + 1 samples for each combination of the settings that are on or off,
    after those thrown away.
    """

    def __init__(self, quick):
        # Off, so that the search has no samples of them: Horovod's allreduce of CPU tensors is never
        # hierarchical (operations.cc: "not supported without NCCL or DDL"), and the jobs gather nothing.
        self.variables = {
            "HOROVOD_HIERARCHICAL_ALLGATHER": "0",
            "HOROVOD_HIERARCHICAL_ALLREDUCE": "0",
        }
        self.steps_per_sample, self.samples_max, self.warmup, combinations = (
            10,
            20,
            3,
            2,
        )  # response cache off and on
        if quick:
            self.steps_per_sample, self.samples_max, self.warmup, combinations = 1, 2, 1, 1
            self.variables |= {
                "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "1",
                "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "2",
                "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1",
                "HOROVOD_CACHE_CAPACITY": "1024",
            }
        self.samples = (self.samples_max + 1) * combinations

    def steps(self):
        """Returns the number of steps until the end of the search, and some more."""
        return (5 * self.steps_per_sample + 1) * (self.warmup + self.samples) + 20


class Python:
    """Runs hvd_allreduce.py under either package."""

    def __init__(self, options):
        self.options = options
        self.versions = {}
        self.tuned = {}  # model: what the search ended with

    def ronde(self, elements, steps, latency):
        python = self.options.ronde_python
        launcher = [python.parent / "ronde", "run", "-np", self.options.np, "--", python]
        return self.measure(launcher, elements, steps, latency, {})

    def horovod(self, settings, elements, steps, latency):
        return self.measure(self.mpirun(), elements, steps, latency, settings)

    def mpirun(self):
        return ["mpirun", "-np", self.options.np, self.options.horovod_python]

    def measure(self, launcher, elements, steps, latency, settings):
        out = BUILD / "hvd.json"
        out.unlink(missing_ok=True)
        command = [*launcher, PROGRAM, elements, "--steps", steps, "--out", out]
        run(command + (["--latency"] if latency else []), {"OMP_NUM_THREADS": "1"} | settings)
        report = json.loads(out.read_text())
        self.versions[report["package"]] = (
            f"{report['package'].capitalize()} {report['version']} (torch {report['torch']})"
        )
        return report

    def tune(self, model, elements):
        """Runs Horovod's autotune to its end, once for each model; the build folder keeps the result."""
        options, search = self.options, Autotune(self.options.quick)
        log = BUILD / f"horovod-autotune{'-quick' if options.quick else ''}-{model}-{options.np}.csv"
        if options.retune or best_row(log, search) is None:
            log.unlink(missing_ok=True)
            began = time.monotonic()
            print(
                f"bench-peers: Horovod's autotune on {model}: {search.steps()} steps, {search.samples} samples",
                file=sys.stderr,
            )
            stop = threading.Event()
            watcher = threading.Thread(target=show_samples, args=(log, search, stop))
            watcher.start()
            try:
                variables = {
                    "OMP_NUM_THREADS": "1",
                    "HOROVOD_AUTOTUNE": "1",
                    "HOROVOD_AUTOTUNE_LOG": str(log),
                } | search.variables
                command = [
                    *self.mpirun(),
                    PROGRAM,
                    elements,
                    "--steps",
                    search.steps(),
                    "--tune",
                    "--out",
                    BUILD / "hvd.json",
                ]
                run(command, variables, TUNE_TIMEOUT_S)
            finally:
                stop.set()
                watcher.join()
            if best_row(log, search) is None:
                sys.exit(
                    f"Horovod's autotune has not ended after {search.steps()} steps; see {log}"
                )
            log.with_suffix(".seconds").write_text(f"{time.monotonic() - began:.0f}\n")
        row = best_row(log, search)
        seconds = log.with_suffix(".seconds")
        self.tuned[model] = {
            "cycle_time_ms": float(row[4]),
            "fusion_threshold_mib": float(row[5]),
            "cache_enabled": int(row[3]),
            "steps": search.steps(),
            "samples": search.samples,
            "log": log.read_text(),
            "seconds": int(seconds.read_text()) if seconds.exists() else None,
        }

    def tuned_settings(self, model):
        """The final settings of Horovod's search, as variables. The response cache is on whatever the
        search says of it: Horovod does not apply that part of its result."""
        best = self.tuned[model]
        return {
            "HOROVOD_CYCLE_TIME": f"{best['cycle_time_ms']:g}",
            "HOROVOD_FUSION_THRESHOLD": str(round(best["fusion_threshold_mib"] * MIB)),
        }


def rows(log):
    """Returns the samples of an autotune log, including its best row."""
    lines = log.read_text().splitlines()[1:] if log.exists() else []
    return [[field.strip() for field in line.split(",")] for line in lines if line.count(",") == 6]


def best_row(log, search):
    """Returns the last row of a search that has ended, in which Horovod repeats the best one."""
    found = rows(log)
    return found[-1] if len(found) == search.samples + 1 else None


def show_samples(log, search, stop):
    shown = 0
    while not stop.wait(2):
        count = min(len(rows(log)), search.samples)
        if count >= shown + max(1, search.samples // 6):
            shown = count
            print(f"bench-peers: … sample {count} of {search.samples}", file=sys.stderr)


def available(options):
    """Ends the comparison where one of the two environments is missing."""
    for python, package, how in [
        (options.ronde_python, "ronde", "scripts/bench-peers builds it"),
        (options.horovod_python, "horovod", "scripts/build-horovod builds it"),
    ]:
        if not pathlib.Path(python).exists():
            sys.exit(
                f"bench-peers: {python} does not exist; {how}; --only programs leaves Python out"
            )
        run([python, "-c", f"import {package}.torch"])
