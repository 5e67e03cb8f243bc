"""The operations on torch's tensors: those that combine the ranks' tensors, and what a rank knows of its job.

Every operation has a form that returns a handle at once (``…_async``), for :func:`synchronize` and
:func:`poll`. Names that end in ``_`` write the result into the tensor itself; others leave it alone. Those
without ``async`` wait, and where they leave the tensor alone they have gradients.

All ranks of the process set call the same operation with the same ``name``; without one it is named by a
count, so that ranks must call unnamed operations in the same order. Tensors lie in host memory; asynchronous
operations and those in place want them contiguous, and want them left alone until the handle has been waited
for.

A tensor whose memory does not hold its values is resolved (negative bit, truth values other than 0
and 1) or refused with the reason (sparse, quantized, nested, fake and batched tensors).

What is wrong with a call raises ValueError or TypeError; what goes wrong between the ranks,
HorovodInternalError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Optional, Union

import torch
from torch.utils.dlpack import from_dlpack

from .. import _ronde
from ..common.basics import HorovodBasics
from ..common.exceptions import HorovodInternalError as HorovodInternalError
from ..common.process_sets import ProcessSet, global_process_set, unregistered
from ..common.process_sets import add_process_set as add_process_set
from ..common.process_sets import remove_process_set as remove_process_set
from ..common.util import get_average_backwards_compatibility_fun, num_rank_is_power_2
from .compression import Compression, Compressor

# How the ranks' tensors are combined.
Average = 0
Sum = 1
Adasum = 2
Min = 3
Max = 4
Product = 5


def _stream_of(device: int) -> int:
    """The address of the stream that is current on a CUDA device."""
    return torch.cuda.current_stream(device).cuda_stream


# The same without an object for the stream, where torch has it: it is asked for each tensor.
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

_basics = HorovodBasics(__file__)

init = _basics.init
shutdown = _basics.shutdown
is_initialized = _basics.is_initialized
start_timeline = _basics.start_timeline
stop_timeline = _basics.stop_timeline
size = _basics.size
local_size = _basics.local_size
cross_size = _basics.cross_size
rank = _basics.rank
local_rank = _basics.local_rank
cross_rank = _basics.cross_rank
is_homogeneous = _basics.is_homogeneous
mpi_threads_supported = _basics.mpi_threads_supported
mpi_enabled = _basics.mpi_enabled
mpi_built = _basics.mpi_built
gloo_enabled = _basics.gloo_enabled
gloo_built = _basics.gloo_built
nccl_built = _basics.nccl_built
ddl_built = _basics.ddl_built
ccl_built = _basics.ccl_built
cuda_built = _basics.cuda_built
rocm_built = _basics.rocm_built


class _ReduceOps:
    Average = Average
    Sum = Sum


handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_ReduceOps)

# Bound here: what is called for every gradient of every step looks nothing up.
_allreduce = _ronde.allreduce

poll: Callable[[int], bool] = _ronde.poll
"""Whether the operation of this handle is over. ValueError for a handle that is not known, or no more."""


synchronize: Callable[[int], Any] = _ronde.synchronize
"""Waits for the operation of this handle, asleep, and returns its result; the handle is used up.

