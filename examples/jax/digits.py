"""Trains a small network on handwritten digits, on any number of ranks; real data, no download.

    ronde run -np 2 -- python examples/jax/digits.py

Each rank uses its share of every batch, and Ronde averages the gradients within the compiled step,
which equals training in one process with the joined batch. With --check, rank 0 also trains alone on
the joined batches and compares.

Needs jax, optax and scikit-learn, which bundles the digits: 1,797 images of 8 × 8 pixels
(E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits, UCI Machine Learning Repository,
1998, CC BY 4.0).
"""

import argparse
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import ronde.jax as hvd

TRAINING_IMAGES = 1500  # of 1,797; the others are test images

# Ranks and one process sum gradients in different orders, so rounding differs. In single precision
# the two trainings soon diverge, though equally good. In double precision they can be compared.
jax.config.update("jax_enable_x64", True)
TOLERANCE = 1e-8


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=16, help="images per rank and step (%(default)s)")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate (%(default)s)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--min-accuracy", type=float, default=0.0, help="fail below this accuracy; for example 0.95")
    parser.add_argument("--check", action="store_true", help="compare with a training in one process")
    return parser.parse_args()


def digits():
    """Images (n, 64) from 0 to 1 and labels (n,): the training set and the test set."""
    data = load_digits()
    images = data.data / 16.0
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:TRAINING_IMAGES], order[TRAINING_IMAGES:]
    return images[train], data.target[train], images[test], data.target[test]


def network(seed):
    """Parameters of a network with two hidden layers."""
    sizes = [64, 64, 32, 10]
    keys = jax.random.split(jax.random.key(seed), len(sizes) - 1)
    return [
        {"weight": jax.random.normal(key, (n, m)) * np.sqrt(2 / n), "bias": jnp.zeros(m)}
        for key, n, m in zip(keys, sizes, sizes[1:])
    ]


def scores(params, images):
    for layer in params[:-1]:
        images = jax.nn.relu(images @ layer["weight"] + layer["bias"])
    return images @ params[-1]["weight"] + params[-1]["bias"]


def loss_of(params, images, labels):
    return optax.softmax_cross_entropy_with_integer_labels(scores(params, images), labels).mean()


def joined_batches(args, epoch):
    """Indices of the images of each step, of all ranks together, equal on every rank. Remaining
    images are not used.
    """
    order = np.random.default_rng(args.seed + epoch).permutation(TRAINING_IMAGES)
    joined = args.batch_size * hvd.size()
    return [order[begin : begin + joined] for begin in range(0, TRAINING_IMAGES - joined + 1, joined)]


def training_step(optimizer):
    """A compiled function that trains on a batch and returns parameters, state and loss."""

    @jax.jit
    def step(params, state, images, labels):
        loss, gradients = jax.value_and_grad(loss_of)(params, images, labels)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    return step


def train(params, args, optimizer, images, labels, is_distributed, report=None):
    """Trains on all epochs and returns the parameters."""
    step, state = training_step(optimizer), optimizer.init(params)
    for epoch in range(args.epochs):
        total, batches = 0.0, joined_batches(args, epoch)
        for batch in batches:
            batch = batch[hvd.rank() :: hvd.size()] if is_distributed else batch
            params, state, loss = step(params, state, images[batch], labels[batch])
            total += float(loss)
        if report:
            report(epoch, params, total / len(batches))
    return params


def accuracy(params, images, labels):
    """Accuracy over all ranks, each of which tests its share."""
    images, labels = images[hvd.rank() :: hvd.size()], labels[hvd.rank() :: hvd.size()]
    right = (scores(params, images).argmax(1) == labels).sum()
    counts = hvd.allreduce(jnp.array([right, len(labels)]), "accuracy", op=hvd.Sum)
    return float(counts[0] / counts[1])


def main():
    args = arguments()
    hvd.init()
    images, labels, test_images, test_labels = digits()
    sgd = optax.sgd(args.lr, momentum=0.9)

    # Different parameters on each rank, until rank 0's are broadcast.
    params = hvd.broadcast_tree(network(args.seed + hvd.rank()))
    reached = 0.0

    def report(epoch, params, loss):
        nonlocal reached
        loss = float(hvd.allreduce(loss, "loss"))
        reached = accuracy(params, test_images, test_labels)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1:3}  loss {loss:.4f}  accuracy {100 * reached:.1f} %")

    params = train(params, args, hvd.distributed(sgd), images, labels, True, report)
    failed = reached < args.min_accuracy
    if hvd.rank() == 0:
        joined = args.batch_size * hvd.size()
        print(f"ranks {hvd.size()}, joined batch {joined}")
        if failed:
            print(f"accuracy {100 * reached:.1f} % is below {100 * args.min_accuracy:.1f} %")
    if args.check and hvd.rank() == 0:
        alone = train(network(args.seed), args, sgd, images, labels, False)
        pairs = zip(jax.tree_util.tree_leaves(params), jax.tree_util.tree_leaves(alone))
        apart = max(float(jnp.abs(ours - theirs).max()) for ours, theirs in pairs)
        print(f"one process with the joined batches: at most {apart:.1e} apart (allowed {TOLERANCE:.0e})")
        failed = failed or not apart <= TOLERANCE  # NaN is a failure
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
