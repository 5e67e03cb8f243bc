"""One rank of scripts/bench-tune: a training job whose bucket size is tuned, then compared.

    ddp_job.py --model transformer --out FILE     # with torchrun's variables

The job trains until the verdict, or for the most steps of a search, and then changes between the
setting in force and the start in pairs of visits in random order. Rank 0 writes its step times, and the time that the tuner took in each step.
"""

import argparse
import json
import pathlib
import random
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples/torch"))
from models import ResNet50, Transformer  # noqa: E402
from ronde.tune.ddp import BucketTuner, Buckets, gradient_bytes  # noqa: E402

# Steps of a visit that do not count: one bucket, and new buckets.
SETTLE_STEPS = 2


def dense():
    """24 layers of the same size."""
    return torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(24)))


# Model, inputs and targets of a step: each has some 26 MB of gradients.
MODELS = {
    "transformer": (lambda: Transformer(layers=6), lambda: torch.randint(4096, (4, 64))),
    "resnet50": (lambda: ResNet50(width=32), lambda: torch.randn(4, 3, 64, 64)),
    "dense": (dense, lambda: torch.randn(64, 512)),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--visit-steps", type=int, default=3)
    parser.add_argument("--search-steps-max", type=int, default=400)
    parser.add_argument("--watched-steps", type=int, default=60)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    create, inputs = MODELS[options.model]
    ddp = DistributedDataParallel(create())
    buckets = Buckets(ddp)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=1e-4)
    batch = inputs()

    def step():
        optimizer.zero_grad()
        ddp(batch).float().pow(2).mean().backward()
        optimizer.step()

    tuner = BucketTuner(ddp)
    search_ms, tuner_us, watched_us, watched_ms = [], [], [], []
    while not tuner.finished and len(search_ms) < options.search_steps_max:
        cap = tuner.settings["bucket_cap_mb"]
        begin = time.perf_counter()
        step()
        end = time.perf_counter()
        tuner.step()
        search_ms.append([cap, 1e3 * (end - begin)])
        tuner_us.append(1e6 * (time.perf_counter() - end))
    for _ in range(options.watched_steps if tuner.finished else 0):
        begin = time.perf_counter()
        step()
        end = time.perf_counter()
        tuner.step()
        watched_ms.append(1e3 * (end - begin))
        watched_us.append(1e6 * (time.perf_counter() - end))
    verdict = tuner.verdict
    tuner.close()

    visits, chosen = [], tuner.settings["bucket_cap_mb"]
    if chosen != buckets.start_mb:
        order = random.Random(1)
        for _ in range(options.pairs):
            pair = {}
            names = ["start", "chosen"]
            order.shuffle(names)
            for name in names:
                buckets.set_cap_mb(buckets.start_mb if name == "start" else chosen)
                for _ in range(SETTLE_STEPS):
                    step()
                begin = time.perf_counter()
                for _ in range(options.visit_steps):
                    step()
                pair[name] = 1e3 * (time.perf_counter() - begin) / options.visit_steps
            visits.append(pair)
    if dist.get_rank() == 0:
        report = {
            "model": options.model,
            "torch": torch.__version__,
            "bytes": gradient_bytes(ddp),
            "tensors": sum(1 for p in ddp.parameters() if p.requires_grad),
            "verdict": verdict,
            "chosen_mb": chosen,
            "search_ms": search_ms,
            "tuner_us": tuner_us,
            "watched_ms": watched_ms,
            "watched_us": watched_us,
            "visits_ms": visits,
        }
        options.out.write_text(json.dumps(report))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
