"""Code of `ronde.keras` and `ronde.tensorflow.keras`: Keras 3 on its TensorFlow, JAX and torch backends.

Each backend is a module with the same functions, in terms of its front end.
"""

from __future__ import annotations

import importlib
from types import ModuleType

BACKENDS = ("tensorflow", "jax", "torch")


def backend() -> ModuleType:
    """The module of Keras' backend. ImportError for a backend without one, and for Keras 2."""
    import keras

    if int(keras.__version__.split(".")[0]) < 3:
        raise ImportError(
            f"ronde.keras needs Keras 3, and this is {keras.__version__}: pip install 'keras>=3'", name="keras"
        )
    name = keras.backend.backend()
    if name not in BACKENDS:
        raise ImportError(
            f"ronde.keras has no support for the {name} backend of Keras: set KERAS_BACKEND to "
            f"{', '.join(BACKENDS)}",
            name="keras",
        )
    return importlib.import_module(f"{__name__}.on_{name}")
