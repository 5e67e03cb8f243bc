"""Python objects of all ranks, and the check that all ranks train the same model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import jax
import numpy as np

from ..common import model_check, objects, seat
from ..common.process_sets import ProcessSet, global_process_set
from ..common.reduce_ops import Sum
from . import library
from .library import ALLGATHER, ALLREDUCE, BROADCAST, How

#: Most bytes of an object.
BYTES_MAX = np.iinfo(np.int32).max


def _one(how: How, values: np.ndarray) -> np.ndarray:
    with jax.ensure_compile_time_eval():
        return np.asarray(library.call(how, [values])[0])


def broadcast_object(
    obj: Any, root_rank: int = 0, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Returns the object of rank ``root_rank``, which is pickled.

    Unpickling executes code: the ranks of a job trust each other. If the object cannot be pickled,
    the root raises the reason, and other ranks HorovodInternalError.
    """
    set_id = library.set_id_of(process_set)

    def send(data: np.ndarray, name: str) -> np.ndarray:
        return _one(How(BROADCAST, (name,), root=root_rank, set_id=set_id), data)

    return objects.broadcast_object(obj, root_rank, name, send, BYTES_MAX)


def allgather_object(
    obj: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Returns the objects of all ranks in order. Objects are pickled, see
    :func:`broadcast_object`."""
    set_id = library.set_id_of(process_set)

    def gather(data: np.ndarray, name: str, total: int) -> np.ndarray:
        return _one(How(ALLGATHER, (name,), set_id=set_id, rows=total), data)

    return objects.allgather_object(obj, name, process_set, gather, BYTES_MAX)


class Operations:
    """Operations of the check that all ranks train the same model."""

    def sums(self, numbers: Sequence[int], name: str, process_set: ProcessSet) -> list[int]:
        """Sums of integers of 32 bits without sign. They are sent in halves of 16 bits, whose sums
        fit into JAX's integers of 32 bits."""
        halves = np.array([[number & 0xFFFF, number >> 16] for number in numbers], np.int32)
        how = How(ALLREDUCE, (name,), op=Sum, set_id=library.set_id_of(process_set))
        return [low + (high << 16) for low, high in _one(how, halves).tolist()]

    def gather(self, obj: Any, name: str, process_set: ProcessSet) -> list[Any]:
        """Objects of all ranks."""
        return allgather_object(obj, name, process_set)


_traces = model_check.Traces()


def after_join() -> None:
    """Called by all ranks when all have joined."""
    _traces.after_join(Operations())


def check_same_tree(tree: Any, process_set: ProcessSet, is_traced: bool) -> bool:
    """Raises ValueError on all ranks unless they have trees of the same arrays. Returns whether the
    check need not be repeated: outside of ``jit`` it is, until no rank has joined.

    After a reset of an elastic job only new ranks trace a step: there is no check then.
    """
    if process_set.size() == 1 or seat.has_new_ranks() or (is_traced and _traces.is_unchecked):
        return True
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    descriptions = {
        jax.tree_util.keystr(path) or "the array": f"{np.dtype(leaf.dtype).name} of shape {tuple(leaf.shape)}"
        for path, leaf in paths
    }
    answer = model_check.check_same_model(
        Operations(), descriptions, process_set, where="All ranks need the same tree of arrays"
    )
    if is_traced:
        _traces.has_open = _traces.has_open or not answer.is_final
    return is_traced or answer.is_final
