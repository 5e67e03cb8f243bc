"""Collective operations on torch tensors, and queries such as rank and size.

Every operation has an asynchronous form (``…_async``), which returns a handle for
:func:`synchronize` and :func:`poll`. Names that end in ``_`` write the result into the tensor
itself. Operations without ``async`` and without ``_`` support autograd.

All ranks of the process set call the same operation with the same ``name``. Without a name, an
operation is named by a counter, so all ranks must call unnamed operations in the same order.
Asynchronous and in-place operations need contiguous tensors, which must not be modified
until the operation has completed.

A tensor whose memory does not hold its values is resolved (negative bit, booleans other than 0
and 1) or refused with the reason (sparse, quantized, nested, fake and batched tensors).

Invalid arguments raise ValueError or TypeError; errors between ranks raise
HorovodInternalError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Optional, Union

import torch
from torch.utils.dlpack import from_dlpack

from .. import _ronde
from ..common.basics import *  # noqa: F403
from ..common.basics import _basics as _basics
from ..common.exceptions import HorovodInternalError as HorovodInternalError
from ..common.process_sets import ProcessSet, global_process_set, unregistered
from ..common.process_sets import add_process_set as add_process_set
from ..common.process_sets import remove_process_set as remove_process_set
from ..common.reduce_ops import Adasum, Average, Max, Min, Product, Sum
from ..common.reduce_ops import check_adasum as check_adasum
from ..common.reduce_ops import (
    handle_average_backwards_compatibility as handle_average_backwards_compatibility,
)
from .compression import Compression, Compressor


def _stream_of(device: int) -> int:
    """Address of the current stream of a CUDA device."""
    return torch.cuda.current_stream(device).cuda_stream


# Faster, as it creates no stream object: it is called for each tensor. Not in all versions of
# torch.
_stream_of = getattr(torch._C, "_cuda_getCurrentRawStream", _stream_of)

_ronde.setup_torch(
    {
        torch.uint8: "uint8",
        torch.int8: "int8",
        torch.int16: "int16",
        torch.int32: "int32",
        torch.int64: "int64",
        torch.float16: "float16",
        torch.float32: "float32",
        torch.float64: "float64",
        torch.bool: "bool",
        torch.bfloat16: "bfloat16",
    },
    from_dlpack,
    _stream_of,
)


# Bound here to save lookups in calls for every gradient of every step.
_allreduce = _ronde.allreduce

poll: Callable[[int], bool] = _ronde.poll
"""Whether the operation of this handle has completed. ValueError for an unknown or used handle."""


synchronize: Callable[[int], Any] = _ronde.synchronize
"""Waits for the operation of this handle without using the processor, and returns its result. The
handle becomes invalid.

The result is a tensor; for a group, a list of tensors; for alltoall, a pair of the tensor and the
number of rows from each rank (int32). None for an unknown or used handle. Raises
HorovodInternalError if the operation failed. After KeyboardInterrupt the handle is still valid.
"""


def _checked_op(average: Optional[bool], op: Optional[int], process_set: ProcessSet) -> int:
    """The reduction operation for the arguments of an operation."""
    op = handle_average_backwards_compatibility(op, average)
    if op == Adasum:
        check_adasum(process_set)
    return op


def _set_id(process_set: ProcessSet) -> int:
    if process_set.process_set_id is None:
        raise unregistered(process_set)
    return process_set.process_set_id


def _check_tensor(operation: str, tensor: Any) -> None:
    """Raises a clear error, before torch does, for arguments that an operation cannot take.

    TypeError for anything but a tensor, ValueError for layouts other than strided.
    """
    if not isinstance(tensor, torch.Tensor):
        kind = type(tensor)
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        is_sequence = isinstance(tensor, (list, tuple))
        if is_sequence and any(isinstance(one, torch.Tensor) for one in tensor):
            instead = "pass several tensors one by one, or as a group (hvd.grouped_allreduce and others)"
        else:
            instead = (
                "torch.as_tensor(...) makes a tensor of numbers and arrays, and "
                "hvd.allgather_object and hvd.broadcast_object take any object"
            )
        raise TypeError(
            f"hvd.{operation} expects a torch.Tensor, not {module}{kind.__qualname__}: {instead}"
        )
    if tensor.layout is not torch.strided:
        instead = "use hvd.sparse_allreduce_async, or " if tensor.is_sparse else "use "
        raise ValueError(
            f"Tensor type {_type_name(tensor)} is not supported by hvd.{operation}: {instead}"
            f"tensor.to_dense()"
        )


def _check_tensors(operation: str, tensors: Any) -> list[torch.Tensor]:
    """Returns the tensors as a list; errors as in :func:`_check_tensor`."""
    tensors = list(tensors)
    for tensor in tensors:
        _check_tensor(operation, tensor)
    return tensors


def _type_name(tensor: torch.Tensor) -> str:
    try:
        return tensor.type()
    except Exception:  # torch has no name for some layouts
        return str(tensor.layout)


def _gradient_name(name: Optional[str]) -> Optional[str]:
    """Name of a gradient, equal in every step, so that the response cache can keep the tensor."""
    return None if name is None else f"{name}.grad"


def allreduce_async(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Reduces the ranks' tensors element by element into a new tensor. Returns a handle.

    The tensors have the same shape and dtype on all ranks. ``op``: :data:`Average` (the default),
    :data:`Sum`, :data:`Min`, :data:`Max`, :data:`Product` or :data:`Adasum`; the older argument
    ``average`` is deprecated. Tensors are multiplied by ``prescale_factor`` before the reduction,
    the result by ``postscale_factor``. Any integer dtype up to 64 bits, float16, bfloat16, float32,
    float64; bool with operations other than the average.
    """
    op = _checked_op(average, op, process_set)
    _check_tensor("allreduce_async", tensor)
    output = torch.empty_like(tensor)
    return _allreduce(tensor, output, name, op, prescale_factor, postscale_factor, _set_id(process_set))


