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
    """Wraps methods of Keras' classes, once.

    A LossScaleOptimizer around a distributed optimizer becomes the distributed one when it is
    created, by Keras or by a program. In methods of models, errors of ronde's operations in a
    compiled step, for which the backend has its own classes, are raised as Horovod's, after the end
    of an incomplete line of the progress bar.
    """
    for owner, names, wrapped in (
        (keras.Model, _METHODS, _training),
        (keras.optimizers.LossScaleOptimizer, ("__init__",), _creation),
    ):
        for name in names:
            method = getattr(owner, name)
            if not hasattr(method, "_is_of_ronde"):
                wrapper = wrapped(method)
                wrapper._is_of_ronde = True
                setattr(owner, name, wrapper)


def _creation(method: Any) -> Any:
    @functools.wraps(method)
    def wrapper(optimizer: Any, *args: Any, **kwargs: Any) -> None:
        method(optimizer, *args, **kwargs)
        move_outward(optimizer)

    return wrapper


def _training(method: Any) -> Any:
    @functools.wraps(method)
    def wrapper(model: Any, *args: Any, **kwargs: Any) -> Any:
        front = backend()
        has_ended = False
        try:
            result = method(model, *args, **kwargs)
            has_ended = True
            if hasattr(front, "wait_for"):  # a backend whose steps still run
                front.wait_for(model)
            return result
        except front.ERRORS as error:
            converted = front.converted(error)
            is_lost = isinstance(converted, HorovodInternalError)
            if is_lost and not has_ended and _has_progress_bar(method, model, args, kwargs):
                sys.stdout.write("\n")
                sys.stdout.flush()
            if converted is error:
                raise
            raise converted from error

    return wrapper


def _has_progress_bar(method: Any, model: Any, args: Any, kwargs: Any) -> bool:
    given = inspect.signature(method).bind(model, *args, **kwargs)
    given.apply_defaults()
    return given.arguments.get("verbose", 0) in ("auto", 1)
