"""Broadcast of variables and Python objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable, Optional

import numpy as np
import tensorflow as tf

from ..common import objects
from ..common.process_sets import ProcessSet, global_process_set
from .mpi_ops import allgather, broadcast, broadcast_
from .util import _executing_eagerly as _executing_eagerly
from .util import unconverted


@unconverted
def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Assigns the values of rank ``root_rank`` to the variables of all ranks.

    All ranks pass the same variables in the same order: ``tf.Variable`` or Keras' variables. In eager
    execution, ValueError on all ranks if their number, shapes or dtypes differ.
    ``inplace`` is a parameter of Horovod, and not used: the variables are one group, and their
    values are assigned without further copies. In a graph of TensorFlow 1 it returns the operation
    to run.
    """
    from . import models  # which imports this module

    variables = list(variables)
    if tf.executing_eagerly():
        models.check_same_variables(variables, process_set)
    assigned = broadcast_(variables, root_rank, process_set=process_set)
    return None if tf.executing_eagerly() else tf.group(*assigned)


def _to_numpy(value: tf.Tensor, session: Any) -> np.ndarray:
    if tf.executing_eagerly():
        return value.numpy()
    session = session or tf.compat.v1.get_default_session()
    return session.run(value)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the object of rank ``root_rank``, which is pickled.

    Unpickling executes code: the ranks of a job trust each other. ``session``: that of a graph of
    TensorFlow 1. If the object cannot be pickled, the root raises the reason, and other ranks
    HorovodInternalError.
    """

    def send(data: np.ndarray, name: str) -> np.ndarray:
        sent = broadcast(tf.constant(data), root_rank, name, process_set=process_set)
        return _to_numpy(sent, session)

    return objects.broadcast_object(obj, root_rank, name, send)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Returns a function that broadcasts objects as :func:`broadcast_object` does, with the same
    operations of a graph of TensorFlow 1 for each object."""
    name = name or "broadcast_object_fn"

    def send(value: tf.Tensor, part: str) -> tf.Tensor:
        return broadcast(value, root_rank, part, process_set=process_set)

    run = _in_graph(name, session, send)
    return lambda obj: objects.broadcast_object(obj, root_rank, name, run)


def allgather_object_fn(name: str, session: Any = None) -> Callable[[Any], list[Any]]:
    """Returns a function that gathers objects as :func:`allgather_object` does, with the same
    operations of a graph of TensorFlow 1 for each object."""
    run = _in_graph(name, session, allgather)
    return lambda obj: objects.allgather_object(
        obj, name, global_process_set, lambda data, part, _total: run(data, part)
    )


def _in_graph(
    name: str, session: Any, operation: Callable[[tf.Tensor, str], tf.Tensor]
) -> Callable[[np.ndarray, str], np.ndarray]:
    """Makes the operations on an object's length and bytes; returns a function that runs one of
    them."""
    session = session or tf.compat.v1.get_default_session()
    inputs, outputs = {}, {}
    for part, count in ((f"{name}.sz", objects.LENGTH_BYTES), (f"{name}.t", None)):
        inputs[part] = tf.compat.v1.placeholder(tf.uint8, [count])
        outputs[part] = operation(inputs[part], part)
    return lambda data, part: session.run(outputs[part], {inputs[part]: data})


def allgather_object(
    obj: Any,
    session: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Returns the objects of all ranks in order. Objects are pickled, see
    :func:`broadcast_object`."""

    def gather(data: np.ndarray, name: str, _total: int) -> np.ndarray:
        return _to_numpy(allgather(tf.constant(data), name, process_set=process_set), session)

    return objects.allgather_object(obj, name, process_set, gather)