def allreduce_async_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """:func:`allreduce_async` into the tensor itself, which may be a leaf that requires a
    gradient."""
    # Called for every gradient of every step: the usual case only checks.
    if average is not None or op == Adasum:
        op = _checked_op(average, op, process_set)
    elif op is None:
        op = Average
    set_id = process_set.process_set_id
    if set_id is None:
        raise unregistered(process_set)
    return _allreduce(tensor, tensor, name, op, prescale_factor, postscale_factor, set_id)


def send_in_place(
    tensor: torch.Tensor,
    name: Optional[str],
    op: int,
    factors: tuple[float, float],
    process_set: ProcessSet,
    wire_dtype: Optional[torch.dtype] = None,
) -> int:
    """:func:`allreduce_async_` with another dtype for sending."""
    if op == Adasum:
        check_adasum(process_set)
    return _allreduce(tensor, tensor, name, op, *factors, _set_id(process_set), wire_dtype)


def send_batch_in_place(
    tensors: list[torch.Tensor],
    names: list[_ronde.AllreduceName],
    op: int,
    factors: tuple[float, float],
    process_set: ProcessSet,
) -> int:
    """Submits tensors as :func:`send_in_place`, all or none; they do not wait for one another.
    Returns one handle."""
    return _ronde.allreduce_batch(tensors, names, op, *factors, _set_id(process_set))


def send_group_in_place(
    tensors: Sequence[torch.Tensor],
    name: Optional[str],
    op: int,
    factors: tuple[float, float],
    process_set: ProcessSet,
    wire_dtypes: Optional[list[Optional[torch.dtype]]],
) -> int:
    """Like :func:`grouped_allreduce_async_`, with a dtype for sending, or None, for each tensor."""
    if op == Adasum:
        check_adasum(process_set)
    return _ronde.grouped_allreduce(tensors, tensors, name, op, *factors, _set_id(process_set), wire_dtypes)


