"""Collective operations on TensorFlow's tensors, and queries such as rank and size.

All ranks of the process set call the same operation with the same ``name``. Without a name, an
operation in a graph is named after its tensors, and one in eager execution by a counter; so all
ranks must call the latter in the same order. Operations have gradients.

Invalid arguments raise ValueError, TypeError or tf.errors.InvalidArgumentError; differences between
ranks tf.errors.FailedPreconditionError, and a failed job tf.errors.UnknownError. In eager execution
the latter two are also :class:`HorovodInternalError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Optional, Union

import tensorflow as tf

from .. import _ronde
from ..common.basics import *  # noqa: F403
from ..common.basics import _basics as _basics
from ..common.process_sets import ProcessSet, global_process_set
from ..common.process_sets import add_process_set as add_process_set
from ..common.process_sets import remove_process_set as remove_process_set
from ..common.reduce_ops import Adasum as Adasum
from ..common.reduce_ops import Average, Max, Min, Product, Sum
from ..common.reduce_ops import (
    handle_average_backwards_compatibility as handle_average_backwards_compatibility,
)
from ..common.util import num_rank_is_power_2
from . import library
from .util import _executing_eagerly as _executing_eagerly
from .util import as_tensor, as_tensors, names_for, unconverted

check_num_rank_power_of_2 = num_rank_is_power_2


def _temp_process_set(process_set_id: int) -> ProcessSet:
    """A process set with this number, for gradients: operations know only the number."""
    if process_set_id == 0:
        return global_process_set
    process_set = ProcessSet(_ronde.process_sets().get(process_set_id, []))
    process_set.process_set_id = process_set_id
    return process_set


def _shaped(results: list[tf.Tensor], shapes: Iterable[tf.TensorShape]) -> list[tf.Tensor]:
    """Sets the known parts of the results' shapes in a graph. `shapes` is not used in eager
    execution."""
    if not tf.executing_eagerly():
        for result, shape in zip(results, shapes):
            result.set_shape(shape)
    return results


def _any_rows(tensor: tf.Tensor) -> tf.TensorShape:
    """The tensor's shape with another number of rows."""
    shape = tensor.shape
    return tf.TensorShape(None) if shape.rank in (None, 0) else tf.TensorShape([None]).concatenate(shape[1:])


