"""Keras on torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from .. import _ronde
from .. import torch as hvd
from ..common.basics import HorovodBasics
from ..common.exceptions import HorovodInternalError
from ..common.process_sets import ProcessSet, size_of
from ..torch.model_check import check_same_model
from ..torch.mpi_ops import send_batch_in_place
from .options import Options

Compression = hvd.Compression
allgather = hvd.allgather
allgather_object = hvd.allgather_object
broadcast_object = hvd.broadcast_object

#: Exceptions of a training step: operations raise Horovod's.
ERRORS = (HorovodInternalError,)


def converted(error: BaseException) -> BaseException:
    """The exception itself."""
    return error


def reducer(options: Options) -> Callable[[Sequence[Any], Sequence[Any]], list[Any]]:
    """Function that reduces gradients of variables, in one call; groups have no effect."""
    checked: set[Any] = set()
    names: dict[int, _ronde.AllreduceName] = {}

    def name_of(index: int) -> _ronde.AllreduceName:
        if index not in names:
            names[index] = _ronde.AllreduceName(f"{options.name}_Allreduce/grads_{index}")
        return names[index]

    @torch.no_grad()
    def reduce(gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        process_set = options.process_set
        if not process_set.included():
            return list(gradients)
        results, places = options.divide(gradients, variables)
        key = (HorovodBasics.jobs, tuple(places))
        if size_of(process_set) > 1 and key not in checked:
            descriptions = {
                f"variable {index}": f"{gradients[index].dtype} of shape {tuple(gradients[index].shape)}"
                for index in places
            }
            # Otherwise a rank has joined, which checks its model in a later epoch.
            if check_same_model(descriptions, process_set).is_final:
                checked.add(key)
        compression = options.compression if size_of(process_set) > 1 else Compression.none
        compressed = [compression.compress(gradients[index].contiguous()) for index in places]
        handle = send_batch_in_place(
            [tensor for tensor, _ in compressed],
            [name_of(index) for index in places],
            options.op,
            options.factors,
            process_set,
        )
        reduced = hvd.synchronize(handle)
        hvd.mark_step()
        for index, tensor, (_, context) in zip(places, reduced, compressed):
            results[index] = compression.decompress(tensor, context)
        return results

    return reduce


def allreduce(value: Any, name: Any, op: int, prescale: float, postscale: float, compression: Any) -> Any:
    """Reduces a value."""
    return hvd.allreduce(
        torch.as_tensor(value),
        name=name,
        compression=compression,
        op=op,
        prescale_factor=prescale,
        postscale_factor=postscale,
    )


def broadcast(value: Any, root_rank: int, name: Any = None) -> Any:
    """Broadcasts a value."""
    return hvd.broadcast(torch.as_tensor(value), root_rank, name)


def reducescatter(value: Any, op: int, name: Any = None) -> Any:
    """Reduces a value and returns a share of its rows."""
    return hvd.reducescatter(torch.as_tensor(value), name, op=op)


def averages(numbers: Sequence[float], name: str) -> list[float]:
    """Averages of numbers over the ranks."""
    return hvd.allreduce(torch.tensor(list(numbers), dtype=torch.float64), name=name).tolist()


def broadcast_variables(variables: Iterable[Any], root_rank: int) -> None:
    """Assigns the values of rank ``root_rank`` to the variables of all ranks."""
    named = [(f"variable.{index}", variable.value.data) for index, variable in enumerate(variables)]
    hvd.broadcast_parameters(named, root_rank)


def sync_model(model: Any) -> None:
    """Does nothing: variables have their values during training."""


def barrier(process_set: ProcessSet) -> None:
    """Waits for all ranks of the set."""
    hvd.barrier(process_set)
