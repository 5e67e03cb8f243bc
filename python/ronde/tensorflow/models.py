"""Lists of variables whose gradients are reduced: their numbers, and the check that all ranks have
the same ones."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple

import tensorflow as tf

from ..common import model_check, seat
from ..common.basics import HorovodBasics
from ..common.process_sets import ProcessSet, global_process_set, size_of
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
    #: Kinds of gradients (:func:`kinds_of`) with which the check need not be repeated.
    checked: set[bytes]


class _Models:
    """Models of a process set."""

    def __init__(self) -> None:
        # Ranks that join a new job have different numbers of models behind them.
        self.job = HorovodBasics.jobs
        self.count = 0
        self.known: dict[tuple[Any, ...], _Model] = {}


#: By set and not by its number, which a later set may get.
_models: weakref.WeakKeyDictionary[ProcessSet, _Models] = weakref.WeakKeyDictionary()


_traces = model_check.Traces()


def after_join() -> None:
    """Called by all ranks when all have joined."""
    _traces.after_join(_Operations())


def _reference(variable: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(variable)
    except TypeError:
        return lambda: variable


def number_of(name: str, variables: Sequence[Any], gradients: Sequence[Any], process_set: ProcessSet) -> int:
    """Number of a list of variables in eager execution, equal on all ranks; 0 in a graph, whose names
    need none. At its first use, and at the first with other kinds of gradients, the ranks check that
    their variables have the same shapes and dtypes, and that the same ones have gradients; in eager
    execution also at later uses, until no rank has joined.

    A rank alone whose variables have other gradients in a later step waits in the check, where the
    runtime reports it: it cannot know that the other ranks do not check.

    Called in eager execution or while a ``tf.function`` is traced. Raises ValueError on all ranks
    if they differ.
    """
    # Several sets of all ranks may have the number 0.
    owner = process_set if library.set_id_of(process_set) else global_process_set
    models = _models.get(owner)
    if models is None or models.job != HorovodBasics.jobs:
        models = _models[owner] = _Models()
    # Graphs do not count: after a reset, new ranks of an elastic job trace them, and others do not.
    is_eager = tf.executing_eagerly()
    key = (is_eager, name, *map(id, variables))
    model = models.known.get(key)
    if model is None or not all(
        reference() is variable for reference, variable in zip(model.variables, variables)
    ):
        number = models.count if is_eager else 0
        models.count += is_eager
        model = _Model([_reference(variable) for variable in variables], number, checked=set())
    kinds = kinds_of(gradients)
    if kinds not in model.checked:
        if _check_if_needed(variables, gradients, process_set):
            model.checked.add(kinds)
        models.known[key] = model
    return model.number


def kinds_of(gradients: Sequence[Any]) -> bytes:
    """For each gradient 0 if there is none, 1 for a dense and 2 for a sparse one."""
    return bytes(
        0 if gradient is None else 1 + isinstance(gradient, tf.IndexedSlices) for gradient in gradients
    )


def _check_if_needed(variables: Sequence[Any], gradients: Sequence[Any], process_set: ProcessSet) -> bool:
    """Returns whether the check need not be repeated."""
    # After a reset of an elastic job, ranks with compiled steps do not come here again, and new ones do.
    if not process_set.included() or size_of(process_set) == 1 or seat.has_new_ranks():
        return True
    if tf.executing_eagerly():
        return _check(variables, gradients, process_set)
    if tf.compat.v1.executing_eagerly_outside_functions() and not _traces.is_unchecked:
        with tf.init_scope():
            is_final = _check(variables, gradients, process_set)
        _traces.has_open = _traces.has_open or not is_final
    return True


def _check(variables: Sequence[Any], gradients: Sequence[Any], process_set: ProcessSet) -> bool:
    """Returns whether no rank had joined."""
    # By position: names are numbered within a process, and may differ.
    descriptions = {
        f"variable {index}": _description(variable, gradient)
        for index, (variable, gradient) in enumerate(zip(variables, gradients))
    }
    try:
        answer = model_check.check_same_model(
            _Operations(),
            descriptions,
            process_set,
            where="All ranks need the same variables in the same order, with gradients of the same ones in each step",
        )
    except ValueError as error:
        names = ", ".join(f"{index} {name_of(variable)!r}" for index, variable in enumerate(variables))
        raise ValueError(f"{error}. On this rank they are: {names}") from None
    return answer.is_final


def check_same_variables(variables: Sequence[Any], process_set: ProcessSet) -> None:
    """Raises ValueError on all ranks unless they have as many variables, of the same shapes and
    dtypes. Called in eager execution."""
    if not process_set.included() or size_of(process_set) == 1:
        return
    descriptions = {}
    for index, variable in enumerate(variables):
        shape = tf.TensorShape(variable.shape)
        if not shape.is_fully_defined():
            shape = tf.convert_to_tensor(variable).shape
        descriptions[f"variable {index}"] = _type_of(variable.dtype, shape)
    model_check.check_same_model(
        _Operations(),
        descriptions,
        process_set,
        where="broadcast_variables needs the same variables in the same order on all ranks",
    )


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
    kind = ""
    if gradient is None:
        kind = ", without a gradient"
    elif isinstance(gradient, tf.IndexedSlices):
        kind = ", with a sparse gradient"
    return f"{_type_of(variable.dtype, variable.shape)}{kind}"


def _type_of(dtype: Any, shape: Any) -> str:
    return f"{tf.as_dtype(dtype).name} of shape {tuple(shape)}"
