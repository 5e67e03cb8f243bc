"""Broadcast of parameters, optimizer state and Python objects."""

from __future__ import annotations

import ctypes
import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Optional, Union

import torch

from ..common.exceptions import HorovodInternalError
from ..common.process_sets import ProcessSet, global_process_set
from .mpi_ops import allgather, allgather_async, broadcast_, broadcast_async_, rank, synchronize

try:  # also pickles functions and classes of the main program
    import cloudpickle
except ImportError:
    cloudpickle = pickle

#: Most bytes of an object that one broadcast sends; larger objects take several.
PIECE_BYTES = 64 << 20

_Named = Iterable[tuple[Optional[str], torch.Tensor]]


def broadcast_parameters(
    params: Union[Mapping[str, torch.Tensor], Iterable[Union[torch.Tensor, tuple[str, torch.Tensor]]]],
    root_rank: int,
) -> None:
    """Broadcasts parameters from rank ``root_rank``, in place.

    ``params``: a ``model.state_dict()``, ``model.named_parameters()`` or ``model.parameters()``, or
    a list of their entries. Tensors may have any layout and dtype. ValueError for anything else.
    """
    if isinstance(params, Mapping):
        named: list[Any] = sorted(params.items())
    elif isinstance(params, (list, tuple, Iterator)):
        named = [entry if isinstance(entry, tuple) else (None, entry) for entry in params]
    else:
        raise ValueError(f"invalid params of type {type(params).__name__}: hand over model.state_dict()")
    for name, tensor in named:
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(
                f"invalid params: {name or 'an entry'} is of type {type(tensor).__name__}, not a tensor; "
                f"use broadcast_object for it"
            )
    _broadcast_in_place(named, root_rank)


def _broadcast_in_place(named: _Named, root_rank: int) -> None:
    handles = []
    for name, tensor in named:
        sent = _sendable(name, tensor)
        handles.append((broadcast_async_(sent, root_rank, name), tensor, sent))
    for handle, tensor, sent in handles:
        synchronize(handle)
        if sent.data_ptr() != tensor.data_ptr():
            with torch.no_grad():
                tensor.copy_(sent.view(tensor.dtype).view(tensor.shape))


def _sendable(name: Optional[str], tensor: torch.Tensor) -> torch.Tensor:
    """The data to send for a tensor: the tensor, or its bytes, in place or in a contiguous copy.

    Raises ValueError with the tensor's name if it has no bytes to send.
    """
    _check_has_bytes(name, tensor)
    tensor = tensor.detach().contiguous()
    if tensor.dtype in _SENT_AS_IS:
        return tensor
    # Contiguous tensors keep their conjugate and negative bits.
    return tensor.resolve_conj().resolve_neg().view(-1).view(torch.uint8)


def _check_has_bytes(name: Optional[str], tensor: torch.Tensor) -> None:
    """Raises ValueError with the tensor's name if it has no bytes to send."""
    reason = _why_no_bytes(tensor)
    if reason is not None:
        raise ValueError(f"{name or 'a tensor'} cannot be broadcast: {reason}")


def _why_no_bytes(tensor: torch.Tensor) -> Optional[str]:
    """The reason why the tensor has no bytes to send; None if it has."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        instead = "tensor.dequantize()" if tensor.is_quantized else "tensor.to_dense()"
        return (
            f"it is of dtype {tensor.dtype} and layout {tensor.layout}; broadcast {instead}, or use "
            f"broadcast_object"
        )
    if tensor.device.type not in ("cpu", "cuda"):
        return f"it is on {tensor.device}, not in host memory or on a CUDA device"
    if tensor.numel() and not tensor.data_ptr():
        return "it has no memory"
    return None


_SENT_AS_IS = {
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.bool,
    torch.bfloat16,
}


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: Optional[torch.nn.Module] = None
) -> None:
    """Broadcasts an optimizer's state and options from rank ``root_rank``.

    The optimizer makes no step. Every rank gets exactly the root's entries, with the root's types;
    tensors with equal shape and dtype are filled in place. If an optimizer has no state yet,
    parameters that require gradients and have none get zeros: sparse ones for ``SparseAdam``, and
    for the weights of layers of ``model`` with ``sparse=True`` (``Embedding``, ``EmbeddingBag``).
    Parameters of a :func:`DistributedOptimizer` do not, as it handles missing gradients itself.

    Raises ValueError for L-BFGS, whose state does not belong to parameters, and on all ranks if the
    optimizers' parameters differ. If the root's state cannot be sent, the root raises the reason,
    and other ranks HorovodInternalError.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("the state of torch.optim.LBFGS cannot be broadcast")
    if not optimizer.state and not hasattr(optimizer, "_reducer"):
        _fill_missing_gradients(optimizer, model)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    is_root = rank() == root_rank
    tensors = _Tensors()
    state = _broadcast_made(
        lambda: _OptimizerState.of(optimizer, parameters, tensors), root_rank, "optimizer_state"
    )
    _check_alike(state, optimizer)
    if not is_root:
        state.restore(optimizer, parameters, tensors)
    named = [(f"optimizer_state.{index}", tensor) for index, tensor in enumerate(tensors.found)]
    _broadcast_in_place(named, root_rank)


