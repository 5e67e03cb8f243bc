#!/usr/bin/env python3
"""Drives other people's tuners on the jobs of `cargo bench --bench tuner -- --serve`, and writes a line of JSON for each run.

The truth, the noise, the samples and the metrics are the harness's own: a tuner here proposes settings and sees step times, nothing
else. All search what Ronde's tuner searches: the lattice of fusion thresholds and cycle times, by index, and hierarchical allreduce.
Samples are cut short where they are clearly worse, and a search ends after 20 samples without progress (`harness/sampling.rs`),
or after 80 (40 where a proposal takes the tuner a second). The default is the first sample; the best score wins. Put the runs into
the table with `cargo bench --bench tuner -- --add FILE`.
"""

import argparse
import importlib.metadata
import json
import math
import os
import random
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

DEFAULT = dict(fusion_mb=128.0, cycle_ms=1.0, hierarchical=False)


class HarnessError(Exception):
    """The harness has failed, not a tuner."""


class Server:
    """A harness of its own, spoken to in lines of JSON."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def __call__(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise HarnessError(f"the harness ended (status {self.process.wait()}) at {request}")
        answer = json.loads(line)
        if "error" in answer:
            raise HarnessError(f"{request}: {answer['error']}")
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Job:
    """A run of one tuner on one surface."""

    def __init__(self, server, tuner, truth, surface, number):
        self.server = server
        self.seed = server(do="reset", tuner=tuner, truth=truth, surface=surface, seed=number)["seed"]
        lattice = server(do="lattice")
        self.fusion_mb, self.cycle_ms = lattice["fusion_mb"], lattice["cycle_ms"]
        self.sample(DEFAULT)

    @property
    def sizes(self):
        """Numbers of levels of the parameters."""
        return len(self.fusion_mb), len(self.cycle_ms), 2

    def setting(self, fusion, cycle, hierarchical):
        """The setting of these indices, which may be rounded."""
        index = [min(size - 1, max(0, round(float(at)))) for at, size in zip((fusion, cycle, hierarchical), self.sizes)]
        return dict(fusion_mb=self.fusion_mb[index[0]], cycle_ms=self.cycle_ms[index[1]], hierarchical=bool(index[2]))

    def score(self, *indices):
        """Log step time of a sample."""
        return self.sample(self.setting(*indices))

    def sample(self, setting):
        answer = self.server(do="sample", setting=setting)
        self.best, self.done = answer["best"], answer["done"]
        return math.log(answer["ms"])

    def timed(self, ask, *arguments):
        """Runs the tuner's own part and reports its CPU time (of this thread)."""
        began = time.thread_time()
        result = ask(*arguments)
        self.server(do="asked", ms=1e3 * (time.thread_time() - began))
        return result

    def end(self):
        return self.server(do="end", setting=self.best)["outcome"]


def optuna_with(make_sampler, samples=80):
    def tune(job):
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(sampler=make_sampler(optuna, job.seed))

        def ask():
            trial = study.ask()
            return trial, [trial.suggest_int(name, 0, size - 1) for name, size in zip("abc", job.sizes)]

        for _ in range(samples):
            if job.done:
                return
            trial, indices = job.timed(ask)
            study.tell(trial, job.score(*indices))

    return tune


def tpe(optuna, seed):
    return optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=8)


def gp_sampler(optuna, seed):
    return optuna.samplers.GPSampler(seed=seed, n_startup_trials=8)


def egobox(job, samples=80):
    import egobox as egx
    import numpy as np

    specs = [egx.XSpec(egx.XType.INT, [0, size - 1]) for size in job.sizes]
    engine = egx.Egor(specs, seed=job.seed)
    draw = random.Random(job.seed)
    points, values = [], []
    for index in range(samples):
        if job.done:
            return
        if index < 8:
            point = [draw.randrange(size) for size in job.sizes]
        else:
            x, y = np.array(points, dtype=float), np.array(values, dtype=float).reshape(-1, 1)
            point = job.timed(lambda: engine.suggest(x, y))[0]
        point = [round(float(p)) for p in point]
        points.append(point)
        values.append(job.score(*point))


def bayes_opt(job, samples=40):
    from bayes_opt import BayesianOptimization

    bounds = {name: (0.0, size - 1.0) for name, size in zip("abc", job.sizes)}
    engine = BayesianOptimization(f=None, pbounds=bounds, random_state=job.seed, verbose=0, allow_duplicate_points=True)
    draw = random.Random(job.seed)
    for index in range(samples):
        if job.done:
            return
        first = {name: float(draw.randrange(size)) for name, size in zip("abc", job.sizes)}
        point = first if index < 8 else job.timed(engine.suggest)
        point = {name: float(round(value)) for name, value in point.items()}
        engine.register(params=point, target=-job.score(*(point[name] for name in "abc")))


def skopt(job, samples=40):
    from skopt import Optimizer

    spaces = [(0, size - 1) for size in job.sizes]
    engine = Optimizer(spaces, n_initial_points=8, random_state=job.seed, acq_func="gp_hedge")
    for _ in range(samples):
        if job.done:
            return
        point = job.timed(engine.ask)
        value = job.score(*point)
        job.timed(engine.tell, point, value)


TUNERS = {
    "tpe": (optuna_with(tpe), "optuna"),
    "optuna-gp": (optuna_with(gp_sampler), "torch"),
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
    parser.add_argument("--tuners", default="tpe,optuna-gp,egobox,bayes_opt,skopt")
    parser.add_argument("--truth", default="lab,held-out,foreign")
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
        except HarnessError:
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