That is a tensor, a list of them for a group, and for alltoall a pair: the tensor, and the rows that came from each
rank (int32). None for a handle that is not known, or no more. Raises what has gone wrong, as HorovodInternalError.
KeyboardInterrupt leaves the handle as it is.
"""


def _checked_op(average: Optional[bool], op: Optional[int], process_set: ProcessSet) -> int:
    """How to combine the tensors, of what an operation was given."""
    op = handle_average_backwards_compatibility(op, average)
    if op == Adasum:
        check_adasum(process_set)
    return op


def check_adasum(process_set: ProcessSet) -> None:
    """NotImplementedError for ranks that Adasum does not work with."""
    if process_set is not global_process_set:
        raise NotImplementedError("Adasum does not work with process sets other than that of all ranks")
    if not num_rank_is_power_2(size()):
        raise NotImplementedError(f"Adasum wants 2, 4, 8 … ranks; this job has {size()}")


def _set_id(process_set: ProcessSet) -> int:
    if process_set.process_set_id is None:
        raise unregistered(process_set)
    return process_set.process_set_id


def _check_tensor(operation: str, tensor: Any) -> None:
    """Raises before torch does, in words of its own, for arguments that an operation cannot take.

    TypeError for anything but a tensor, ValueError for layouts other than strided.
    """
    if not isinstance(tensor, torch.Tensor):
        kind = type(tensor)
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        is_sequence = isinstance(tensor, (list, tuple))
        if is_sequence and any(isinstance(one, torch.Tensor) for one in tensor):
            instead = "several tensors go one by one, or as a group (hvd.grouped_allreduce and others)"
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
    """The tensors as a list; TypeError and ValueError as above."""
    tensors = list(tensors)
    for tensor in tensors:
        _check_tensor(operation, tensor)
    return tensors


def _type_name(tensor: torch.Tensor) -> str:
    try:
        return tensor.type()
    except Exception:  # of some layouts torch has no name
        return str(tensor.layout)


def _gradient_name(name: Optional[str]) -> Optional[str]:
    """A name of its own, the same at every step, so that the ranks need not agree on the tensor again."""
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
    """Combines the ranks' tensors, element by element, into a new one. Returns a handle.

    The tensors have one shape and dtype on all ranks. ``op``: :data:`Average` (the default), :data:`Sum`,
    :data:`Min`, :data:`Max`, :data:`Product` or :data:`Adasum`; the older ``average`` instead of it is
    deprecated. Tensors are multiplied by ``prescale_factor`` before they are combined, the result by
    ``postscale_factor``. Any dtype of integers up to 64 bits, float16, bfloat16, float32, float64; bool with
    operations other than the average.
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
    """:func:`allreduce_async` into the tensor itself, which may be a leaf that requires a gradient."""
    # Called for every gradient of every step: the usual case does nothing but look.
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
    """:func:`allreduce_async_` whose elements may have another type on the way."""
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
    """:func:`send_in_place` of tensors that do not wait for one another: all or none. Returns one handle."""
    return _ronde.allreduce_batch(tensors, names, op, *factors, _set_id(process_set))


def send_group_in_place(
    tensors: Sequence[torch.Tensor],
    name: Optional[str],
    op: int,
    factors: tuple[float, float],
    process_set: ProcessSet,
    wire_dtypes: Optional[list[Optional[torch.dtype]]],
) -> int:
    """:func:`grouped_allreduce_async_` likewise: one type, or None, for each tensor."""
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
    """:func:`allreduce_async_`, and waits. Returns the tensor."""
    op = _checked_op(average, op, process_set)
    return synchronize(
        _allreduce(tensor, tensor, name, op, prescale_factor, postscale_factor, _set_id(process_set))
    )


class HorovodAllreduce(torch.autograd.Function):
    """:func:`allreduce` for autograd: the gradient is combined like the tensor."""

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
    """:func:`allreduce_async`, and waits. Returns the new tensor.

    The tensor need not be contiguous, and may be compressed for the way. The gradient is combined in the same
    way; there is none for Min, Max and Product (NotImplementedError).
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
    """:func:`allreduce_async` of tensors that wait for one another, on all ranks. Returns one handle."""
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
    """:func:`grouped_allreduce_async` into the tensors themselves."""
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
    """:func:`grouped_allreduce_async_`, and waits. Returns the tensors."""
    op = _checked_op(average, op, process_set)
    return synchronize(
        grouped_allreduce_async_(tensors, None, name, op, prescale_factor, postscale_factor, process_set)
    )


class HorovodGroupedAllreduce(torch.autograd.Function):
    """:func:`grouped_allreduce` for autograd."""

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
    """:func:`allreduce` of tensors that wait for one another, on all ranks."""
    op = _checked_op(average, op, process_set)
    tensors = _check_tensors("grouped_allreduce", tensors)
    compressed = [compression.compress(tensor) for tensor in tensors]
    reduced = HorovodGroupedAllreduce.apply(
        name, op, prescale_factor, postscale_factor, process_set, *(tensor for tensor, _ in compressed)
    )
    return [compression.decompress(tensor, context) for tensor, (_, context) in zip(reduced, compressed)]


# What is put together of valid tensors is valid. From 2.0 on torch can check, and warns if nobody says whether.
_UNCHECKED = {"check_invariants": False} if hasattr(torch.sparse, "check_sparse_tensor_invariants") else {}


def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: Optional[str],
    op: int,
    process_set: ProcessSet = global_process_set,
) -> Callable[[], torch.Tensor]:
    """Combines the ranks' sparse tensors, by the average or the sum: gathers their indices and values.

    Returns what to call for the result, a sparse tensor with an element for each that a rank has (not
    coalesced).
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
    tensor = tensor.detach()
    indices = tensor._indices().t().contiguous()
    parts = [(indices, "indices"), (tensor._values().contiguous(), "values")]
    handles = [
        allgather_async(part, None if name is None else f"{name}.{kind}", process_set) for part, kind in parts
    ]

    def wait() -> torch.Tensor:
        indices, values = (synchronize(handle) for handle in handles)
        if op == Average:
            rounding_mode = None if values.is_floating_point() else "trunc"
            values = torch.div(values, process_set.size(), rounding_mode=rounding_mode)
        return torch.sparse_coo_tensor(indices.t(), values, tensor.shape, **_UNCHECKED)

    return wait


