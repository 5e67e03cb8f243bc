"""One rank of the comparison: the same steps with DDP (gloo) and with Ronde, alternating. Rank 0
writes JSON.

Started by compare.py. Times are medians of a round, of the slowest rank; each round runs both, in
rotating order.
"""
import argparse
import copy
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import models
import ronde.torch as hvd
from ronde import _ronde
from shapes import resnet50_shapes

LEARNING_RATE = 0.01
ALONE, DDP, RONDE = "no reduction", "DDP (gloo)", "Ronde"


class Job:
    """A model with its data; `loss` computes the loss of a step."""

    def __init__(self, model, loss, trains):
        self.model, self.loss, self.trains = model, loss, trains

    def ways(self):
        """Variants of a step: without reduction, with DDP and with Ronde."""
        return {ALONE: self.alone(), DDP: self.ddp(), RONDE: self.ronde()}

    def alone(self):
        model = copy.deepcopy(self.model)
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
        return self.stepping(model, optimizer, lambda: None)

    def ddp(self):
        model = DistributedDataParallel(copy.deepcopy(self.model), gradient_as_bucket_view=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

        return self.stepping(model, optimizer, lambda: None)

    def ronde(self):
        model = copy.deepcopy(self.model)
        optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

        return self.stepping(model, optimizer, optimizer.synchronize)

    def stepping(self, model, optimizer, finish):
        """A training step; `finish` waits for the gradients if nothing else does."""

        def step():
            optimizer.zero_grad(set_to_none=False)
            self.loss(model).backward()
            optimizer.step() if self.trains else finish()

        return step


def resnet50_gradients():
    """ResNet-50's tensors, with gradients that take almost no time to compute."""
    model = models.Tensors(resnet50_shapes())
    return Job(model, lambda model: model(), trains=False)


def small_gradients():
    """1,000 parameters of 1 KiB, with gradients that take almost no time to compute."""
    model = models.Tensors([(256,)] * 1000)
    return Job(model, lambda model: model(), trains=False)


def digits():
    model = models.SmallCnn()
    images, labels = models.digits(batch=64)
    loss = torch.nn.functional.cross_entropy
    return Job(model, lambda model: loss(model(images), labels), trains=True)


def transformer():
    model = models.Transformer(layers=12)
    tokens = torch.randint(0, models.VOCABULARY, (4, 65), generator=torch.Generator().manual_seed(hvd.rank()))
    loss = torch.nn.functional.cross_entropy

    def of(model):
        scores = model(tokens[:, :-1])
        return loss(scores.flatten(0, 1), tokens[:, 1:].flatten())

    return Job(model, of, trains=True)


JOBS = {
    "ResNet-50's gradients alone": resnet50_gradients,
    "1,000 gradients of 1 KiB alone": small_gradients,
    "CNN on digits": digits,
    "transformer, 12 layers": transformer,
}


def slowest(milliseconds):
    times = torch.tensor([milliseconds], dtype=torch.float64)
    return hvd.allreduce_(times, name="slowest", op=hvd.Max).item()


def timed(step, steps):
    """Median time of `steps` steps, ms."""
    times = []
    for _ in range(steps):
        hvd.barrier()
        began = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - began))
    return slowest(statistics.median(times))


def contest(ways, rounds, steps):
    for step in ways.values():
        timed(step, 5)
    results = {name: [] for name in ways}
    for round_ in range(rounds):
        names = list(ways)
        turn = round_ % len(names)
        for name in names[turn:] + names[:turn]:
            results[name].append(timed(ways[name], steps))
    return results


def many_small():
    """1,000 tensors of 1 KiB, one call for each."""
    tensors = [torch.zeros(256) for _ in range(1000)]
    names = [f"small.{index}" for index in range(1000)]

    def step():
        handles = [hvd.allreduce_async_(tensor, name=name, op=hvd.Sum) for tensor, name in zip(tensors, names)]
        for handle in handles:
            hvd.synchronize(handle)

    return step


def many_small_batch():
    """The same tensors in one call, as the optimizer submits small gradients."""
    tensors = [torch.zeros(256) for _ in range(1000)]
    names = [_ronde.AllreduceName(f"small.{index}") for index in range(1000)]

    def step():
        hvd.synchronize(_ronde.allreduce_batch(tensors, names, hvd.Sum, 1.0, 1.0, 0))

    return step


def one_scalar(calls):
    """Allreduces of one number; a step is `calls` of them."""
    tensor = torch.zeros(1)

    def step():
        for _ in range(calls):
            hvd.synchronize(hvd.allreduce_async_(tensor, name="scalar", op=hvd.Sum))

    return step


def scalar_alone(calls=20_000):
    """The same in a job of one rank, µs per call: there is no wait, so this is the cost of the
    calls."""
    step = one_scalar(calls)
    step()
    began = time.perf_counter()
    step()
    return 1e6 * (time.perf_counter() - began) / calls


def train(job, steps):
    """Trains with Ronde only, to record a timeline."""
    step = job().ronde()
    for _ in range(steps):
        step()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", help="file for the measurements of rank 0")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--job", choices=JOBS, help="train this job with Ronde, and measure nothing")
    parser.add_argument("--alone", action="store_true", help="measure the cost of a call on one rank")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    hvd.init()
    if options.job:
        train(JOBS[options.job], options.steps)
    elif options.alone:
        write(options.out, scalar_alone())
    else:
        write(options.out, measured(options.rounds, options.steps))
    hvd.shutdown()


def measured(rounds, steps):
    small = contest({"each": many_small(), "batch": many_small_batch()}, rounds, steps)
    calls = 200
    scalar = contest({RONDE: one_scalar(calls)}, rounds, steps)
    dist.init_process_group("gloo", init_method="env://", rank=hvd.rank(), world_size=hvd.size())
    results = {name: contest(job().ways(), rounds, steps) for name, job in JOBS.items()}
    dist.destroy_process_group()
    return {
        "torch": torch.__version__,
        "ranks": hvd.size(),
        "steps": results,
        "small_ms": small["each"],
        "small_batch_ms": small["batch"],
        "scalar_us": [1e3 * ms / calls for ms in scalar[RONDE]],
    }


def write(path, record):
    if hvd.rank() == 0:
        with open(path, "w") as out:
            json.dump(record, out, indent=1)


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    main()
