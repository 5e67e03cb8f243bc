"""Callbacks of Keras' ``fit``: those of `ronde.keras.callbacks`."""

from ...keras.callbacks import *  # noqa: F403
from ...keras.callbacks import __all__ as __all__
