"""Trains a small network on handwritten digits, on any number of ranks; real data, no download.

    ronde run -np 2 -- python examples/torch/digits.py

Each rank uses its share of every batch, and Ronde averages the gradients, which equals training in
one process with the joined batch. With --check, rank 0 also trains alone on the joined batches and
compares.

Needs torch and scikit-learn, which bundles the digits: 1,797 images of 8 × 8 pixels (E. Alpaydin,
C. Kaynak: Optical Recognition of Handwritten Digits, UCI Machine Learning Repository, 1998, CC BY
4.0).
"""

import argparse
import sys

import torch
from sklearn.datasets import load_digits
from torch.nn import functional

import ronde.torch as hvd

TRAINING_IMAGES = 1500  # of 1,797; the others are test images

# Ranks and one process sum gradients in different orders, so rounding differs. In single precision
# the two trainings soon diverge, though equally good. In double precision they can be compared.
DTYPE = torch.float64
TOLERANCE = 1e-8


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=16, help="images per rank and step (%(default)s)")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate (%(default)s)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
    parser.add_argument("--min-accuracy", type=float, default=0.0, help="fail below this accuracy; for example 0.95")
    parser.add_argument("--check", action="store_true", help="compare with a training in one process")
    return parser.parse_args()


def digits():
    """Images (n, 1, 8, 8) from 0 to 1 and labels (n,), int64: the training set and the test set."""
    data = load_digits()
    images = torch.tensor(data.images / 16.0, dtype=DTYPE).unsqueeze(1)
    labels = torch.tensor(data.target, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = order[:TRAINING_IMAGES], order[TRAINING_IMAGES:]
    return images[train], labels[train], images[test], labels[test]


def network(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * 4 * 4, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 10),
    ).to(DTYPE)


def joined_batches(args, epoch):
    """Indices of the images of each step, of all ranks together, equal on every rank. Remaining
    images are not used.
    """
    order = torch.randperm(TRAINING_IMAGES, generator=torch.Generator().manual_seed(args.seed + epoch))
    joined = args.batch_size * hvd.size()
    return [order[begin : begin + joined] for begin in range(0, TRAINING_IMAGES - joined + 1, joined)]


def train_epoch(model, optimizer, images, labels, batches):
    """One pass over the batches. Returns the mean loss."""
    model.train()
    total = 0.0
    for batch in batches:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(batches)


def accuracy(model, images, labels):
    """Accuracy over all ranks, each of which tests its share."""
    model.eval()
    images, labels = images[hvd.rank() :: hvd.size()], labels[hvd.rank() :: hvd.size()]
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).sum()
    counts = hvd.allreduce(torch.stack([right, torch.tensor(len(labels))]), op=hvd.Sum, name="accuracy")
    return counts[0].item() / counts[1].item()


def difference(model, args, images, labels):
    """Largest difference between a parameter of `model` and that of one process with the joined
    batches."""
    alone = network(args.seed)
    optimizer = torch.optim.SGD(alone.parameters(), lr=args.lr, momentum=0.9)
    for epoch in range(args.epochs):
        train_epoch(alone, optimizer, images, labels, joined_batches(args, epoch))
    pairs = zip(model.parameters(), alone.parameters())
    return max((ours - theirs).abs().max().item() for ours, theirs in pairs)


def main():
    args = arguments()
    hvd.init()
    torch.set_num_threads(1)  # ranks share the machine's cores
    images, labels, test_images, test_labels = digits()

    model = network(args.seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters(), compression=compression
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    reached = 0.0
    for epoch in range(args.epochs):
        batches = [batch[hvd.rank() :: hvd.size()] for batch in joined_batches(args, epoch)]
        loss = train_epoch(model, optimizer, images, labels, batches)
        loss = hvd.allreduce(torch.tensor(loss), name="loss").item()
        reached = accuracy(model, test_images, test_labels)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1:3}  loss {loss:.4f}  accuracy {100 * reached:.1f} %")

    failed = reached < args.min_accuracy
    if hvd.rank() == 0:
        digest = sum(parameter.detach().pow(2).sum().item() for parameter in model.parameters())
        joined = args.batch_size * hvd.size()
        print(f"ranks {hvd.size()}, joined batch {joined}, sum of all parameters' squares {digest:.9f}")
        if failed:
            print(f"accuracy {100 * reached:.1f} % is below {100 * args.min_accuracy:.1f} %")
    if args.check and hvd.rank() == 0:
        apart = difference(model, args, images, labels)
        print(f"one process with the joined batches: at most {apart:.1e} apart (allowed {TOLERANCE:.0e})")
        failed = failed or not apart <= TOLERANCE  # NaN is a failure
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
