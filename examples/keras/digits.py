"""Trains a small network on handwritten digits with Keras' fit, on any number of ranks; real data, no
download.

    KERAS_BACKEND=tensorflow ronde run -np 2 -- python examples/keras/digits.py

The backend is tensorflow, jax or torch. Each rank uses its share of every batch, and Ronde averages
the gradients, which equals training in one process with the joined batch. With --check, rank 0 also
trains alone on the joined batches and compares.

Needs keras with a backend and scikit-learn, which bundles the digits: 1,797 images of 8 × 8 pixels
(E. Alpaydin, C. Kaynak: Optical Recognition of Handwritten Digits, UCI Machine Learning Repository,
1998, CC BY 4.0).
"""

import argparse
import os
import sys

import numpy as np

if os.environ.get("KERAS_BACKEND") == "jax":
    os.environ.setdefault("JAX_ENABLE_X64", "1")  # before JAX is imported

import keras
from sklearn.datasets import load_digits

import ronde.keras as hvd

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


def network(seed, optimizer):
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=optimizer,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def shares(args, images, labels, rank, size):
    """The part of the training set of a rank, in batches as joined batches have them. Remaining
    images are not used."""
    joined = args.batch_size * hvd.size()
    count = TRAINING_IMAGES // joined * joined
    mine = np.arange(count)[rank::size]
    return images[mine], labels[mine]


def train(model, args, images, labels, batch_size, callbacks=()):
    # In the same order in every epoch, so that batches can be joined.
    model.fit(
        images,
        labels,
        batch_size=batch_size,
        epochs=args.epochs,
        shuffle=False,
        verbose=2 if hvd.rank() == 0 and callbacks else 0,
        callbacks=list(callbacks),
    )


def difference(model, args, images, labels):
    """Largest difference between a parameter of `model` and that of one process with the joined
    batches."""
    alone = network(args.seed, keras.optimizers.SGD(args.lr, momentum=0.9))
    train(alone, args, *shares(args, images, labels, 0, 1), args.batch_size * hvd.size())
    pairs = zip(model.get_weights(), alone.get_weights())
    return max(np.abs(ours - theirs).max() for ours, theirs in pairs)


def main():
    args = arguments()
    hvd.init()
    keras.config.set_floatx(DTYPE)
    images, labels, test_images, test_labels = digits()

    # Different weights on each rank, until rank 0's are broadcast.
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(args.lr, momentum=0.9))
    model = network(args.seed + hvd.rank(), optimizer)
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
    ]
    mine = shares(args, images, labels, hvd.rank(), hvd.size())
    train(model, args, *mine, args.batch_size, callbacks)

    _, right = model.evaluate(
        test_images[hvd.rank() :: hvd.size()], test_labels[hvd.rank() :: hvd.size()], verbose=0
    )
    reached = float(keras.ops.convert_to_numpy(hvd.allreduce(right, name="accuracy")))
    failed = reached < args.min_accuracy
    if hvd.rank() == 0:
        joined = args.batch_size * hvd.size()
        print(f"{keras.backend.backend()}: ranks {hvd.size()}, joined batch {joined}, accuracy {100 * reached:.1f} %")
        if failed:
            print(f"accuracy is below {100 * args.min_accuracy:.1f} %")
    if args.check and hvd.rank() == 0:
        apart = difference(model, args, images, labels)
        print(f"one process with the joined batches: at most {apart:.1e} apart (allowed {TOLERANCE:.0e})")
        failed = failed or not apart <= TOLERANCE  # NaN is a failure
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
