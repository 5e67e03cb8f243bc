"""One rank of the rows of TensorFlow; started by compare.py. Rank 0 writes JSON."""
import json
import os

import timing
from timing import ALONE, BATCH, LEARNING_RATE, PEER, RONDE

import tensorflow as tf

import ronde.tensorflow as hvd
from ronde.tensorflow.gradients import Reduction, reducer

#: Gradients of the row with delays.
DELAYED = 8

#: How an optimizer with default arguments reduces gradients.
HOW = Reduction("bench", "", "", hvd.Compression.none, False, hvd.Average, 1.0, None)


def function(tensors, reduce):
    """A function that computes tensors and reduces them. TensorFlow lets the operation reuse the
    memory of computed tensors."""

    @tf.function
    def step(factor):
        return reduce([tensor * factor for tensor in tensors])

    return lambda: step(tf.constant(1.0))


def gradients(timer):
    """ResNet-50's gradients: existing tensors in eager execution, computed ones in a function."""
    tensors = [tf.ones(shape) for shape in timing.GRADIENTS]
    variables = [tf.Variable(tensor) for tensor in tensors]
    reduce = reducer(HOW)
    return timer.medians({
        "eager": lambda: reduce(tensors, variables),
        "function": function(tensors, lambda computed: reduce(computed, variables)),
        "function alone": function(tensors, lambda computed: computed),
    })


def small(timer):
    """1,000 tensors of 1 KiB in a grouped call."""
    tensors = [tf.ones(shape) for shape in timing.SMALL]
    return timer.medians({
        "eager": lambda: hvd.grouped_allreduce(tensors, name="eager"),
        "eager alone": lambda: tf.identity_n(tensors),
        "function": function(
            tensors, lambda computed: hvd.grouped_allreduce(computed, name="function")
        ),
        "function alone": function(tensors, lambda computed: computed),
    })


def cnn():
    layers = tf.keras.layers
    tf.keras.utils.set_random_seed(1)
    return tf.keras.Sequential([
        tf.keras.Input((8, 8, 1)),
        layers.Conv2D(32, 3, padding="same", activation="relu"),
        layers.Conv2D(64, 3, padding="same", activation="relu"),
        layers.MaxPooling2D(2),
        layers.Flatten(),
        layers.Dense(256, activation="relu"),
        layers.Dense(10),
    ])


def cnn_step(tape_of, reduce, around=lambda step, *arguments: step(*arguments)):
    """A training step. `tape_of` wraps the tape, `reduce` changes the gradients."""
    model = cnn()
    images, labels = map(tf.constant, timing.digits(BATCH, hvd.rank()))

    def step(images, labels):
        with tf.GradientTape() as tape:
            scores = model(images, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
            loss = tf.reduce_mean(losses)
        gradients = reduce(tape_of(tape).gradient(loss, model.trainable_variables))
        for variable, gradient in zip(model.trainable_variables, gradients):
            variable.value.assign_sub(LEARNING_RATE * gradient)
        return loss

    compiled = tf.function(lambda images, labels: around(step, images, labels))
    return lambda: compiled(images, labels).numpy()


def training(timer, strategy):
    """A step of a CNN without reduction, with Ronde, and with the strategy's ring."""

    def same(value):
        return value

    def mean(gradients):
        replica = tf.distribute.get_replica_context()
        return replica.all_reduce(tf.distribute.ReduceOp.MEAN, gradients)

    def around(step, *arguments):
        return strategy.experimental_local_results(strategy.run(step, arguments))[0]

    ways = {ALONE: cnn_step(same, same)}
    if hvd.size() > 1:
        ways[RONDE] = cnn_step(hvd.DistributedGradientTape, same)
    if strategy is not None:
        ways[PEER] = cnn_step(same, mean, around)
    return timer.medians(ways)


def delayed(timer):
    """Independent gradients in one function, under RONDE_LINK's delay of each message."""
    tensors = [tf.ones([1000]) for _ in range(DELAYED)]
    reduce = reducer(HOW)
    return timer.medians({"function": function(tensors, reduce)})


def multi_worker(port):
    """The strategy with RING, which must be created before any operation."""
    workers = [f"127.0.0.1:{port + rank}" for rank in range(int(os.environ["HOROVOD_SIZE"]))]
    task = {"type": "worker", "index": int(os.environ["HOROVOD_RANK"])}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
    communication = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    return tf.distribute.MultiWorkerMirroredStrategy(communication_options=communication)


def main():
    options = timing.arguments(["gradients", "small", "training", "delayed"])
    tf.config.threading.set_intra_op_parallelism_threads(1)
    # The strategy's collectives need threads of their own; the operations with delays need one.
    tf.config.threading.set_inter_op_parallelism_threads(1 if options.job == "delayed" else 2)
    strategy = multi_worker(options.port) if options.port else None
    hvd.init()

    def slowest(numbers):
        times = tf.constant(numbers, tf.float64)
        return hvd.allreduce(times, name="slowest", op=hvd.Max).numpy().tolist()

    timer = timing.Timing(hvd, slowest, options)
    if options.job == "training":
        results = training(timer, strategy)
    else:
        results = {"gradients": gradients, "small": small, "delayed": delayed}[options.job](timer)
    timing.write(options, hvd.rank(), results)
    # No shutdown of the strategy's server, which has none.
    hvd.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
