"""Fixtures of the tests of `ronde.tensorflow`, which run in ranks.

Start: ``ronde run -np N -- python -m pytest --import-mode=importlib
python/tests/tensorflow``.
"""

import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


@pytest.fixture(scope="session")
def tf():
    """TensorFlow with one thread for operations: a blocked operation would block all others."""
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    return tf


@pytest.fixture(scope="session")
def hvd(settings, tf):
    """``ronde.tensorflow``, in a job."""
    import ronde.tensorflow as hvd

    hvd.init()
    yield hvd
    hvd.shutdown()


@pytest.fixture(params=["eager", "function"])
def run(request, tf):
    """Calls a function, eagerly or as a ``tf.function``."""
    if request.param == "eager":
        return lambda function, *args: function(*args)
    return lambda function, *args: tf.function(function)(*args)
