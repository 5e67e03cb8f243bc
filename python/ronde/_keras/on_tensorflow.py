"""Keras on TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from .. import tensorflow as hvd
from ..common.process_sets import ProcessSet
from ..tensorflow import errors, gradients
from ..tensorflow.gradients import LocalVariables, Reduction
from .options import Options

Compression = hvd.Compression
allgather = hvd.allgather
allgather_object = hvd.allgather_object
broadcast = hvd.broadcast
broadcast_object = hvd.broadcast_object
broadcast_variables = hvd.broadcast_variables
reducescatter = hvd.reducescatter

#: Exceptions of a compiled training step.
ERRORS = errors.ERRORS
converted = errors.as_horovod_error


def reducer(options: Options) -> Callable[[Sequence[Any], Sequence[Any]], list[Any]]:
    """Function that reduces gradients of variables."""
    how = Reduction(*(getattr(options, field) for field in Reduction._fields))
    reduce_shared = gradients.reducer(how)
    local = LocalVariables(options.process_set, options.scale_local_gradients)

    def reduce(grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        for variable in options.all_local():
            local.add(variable)
        return local.reduce(reduce_shared, grads, variables)

    return tf.autograph.experimental.do_not_convert(reduce)


def allreduce(value: Any, name: Any, op: int, prescale: float, postscale: float, compression: Any) -> Any:
    """Reduces a value."""
    return hvd.allreduce(
        tf.convert_to_tensor(value),
        op=op,
        name=name,
        prescale_factor=prescale,
        postscale_factor=postscale,
        compression=compression,
    )


def averages(numbers: Sequence[float], name: str) -> list[float]:
    """Averages of numbers over the ranks."""
    return hvd.allreduce(tf.constant(list(numbers), tf.float64), name=name).numpy().tolist()


def sync_model(model: Any) -> None:
    """Does nothing: variables have their values during training."""


def barrier(process_set: ProcessSet) -> None:
    """Waits for all ranks of the set."""
    hvd.barrier(process_set)
