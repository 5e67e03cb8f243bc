"""Gradients of the operations."""

import numpy as np
import pytest


@pytest.fixture(params=["fixed", "elastic"])
def gradient(tf, run, request, monkeypatch):
    """Gradient of a function of one tensor; functions of an elastic job ask for ranks when they run."""
    if request.param == "elastic":
        monkeypatch.setattr("ronde.common.seat.is_elastic", lambda: True)

    def of(function, x):
        def both(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = function(x)
            return tape.gradient(y, x)

        return run(both, x).numpy()

    return of


def test_allreduce(tf, hvd, gradient):
    x = tf.ones([3])
    weight = hvd.rank() + 1.0
    total = sum(range(1, hvd.size() + 1))
    summed = gradient(lambda x: tf.reduce_sum(hvd.allreduce(x, op=hvd.Sum, name="g")) * weight, x)
    np.testing.assert_allclose(summed, [total] * 3)
    averaged = gradient(lambda x: tf.reduce_sum(hvd.allreduce(x, name="a")) * weight, x)
    np.testing.assert_allclose(averaged, [total / hvd.size()] * 3)
    grouped = gradient(lambda x: tf.add_n(hvd.grouped_allreduce([x, 2 * x], op=hvd.Sum)) * weight, x)
    np.testing.assert_allclose(grouped, [3 * total] * 3)
    with pytest.raises(NotImplementedError, match="Min, Max"):
        gradient(lambda x: hvd.allreduce(x, op=hvd.Max), x)


def test_allgather(tf, hvd, gradient):
    rank, n = hvd.rank(), hvd.size()
    rows = sum(range(1, n + 1))
    x = tf.ones([rank + 1, 2])
    weights = tf.range(float(rows))[:, tf.newaxis] * (rank + 1.0)
    begin = sum(range(1, rank + 1))
    own = np.arange(begin, begin + rank + 1)[:, None] * sum(range(1, n + 1)) / n * np.ones([1, 2])
    np.testing.assert_allclose(
        gradient(lambda x: tf.reduce_sum(hvd.allgather(x, name="g") * weights), x), own, rtol=1e-6
    )
    grouped = gradient(
        lambda x: tf.add_n([tf.reduce_sum(y * weights) for y in hvd.grouped_allgather([x, x], name="gg")]), x
    )
    np.testing.assert_allclose(grouped, 2 * own, rtol=1e-6)


def test_broadcast(tf, hvd, gradient):
    root = hvd.size() - 1
    result = gradient(lambda x: tf.reduce_sum(hvd.broadcast(x, root, name="b")) * (hvd.rank() + 1.0), tf.ones([2]))
    average = sum(range(1, hvd.size() + 1)) / hvd.size()
    np.testing.assert_allclose(result, [average if hvd.rank() == root else 0.0] * 2)


def test_alltoall(tf, hvd, gradient):
    n = hvd.size()
    x = tf.ones([2 * n + 1, 2])
    weights = hvd.rank() + 1.0

    def exchanged(x):
        rows, _ = hvd.alltoall(x, splits=[2] * n)
        return tf.reduce_sum(rows) * weights

    # Row i went to rank i // 2; the last one to nobody.
    expected = np.array([*(row // 2 + 1.0 for row in range(2 * n)), 0.0])[:, None] * np.ones([1, 2])
    np.testing.assert_allclose(gradient(exchanged, x), expected)
    without = gradient(lambda x: tf.reduce_sum(hvd.alltoall(x[: 2 * n])) * weights, x)
    np.testing.assert_allclose(without, expected)


def test_reducescatter(tf, hvd, gradient):
    n = hvd.size()
    x = tf.ones([n + 1, 2])
    weights = hvd.rank() + 1.0
    owners = np.array([1.0, *range(1, n + 1)])[:, None] * np.ones([1, 2])
    result = gradient(lambda x: tf.reduce_sum(hvd.reducescatter(x, name="r")) * weights, x)
    np.testing.assert_allclose(result, owners)
    summed = gradient(
        lambda x: tf.reduce_sum(hvd.reducescatter(x, op=hvd.Sum, prescale_factor=0.5, name="s")) * weights, x
    )
    np.testing.assert_allclose(summed, owners * n * 0.5)


def test_names_of_gradients_are_stable(tf, hvd):
    x = tf.ones([2])
    for _ in range(3):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = hvd.allreduce(x, name="stable", op=hvd.Sum)
        for _ in range(2):
            np.testing.assert_allclose(tape.gradient(y, x), [hvd.size()] * 2)
