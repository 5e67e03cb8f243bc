#!/usr/bin/env python3
"""Drives other people's tuners on the jobs of `cargo bench --bench tuner -- --serve`, and writes a line of JSON for each run.

The truth, the noise and the metrics are the harness's own: a tuner here sees step times and nothing else. All search the five
knobs on logarithmic coordinates u (fusion threshold) and v (cycle time) in 0..1, as the harness's random search does, after
30 steps at the default; the best score wins. A sample is the median of 10 steps, one more discarded: 80 of them, 40 where a
proposal takes the tuner a second. `tpe` takes 24 samples of 50 steps, scored as Horovod scores. Put the runs into the table with `cargo bench --bench tuner -- --add FILE`.
"""

import argparse
import importlib.metadata
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

MIB = 1024.0 * 1024.0
FUSION = (65536.0 / MIB, 256.0)  # MiB
CYCLE = (0.1, 100.0)  # ms
DEFAULT = dict(fusion_mb=128.0, cycle_ms=1.0, hierarchical=False, allgather=False, cache=True)
WARMUP_STEPS = 30


class Server:
    """A harness of its own, spoken to in lines of JSON."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def __call__(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the harness ended (status {self.process.wait()}) at {request}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{request}: {answer['error']}")
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Job:
    """A run of one tuner on one surface."""

    def __init__(self, server, tuner, truth, surface, number):
        self.server = server
        self.seed = server(do="reset", tuner=tuner, truth=truth, surface=surface, seed=number)["seed"]
        self.best = (math.inf, DEFAULT)
        self.run(DEFAULT, WARMUP_STEPS)

    def run(self, setting, steps):
        return self.server(do="run", setting=setting, steps=steps)["ms"]

    def short(self, setting):
        """Step time in ms: the median of 10 steps after one that is discarded."""
        return self.score(setting, statistics.median(self.run(setting, 11)[1:]))

    def long(self, setting):
        """Step time in ms: the median speed of five times 10 steps."""
        times = self.run(setting, 50)
        return self.score(setting, statistics.median(sum(times[i : i + 10]) / 10 for i in range(0, 50, 10)))

    def score(self, setting, step_ms):
        if step_ms < self.best[0]:
            self.best = (step_ms, setting)
            self.server(do="incumbent", setting=setting)
        return math.log(step_ms)

    def timed(self, ask, *arguments):
        """Runs the tuner's own part and reports its CPU time (of this thread)."""
        began = time.thread_time()
        result = ask(*arguments)
        self.server(do="asked", ms=1e3 * (time.thread_time() - began))
        return result

    def end(self):
        return self.server(do="end", setting=self.best[1])["outcome"]


def setting(u, v, hierarchical, allgather, cache):
    """Coordinates as a setting; below u = 0.05 nothing is fused."""
    fusion_mb = 0.0 if u < 0.05 else FUSION[0] * (FUSION[1] / FUSION[0]) ** max(0.0, (u - 0.1) / 0.9)
    return dict(
        fusion_mb=fusion_mb,
        cycle_ms=CYCLE[0] * (CYCLE[1] / CYCLE[0]) ** v,
        hierarchical=bool(hierarchical),
        allgather=bool(allgather),
        cache=bool(cache),
    )


def optuna_with(make_sampler, samples, score):
    def tune(job):
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(sampler=make_sampler(optuna, job.seed))

        def ask():
            trial = study.ask()
            flags = [trial.suggest_categorical(name, [0, 1]) for name in "abc"]
            return trial, setting(trial.suggest_float("u", 0, 1), trial.suggest_float("v", 0, 1), *flags)

        for _ in range(samples):
            trial, where = job.timed(ask)
            value = score(job, where)
            study.tell(trial, value)

    return tune


def tpe(optuna, seed):
    return optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=8)


def gp_sampler(optuna, seed):
    return optuna.samplers.GPSampler(seed=seed, n_startup_trials=8)


def egobox(job, samples=80):
    import egobox as egx
    import numpy as np

    specs = [egx.XSpec(egx.XType.FLOAT, [0.0, 1.0])] * 2 + [egx.XSpec(egx.XType.INT, [0, 1])] * 3
    engine = egx.Egor(specs, seed=job.seed)
    draw = random.Random(job.seed)
    points, values = [], []
    for index in range(samples):
        if index < 8:
            point = [draw.random(), draw.random()] + [draw.randrange(2) for _ in range(3)]
        else:
            x, y = np.array(points, dtype=float), np.array(values, dtype=float).reshape(-1, 1)
            point = job.timed(lambda: engine.suggest(x, y))[0]
        point = [min(1.0, max(0.0, float(p))) for p in point[:2]] + [round(float(p)) for p in point[2:]]
        points.append(point)
        values.append(job.short(setting(*point)))


