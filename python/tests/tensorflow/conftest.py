"""Fixtures of the tests of `ronde.tensorflow`, which run in ranks.

Start: ``ronde run -np N -- python -m pytest --import-mode=importlib
python/tests/tensorflow``.
"""

import pytest


@pytest.fixture(scope="session")
def tf(settings):
    """TensorFlow with one thread for operations: a blocked operation would block all others."""
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    return tf


@pytest.fixture(scope="session")
def hvd(tf, join):
    """``ronde.tensorflow``, in a job."""
    return join("ronde.tensorflow")


@pytest.fixture(params=["eager", "function"])
def run(request, tf):
    """Calls a function, eagerly or as a ``tf.function``."""
    if request.param == "eager":
        return lambda function, *args: function(*args)
    return lambda function, *args: tf.function(function)(*args)