def _fill_missing_gradients(optimizer: torch.optim.Optimizer, model: Optional[torch.nn.Module]) -> None:
    layers = [] if model is None else model.modules()
    sparse = {
        id(layer.weight)
        for layer in layers
        if isinstance(layer, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and layer.sparse
    }
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
                if isinstance(optimizer, torch.optim.SparseAdam):  # accepts only sparse gradients
                    parameter.grad = parameter.grad.to_sparse()
                elif id(parameter) in sparse:
                    parameter.grad = parameter.grad.to_sparse(1)  # as in the layer's gradients


class _Slot(NamedTuple):
    """Placeholder for a tensor in pickled data; the tensors follow in order."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    #: Whether the tensor is on its parameter's device; in host memory if not.
    is_beside_parameter: bool


class _Tensors:
    """The tensors of a state, in order of occurrence."""

    def __init__(self) -> None:
        self.found: list[torch.Tensor] = []

    def take(self, value: Any, parameter: Optional[torch.Tensor]) -> Any:
        """Replaces the tensors in ``value`` by slots, also in dicts, lists and tuples. ValueError
        if one has no bytes to send."""
        if isinstance(value, torch.Tensor):
            _check_has_bytes(f"optimizer_state.{len(self.found)}", value)
            self.found.append(value)
            is_beside = parameter is not None and value.device == parameter.device
            return _Slot(tuple(value.shape), value.dtype, is_beside)
        return _rebuilt(value, lambda _, part: self.take(part, parameter))

    def put(self, value: Any, local: Any, parameter: Optional[torch.Tensor]) -> Any:
        """Replaces the slots in ``value`` by tensors: those of ``local`` if shape and dtype are
        equal."""
        if isinstance(value, _Slot):
            if not (
                isinstance(local, torch.Tensor)
                and (tuple(local.shape), local.dtype) == value[:2]
                and _why_no_bytes(local) is None
            ):
                device = parameter.device if parameter is not None and value.is_beside_parameter else "cpu"
                local = torch.empty(value.shape, dtype=value.dtype, device=device)
            self.found.append(local)
            return local
        return _rebuilt(value, lambda key, part: self.put(part, _part_of(local, key), parameter))


def _rebuilt(value: Any, change: Any) -> Any:
    """Copies a dict, list or tuple with ``change`` applied to its parts; returns other values
    unchanged."""
    if type(value) is dict:
        return {key: change(key, part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(change(index, part) for index, part in enumerate(value))
    return value


def _part_of(container: Any, key: Any) -> Any:
    try:
        return container[key]
    except (TypeError, LookupError):
        return None


class _OptimizerState(NamedTuple):
    """An optimizer's options and state, with numbers for parameters and slots for tensors."""

    #: Shapes of the parameters, by group.
    shapes: list[list[tuple[int, ...]]]
    #: Options, by group.
    options: list[dict[str, Any]]
    #: State by parameter number.
    of_parameters: dict[int, Any]
    #: State by other keys.
    others: dict[Any, Any]

    @classmethod
    def of(
        cls, optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor], tensors: _Tensors
    ) -> _OptimizerState:
        """The state to send; its tensors are added to ``tensors``."""
        options = [tensors.take(_options(group), None) for group in optimizer.param_groups]
        state = optimizer.state
        present = [number for number, parameter in enumerate(parameters) if parameter in state]
        of_parameters = {
            number: tensors.take(state[parameters[number]], parameters[number]) for number in present
        }
        others = {key: tensors.take(state[key], None) for key in state if not isinstance(key, torch.Tensor)}
        return cls(_shapes(optimizer), options, of_parameters, others)

    def restore(
        self, optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor], tensors: _Tensors
    ) -> None:
        """Sets the optimizer's state; its tensors, still to be filled, are added to ``tensors``."""
        for group, options in zip(optimizer.param_groups, self.options):
            group.update(tensors.put(options, group, None))
        before = dict(optimizer.state)
        optimizer.state.clear()
        for number, value in self.of_parameters.items():
            parameter = parameters[number]
            optimizer.state[parameter] = tensors.put(value, before.get(parameter), parameter)
        for key, value in self.others.items():
            optimizer.state[key] = tensors.put(value, before.get(key), None)


def _options(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != "params"}


def _shapes(optimizer: torch.optim.Optimizer) -> list[list[tuple[int, ...]]]:
    return [[tuple(parameter.shape) for parameter in group["params"]] for group in optimizer.param_groups]