@unconverted
def _allreduce(
    tensor: Any,
    name: Optional[str] = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Reduces the ranks' tensors element by element; by default their sum."""
    tensor = as_tensor("allreduce", tensor)
    names = names_for(name, "Allreduce", [tensor], ignore_name_scope)
    (result,) = library.collective(
        library.ALLREDUCE, [tensor], names, op, prescale_factor, postscale_factor, process_set=process_set
    )
    return _shaped([result], [tensor.shape])[0]


@unconverted
def _grouped_allreduce(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op: int = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    """Group of :func:`_allreduce`: the tensors wait for one another, on all ranks."""
    tensors = as_tensors("grouped_allreduce", tensors)
    names = names_for(name, "GroupedAllreduce", tensors, ignore_name_scope)
    results = library.collective(
        library.ALLREDUCE,
        tensors,
        names,
        op,
        prescale_factor,
        postscale_factor,
        process_set=process_set,
        is_group=True,
    )
    return _shaped(results, (tensor.shape for tensor in tensors))


@unconverted
def allgather(
    tensor: Any,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Concatenates the rows of all ranks, whose numbers may differ.

    The gradient is this rank's rows of the result's gradient, averaged over the ranks.
    """
    tensor = as_tensor("allgather", tensor)
    names = names_for(name, "Allgather", [tensor], ignore_name_scope)
    (result,) = library.collective(library.ALLGATHER, [tensor], names, process_set=process_set)
    return _shaped([result], [_any_rows(tensor)])[0]


@unconverted
def grouped_allgather(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    """Group of :func:`allgather`: the tensors wait for one another, on all ranks."""
    tensors = as_tensors("grouped_allgather", tensors)
    names = names_for(name, "GroupedAllgather", tensors, ignore_name_scope)
    results = library.collective(library.ALLGATHER, tensors, names, process_set=process_set, is_group=True)
    return _shaped(results, (_any_rows(tensor) for tensor in tensors))


@unconverted
def broadcast(
    tensor: Any,
    root_rank: int,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Copies the tensor of rank ``root_rank`` of the job to all ranks.

    The gradient of the root's tensor is the average of the ranks' gradients, that of others zero.
    """
    tensor = as_tensor("broadcast", tensor)
    names = names_for(name, "Broadcast", [tensor], ignore_name_scope)
    (result,) = library.collective(
        library.BROADCAST, [tensor], names, root=root_rank, process_set=process_set
    )
    return _shaped([result], [tensor.shape])[0]


@unconverted
def broadcast_(
    variables: Sequence[tf.Variable],
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    """Assigns the values of rank ``root_rank`` to the variables of all ranks, as one group.

    Returns the new values. All ranks have the same variables in the same order.
    """
    variables = list(variables)
    if not variables:
        return []
    tensors = as_tensors("broadcast_", variables)
    names = names_for(name, "BroadcastInplace", tensors)
    results = library.collective(
        library.BROADCAST, tensors, names, root=root_rank, process_set=process_set, is_group=True
    )
    assigned = [variable.assign(result) for variable, result in zip(variables, results)]
    if tf.executing_eagerly():
        return [tf.convert_to_tensor(variable) for variable in variables]
    return [tf.convert_to_tensor(value) for value in assigned]


@unconverted
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: Optional[str] = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Union[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
    """Sends rows of the tensor to every rank, and receives rows from every rank.

    ``splits``: the number of rows for each rank of the set, in order; without it, all ranks get the
    same number. Returns the received rows in the order of the ranks, and with ``splits`` also the
    number from each. The gradients of the rows are sent back to their origin.
    """
    tensor = as_tensor("alltoall", tensor)
    counts = tf.zeros([0], tf.int32) if splits is None else tf.convert_to_tensor(splits)
    if counts.shape.rank not in (None, 1):
        raise ValueError(f"alltoall needs a 1D splits tensor, not one of shape {counts.shape}")
    if counts.dtype not in (tf.int32, tf.int64):
        raise ValueError(f"alltoall needs splits of integers, not {counts.dtype.name}")
    names = names_for(name, "Alltoall", [tensor], ignore_name_scope)
    results = library.collective(
        library.ALLTOALL,
        [tensor, counts],
        names,
        process_set=process_set,
        results=[tensor.dtype, tf.int32],
    )
    output, received = _shaped(results, [_any_rows(tensor), tf.TensorShape([None])])
    return output if splits is None else (output, received)


@unconverted
def _reducescatter(
    tensor: Any,
    name: Optional[str] = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """Reduces the ranks' tensors, by default their sum; each rank keeps a share of the rows."""
    tensor = as_tensor("reducescatter", tensor)
    names = names_for(name, "Reducescatter", [tensor], ignore_name_scope)
    (result,) = library.collective(
        library.REDUCESCATTER, [tensor], names, op, prescale_factor, postscale_factor, process_set=process_set
    )
    return _shaped([result], [_any_rows(tensor)])[0]


@unconverted
def _grouped_reducescatter(
    tensors: Sequence[Any],
    name: Optional[str] = None,
    op: int = Sum,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[tf.Tensor]:
    """Group of :func:`_reducescatter`: the tensors wait for one another, on all ranks."""
    tensors = as_tensors("grouped_reducescatter", tensors)
    names = names_for(name, "GroupedReducescatter", tensors, ignore_name_scope)
    results = library.collective(
        library.REDUCESCATTER,
        tensors,
        names,
        op,
        prescale_factor,
        postscale_factor,
        process_set=process_set,
        is_group=True,
    )
    return _shaped(results, (_any_rows(tensor) for tensor in tensors))


@unconverted
def join() -> tf.Tensor:
    """Declares that this rank has no more data, and waits until all ranks have. Returns the rank
    that joined last, an int32 scalar.

    Until then the allreduces of other ranks go on without this rank; averages still divide by the
    number of all ranks. If other ranks have traced a training step in a ``tf.function`` meanwhile,
    steps that are traced after the join are not checked to have the same variables on all ranks.
    """
    from . import models  # which imports this module

    (last,) = library.collective(library.JOIN, [], results=[tf.int32])
    if tf.executing_eagerly():
        models.after_join()
    elif tf.compat.v1.executing_eagerly_outside_functions():
        with tf.control_dependencies([last]):
            tf.py_function(models.after_join, [], [])
    return _shaped([last], [tf.TensorShape([])])[0]


@unconverted
def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until every rank of the set has called it."""
    library.collective(library.BARRIER, [], process_set=process_set)


def size_op(process_set_id: int = 0, name: Optional[str] = None) -> tf.Tensor:
    """Number of ranks in a process set when the graph runs, an int32 scalar."""
    return library.query(library.SIZE, process_set_id, name)


def process_set_included_op(process_set_id: int = 0, name: Optional[str] = None) -> tf.Tensor:
    """Whether this process is in a process set when the graph runs: 1 or 0, -1 before ``init``, -2
    for an unknown set."""
    return library.query(library.INCLUDED, process_set_id, name)


def local_size_op(name: Optional[str] = None) -> tf.Tensor:
    """Number of ranks on this host when the graph runs."""
    return library.query(library.LOCAL_SIZE, name=name)


def rank_op(name: Optional[str] = None) -> tf.Tensor:
    """This process's rank when the graph runs."""
    return library.query(library.RANK, name=name)


def local_rank_op(name: Optional[str] = None) -> tf.Tensor:
    """This process's rank on its host when the graph runs."""
    return library.query(library.LOCAL_RANK, name=name)


def mark_step() -> None:
    """Marks the end of a training step. DistributedGradientTape and DistributedOptimizer do it."""
    _ronde.mark_step()


def mark_epoch() -> None:
    """Marks the end of an epoch: operations that follow (validation, checkpoint) belong to no
    step."""
    _ronde.mark_epoch()


def autotune_report() -> Optional[dict[str, Any]]:
    """State and results of the tuner, on rank 0 with ``HOROVOD_AUTOTUNE=1``; None elsewhere."""
    return _ronde.autotune_report()


def _float_of(bits: int) -> float:
    return library.struct.unpack("<d", library.struct.pack("<q", bits))[0]


@tf.RegisterGradient("RondeCollective")
@tf.RegisterGradient("RondeExchange")
@unconverted
def _collective_gradient(operation: Any, *grads: tf.Tensor) -> list[Optional[tf.Tensor]]:
    """Gradients of all operations, with operations of the same kind of names."""
    get = operation.get_attr
    kind, op = get("kind"), get("op")
    process_set = _temp_process_set(get("process_set"))
    names = [tf.compat.as_str(name) + ".grad" for name in get("names")]
    factors = _float_of(get("prescale")), _float_of(get("postscale"))
    is_group = bool(get("flags") & library.GROUP)
    # Outputs that are not used have gradients of zero, whose dtype TensorFlow does not always know.
    grads = tuple(tf.cast(grad, output.dtype) for grad, output in zip(grads, operation.outputs))
    if kind == library.ALLREDUCE:
        if op in (Min, Max, Product):
            raise NotImplementedError(
                "allreduce has no gradient for Min, Max and Product; use tf.stop_gradient"
            )
        return library.collective(kind, grads, names, op, *factors, process_set=process_set, is_group=is_group)
    if kind == library.ALLGATHER:
        averages = _averages(grads, names, process_set, is_group)
        return _own_rows(averages, operation.inputs, names, process_set)
    if kind == library.BROADCAST:
        averages = _averages(grads, names, process_set, is_group)
        is_root = tf.equal(library.rank_in(global_process_set), get("root"))
        return [tf.where(is_root, average, tf.zeros_like(average)) for average in averages]
    if kind == library.ALLTOALL:
        back, _ = library.collective(
            kind,
            [grads[0], operation.outputs[1]],
            names,
            process_set=process_set,
            results=[grads[0].dtype, tf.int32],
        )
        # Rows that were not sent have no gradient.
        sent = operation.inputs[0]
        unsent = tf.shape(sent)[:1] - tf.shape(back)[:1]
        back = tf.concat([back, tf.zeros(tf.concat([unsent, tf.shape(sent)[1:]], 0), back.dtype)], 0)
        return [back, None]
    if kind == library.REDUCESCATTER:
        factor = factors[0] * factors[1]
        gathered = library.collective(
            library.ALLGATHER, grads, names, process_set=process_set, is_group=is_group
        )
        scaled = [grad if factor == 1 else grad * tf.cast(factor, grad.dtype) for grad in gathered]
        if op != Sum:
            return scaled
        return [grad * library.count_of(process_set, grad.dtype) for grad in scaled]
    return [None for _ in operation.inputs]


def _averages(
    grads: Sequence[tf.Tensor], names: list[str], process_set: ProcessSet, is_group: bool
) -> list[tf.Tensor]:
    return library.collective(
        library.ALLREDUCE, grads, names, Average, process_set=process_set, is_group=is_group
    )


def _own_rows(
    gathered: Sequence[tf.Tensor], inputs: Sequence[tf.Tensor], names: list[str], process_set: ProcessSet
) -> list[tf.Tensor]:
    """This rank's part of gathered tensors, to which it contributed the inputs."""
    counts = tf.stack([tf.shape(tensor, out_type=tf.int64)[0] for tensor in inputs])
    (all_counts,) = library.collective(
        library.ALLGATHER, [counts[tf.newaxis]], [f"{name}.rows" for name in names], process_set=process_set
    )
    starts = tf.reduce_sum(all_counts[: library.rank_in(process_set)], 0)
    return [
        tensor[starts[index] : starts[index] + counts[index]] for index, tensor in enumerate(gathered)
    ]


tf.no_gradient("RondeQuery")
tf.no_gradient("RondeSubmit")
tf.no_gradient("RondeWait")
