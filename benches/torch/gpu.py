"""Training steps on a GPU: with PyTorch's DDP (nccl) and with Ronde, alternating. Rank 0 prints a
table and writes JSON.

    ronde run -np 1 -- python benches/torch/gpu.py [--rounds 7] [--steps 20] [--json FILE]

A round's value is the time of several steps, from an idle device to an idle device, divided by
their number, of the slowest rank; ratios are taken within a round. One rank reduces too, which
measures the cost of submitting gradients. Ronde uses the settings of the environment.
"""

import argparse
import copy
import json
import os
import pathlib
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "examples/torch"))

os.environ.setdefault("HOROVOD_ELASTIC", "1")  # otherwise one rank does not reduce
import ronde.torch as hvd  # noqa: E402
from models import ResNet50, Transformer  # noqa: E402

WARMUP_STEPS = 10
LEARNING_RATE = 1e-3
ALONE, DDP, RONDE = "no reduction", "DDP (nccl)", "Ronde"


def resnet50(device):
    images, labels = torch.randn(32, 3, 224, 224, device=device), torch.randint(1000, (32,), device=device)
    return ResNet50(), lambda model: functional.cross_entropy(model(images), labels)


def language(model, device):
    tokens = torch.randint(4096, (8, 129), device=device)
    inputs, targets = tokens[:, :-1], tokens[:, 1:].flatten()
    return model, lambda model: functional.cross_entropy(model(inputs).flatten(0, 1), targets)


def transformer(device):
    return language(Transformer(), device)


def wide(device):
    """A transformer of GPT-2's width: 0.4 GB of gradients."""
    return language(Transformer(layers=14, width=768, heads=12), device)


JOBS = {"resnet50": resnet50, "transformer": transformer, "transformer-100m": wide}


def ways(model, loss):
    """Variants of a step: without reduction, with DDP and with Ronde."""

    def stepping(model, optimizer):
        def step():
            optimizer.zero_grad()
            loss(model).backward()
            optimizer.step()

        return step

    def optimizer(model):
        return torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)

    alone, ronde = copy.deepcopy(model), copy.deepcopy(model)
    ddp = DistributedDataParallel(copy.deepcopy(model), gradient_as_bucket_view=True)
    distributed = hvd.DistributedOptimizer(optimizer(ronde), named_parameters=ronde.named_parameters())
    assert distributed._reducer._slots, "nothing is reduced"
    return {
        ALONE: stepping(alone, optimizer(alone)),
        DDP: stepping(ddp, optimizer(ddp)),
        RONDE: stepping(ronde, distributed),
    }


def timed(step, steps):
    """Time of a step on the slowest rank, ms."""
    hvd.barrier()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    mine = torch.tensor([1e3 * (time.perf_counter() - began) / steps], dtype=torch.float64)
    return hvd.allreduce_(mine, name="slowest", op=hvd.Max).item()


def contest(ways, rounds, steps):
    for step in ways.values():
        timed(step, WARMUP_STEPS)
    results = {name: [] for name in ways}
    names = list(ways)
    for turn in range(rounds):
        turn %= len(names)
        for name in names[turn:] + names[:turn]:
            results[name].append(timed(ways[name], steps))
    return results


def spread(values):
    return f"{statistics.median(values):.3g} [{min(values):.3g}, {max(values):.3g}]"


def table(results):
    lines = [
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, NCCL {hvd.nccl_built()}, {hvd.size()} rank(s)", "",
        "| job | no reduction, ms | DDP (nccl), ms | Ronde, ms | DDP / Ronde |", "| --- | --- | --- | --- | --- |",
    ]
    for job, times in results.items():
        ratios = [ddp / ronde for ddp, ronde in zip(times[DDP], times[RONDE])]
        lines.append(f"| {job} | " + " | ".join(map(spread, [*times.values(), ratios])) + " |")
    return "\n".join(lines)


def agreed_port():
    """A port that no program of rank 0's host uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = torch.tensor([probe.getsockname()[1]])
    return hvd.broadcast(port, 0, name="port").item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS), help="only these")
    parser.add_argument("--json", help="file for the measurements of rank 0")
    options = parser.parse_args()
    hvd.init()
    device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)
    torch.manual_seed(1)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(agreed_port()))
    dist.init_process_group("nccl", rank=hvd.rank(), world_size=hvd.size(), device_id=device)
    results = {}
    for name in options.jobs:
        model, loss = JOBS[name](device)
        results[name] = contest(ways(model.to(device), loss), options.rounds, options.steps)
    if hvd.rank() == 0:
        print(table(results), flush=True)
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
    dist.destroy_process_group()
    hvd.shutdown()


if __name__ == "__main__":
    main()
