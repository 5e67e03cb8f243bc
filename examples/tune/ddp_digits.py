"""Trains on handwritten digits with DistributedDataParallel, whose bucket size is tuned meanwhile.

    torchrun --nproc-per-node 2 examples/tune/ddp_digits.py --state bucket.json

The next job with this state file begins at the result. Needs torch and scikit-learn, which bundles
the digits.
"""

import argparse
import sys

import torch
import torch.distributed as dist
from ronde.tune.ddp import BucketTuner
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel

TRAINING_IMAGES = 1500  # of 1,797; the others are test images


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--batch-size", type=int, default=32, help="images per rank and step")
    parser.add_argument("--state", help="file of measurements, from which the next job begins")
    parser.add_argument("--min-accuracy", type=float, default=0.0, help="fail below this accuracy")
    return parser.parse_args()


def main():
    options = arguments()
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()

    data = load_digits()
    images = torch.tensor(data.data / 16, dtype=torch.float32)
    labels = torch.tensor(data.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = order[:TRAINING_IMAGES], order[TRAINING_IMAGES:]

    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 512), torch.nn.ReLU()]
    for _ in range(4):
        layers += [torch.nn.Linear(512, 512), torch.nn.ReLU()]
    model = DistributedDataParallel(torch.nn.Sequential(*layers, torch.nn.Linear(512, 10)))
    optimizer = torch.optim.Adam(model.parameters())

    tuner = BucketTuner(model, low=0.25, state=options.state, steps=options.steps)
    batches = torch.Generator().manual_seed(1)
    for _ in range(options.steps):
        batch = train[torch.randint(len(train), (size * options.batch_size,), generator=batches)]
        own = batch[rank::size]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[own]), labels[own]).backward()
        optimizer.step()
        tuner.step()
    tuner.close()

    with torch.no_grad():
        accuracy = (model.module(images[test]).argmax(1) == labels[test]).float().mean().item()
    if rank == 0:
        print(f"accuracy {accuracy:.3f} with bucket_cap_mb={tuner.settings['bucket_cap_mb']:g}")
        print(tuner.verdict["reason"] if tuner.verdict else "the search has not ended")
    dist.destroy_process_group()
    if accuracy < options.min_accuracy:
        sys.exit(f"accuracy {accuracy:.3f} is below {options.min_accuracy}")


if __name__ == "__main__":
    main()
