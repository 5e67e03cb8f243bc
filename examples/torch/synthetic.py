"""Measures training throughput on random data: examples per second, per rank and in total.

    ronde run -np 2 -- python examples/torch/synthetic.py --model resnet50 --batch-size 4

The options are those of Horovod's synthetic benchmark. The models are in models.py.
"""

import argparse
import statistics
import time

import torch
from models import ResNet50, Transformer
from torch.nn import functional

import ronde.torch as hvd


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=["resnet50", "transformer"], default="resnet50")
    parser.add_argument("--batch-size", type=int, default=8, help="examples per rank and step (%(default)s)")
    parser.add_argument("--image-size", type=int, default=224, help="pixels on a side (%(default)s)")
    parser.add_argument("--num-warmup-batches", type=int, default=3)
    parser.add_argument("--num-batches-per-iter", type=int, default=3)
    parser.add_argument("--num-iters", type=int, default=5)
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
    parser.add_argument("--use-adasum", action="store_true", help="combine gradients with Adasum")
    parser.add_argument("--no-cuda", action="store_true", help="use the CPU even if there is a GPU")
    parser.add_argument("--threads", type=int, default=1, help="threads per rank for computation (%(default)s)")
    return parser.parse_args()


def device_of_rank(args):
    """A GPU for each rank of the host, if there are GPUs."""
    if args.no_cuda or not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def load(args, device):
    """A model, and the loss of one batch as a function."""
    if args.model == "resnet50":
        model = ResNet50().to(device)
        images = torch.randn(args.batch_size, 3, args.image_size, args.image_size, device=device)
        labels = torch.randint(1000, (args.batch_size,), device=device)
        return model, lambda: functional.cross_entropy(model(images), labels)
    model = Transformer().to(device)
    tokens = torch.randint(4096, (args.batch_size, 128), device=device)
    inputs, targets = tokens[:, :-1], tokens[:, 1:].flatten()
    return model, lambda: functional.cross_entropy(model(inputs).flatten(0, 1), targets)


def say(text):
    if hvd.rank() == 0:
        print(text, flush=True)


def mean_and_spread(rates):
    return f"{statistics.mean(rates):.2f} ± {1.96 * statistics.pstdev(rates):.2f}"


def main():
    args = arguments()
    hvd.init()
    torch.set_num_threads(args.threads)
    torch.manual_seed(hvd.rank())
    device = device_of_rank(args)
    model, loss = load(args, device)

    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
        op=hvd.Adasum if args.use_adasum else hvd.Average,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    def step():
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    def wait():
        if device.type == "cuda":
            torch.cuda.synchronize()

    numbers = sum(parameter.numel() for parameter in model.parameters())
    say(f"model {args.model}: {len(list(model.parameters()))} tensors, {numbers:,} numbers")
    say(f"batch {args.batch_size} on each of {hvd.size()} ranks, on {device.type}")
    for _ in range(args.num_warmup_batches):
        step()
    wait()

    what = "img/s" if args.model == "resnet50" else "sequences/s"
    rates = []
    for iteration in range(args.num_iters):
        begin = time.perf_counter()
        for _ in range(args.num_batches_per_iter):
            step()
        wait()
        seconds = time.perf_counter() - begin
        rates.append(args.batch_size * args.num_batches_per_iter / seconds)
        say(f"iter {iteration + 1}: {rates[-1]:.2f} {what} per rank")

    # Each rank measures its own rates; the job's rate is their sum.
    totals = hvd.allreduce(torch.tensor(rates, dtype=torch.float64), op=hvd.Sum, name="rates").tolist()
    say(f"per rank: {mean_and_spread(rates)} {what} (1.96 standard deviations)")
    say(f"all {hvd.size()} ranks: {mean_and_spread(totals)} {what}")


if __name__ == "__main__":
    main()
