"""Trains a small network on handwritten digits while ranks are lost and added.

    ronde run -np 3 --min-np 1 --blacklist-cooldown-range 2 60 -- python examples/torch/elastic.py

Kill a rank while it runs (`pkill -n -f torch/elastic.py`): the others restore the last commit and
continue, and a new process joins them after a while.

The learning rate follows the number of ranks. `ElasticSampler` divides the rest of an epoch among
the ranks that are left.

Needs torch and scikit-learn, which bundles the digits, so that nothing is downloaded: 1,797 images
of 8 × 8 pixels (E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits, UCI Machine
Learning Repository, 1998, CC BY 4.0).
"""

import argparse
import sys
import time

import torch
from sklearn.datasets import load_digits
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import ronde.torch as hvd

TRAINING_IMAGES = 1500  # of 1,797; the others are test images


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--epochs", type=int, default=8)
    add("--batch-size", type=int, default=16, help="images per rank and step (%(default)s)")
    add("--lr", type=float, default=0.05, help="learning rate of one rank (%(default)s)")
    add("--commit-steps", type=int, default=10, help="steps between commits (%(default)s)")
    add("--step-ms", type=float, default=0.0, help="pause after each step, to watch")
    add("--min-accuracy", type=float, default=0.0, help="fail below this accuracy")
    return parser.parse_args()


def digits():
    """Images (n, 1, 8, 8) from 0 to 1 and labels (n,), int64: the training set and the test set."""
    data = load_digits()
    images = torch.tensor(data.images / 16.0, dtype=torch.float32).unsqueeze(1)
    labels = torch.tensor(data.target, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = order[:TRAINING_IMAGES], order[TRAINING_IMAGES:]
    return TensorDataset(images[train], labels[train]), images[test], labels[test]


def main():
    args = arguments()
    hvd.init()
    torch.manual_seed(7)
    training, images, labels = digits()
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(16 * 4 * 4, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(training)
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, step=0)

    def follow_ranks():
        for group in optimizer.param_groups:
            group["lr"] = args.lr * hvd.size()

    state.register_reset_callbacks([follow_ranks])

    @hvd.elastic.run
    def train(state):
        follow_ranks()
        while state.epoch < args.epochs:
            batches = DataLoader(training, batch_size=args.batch_size, sampler=sampler)
            for index, (batch, targets) in enumerate(batches):
                optimizer.zero_grad()
                functional.cross_entropy(model(batch), targets).backward()
                optimizer.step()
                sampler.record_batch(index, args.batch_size)
                state.step += 1
                time.sleep(args.step_ms / 1000)
                if state.step % args.commit_steps == 0:
                    state.commit()
            state.epoch += 1
            sampler.set_epoch(state.epoch)
            if hvd.rank() == 0:
                epoch = f"epoch {state.epoch} of {args.epochs}"
                print(f"{epoch}: {hvd.size()} ranks, {state.step} steps", flush=True)
            state.commit()

    train(state)
    with torch.no_grad():
        correct = (model(images).argmax(dim=1) == labels).double().mean().item()
    if hvd.rank() == 0:
        print(f"accuracy {correct:.4f} on {len(labels)} test images", flush=True)
    if correct < args.min_accuracy:
        sys.exit(f"rank {hvd.rank()}: the accuracy {correct:.4f} is below {args.min_accuracy}")


if __name__ == "__main__":
    main()
