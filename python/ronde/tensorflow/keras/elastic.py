"""Elastic training with Keras: `ronde.keras.elastic`."""

from ...keras.elastic import *  # noqa: F403
from ...keras.elastic import __all__ as __all__
