"""One rank of a training job for `scripts/bench-autotune-torch`: the same program with Horovod's own
package and with Ronde's shim of its name. Rank 0 writes one JSON object.

    mpirun -np 4 python benches/peers/autotune_job.py --model cnn --tuning-steps 300 --seconds 60 --out out.json

First come the tuning steps: with Ronde until the tuner has a verdict, with Horovod as many as its search
takes. Then the steps of `--seconds` seconds are timed, as many on each rank. A step's time is that of its
slowest rank.
"""

import argparse
import json
import statistics
import sys
import time

import torch
from torch.nn import functional

import horovod
import horovod.torch as hvd

WARMUP_STEPS = 5
# Steps whose median decides how many steps are timed.
PROBE_STEPS = 10
# Steps between two exchanges of whether rank 0 has a verdict.
VERDICT_INTERVAL_STEPS = 10


def model_and_loss(name, batch):
    """The models of examples/torch, smaller: a step takes less than a second at 0.2 Gbit/s."""
    import models  # examples/torch, in the path

    if name == "cnn":
        model = models.ResNet50(width=16)
        images, labels = torch.randn(batch, 3, 32, 32), torch.randint(1000, (batch,))
        return model, lambda: functional.cross_entropy(model(images), labels)
    model = models.Transformer(layers=6, width=128)
    tokens = torch.randint(4096, (batch, 32))
    inputs, targets = tokens[:, :-1], tokens[:, 1:].flatten()
    return model, lambda: functional.cross_entropy(model(inputs).flatten(0, 1), targets)


def largest(value, name):
    """Returns the largest of the ranks' values, element by element."""
    gathered = hvd.allgather(torch.tensor([value], dtype=torch.float64), name=name)
    return gathered.max(dim=0).values.tolist()


def report_of_tuner():
    """Returns Ronde's report, on rank 0 if the tuner is on; None with Horovod."""
    report = getattr(hvd, "autotune_report", None)
    return report() if report else None


def timed(step, count):
    times = []
    for _ in range(count):
        began = time.perf_counter()
        step()
        times.append(1e3 * (time.perf_counter() - began))
    return times


def tune(step, most):
    """Runs tuning steps until rank 0 has a verdict, at most `most`; returns their times, ms."""
    times = []
    while len(times) < most:
        times += timed(step, min(VERDICT_INTERVAL_STEPS, most - len(times)))
        report = report_of_tuner()
        if largest([float(bool(report and report["verdict"]))], "verdict")[0]:
            break
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["cnn", "transformer"], required=True)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--tuning-steps", type=int, default=0, help="0: no tuner")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()

    torch.set_num_threads(1)
    hvd.init()
    torch.manual_seed(hvd.rank())
    model, loss = model_and_loss(options.model, options.batch)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), named_parameters=model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    def step():
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    began = time.perf_counter()
    timed(step, WARMUP_STEPS)
    tuning_ms = tune(step, options.tuning_steps) if options.tuning_steps else []
    tuning_s = time.perf_counter() - began
    probe_ms = largest([statistics.median(timed(step, PROBE_STEPS))], "probe")[0]
    count = max(5, round(1e3 * options.seconds / probe_ms))
    step_ms = largest(timed(step, count), "steps")
    tuning_ms = largest(tuning_ms, "tuning") if tuning_ms else []
    if hvd.rank() == 0:
        package = sys.modules.get("ronde", horovod)
        report = {
            "package": package.__name__,
            "version": package.__version__,
            "torch": torch.__version__,
            "ranks": hvd.size(),
            "tensors": len(list(model.parameters())),
            "bytes": sum(4 * parameter.numel() for parameter in model.parameters()),
            "step_ms": step_ms,
            "tuning_ms": tuning_ms,
            "tuning_s": tuning_s,
            "autotune": report_of_tuner(),
        }
        with open(options.out, "w") as out:
            json.dump(report, out)
    hvd.shutdown()


if __name__ == "__main__":
    main()
