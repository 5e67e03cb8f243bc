"""Fixtures of the tests of `ronde.keras`, which run in ranks, on the backend in ``KERAS_BACKEND``.

Start: ``KERAS_BACKEND=jax ronde run -np N -- python -m pytest --import-mode=importlib
python/tests/keras``.
"""

import pytest


@pytest.fixture(scope="session")
def keras(settings):
    """Keras."""
    import keras

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.threading.set_inter_op_parallelism_threads(1)
    return keras


@pytest.fixture(scope="session")
def hvd(keras, join):
    """``ronde.keras``, in a job."""
    return join("ronde.keras")


@pytest.fixture
def model_of(keras):
    """Creates a model of two layers; the weights depend on the seed."""

    def of(seed, optimizer=None, **arguments):
        keras.utils.set_random_seed(seed)
        model = keras.Sequential(
            [keras.Input((4,)), keras.layers.Dense(3, activation="tanh"), keras.layers.Dense(1)]
        )
        if optimizer is not None:
            model.compile(optimizer=optimizer, loss="mse", **arguments)
        return model

    return of