def allgather_async(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """Puts the ranks' tensors one after another, along the first dimension. Returns a handle.

    Tensors of shape ``n × …``, where only ``n`` may differ between ranks; the result is ``Σn × …``. Any dtype
    that allreduce takes, and bool.
    """
    return _ronde.allgather(tensor, name, _set_id(process_set))


class HorovodAllgather(torch.autograd.Function):
    """:func:`allgather` for autograd: the rank's own rows of the gradient, averaged over the ranks."""

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
    """This rank's part of tensors that were gathered, of which it gave ``row_counts`` rows."""
    name = None if name is None else f"{name}.rows"
    all_counts = allgather(torch.tensor([row_counts], device="cpu"), name, process_set)
    starts = all_counts[: process_set.rank()].sum(0).tolist()
    return [tensor.narrow(0, start, count) for tensor, start, count in zip(gathered, starts, row_counts)]


def allgather(
    tensor: torch.Tensor, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """:func:`allgather_async`, and waits; the tensor need not be contiguous.

    Its gradient is this rank's rows of the result's, averaged over the ranks.
    """
    _check_tensor("allgather", tensor)
    return HorovodAllgather.apply(tensor, name, process_set)


def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> int:
    """:func:`allgather_async` of tensors that wait for one another, on all ranks. Returns one handle."""
    return _ronde.grouped_allgather(list(tensors), name, _set_id(process_set))


class HorovodGroupedAllgather(torch.autograd.Function):
    """:func:`grouped_allgather` for autograd."""

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
    """:func:`allgather` of tensors that wait for one another, on all ranks."""
    tensors = _check_tensors("grouped_allgather", tensors)
    return list(HorovodGroupedAllgather.apply(name, process_set, *tensors))


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Gives all ranks the tensor of one of them, as a new tensor. Returns a handle.

    ``root_rank``: its rank in the job, also with a process set. The tensors have one shape and dtype.
    """
    _check_tensor("broadcast_async", tensor)
    return _ronde.broadcast(tensor, torch.empty_like(tensor), root_rank, name, _set_id(process_set))


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """:func:`broadcast_async` into the tensor itself."""
    return _ronde.broadcast(tensor, tensor, root_rank, name, _set_id(process_set))


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """:func:`broadcast_async_`, and waits. Returns the tensor."""
    return synchronize(broadcast_async_(tensor, root_rank, name, process_set))


class HorovodBroadcast(torch.autograd.Function):
    """:func:`broadcast` for autograd: the average of the gradients for the root, nothing for others."""

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
    """:func:`broadcast_async`, and waits; the tensor need not be contiguous.

    The gradient of the root's tensor is the average of the ranks' gradients; that of the others is zero.
    """
    _check_tensor("broadcast", tensor)
    return HorovodBroadcast.apply(tensor, root_rank, name, process_set)


def _splits_list(splits: Union[torch.Tensor, Sequence[int], None]) -> Optional[list[int]]:
    if not isinstance(splits, torch.Tensor):
        return None if splits is None else [int(split) for split in splits]
    if splits.dim() != 1:
        raise ValueError(f"alltoall wants a 1D splits tensor, not one of shape {tuple(splits.shape)}")
    if splits.dtype != torch.int32:
        raise ValueError(f"alltoall wants splits of 32-bit integers, not {splits.dtype}")
    return splits.tolist()


def alltoall_async(
    tensor: torch.Tensor,
    splits: Union[torch.Tensor, Sequence[int], None] = None,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Sends every rank some rows of the tensor, and gathers those that the ranks send here. Returns a handle.

    ``splits``: how many rows each rank of the set gets, the first ones first (a list, or a 1-D tensor of
    int32); without it all get as many. :func:`synchronize` gives the rows in the order of the ranks, and how
    many came from each.
    """
    return _ronde.alltoall(tensor, _splits_list(splits), name, _set_id(process_set))


class HorovodAlltoall(torch.autograd.Function):
    """:func:`alltoall` for autograd: rows of the gradient go back to where the rows came from."""

    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        ctx.arguments = (_gradient_name(name), process_set)
        ctx.rows = tensor.shape[0] if tensor.dim() else 0
        output, received_splits = synchronize(alltoall_async(tensor.contiguous(), splits, name, process_set))
        ctx.received_splits = received_splits
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
    """:func:`alltoall_async`, and waits; the tensor need not be contiguous.

    Returns the rows that came, and with ``splits`` also how many came from each rank (int32). The gradients
    of the rows go back to where the rows came from.
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
    """Combines the ranks' tensors, by the average or the sum, and keeps a part of the rows. Returns a handle.

    Tensors of shape ``n × …``, the same on all ranks; a rank gets ``n / size`` rows, the first ``n % size``
    one more.
    """
    return _ronde.reducescatter(tensor, name, op, prescale_factor, postscale_factor, _set_id(process_set))


def _scattered_gradient_factor(
    op: int, prescale_factor: float, postscale_factor: float, process_set: ProcessSet
) -> float:
    """What the gathered gradient of a reducescatter is multiplied by.

    The sum has ``size`` here, where the mathematician has 1: as the gradient of an allgather is an average,
    an allgather after a reducescatter then has the gradient of the allreduce that both make.
    """
    return prescale_factor * postscale_factor * (process_set.size() if op == Sum else 1)


class HorovodReducescatter(torch.autograd.Function):
    """:func:`reducescatter` for autograd: the gradients of all rows, gathered."""

    @staticmethod
    def forward(ctx, tensor, name, op, process_set, prescale_factor, postscale_factor):
        ctx.arguments = (_gradient_name(name), process_set)
        ctx.factor = _scattered_gradient_factor(op, prescale_factor, postscale_factor, process_set)
        return synchronize(
            reducescatter_async(tensor.contiguous(), name, op, process_set, prescale_factor, postscale_factor)
        )

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
    """:func:`reducescatter_async`, and waits. Returns this rank's rows.

    The tensor need not be contiguous, and may be compressed for the way. Its gradient is that of all rows,
    gathered from the ranks, times ``prescale_factor * postscale_factor``, and for the sum times the number of
    ranks.
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
    """:func:`reducescatter_async` of tensors that wait for one another, on all ranks. Returns one handle."""
    set_id = _set_id(process_set)
    return _ronde.grouped_reducescatter(list(tensors), name, op, prescale_factor, postscale_factor, set_id)


class HorovodGroupedReducescatter(torch.autograd.Function):
    """:func:`grouped_reducescatter` for autograd."""

    @staticmethod
    def forward(ctx, name, op, process_set, prescale_factor, postscale_factor, *tensors):
        ctx.arguments = (_gradient_name(name), process_set)
        ctx.factor = _scattered_gradient_factor(op, prescale_factor, postscale_factor, process_set)
        tensors = [tensor.contiguous() for tensor in tensors]
        return tuple(
            synchronize(
                grouped_reducescatter_async(tensors, name, op, process_set, prescale_factor, postscale_factor)
            )
        )

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
    """:func:`reducescatter` of tensors that wait for one another, on all ranks."""
    tensors = _check_tensors("grouped_reducescatter", tensors)
    compressed = [compression.compress(tensor) for tensor in tensors]
    reduced = HorovodGroupedReducescatter.apply(
        name, op, process_set, prescale_factor, postscale_factor, *(tensor for tensor, _ in compressed)
    )
    return [compression.decompress(tensor, context) for tensor, (_, context) in zip(reduced, compressed)]


def join(device: int = -1) -> int:
    """Says that this rank has no more data, and waits until none has. Returns the rank that joined last.

    Meanwhile the others' operations go on without this rank; averages still divide by the number of all
    ranks. ``device`` is Horovod's, and of no consequence: this rank's GPU, if the others' tensors are on GPUs, is
    that of its own tensors, or else that of its local rank.
    """
    return _ronde.join()


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until every rank of the set has called it."""
    _ronde.barrier(_set_id(process_set))


def autotune_report() -> Optional[dict[str, Any]]:
    """What the tuner is doing, or has done: on rank 0, with ``HOROVOD_AUTOTUNE=1``; None elsewhere.

    The entries: ``phase`` (default, sample, ab, final), ``sample`` and ``steps_left``; ``settings`` being
    measured and their ``step_ms``; the ``best`` settings so far with theirs; ``verdict``, once there is one:
    the ``settings`` chosen, ``default_step_ms`` and ``chosen_step_ms``, the gain (``gain_pct``, a 95 %
    interval), and what the search has cost (``steps_lost`` of ``budget_steps``); ``not_tuned``: the knobs
    that are left alone, and why. ValueError before ``init``.
    """
    return _ronde.autotune_report()


def mark_step() -> None:
    """Says that a training step ends here. Steps are told by what repeats; this tells them from the first."""
    _ronde.mark_step()


def mark_epoch() -> None:
    """Says that an epoch ends here: what follows (a validation, a checkpoint) is no part of a step."""
    _ronde.mark_epoch()
