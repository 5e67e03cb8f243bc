#!/usr/bin/python3
"""Step times of DDP's communication on the gloo backend: a model's gradients as views of flat buckets.

    /usr/bin/python3 ddp_gloo.py ELEMENTS [--np 2] [--steps 20] [--warmup 5] [--ways ddp_buckets,flat] > out.json

Does what torch's DistributedDataParallel does with `gradient_as_bucket_view=True`, without the model: buckets of 25 MiB
(the first 1 MiB) filled in backward order, each divided by the number of ranks and reduced in place by one asynchronous
all_reduce, then all awaited. ELEMENTS has one float32 element count per line (`ronde bench --model NAME
--print-elements`). Prints one JSON object; a step's time is that of its slowest rank.

    ddp_buckets       as above, the average
    ddp_buckets_sum   without the division
    flat              one synchronous all_reduce of all elements, the sum
    latency_4_bytes   one synchronous all_reduce of one float32

Started with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, it is one rank; otherwise it starts the ranks on this host. `cores`:
CPU time of all ranks, divided by the time of the steps.
"""

import argparse
import json
import os
import subprocess
import sys
import time

from interleave import free_port

FIRST_BUCKET_BYTES = 1 << 20
BUCKET_BYTES = 25 << 20
ELEMENT_BYTES = 4
WARMUP_STEPS = 5
LATENCY_FACTOR = 20  # a 4-byte step is short, so take more of them
RANK_TIMEOUT_S = 600


def bucket_elements(elements):
    """Element counts of DDP's buckets: one is closed as soon as it has reached its limit, never before."""
    buckets, filled, limit = [], 0, FIRST_BUCKET_BYTES
    for count in elements:
        filled += count
        if filled * ELEMENT_BYTES >= limit:
            buckets.append(filled)
            filled, limit = 0, BUCKET_BYTES
    return buckets + [filled] if filled else buckets


def percentile(ordered, fraction):
    """Linear between neighbours, as `ronde bench` computes it."""
    position = fraction * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def run_rank(elements, steps, warmup, ways):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    buckets = [torch.zeros(count) for count in bucket_elements(elements)]
    scalar = torch.zeros(1)
    whole = torch.zeros(sum(elements) if "flat" in ways else 1)

    def ddp_buckets():
        pending = []
        for bucket in buckets:
            bucket.div_(size)
            pending.append(dist.all_reduce(bucket, async_op=True))
        for work in pending:
            work.wait()

    def ddp_buckets_sum():
        for work in [dist.all_reduce(bucket, async_op=True) for bucket in buckets]:
            work.wait()

    def flat():
        dist.all_reduce(whole)

    def latency_4_bytes():
        dist.all_reduce(scalar)

    def check():
        for bucket in buckets:
            bucket.fill_(float(2 * rank + 1))
        ddp_buckets()
        for bucket in buckets:  # the odd numbers up to 2n - 1 average to n
            if not torch.all(bucket == size):
                raise SystemExit("ddp_gloo: wrong average on rank %d" % rank)
            bucket.zero_()  # so that repeated sums stay finite

    def measure(step, count):
        times = []
        for index in range(-warmup, count):
            if index == 0:
                cpu, began = time.process_time(), time.perf_counter()
            start = time.perf_counter()
            step()
            if index >= 0:
                times.append((time.perf_counter() - start) * 1e3)
        cores = torch.tensor((time.process_time() - cpu) / (time.perf_counter() - began))
        dist.all_reduce(cores)
        slowest = torch.tensor(times, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        ordered = sorted(slowest.tolist())
        summary = {name: round(percentile(ordered, fraction), 6)
                   for name, fraction in [("p10", 0.1), ("p50", 0.5), ("p90", 0.9)]}
        return dict(summary, steps=count, cores=round(cores.item(), 3))

    check()
    measures = {
        "ddp_buckets": (ddp_buckets, steps),
        "ddp_buckets_sum": (ddp_buckets_sum, steps),
        "flat": (flat, steps),
        "latency_4_bytes": (latency_4_bytes, steps * LATENCY_FACTOR),
    }
    step_ms = {way: measure(*measures[way]) for way in ways}
    if rank == 0:
        print(json.dumps({
            "peer": "torch %s gloo" % torch.__version__, "np": size, "tensors": len(elements),
            "buckets": len(buckets), "bytes_per_step": sum(elements) * ELEMENT_BYTES, "step_ms": step_ms}, indent=1))
    dist.destroy_process_group()


def launch(np, arguments):
    """Starts the ranks as child processes on loopback; the exit code is the first failing rank's."""
    shared = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE=str(np),
                  OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    ranks = [subprocess.Popen([sys.executable, __file__] + arguments, env=dict(shared, RANK=str(rank)))
             for rank in range(np)]
    deadline = time.monotonic() + RANK_TIMEOUT_S
    try:
        codes = [rank.wait(timeout=max(0.0, deadline - time.monotonic())) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    return next((code for code in codes if code), 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("elements")
    parser.add_argument("--np", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warmup", type=int, default=WARMUP_STEPS)
    parser.add_argument("--ways", default="ddp_buckets,ddp_buckets_sum,latency_4_bytes")
    options = parser.parse_args()
    if options.np < 1 or options.steps < 1:
        parser.error("--np and --steps must be at least 1")
    if "RANK" not in os.environ:
        sys.exit(launch(options.np, sys.argv[1:]))
    with open(options.elements) as file:
        elements = [int(line) for line in file if line.strip()]
    run_rank(elements, options.steps, options.warmup, options.ways.split(","))


if __name__ == "__main__":
    main()
