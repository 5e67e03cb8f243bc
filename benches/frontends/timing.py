"""Timing of steps in a rank: median steps of the slowest rank, as JSON."""
import argparse
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "torch"))
from shapes import resnet50_shapes  # noqa: E402

GRADIENTS = [tuple(shape) for shape in resnet50_shapes()]
SMALL = [(256,)] * 1000
BATCH = 64
LEARNING_RATE = 0.01
WARMUP_STEPS = 5

ALONE, RONDE, PEER = "no reduction", "Ronde", "peer"


def digits(batch, rank):
    """Images and labels of one rank, from scikit-learn's digits."""
    from sklearn.datasets import load_digits

    data = load_digits()
    part = slice(rank * batch, (rank + 1) * batch)
    return data.images[part, :, :, None].astype("float32") / 16, data.target[part].astype("int32")


class Timing:
    """Measures variants of a step. `hvd`: the front end; `slowest`: returns the largest of the
    ranks' numbers."""

    def __init__(self, hvd, slowest, steps):
        self.hvd, self.slowest, self.steps = hvd, slowest, steps

    def median(self, step, steps):
        """Median time of `steps` steps on the slowest rank, ms."""
        times = []
        for _ in range(steps):
            self.hvd.barrier()
            began = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - began))
        return self.slowest(statistics.median(times))

    def medians(self, ways):
        """Median time of a step of each variant, ms, after a few steps of all."""
        for step in ways.values():
            self.median(step, WARMUP_STEPS)
        return {name: self.median(step, self.steps) for name, step in ways.items()}


def arguments(jobs):
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=jobs)
    parser.add_argument("--out", type=pathlib.Path, help="file for the measurements of rank 0")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--port", type=int, help="of the peer; the next ones are used too")
    return parser.parse_args()


def write(options, rank, results):
    if rank == 0:
        options.out.write_text(json.dumps(results))
