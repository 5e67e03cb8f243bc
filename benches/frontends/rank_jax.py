"""One rank of the rows of JAX; started by compare.py. Rank 0 writes JSON."""
import os

import timing
from timing import ALONE, BATCH, LEARNING_RATE, PEER, RONDE

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import ronde.jax as hvd


def donated(shapes, name):
    """A step that reduces arrays within `jit`, whose memory is given to the results."""
    reduce = jax.jit(lambda arrays: hvd.allreduce_tree(arrays, name=name), donate_argnums=0)
    arrays = [jnp.ones(shape) for shape in shapes]

    def step():
        nonlocal arrays
        arrays = jax.block_until_ready(reduce(arrays))

    return step


def gradients(timer):
    """ResNet-50's gradients."""
    return timer.medians({"jit": donated(timing.GRADIENTS, "gradients")})


def computed(shapes, reduce):
    """A step that computes arrays and reduces them within `jit`."""
    step = jax.jit(lambda arrays, factor: reduce([array * factor for array in arrays]))
    arrays = [jnp.ones(shape) for shape in shapes]
    return lambda: jax.block_until_ready(step(arrays, 1.0))


def small(timer):
    """1,000 arrays of 1 KiB in one call."""
    arrays = [jnp.ones(shape) for shape in timing.SMALL]
    return timer.medians({
        "jit": computed(timing.SMALL, lambda arrays: hvd.allreduce_tree(arrays, name="jit")),
        "jit alone": computed(timing.SMALL, lambda arrays: arrays),
        "eager": lambda: jax.block_until_ready(hvd.allreduce_tree(arrays, name="eager")),
    })


def parameters():
    """A CNN's parameters: the same network as rank_tensorflow.py's."""
    generator = np.random.default_rng(1)

    def weights(*shape):
        scale = np.sqrt(1 / np.prod(shape[:-1]))
        kernel = generator.normal(scale=scale, size=shape)
        return kernel.astype("float32"), np.zeros(shape[-1], "float32")

    return [weights(3, 3, 1, 32), weights(3, 3, 32, 64), weights(1024, 256), weights(256, 10)]


def loss_of(layers, images, labels):
    x = images
    layout = ("NHWC", "HWIO", "NHWC")
    for kernel, bias in layers[:2]:
        x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout)
        x = jax.nn.relu(x + bias)
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(x.shape[0], -1)
    (kernel, bias), (last, last_bias) = layers[2:]
    scores = jax.nn.relu(x @ kernel + bias) @ last + last_bias
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], 1))


def update(reduce):
    def step(layers, images, labels):
        gradients = reduce(jax.grad(loss_of)(layers, images, labels))
        return jax.tree_util.tree_map(
            lambda weight, grad: weight - LEARNING_RATE * grad, layers, gradients
        )

    return step


def stepping(step, layers, images, labels):
    step = jax.jit(step, donate_argnums=0)

    def one():
        nonlocal layers
        layers = jax.block_until_ready(step(layers, images, labels))

    return one


def training(timer, has_peer):
    """A step of a CNN without reduction, with Ronde, and with jax.distributed (gloo)."""
    images, labels = timing.digits(BATCH, hvd.rank())
    device = jax.local_devices()[0]

    def local():
        return jax.device_put((parameters(), images, labels), device)

    ways = {ALONE: stepping(update(lambda gradients: gradients), *local())}
    if hvd.size() > 1:
        reduce = lambda gradients: hvd.allreduce_tree(gradients, name="training")  # noqa: E731
        ways[RONDE] = stepping(update(reduce), *local())
    if has_peer:
        mesh = Mesh(np.array(jax.devices()), ("ranks",))
        everywhere, rows = PartitionSpec(), PartitionSpec("ranks")
        mean = lambda gradients: jax.lax.pmean(gradients, "ranks")  # noqa: E731
        step = jax.shard_map(
            update(mean),
            mesh=mesh,
            in_specs=(everywhere, rows, rows),
            out_specs=everywhere,
            check_vma=False,
        )
        layers = jax.device_put(parameters(), NamedSharding(mesh, everywhere))
        sharding = NamedSharding(mesh, rows)
        parts = [
            jax.make_array_from_process_local_data(sharding, part) for part in (images, labels)
        ]
        ways[PEER] = stepping(step, layers, *parts)
    return timer.medians(ways)


def main():
    options = timing.arguments(["gradients", "small", "training"])
    jax.config.update("jax_platforms", "cpu")
    if options.port:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        size, rank = (int(os.environ[f"HOROVOD_{name}"]) for name in ("SIZE", "RANK"))
        jax.distributed.initialize(f"127.0.0.1:{options.port}", size, rank)
    hvd.init()

    def slowest(numbers):
        array = jax.device_put(np.array(numbers, "float32"), jax.local_devices()[0])
        return hvd.allreduce(array, name="slowest", op=hvd.Max).tolist()

    timer = timing.Timing(hvd, slowest, options)
    if options.job == "training":
        results = training(timer, bool(options.port))
    else:
        results = {"gradients": gradients, "small": small}[options.job](timer)
    timing.write(options, hvd.rank(), results)
    hvd.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
