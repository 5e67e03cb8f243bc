"""Lists of variables whose gradients are reduced: their numbers, and the check that all ranks have
the same ones."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

import tensorflow as tf

from ..common import model_check, seat
from ..common.basics import HorovodBasics
from ..common.process_sets import ProcessSet, size_of
from . import library
from .functions import allgather_object


class _Operations:
    def sums(self, numbers: Sequence[int], name: str, process_set: ProcessSet) -> list[int]:
        tensor = tf.constant(list(numbers), tf.int64)
        (sums,) = library.collective(library.ALLREDUCE, [tensor], [name], process_set=process_set)
        return sums.numpy().tolist()

    def gather(self, obj: Any, name: str, process_set: ProcessSet) -> list[Any]:
        return allgather_object(obj, name=name, process_set=process_set)


class _Model(NamedTuple):
    #: References to the variables: a variable may get the identity of a deleted one.
    variables: list[Callable[[], Any]]
    #: Number among the models of this process set, in the order of their first use.
    number: int


class _Models:
    def __init__(self) -> None:
        self.job = 0
        self.counts: dict[int, int] = {}
        self.known: dict[tuple[Any, ...], _Model] = {}


_models = _Models()


def _reference(variable: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(variable)
    except TypeError:
        return lambda: variable


def number_of(name: str, variables: Sequence[Any], gradients: Sequence[Any], process_set: ProcessSet) -> int:
    """Number of a list of variables in eager execution, equal on all ranks; 0 in a graph, whose names
    need none. At its first use the ranks check that their variables have the same shapes and dtypes,
    and that the same ones have gradients.

    Called in eager execution or while a ``tf.function`` is traced. Raises ValueError on all ranks
    if they differ.
    """
    if _models.job != HorovodBasics.jobs:
        # Ranks that join a new job have different numbers of models behind them.
        _models.__init__()
        _models.job = HorovodBasics.jobs
    set_id = library.set_id_of(process_set)
    # Graphs do not count: after a reset, new ranks of an elastic job trace them, and others do not.
    is_eager = tf.executing_eagerly()
    key = (is_eager, name, set_id, *map(id, variables))
    model = _models.known.get(key)
    if model is not None and all(
        reference() is variable for reference, variable in zip(model.variables, variables)
    ):
        return model.number
    number = 0
    if is_eager:
        number = _models.counts.get(set_id, 0)
        _models.counts[set_id] = number + 1
    # After a reset of an elastic job, ranks with compiled steps do not come here again, and new ones do.
    is_checked = process_set.included() and size_of(process_set) > 1 and not seat.has_new_ranks()
    if is_checked and tf.compat.v1.executing_eagerly_outside_functions():
        with tf.init_scope():
            _check(variables, gradients, process_set)
    _models.known[key] = _Model([_reference(variable) for variable in variables], number)
    return number


def _check(variables: Sequence[Any], gradients: Sequence[Any], process_set: ProcessSet) -> None:
    # By position: names are numbered within a process, and may differ.
    descriptions = {
        f"variable {index}": _description(variable, gradient)
        for index, (variable, gradient) in enumerate(zip(variables, gradients))
    }
    try:
        model_check.check_same_model(
            _Operations(),
            descriptions,
            process_set,
            where="All ranks need the same variables in the same order",
        )
    except ValueError as error:
        names = ", ".join(f"{index} {name_of(variable)!r}" for index, variable in enumerate(variables))
        raise ValueError(f"{error}. On this rank they are: {names}") from None


def name_of(variable: Any) -> str:
    """Name of a variable, or what it is."""
    name = getattr(variable, "path", None)
    if not isinstance(name, str):
        try:
            name = variable.name
        except AttributeError:  # tensors in eager execution have none
            name = type(variable).__name__
    return str(name)


def _description(variable: Any, gradient: Any) -> str:
    dtype = tf.as_dtype(variable.dtype).name
    shape = tuple(variable.shape)
    kind = ""
    if gradient is None:
        kind = ", without a gradient"
    elif isinstance(gradient, tf.IndexedSlices):
        kind = ", with a sparse gradient"
    return f"{dtype} of shape {shape}{kind}"