def allreduce_(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Synchronous :func:`allreduce_async_`. Returns the tensor."""
    op = _checked_op(average, op, process_set)
    return synchronize(
        _allreduce(tensor, tensor, name, op, prescale_factor, postscale_factor, _set_id(process_set))
    )


class HorovodAllreduce(torch.autograd.Function):
    """Autograd function of :func:`allreduce`: the gradient is reduced like the tensor."""

    @staticmethod
    def forward(ctx, tensor, name, op, prescale_factor, postscale_factor, process_set):
        how = (op, prescale_factor, postscale_factor, process_set)
        ctx.arguments = (_gradient_name(name), *how)
        return synchronize(allreduce_async(tensor.contiguous(), None, name, *how))

    @staticmethod
    def backward(ctx, grad_output):
        _check_gradient(ctx.arguments[1])
        return HorovodAllreduce.apply(grad_output, *ctx.arguments), None, None, None, None, None


def _check_gradient(op: int) -> None:
    if op in (Min, Max, Product):
        raise NotImplementedError("allreduce has no gradient for Min, Max and Product; detach() the tensor")


def allreduce(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: type[Compressor] = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Synchronous :func:`allreduce_async`. Returns the new tensor.

    The tensor need not be contiguous, and may be compressed for sending. The gradient is reduced in
    the same way; Min, Max and Product have none (NotImplementedError).
    """
    op = _checked_op(average, op, process_set)
    _check_tensor("allreduce", tensor)
    compressed, context = compression.compress(tensor)
    reduced = HorovodAllreduce.apply(compressed, name, op, prescale_factor, postscale_factor, process_set)
    return compression.decompress(reduced, context)


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Group of :func:`allreduce_async`: the tensors wait for one another. Returns one handle."""
    op = _checked_op(average, op, process_set)
    tensors = _check_tensors("grouped_allreduce_async", tensors)
    outputs = [torch.empty_like(tensor) for tensor in tensors]
    set_id = _set_id(process_set)
    return _ronde.grouped_allreduce(tensors, outputs, name, op, prescale_factor, postscale_factor, set_id)


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """In-place :func:`grouped_allreduce_async`."""
    op = _checked_op(average, op, process_set)
    tensors = list(tensors)
    set_id = _set_id(process_set)
    return _ronde.grouped_allreduce(tensors, tensors, name, op, prescale_factor, postscale_factor, set_id)


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Synchronous :func:`grouped_allreduce_async_`. Returns the tensors."""
    op = _checked_op(average, op, process_set)
    return synchronize(
        grouped_allreduce_async_(tensors, None, name, op, prescale_factor, postscale_factor, process_set)
    )


class HorovodGroupedAllreduce(torch.autograd.Function):
    """Autograd function of :func:`grouped_allreduce`."""

    @staticmethod
    def forward(ctx, name, op, prescale_factor, postscale_factor, process_set, *tensors):
        how = (op, prescale_factor, postscale_factor, process_set)
        ctx.arguments = (_gradient_name(name), *how)
        tensors = [tensor.contiguous() for tensor in tensors]
        return tuple(synchronize(grouped_allreduce_async(tensors, None, name, *how)))

    @staticmethod
    def backward(ctx, *grad_outputs):
        _check_gradient(ctx.arguments[1])
        return (None,) * 5 + HorovodGroupedAllreduce.apply(*ctx.arguments, *grad_outputs)


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: type[Compressor] = Compression.none,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Group of :func:`allreduce`: the tensors wait for one another, on all ranks."""
    op = _checked_op(average, op, process_set)
    tensors = _check_tensors("grouped_allreduce", tensors)
    compressed = [compression.compress(tensor) for tensor in tensors]
    reduced = HorovodGroupedAllreduce.apply(
        name, op, prescale_factor, postscale_factor, process_set, *(tensor for tensor, _ in compressed)
    )
    return [compression.decompress(tensor, context) for tensor, (_, context) in zip(reduced, compressed)]


# A tensor assembled from valid tensors is valid. Torch 2.0 and newer warn unless the check is set.
_UNCHECKED = {"check_invariants": False} if hasattr(torch.sparse, "check_sparse_tensor_invariants") else {}


def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: Optional[str],
    op: int,
    process_set: ProcessSet = global_process_set,
) -> Callable[[], torch.Tensor]:
    """Reduces sparse tensors, by average or sum: gathers the ranks' indices and values.

    The tensors have the same shape and dtype on all ranks. Returns a function that waits and
    returns the result, a sparse tensor with the elements of all ranks (not coalesced). It can be
    called again after a KeyboardInterrupt.
    """
    if op not in (Average, Sum):
        raise ValueError("sparse tensors are combined by Average or Sum only")
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.sparse_coo:
        if isinstance(tensor, torch.Tensor):
            raise ValueError(
                f"hvd.sparse_allreduce_async expects a sparse tensor (torch.sparse_coo), not one of "
                f"layout {tensor.layout}: use tensor.to_sparse(), or hvd.allreduce for dense tensors"
            )
        _check_tensor("sparse_allreduce_async", tensor)
    if op == Average and tensor.dtype == torch.bool:
        raise ValueError(
            f"average is not defined for bool (tensor {name or 'without a name'}); convert the tensor "
            f"first, or use another operation"
        )
    tensor = tensor.detach()
    indices = tensor._indices().t().contiguous()
    # No rows, as only the shape matters: if it differs between ranks, all of them get an error.
    shape = torch.empty((0, *tensor.shape), dtype=torch.uint8, device="cpu")
    parts = [(indices, "indices"), (tensor._values().contiguous(), "values"), (shape, "shape")]
    handles = [
        allgather_async(part, None if name is None else f"{name}.{kind}", process_set) for part, kind in parts
    ]
    results: list[torch.Tensor] = []

    def wait() -> torch.Tensor:
        # In one call of C, as Python runs signal handlers between calls: the result of an operation
        # that completes after the signal would be lost.
        results.extend(map(synchronize, handles[len(results) :]))
        indices, values, shape = results
        if op == Average:
            rounding_mode = None if values.is_floating_point() else "trunc"
            values = torch.div(values, process_set.size(), rounding_mode=rounding_mode)
        # Not on the default device.
        kind = {"device": values.device, **_UNCHECKED}
        return torch.sparse_coo_tensor(indices.t(), values, shape.shape[1:], **kind)

    return wait


def allgather_async(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Concatenates the ranks' tensors along the first dimension. Returns a handle.

    Tensors of shape ``n × …``, where only ``n`` may differ between ranks; the result is ``Σn × …``.
    Any dtype that allreduce supports, and bool.
    """
    return _ronde.allgather(tensor, name, _set_id(process_set))


class HorovodAllgather(torch.autograd.Function):
    """Autograd function of :func:`allgather`: the rank's own rows of the gradient, averaged."""

    @staticmethod
    def forward(ctx, tensor, name, process_set):
        ctx.arguments = (_gradient_name(name), process_set)
        ctx.row_counts = list(tensor.shape[:1])
        return synchronize(allgather_async(tensor.contiguous(), name, process_set))

    @staticmethod
    def backward(ctx, grad_output):
        name, process_set = ctx.arguments
        average = allreduce(grad_output, name=name, process_set=process_set)
        (own,) = _own_rows([average], ctx.row_counts, name, process_set)
        return own, None, None


def _own_rows(
    gathered: Sequence[torch.Tensor], row_counts: list[int], name: Optional[str], process_set: ProcessSet
) -> list[torch.Tensor]:
    """This rank's part of gathered tensors, to which it contributed ``row_counts`` rows."""
    name = None if name is None else f"{name}.rows"
    all_counts = allgather(torch.tensor([row_counts], device="cpu"), name, process_set)
    starts = all_counts[: process_set.rank()].sum(0).tolist()
    return [tensor.narrow(0, start, count) for tensor, start, count in zip(gathered, starts, row_counts)]


def allgather(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Synchronous :func:`allgather_async`; the tensor need not be contiguous.

    Its gradient is this rank's rows of the result's gradient, averaged over the ranks.
    """
    _check_tensor("allgather", tensor)
    return HorovodAllgather.apply(tensor, name, process_set)


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Group of :func:`allgather_async`: the tensors wait for one another. Returns one handle."""
    return _ronde.grouped_allgather(list(tensors), name, _set_id(process_set))


class HorovodGroupedAllgather(torch.autograd.Function):
    """Autograd function of :func:`grouped_allgather`."""

    @staticmethod
    def forward(ctx, name, process_set, *tensors):
        ctx.arguments = (_gradient_name(name), process_set)
        ctx.row_counts = [count for tensor in tensors for count in tensor.shape[:1]]
        tensors = [tensor.contiguous() for tensor in tensors]
        return tuple(synchronize(grouped_allgather_async(tensors, name, process_set)))

    @staticmethod
    def backward(ctx, *grad_outputs):
        name, process_set = ctx.arguments
        averages = grouped_allreduce(grad_outputs, name=name, process_set=process_set)
        return (None, None, *_own_rows(averages, ctx.row_counts, name, process_set))


def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """Group of :func:`allgather`: the tensors wait for one another, on all ranks."""
    tensors = _check_tensors("grouped_allgather", tensors)
    return list(HorovodGroupedAllgather.apply(name, process_set, *tensors))


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Copies one rank's tensor to all ranks, into a new tensor. Returns a handle.

    ``root_rank``: its rank in the job, even with a process set. All tensors have the same shape and
    dtype.
    """
    _check_tensor("broadcast_async", tensor)
    return _ronde.broadcast(tensor, torch.empty_like(tensor), root_rank, name, _set_id(process_set))


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """In-place :func:`broadcast_async`."""
    return _ronde.broadcast(tensor, tensor, root_rank, name, _set_id(process_set))


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Synchronous :func:`broadcast_async_`. Returns the tensor."""
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


class HorovodBroadcast(torch.autograd.Function):
    """Autograd function of :func:`broadcast`: the root gets the average of the gradients, others
    zero."""

    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.arguments = (root_rank, _gradient_name(name), process_set)
        return synchronize(broadcast_async(tensor.contiguous(), root_rank, name, process_set))

    @staticmethod
    def backward(ctx, grad_output):
        root_rank, name, process_set = ctx.arguments
        average = allreduce(grad_output, name=name, process_set=process_set)
        return (average if rank() == root_rank else torch.zeros_like(average)), None, None, None


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Synchronous :func:`broadcast_async`; the tensor need not be contiguous.

    The gradient of the root's tensor is the average of the ranks' gradients; that of other ranks is
    zero.
    """
    _check_tensor("broadcast", tensor)
    return HorovodBroadcast.apply(tensor, root_rank, name, process_set)


def _splits_list(splits: Union[torch.Tensor, Sequence[int], None]) -> Optional[list[int]]:
    if not isinstance(splits, torch.Tensor):
        return None if splits is None else [int(split) for split in splits]
    if splits.dim() != 1:
        raise ValueError(f"alltoall needs a 1D splits tensor, not one of shape {tuple(splits.shape)}")
    if splits.dtype != torch.int32:
        raise ValueError(f"alltoall needs splits of 32-bit integers, not {splits.dtype}")
    return splits.tolist()


def alltoall_async(
    tensor: torch.Tensor,
    splits: Union[torch.Tensor, Sequence[int], None] = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Sends rows of the tensor to every rank, and receives rows from every rank. Returns a handle.

    ``splits``: the number of rows for each rank of the set, in order (a list, or a 1-D tensor of
    int32); without it, all ranks get the same number. :func:`synchronize` returns the received rows
    in the order of the ranks, and the number from each, in host memory.
    """
    return _ronde.alltoall(tensor, _splits_list(splits), name, _set_id(process_set))


class HorovodAlltoall(torch.autograd.Function):
    """Autograd function of :func:`alltoall`: rows of the gradient are sent back to their origin."""

    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        ctx.arguments = (_gradient_name(name), process_set)
        ctx.rows = tensor.shape[0] if tensor.dim() else 0
        output, received_splits = synchronize(alltoall_async(tensor.contiguous(), splits, name, process_set))
        ctx.received_splits = received_splits
        if isinstance(splits, torch.Tensor):
            received_splits = received_splits.to(splits.device)
        ctx.mark_non_differentiable(received_splits)
        return output, received_splits

    @staticmethod
    def backward(ctx, grad_output, _):
        name, process_set = ctx.arguments
        gradient, _ = alltoall(grad_output, ctx.received_splits, name, process_set)
        unsent = ctx.rows - gradient.shape[0]
        if unsent:
            gradient = torch.cat([gradient, gradient.new_zeros((unsent, *gradient.shape[1:]))])
        return gradient, None, None, None


def alltoall(
    tensor: torch.Tensor,
    splits: Union[torch.Tensor, Sequence[int], None] = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Union[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """Synchronous :func:`alltoall_async`; the tensor need not be contiguous.

    Returns the received rows, and with ``splits`` also the number from each rank (int32), on the
    device of ``splits``. The gradients of the rows are sent back to their origin.
    """
    _check_tensor("alltoall", tensor)
    output, received_splits = HorovodAlltoall.apply(tensor, splits, name, process_set)
    return output if splits is None else (output, received_splits)


def reducescatter_async(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Reduces the ranks' tensors, by average or sum; each rank keeps a share of the rows. Returns a
    handle.

    Tensors of shape ``n × …``, equal on all ranks; a rank gets ``n / size`` rows, the first
    ``n % size`` ranks one more.
    """
    return _ronde.reducescatter(tensor, name, op, prescale_factor, postscale_factor, _set_id(process_set))


def _scattered_gradient_factor(
    op: int, prescale_factor: float, postscale_factor: float, process_set: ProcessSet
) -> float:
    """Factor on the gathered gradient of a reducescatter, of a process set that is registered.

    For the sum it is ``size``, although the mathematical gradient has factor 1: the gradient of an
    allgather is an average, so that an allgather after a reducescatter has the gradient of the
    equivalent allreduce.
    """
    return prescale_factor * postscale_factor * (process_set.size() if op == Sum else 1)


class HorovodReducescatter(torch.autograd.Function):
    """Autograd function of :func:`reducescatter`: the gathered gradients of all rows."""

    @staticmethod
    def forward(ctx, tensor, name, op, process_set, prescale_factor, postscale_factor):
        ctx.arguments = (_gradient_name(name), process_set)
        reduced = synchronize(
            reducescatter_async(tensor.contiguous(), name, op, process_set, prescale_factor, postscale_factor)
        )
        ctx.factor = _scattered_gradient_factor(op, prescale_factor, postscale_factor, process_set)
        return reduced

    @staticmethod
    def backward(ctx, grad_output):
        gathered = allgather(grad_output, *ctx.arguments)
        return (gathered if ctx.factor == 1 else gathered * ctx.factor), None, None, None, None, None


def reducescatter(
    tensor: torch.Tensor,
    name: Optional[str] = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Synchronous :func:`reducescatter_async`. Returns this rank's rows.

    The tensor need not be contiguous, and may be compressed for sending. Its gradient is that of
    all rows, gathered from the ranks, times ``prescale_factor * postscale_factor``, and for the sum
    times the number of ranks.
    """
    _check_tensor("reducescatter", tensor)
    compressed, context = compression.compress(tensor)
    reduced = HorovodReducescatter.apply(compressed, name, op, process_set, prescale_factor, postscale_factor)
    return compression.decompress(reduced, context)


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: Optional[str] = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Group of :func:`reducescatter_async`: the tensors wait for one another. Returns one
    handle."""
    set_id = _set_id(process_set)
    return _ronde.grouped_reducescatter(list(tensors), name, op, prescale_factor, postscale_factor, set_id)


class HorovodGroupedReducescatter(torch.autograd.Function):
    """Autograd function of :func:`grouped_reducescatter`."""

    @staticmethod
    def forward(ctx, name, op, process_set, prescale_factor, postscale_factor, *tensors):
        ctx.arguments = (_gradient_name(name), process_set)
        tensors = [tensor.contiguous() for tensor in tensors]
        reduced = synchronize(
            grouped_reducescatter_async(tensors, name, op, process_set, prescale_factor, postscale_factor)
        )
        ctx.factor = _scattered_gradient_factor(op, prescale_factor, postscale_factor, process_set)
        return tuple(reduced)

    @staticmethod
    def backward(ctx, *grad_outputs):
        gathered = grouped_allgather(grad_outputs, *ctx.arguments)
        return (None,) * 5 + tuple(
            gradient if ctx.factor == 1 else gradient * ctx.factor for gradient in gathered
        )


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: Optional[str] = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Group of :func:`reducescatter`: the tensors wait for one another, on all ranks."""
    tensors = _check_tensors("grouped_reducescatter", tensors)
    compressed = [compression.compress(tensor) for tensor in tensors]
    reduced = HorovodGroupedReducescatter.apply(
        name, op, process_set, prescale_factor, postscale_factor, *(tensor for tensor, _ in compressed)
    )
    return [compression.decompress(tensor, context) for tensor, (_, context) in zip(reduced, compressed)]


def join(device: int = -1) -> int:
    """Declares that this rank has no more data, and waits until all ranks have. Returns the rank
    that joined last.

    Until then the operations of other ranks go on without this rank; averages still divide by the
    number of all ranks. ``device`` is a parameter of Horovod, and not used: if the other ranks'
    tensors are on GPUs, this rank uses the GPU of its own tensors, or else that of its local rank.
    """
    return _ronde.join()


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until every rank of the set has called it."""
    _ronde.barrier(_set_id(process_set))


def autotune_report() -> Optional[dict[str, Any]]:
    """State and results of the tuner, on rank 0 with ``HOROVOD_AUTOTUNE=1``; None elsewhere.

    Entries: ``phase`` (default, sample, ab, final), ``sample`` and ``steps_left``; the ``settings``
    being measured and their ``step_ms``; the ``best`` settings so far and their ``step_ms``; at the
    end, ``verdict`` with the chosen ``settings``, ``default_step_ms`` and ``chosen_step_ms``, the
    gain (``gain_pct``, a 95 % interval) and the cost of the search (``steps_lost`` of
    ``budget_steps``); ``not_tuned``: the settings that are not changed, and why. ValueError before
    ``init``.
    """
    return _ronde.autotune_report()


def mark_step() -> None:
    """Marks the end of a training step. Steps are detected automatically; marks are exact from the
    first step."""
    _ronde.mark_step()


def mark_epoch() -> None:
    """Marks the end of an epoch: operations that follow (validation, checkpoint) belong to no
    step."""
    _ronde.mark_epoch()
