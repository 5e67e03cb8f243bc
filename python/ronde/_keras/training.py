"""Wrappers of Keras' methods that train, since Keras has no hook around a training step."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any

import keras

from ..common.exceptions import HorovodInternalError
from . import backend
from .optimizer import move_outward

_METHODS = ("fit", "train_on_batch")


def wrap_methods() -> None:
    """Wraps the methods of Keras' models, once.

    Before the method, a LossScaleOptimizer that Keras has put around a distributed optimizer
    becomes the distributed one. Errors of ronde's operations in a compiled step, for which the
    backend has its own classes, are raised as Horovod's, after the end of an incomplete line of the
    progress bar.
    """
    for name in _METHODS:
        method = getattr(keras.Model, name)
        if not hasattr(method, "_is_of_ronde"):
            setattr(keras.Model, name, _wrapped(method))


def _wrapped(method: Any) -> Any:
    @functools.wraps(method)
    def wrapper(model: Any, *args: Any, **kwargs: Any) -> Any:
        move_outward(getattr(model, "optimizer", None))
        front = backend()
        try:
            return method(model, *args, **kwargs)
        except front.ERRORS as error:
            converted = front.converted(error)
            is_lost = isinstance(converted, HorovodInternalError)
            if is_lost and _has_progress_bar(method, model, args, kwargs):
                sys.stdout.write("\n")
                sys.stdout.flush()
            if converted is error:
                raise
            raise converted from error

    wrapper._is_of_ronde = True
    return wrapper


def _has_progress_bar(method: Any, model: Any, args: Any, kwargs: Any) -> bool:
    given = inspect.signature(method).bind(model, *args, **kwargs)
    given.apply_defaults()
    return given.arguments.get("verbose", 0) in ("auto", 1)
