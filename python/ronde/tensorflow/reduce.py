"""Allreduce and reducescatter with compression, and sparse gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Optional, Union

import tensorflow as tf

from ..common.process_sets import ProcessSet, global_process_set
from ..common.reduce_ops import Adasum, Average, Sum, check_adasum, handle_average_backwards_compatibility
from . import library
from .compression import Compression, Compressor
from .mpi_ops import (
    _allreduce,
    _grouped_allreduce,
    _grouped_reducescatter,
    _reducescatter,
    allgather,
    grouped_allgather,
)
from .util import are_eager, as_tensor, unconverted

Reducible = Union[tf.Tensor, tf.Variable, tf.IndexedSlices]


def check_sparse(op: int, prescale_factor: float, postscale_factor: float) -> None:
    """Raises NotImplementedError for reductions that sparse tensors do not support."""
    if op == Adasum:
        raise NotImplementedError(
            "Adasum does not support sparse tensors (tf.IndexedSlices): pass sparse_as_dense=True to "
            "DistributedOptimizer"
        )
    if op not in (Sum, Average):
        raise NotImplementedError("tf.IndexedSlices support only the operations Sum and Average")
    if (prescale_factor, postscale_factor) != (1.0, 1.0):
        raise NotImplementedError("tf.IndexedSlices support no prescale_factor and postscale_factor")


def _averaged(values: tf.Tensor, op: int, process_set: ProcessSet) -> tf.Tensor:
    return values / library.count_of(process_set, values.dtype) if op == Average else values


@unconverted
def allreduce(
    tensor: Reducible,
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Union[tf.Tensor, tf.IndexedSlices]:
    """Reduces the ranks' tensors, of the same shape and dtype on all ranks, element by element.

    ``op``: Average (the default), Sum, Min, Max, Product or Adasum; the older argument ``average``
    is deprecated. Tensors are multiplied by ``prescale_factor`` before the reduction, the result by
    ``postscale_factor``. The rows of ``tf.IndexedSlices`` are gathered from all ranks.
    ``device_dense`` and ``device_sparse``: TensorFlow's device for the operations;
    ``ignore_name_scope``: the name without the scope.

    The gradient is reduced in the same way; Min, Max and Product have none.
    """
    op = handle_average_backwards_compatibility(op, average)
    if isinstance(tensor, tf.IndexedSlices):
        check_sparse(op, prescale_factor, postscale_factor)
        with tf.device(device_sparse or None):
            values = allgather(
                tensor.values, _part(name, "values"), ignore_name_scope, process_set
            )
            indices = allgather(tensor.indices, _part(name, "indices"), ignore_name_scope, process_set)
            values = _averaged(values, op, process_set)
        return tf.IndexedSlices(values, indices, dense_shape=tensor.dense_shape)
    if op == Adasum:
        check_adasum(process_set)
    with tf.device(device_dense or None):
        compressed, context = compression.compress(as_tensor("allreduce", tensor))
        reduced = _allreduce(
            compressed, name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set
        )
        return compression.decompress(reduced, context)


def _compressed_call(
    operation: str,
    compression: type[Compressor],
    tensors: Sequence[Any],
    call: Callable[[Sequence[Any]], list[tf.Tensor]],
) -> list[tf.Tensor]:
    """Calls an operation with compressed tensors and decompresses its results."""
    if compression is Compression.none:
        return call(tensors)
    pairs = [compression.compress(as_tensor(operation, tensor)) for tensor in tensors]
    results = call([sent for sent, _ in pairs])
    return [compression.decompress(result, context) for result, (_, context) in zip(results, pairs)]


def _part(name: Optional[str], part: str) -> Optional[str]:
    return None if name is None else f"{name}.{part}"


@unconverted
def grouped_allreduce(
    tensors: Sequence[Reducible],
    average: Optional[bool] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: Optional[str] = None,
) -> list[Union[tf.Tensor, tf.IndexedSlices]]:
    """Group of :func:`allreduce`: the tensors wait for one another, on all ranks."""
    if not tensors:
        return tensors
    op = handle_average_backwards_compatibility(op, average)
    sparse = [
        index
        for index, tensor in enumerate([] if are_eager(tensors) else tensors)
        if isinstance(tensor, tf.IndexedSlices)
    ]

    def reduced(dense: Sequence[Any]) -> list[tf.Tensor]:
        return _grouped_allreduce(
            dense, name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set
        )

    results: list[Any] = [None] * len(tensors)
    if sparse:
        check_sparse(op, prescale_factor, postscale_factor)
        with tf.device(device_sparse or None):
            slices = [tensors[index] for index in sparse]
            values = grouped_allgather(
                [one.values for one in slices], _part(name, "values"), ignore_name_scope, process_set
            )
            indices = grouped_allgather(
                [one.indices for one in slices], _part(name, "indices"), ignore_name_scope, process_set
            )
            for place, one, rows, places in zip(sparse, slices, values, indices):
                rows = _averaged(rows, op, process_set)
                results[place] = tf.IndexedSlices(rows, places, dense_shape=one.dense_shape)
        tensors = [tensor for tensor, result in zip(tensors, results) if result is None]
        if not tensors:
            return results
    if op == Adasum:
        check_adasum(process_set)
    with tf.device(device_dense or None):
        dense = _compressed_call("grouped_allreduce", compression, tensors, reduced)
    if not sparse:
        return dense
    rest = iter(dense)
    return [next(rest) if result is None else result for result in results]


@unconverted
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """Reduces the ranks' tensors, by average or sum; each rank gets a share of the rows.

    Of ``n`` rows a rank gets ``n / size``, the first ``n % size`` ranks one more. The gradient is
    that of all rows, gathered from the ranks, times the factors, and for the sum times the number
    of ranks.
    """
    with tf.device(device_dense or None):
        compressed, context = compression.compress(as_tensor("reducescatter", tensor))
        reduced = _reducescatter(
            compressed, name, op, ignore_name_scope, process_set, prescale_factor, postscale_factor
        )
        return compression.decompress(reduced, context)


@unconverted
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[tf.Tensor]:
    """Group of :func:`reducescatter`: the tensors wait for one another, on all ranks."""
    if not tensors:
        return tensors
    with tf.device(device_dense or None):
        return _compressed_call(
            "grouped_reducescatter",
            compression,
            tensors,
            lambda sent: _grouped_reducescatter(
                sent,
                op=op,
                process_set=process_set,
                prescale_factor=prescale_factor,
                postscale_factor=postscale_factor,
            ),
        )
