"""Broadcast of variables and Python objects."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any, Callable, Optional

import numpy as np
import tensorflow as tf

from ..common.process_sets import ProcessSet, global_process_set
from .mpi_ops import allgather, broadcast, broadcast_, rank
from .util import _executing_eagerly as _executing_eagerly
from .util import unconverted

try:  # also pickles functions and classes of the main program
    import cloudpickle
except ImportError:
    cloudpickle = pickle


@unconverted
def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Assigns the values of rank ``root_rank`` to the variables of all ranks.

    All ranks pass the same variables in the same order: ``tf.Variable`` or Keras' variables.
    ``inplace`` is a parameter of Horovod, and not used: the variables are one group, and their
    values are assigned without further copies. In a graph of TensorFlow 1 it returns the operation
    to run.
    """
    variables = list(variables)
    assigned = broadcast_(variables, root_rank, process_set=process_set)
    return None if tf.executing_eagerly() else tf.group(*assigned)


def _to_numpy(value: tf.Tensor, session: Any) -> np.ndarray:
    if tf.executing_eagerly():
        return value.numpy()
    session = session or tf.compat.v1.get_default_session()
    return session.run(value)


def _bytes_of(obj: Any) -> np.ndarray:
    return np.frombuffer(cloudpickle.dumps(obj), dtype=np.uint8)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Returns the object of rank ``root_rank``, which is pickled.

    Unpickling executes code: the ranks of a job trust each other. ``session``: that of a graph of
    TensorFlow 1.
    """
    name = name or type(obj).__name__
    is_root = rank() == root_rank
    data = _bytes_of(obj) if is_root else np.empty(0, np.uint8)
    length = tf.constant([data.size], tf.int64)
    length = _to_numpy(broadcast(length, root_rank, f"{name}.sz", process_set=process_set), session)
    if not is_root:
        data = np.zeros(int(length[0]), np.uint8)
    data = _to_numpy(
        broadcast(tf.constant(data), root_rank, f"{name}.t", process_set=process_set), session
    )
    return obj if is_root else cloudpickle.loads(data.tobytes())


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Returns a function that broadcasts objects as :func:`broadcast_object` does, with the same
    operations of a graph of TensorFlow 1 for each object."""
    name = name or "broadcast_object_fn"
    length = tf.compat.v1.placeholder(tf.int64, [1])
    sent_length = broadcast(length, root_rank, f"{name}.sz", process_set=process_set)
    data = tf.compat.v1.placeholder(tf.uint8, [None])
    sent_data = broadcast(data, root_rank, f"{name}.t", process_set=process_set)
    session = session or tf.compat.v1.get_default_session()

    def of(obj: Any) -> Any:
        is_root = rank() == root_rank
        own = _bytes_of(obj) if is_root else np.empty(0, np.uint8)
        count = session.run(sent_length, {length: [own.size]})
        if not is_root:
            own = np.zeros(int(count[0]), np.uint8)
        received = session.run(sent_data, {data: own})
        return obj if is_root else cloudpickle.loads(received.tobytes())

    return of


def allgather_object(
    obj: Any,
    session: Any = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Returns the objects of all ranks in order. Objects are pickled, see
    :func:`broadcast_object`."""
    name = name or type(obj).__name__
    data = _bytes_of(obj)
    length = tf.constant([data.size], tf.int64)
    lengths = _to_numpy(allgather(length, f"{name}.sz", process_set=process_set), session)
    gathered = _to_numpy(allgather(tf.constant(data), f"{name}.t", process_set=process_set), session)
    ends = np.cumsum(lengths)
    return [
        cloudpickle.loads(gathered[end - count : end].tobytes()) for end, count in zip(ends, lengths)
    ]
