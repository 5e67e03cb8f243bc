"""Keras on JAX."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import jax as hvd
from ..common.basics import HorovodBasics
from ..common.process_sets import ProcessSet
from ..jax import library
from ..jax.functions import check_same_tree
from .options import Options

Compression = hvd.Compression
allgather_object = hvd.allgather_object
broadcast_object = hvd.broadcast_object

#: Exceptions of a compiled training step.
ERRORS = library.ERRORS
converted = library.as_horovod_error


def reducer(options: Options) -> Callable[[Sequence[Any], Sequence[Any]], list[Any]]:
    """Function that reduces gradients of variables, in one call; groups have no effect."""
    checked: set[Any] = set()

    def reduce(gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        process_set = options.process_set
        if not process_set.included():
            return list(gradients)
        results, places = options.divide(gradients, variables)
        shared = {f"/grads_{index}": gradients[index] for index in places}
        is_traced = library.is_traced(list(shared.values()))
        key = (HorovodBasics.jobs, is_traced, tuple(shared))
        if key not in checked and check_same_tree(shared, process_set, is_traced):
            checked.add(key)
        # Optimizers of the same class may reduce in one program, at the same time.
        number = library.number_in_program((options.name, process_set.process_set_id), gradients)
        reduced = hvd.allreduce_tree(
            shared,
            f"{options.name}_Allreduce" + (f".{number}" if number else ""),
            options.op,
            *options.factors,
            options.compression,
            process_set,
            marks_step=True,
        )
        for index in places:
            results[index] = reduced[f"/grads_{index}"]
        return results

    return reduce


def allreduce(value: Any, name: Any, op: int, prescale: float, postscale: float, compression: Any) -> Any:
    """Reduces a value."""
    return hvd.allreduce(value, name, op, prescale, postscale, compression)


def allgather(value: Any, name: Any = None) -> Any:
    """Gathers the rows of a value, whose numbers may differ between ranks."""
    parts = hvd.allgather_object(np.asarray(value), name)
    return jnp.concatenate([jnp.asarray(part) for part in parts])


def broadcast(value: Any, root_rank: int, name: Any = None) -> Any:
    """Broadcasts a value."""
    return hvd.broadcast(value, root_rank, name)


def reducescatter(value: Any, op: int, name: Any = None) -> Any:
    """Reduces a value and returns a share of its rows."""
    return hvd.reducescatter(value, name, op)


def averages(numbers: Sequence[float], name: str) -> list[float]:
    """Averages of numbers over the ranks."""
    return hvd.allreduce(np.asarray(list(numbers), np.float32), name).tolist()


def broadcast_variables(variables: Iterable[Any], root_rank: int) -> None:
    """Assigns the values of rank ``root_rank`` to the variables of all ranks."""
    variables = list(variables)
    values = hvd.broadcast_tree([variable.value for variable in variables], root_rank, "broadcast_variables")
    for variable, value in zip(variables, values):
        variable.assign(value)


def sync_model(model: Any) -> None:
    """Gives variables the values that training holds, and makes training take theirs again."""
    model.jax_state_sync()


def wait_for(model: Any) -> None:
    """Waits for the steps that compute the model's variables, and raises their errors: Keras does
    not wait for the last ones."""
    jax.block_until_ready([variable.value for variable in model.variables])


def barrier(process_set: ProcessSet) -> None:
    """Waits for all ranks of the set."""
    hvd.barrier(process_set)