def bayes_opt(job, samples=40):
    from bayes_opt import BayesianOptimization

    bounds = {name: (0.0, 1.0) for name in "uvabc"}
    engine = BayesianOptimization(f=None, pbounds=bounds, random_state=job.seed, verbose=0, allow_duplicate_points=True)
    draw = random.Random(job.seed)
    for index in range(samples):
        point = {name: draw.random() for name in "uvabc"} if index < 8 else job.timed(engine.suggest)
        where = setting(point["u"], point["v"], *(point[name] >= 0.5 for name in "abc"))
        engine.register(params=point, target=-job.short(where))


def skopt(job, samples=40):
    from skopt import Optimizer

    engine = Optimizer(
        [(0.0, 1.0), (0.0, 1.0), [0, 1], [0, 1], [0, 1]], n_initial_points=8, random_state=job.seed, acq_func="gp_hedge"
    )
    for _ in range(samples):
        point = job.timed(engine.ask)
        value = job.short(setting(*point))
        job.timed(engine.tell, point, value)


TUNERS = {
    "tpe10": (optuna_with(tpe, 80, Job.short), "optuna"),
    "tpe": (optuna_with(tpe, 24, Job.long), "optuna"),
    "optuna-gp": (optuna_with(gp_sampler, 80, Job.short), "torch"),
    "egobox": (egobox, "egobox"),
    "bayes_opt": (bayes_opt, "bayesian-optimization"),
    "skopt": (skopt, "scikit-optimize"),
}


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def available(names):
    """Those whose package is there; says what is left out."""
    chosen = []
    for name in names:
        if name not in TUNERS:
            sys.exit(f"peers.py: --tuners: no tuner {name!r}; there are {', '.join(TUNERS)}")
        package = TUNERS[name][1]
        found = version(package)
        print(f"{name}: {package} {found or 'is not installed: left out'}", file=sys.stderr)
        if found:
            chosen.append(name)
    return chosen


def worker(arguments, work, results):
    """Runs a share of the work in a process tree of its own: this program again, one harness each."""
    command = [sys.executable, "-B", __file__, "--work", json.dumps(work), "--server", arguments.server]
    if arguments.noise is not None:
        command += ["--noise", str(arguments.noise)]
    # One thread each: as many workers as cores are at it, and CPU time is taken per thread.
    threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | threads) as process:
        for line in process.stdout:
            results.write(line)
            results.flush()
    return process.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="the bench's program (scripts/bench-tuner-peers finds it)")
    parser.add_argument("--tuners", default="tpe10,tpe,optuna-gp,egobox,bayes_opt,skopt")
    parser.add_argument("--truth", default="lab,unmodelled")
    parser.add_argument("--surfaces", default="", help="only those whose name contains one of these")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--noise", type=float, help="noise of a step instead of each surface's own")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--output", default="target/tuner-peers/runs.jsonl")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    command = [arguments.server, "--serve"] + (["--noise", str(arguments.noise)] if arguments.noise is not None else [])
    if arguments.work:
        return run(command, json.loads(arguments.work))

    names = available(arguments.tuners.split(","))
    server = Server(command)
    truths = arguments.truth.split(",")
    wanted = [name for name in arguments.surfaces.split(",") if name]
    work = [
        (tuner, truth, surface, seed)
        for tuner in names
        for truth in truths
        for surface in server(do="surfaces", truth=truth)["surfaces"]
        if not wanted or any(name in surface for name in wanted)
        for seed in range(arguments.seeds)
    ]
    server.close()
    print(f"{len(work)} runs", file=sys.stderr)
    with open(arguments.output, "w") as results, ThreadPoolExecutor(arguments.jobs) as pool:
        shares = [work[index :: arguments.jobs] for index in range(arguments.jobs)]
        failed = [code for code in pool.map(lambda share: worker(arguments, share, results), shares) if code]
    return 1 if failed else 0


def run(command, work):
    warnings.filterwarnings("ignore")
    server = Server(command)
    failures = 0
    for tuner, truth, surface, seed in work:
        began = time.monotonic()
        job = Job(server, tuner, truth, surface, seed)
        try:
            TUNERS[tuner][0](job)
        except RuntimeError:
            raise
        except Exception as error:  # a tuner's own failure is a result too: it ends with the best that it saw
            failures += 1
            print(f"{tuner} on {surface} ({truth}), seed {seed}: {type(error).__name__}: {error}", file=sys.stderr)
        print(json.dumps(job.end()), flush=True)
        print(f"{tuner} {truth} {surface} {seed}: {time.monotonic() - began:.1f} s", file=sys.stderr)
    server.close()
    if failures:
        print(f"{failures} runs ended early", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
