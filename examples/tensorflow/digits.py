"""Trains a small network on handwritten digits, on any number of ranks; real data, no download.

    ronde run -np 2 -- python examples/tensorflow/digits.py

Each rank uses its share of every batch, and Ronde averages the gradients, which equals training in
one process with the joined batch. With --check, rank 0 also trains alone on the joined batches and
compares. --eager runs the steps without tf.function.

Needs tensorflow and scikit-learn, which bundles the digits: 1,797 images of 8 × 8 pixels
(E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits, UCI Machine Learning Repository,
1998, CC BY 4.0).
"""

import argparse
import sys

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

import ronde.tensorflow as hvd

TRAINING_IMAGES = 1500  # of 1,797; the others are test images

# Ranks and one process sum gradients in different orders, so rounding differs. In single precision
# the two trainings soon diverge, though equally good. In double precision they can be compared.
DTYPE = "float64"
TOLERANCE = 1e-8


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=16, help="images per rank and step (%(default)s)")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate (%(default)s)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--eager", action="store_true", help="run the steps without tf.function")
    parser.add_argument("--min-accuracy", type=float, default=0.0, help="fail below this accuracy; for example 0.95")
    parser.add_argument("--check", action="store_true", help="compare with a training in one process")
    return parser.parse_args()


def digits():
    """Images (n, 8, 8, 1) from 0 to 1 and labels (n,): the training set and the test set."""
    data = load_digits()
    images = (data.images / 16.0).astype(DTYPE)[..., np.newaxis]
    order = np.random.default_rng(0).permutation(len(images))
    train, test = order[:TRAINING_IMAGES], order[TRAINING_IMAGES:]
    return images[train], data.target[train], images[test], data.target[test]


def network(seed):
    tf.keras.utils.set_random_seed(seed)
    layers = tf.keras.layers
    return tf.keras.Sequential(
        [
            tf.keras.Input((8, 8, 1), dtype=DTYPE),
            layers.Conv2D(16, 3, padding="same", activation="relu", dtype=DTYPE),
            layers.Conv2D(32, 3, padding="same", activation="relu", dtype=DTYPE),
            layers.MaxPooling2D(dtype=DTYPE),
            layers.Flatten(dtype=DTYPE),
            layers.Dense(64, activation="relu", dtype=DTYPE),
            layers.Dense(10, dtype=DTYPE),
        ]
    )


def joined_batches(args, epoch):
    """Indices of the images of each step, of all ranks together, equal on every rank. Remaining
    images are not used.
    """
    order = np.random.default_rng(args.seed + epoch).permutation(TRAINING_IMAGES)
    joined = args.batch_size * hvd.size()
    return [order[begin : begin + joined] for begin in range(0, TRAINING_IMAGES - joined + 1, joined)]


def training_step(model, optimizer, is_distributed, is_eager):
    """A function that trains on a batch and returns the loss."""
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype=DTYPE)

    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        if is_distributed:
            tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    return step if is_eager else tf.function(step)


def train_epoch(step, images, labels, batches):
    """One pass over the batches. Returns the mean loss."""
    return sum(float(step(tf.constant(images[batch]), tf.constant(labels[batch]))) for batch in batches) / len(batches)


def accuracy(model, images, labels):
    """Accuracy over all ranks, each of which tests its share."""
    images, labels = images[hvd.rank() :: hvd.size()], labels[hvd.rank() :: hvd.size()]
    right = np.sum(np.argmax(model(images, training=False), 1) == labels)
    counts = hvd.allreduce(tf.constant([right, len(labels)]), op=hvd.Sum, name="accuracy").numpy()
    return counts[0] / counts[1]


def optimizer_for(args, model):
    optimizer = tf.keras.optimizers.SGD(args.lr, momentum=0.9)
    optimizer.build(model.trainable_variables)
    return optimizer


def difference(model, args, images, labels):
    """Largest difference between a parameter of `model` and that of one process with the joined
    batches."""
    alone = network(args.seed)
    step = training_step(alone, optimizer_for(args, alone), False, args.eager)
    for epoch in range(args.epochs):
        train_epoch(step, images, labels, joined_batches(args, epoch))
    pairs = zip(model.get_weights(), alone.get_weights())
    return max(np.abs(ours - theirs).max() for ours, theirs in pairs)


def main():
    args = arguments()
    # Ranks share the machine's cores.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    hvd.init()
    images, labels, test_images, test_labels = digits()

    model = network(args.seed)
    optimizer = optimizer_for(args, model)
    hvd.broadcast_variables(model.variables + optimizer.variables, root_rank=0)
    step = training_step(model, optimizer, True, args.eager)

    reached = 0.0
    for epoch in range(args.epochs):
        batches = [batch[hvd.rank() :: hvd.size()] for batch in joined_batches(args, epoch)]
        loss = train_epoch(step, images, labels, batches)
        loss = float(hvd.allreduce(tf.constant(loss), name="loss"))
        reached = accuracy(model, test_images, test_labels)
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1:3}  loss {loss:.4f}  accuracy {100 * reached:.1f} %")

    failed = reached < args.min_accuracy
    if hvd.rank() == 0:
        digest = sum(np.square(weight).sum() for weight in model.get_weights())
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