def _check_alike(root: _OptimizerState, optimizer: torch.optim.Optimizer) -> None:
    """Raises ValueError on all ranks if the parameters of a rank's optimizer differ from the
    root's."""
    shapes = _shapes(optimizer)
    differences = [
        f"parameter {index} of group {group} has shape {own}, the root's {theirs}"
        for group, (owns, all_theirs) in enumerate(zip(shapes, root.shapes))
        for index, (own, theirs) in enumerate(zip(owns, all_theirs))
        if own != theirs
    ]
    counts, root_counts = [len(group) for group in shapes], [len(group) for group in root.shapes]
    if counts != root_counts:
        differences.insert(0, f"its groups have {counts} parameters, the root's {root_counts}")
    of_ranks = allgather_object(differences[:1], "optimizer_state.differences")
    for number, differences in enumerate(of_ranks):
        if differences:
            raise ValueError(f"the optimizer of rank {number} is not like the root's: {differences[0]}")


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Broadcasts an object from rank ``root_rank``.

    The object is pickled (with cloudpickle if it is installed), and may have any size. Returns the
    same object on the root and a new one on other ranks, where ``obj`` is ignored. If the object
    cannot be pickled, the root raises the reason, and other ranks HorovodInternalError. A
    rank that cannot allocate the object raises HorovodInternalError; the other ranks get it.
    """
    return _broadcast_made(lambda: obj, root_rank, name or "object", process_set)


def _broadcast_made(
    make: Callable[[], Any], root_rank: int, name: str, process_set: ProcessSet = global_process_set
) -> Any:
    """:func:`broadcast_object` of the object that ``make`` returns on the root, whose errors are
    those of an object that cannot be pickled."""
    if rank() != root_rank:
        # The length is sent first; it is 0 if there is no object to send.
        length = int(broadcast_(_length(0), root_rank, f"{name}.sz", process_set))
        if not length:
            raise HorovodInternalError(f"rank {root_rank} could not send the object {name}: see its error")
        try:
            data = torch.empty(length, dtype=torch.uint8, device="cpu")
        except RuntimeError as error:
            # This rank takes part nevertheless, or the others would wait for it.
            _broadcast_pieces(None, length, root_rank, name, process_set)
            raise HorovodInternalError(
                f"rank {rank()} cannot allocate {length} bytes for the object {name}; broadcast it in parts"
            ) from error
        _broadcast_pieces(data, length, root_rank, name, process_set)
        return _unpickled(data)
    try:
        obj = make()
        data = _pickled(obj)
    except BaseException:
        broadcast_(_length(0), root_rank, f"{name}.sz", process_set)
        raise
    broadcast_(_length(data.numel()), root_rank, f"{name}.sz", process_set)
    _broadcast_pieces(data, data.numel(), root_rank, name, process_set)
    return obj


def _broadcast_pieces(
    data: Optional[torch.Tensor], length: int, root_rank: int, name: str, process_set: ProcessSet
) -> None:
    """Broadcasts ``length`` bytes in pieces, into ``data``; None: they are discarded."""
    scratch = torch.empty(min(length, PIECE_BYTES), dtype=torch.uint8, device="cpu") if data is None else None
    for index, start in enumerate(range(0, length, PIECE_BYTES)):
        piece = scratch[: length - start] if data is None else data[start : start + PIECE_BYTES]
        part = f"{name}.t.{index}" if index else f"{name}.t"
        broadcast_(piece, root_rank, part, process_set)


def allgather_object(
    obj: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Gathers the objects of all ranks, by rank.

    Objects are pickled (with cloudpickle if it is installed), and may have any size. If an object
    cannot be pickled, its rank raises the reason, and other ranks HorovodInternalError.
    """
    name = name or "object"
    try:
        data = _pickled(obj)
    except BaseException:
        allgather(_length(0), f"{name}.sz", process_set)
        raise
    lengths = allgather(_length(data.numel()), f"{name}.sz", process_set).tolist()
    if 0 in lengths:
        number = lengths.index(0)
        raise HorovodInternalError(
            f"rank {number} of {process_set} could not pickle the object {name}: see its error"
        )
    gathered = synchronize(allgather_async(data, f"{name}.t", process_set))
    return [_unpickled(part) for part in gathered.split(lengths)]


def _length(bytes: int) -> torch.Tensor:
    return torch.tensor([bytes], dtype=torch.int64, device="cpu")


def _pickled(obj: Any) -> torch.Tensor:
    """The pickled object as a tensor of bytes, never empty."""
    stream = io.BytesIO()
    cloudpickle.dump(obj, stream, protocol=pickle.HIGHEST_PROTOCOL)
    return torch.frombuffer(stream.getbuffer(), dtype=torch.uint8)


def _unpickled(data: torch.Tensor) -> Any:
    # Reads the tensor's memory directly; `numpy()` could too, but torch can be installed without
    # NumPy.
    return pickle.loads((ctypes.c_char * data.numel()).from_address(data.data_ptr()))
