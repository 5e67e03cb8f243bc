#!/usr/bin/env python3
"""Step times of a model's gradients through `horovod.torch`: Horovod's own package, or Ronde's shim
of that name.

    ronde run -np 2 -- python hvd_allreduce.py ELEMENTS --out out.json      # in an environment that
    has Ronde mpirun -np 2 python hvd_allreduce.py ELEMENTS --out out.json            # in one that
    has Horovod

A step submits every tensor with `allreduce_async_` (average, in place), in order, and then
synchronizes all. ELEMENTS has one float32 element count per line (`ronde bench --model NAME
--print-elements`). Rank 0 writes one JSON object; a step's time is that of its slowest rank.

    --latency    measures one synchronous 4-byte allreduce instead, and the CPU time of a rank that
    has nothing to do --tune       runs the steps and measures nothing: for HOROVOD_AUTOTUNE
"""

import argparse
import json
import os
import sys
import time

import torch

import horovod
import horovod.torch as hvd

WARMUP_STEPS = 5
IDLE_S = 3.0


def percentile(ordered, fraction):
    """Linear between neighbours, as `ronde bench` computes it."""
    position = fraction * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def slowest(values, name):
    """Returns the largest of the ranks' values, element by element."""
    gathered = hvd.allgather(torch.tensor([values], dtype=torch.float64), name=name)
    return gathered.max(dim=0).values.tolist()


def measure(step, count):
    times = []
    for index in range(-WARMUP_STEPS, count):
        start = time.perf_counter()
        step()
        if index >= 0:
            times.append((time.perf_counter() - start) * 1e3)
    ordered = sorted(slowest(times, "step times"))
    summary = {
        name: round(percentile(ordered, fraction), 6)
        for name, fraction in [("p10", 0.1), ("p50", 0.5), ("p90", 0.9)]
    }
    return dict(summary, steps=count)


def model_step(elements):
    """Returns the step as a function, and the tensors that it averages."""
    tensors = [torch.zeros(count) for count in elements]
    names = [f"gradient.{index}" for index in range(len(elements))]

    def step():
        handles = [hvd.allreduce_async_(tensor, name=name) for tensor, name in zip(tensors, names)]
        for handle in handles:
            hvd.synchronize(handle)

    return step, tensors


def check(step, tensors):
    for tensor in tensors:
        tensor.fill_(float(2 * hvd.rank() + 1))
    step()
    for tensor in tensors:  # the odd numbers up to 2n - 1 average to n
        if not torch.all(tensor == hvd.size()):
            raise SystemExit(f"hvd_allreduce: wrong average on rank {hvd.rank()}")
        tensor.zero_()


def idle_cpu_percent():
    """Returns the CPU time of this process while it waits, in percent of one core."""
    hvd.allreduce_(torch.zeros(1), name="before idling")
    before, start = os.times(), time.perf_counter()
    time.sleep(IDLE_S)
    after, elapsed = os.times(), time.perf_counter() - start
    return 100 * (after.user + after.system - before.user - before.system) / elapsed


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("elements")
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--latency", action="store_true")
    parser.add_argument("--tune", action="store_true")
    options = parser.parse_args()
    with open(options.elements) as file:
        elements = [int(line) for line in file if line.strip()]

    torch.set_num_threads(1)
    hvd.init()
    package = sys.modules.get("ronde", horovod)  # the shim imports it
    report = {
        "package": package.__name__,
        "torch": torch.__version__,
        "np": hvd.size(),
        "version": package.__version__,
        "tensors": len(elements),
    }
    step, tensors = model_step(elements)
    if options.tune:
        for _ in range(options.steps):
            step()
    elif options.latency:
        scalar = torch.zeros(1)
        report["step_ms"] = measure(lambda: hvd.allreduce_(scalar, name="scalar"), options.steps)
        report["idle_cpu_percent"] = slowest([idle_cpu_percent()], "idle")[0]
    else:
        check(step, tensors)
        report["step_ms"] = measure(step, options.steps)
    if hvd.rank() == 0:
        with open(options.out, "w") as out:
            json.dump(report, out, indent=1)
    hvd.shutdown()


if __name__ == "__main__":
    main()
