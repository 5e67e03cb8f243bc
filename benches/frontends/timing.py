"""Timing of steps in a rank: medians over steps of the slowest rank's time, as JSON."""
import argparse
import json
import pathlib
import statistics
import sys
import time

BENCHES = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(BENCHES / "torch"), str(BENCHES / "peers")]
from interleave import rotated  # noqa: E402
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
    """Measures variants of a step. `hvd`: the front end; `slowest`: returns, for each of a list of
    numbers, the largest of the ranks'."""

    def __init__(self, hvd, slowest, options):
        self.hvd, self.slowest, self.steps, self.round = hvd, slowest, options.steps, options.round

    def median(self, step, steps):
        """Median over `steps` steps of the slowest rank's time, ms."""
        times = []
        for _ in range(steps):
            self.hvd.barrier()
            began = time.perf_counter()
            step()
            times.append(1e3 * (time.perf_counter() - began))
        return statistics.median(self.slowest(times))

    def medians(self, ways):
        """Median time of a step of each variant, ms, after a few steps of all. Each round begins
        with the next variant."""
        for step in ways.values():
            self.median(step, WARMUP_STEPS)
        return {name: self.median(ways[name], self.steps) for name in rotated(ways, self.round)}


def arguments(jobs):
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=jobs)
    parser.add_argument("--out", type=pathlib.Path, help="file for the measurements of rank 0")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--round", type=int, default=0, help="number of the round")
    parser.add_argument("--port", type=int, help="of the peer; the next ones are used too")
    return parser.parse_args()


def write(options, rank, results):
    if rank == 0:
        options.out.write_text(json.dumps(results))
