"""Python objects of all ranks, and the check that all ranks train the same model."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, Optional

import jax
import numpy as np

from .. import _ronde
from ..common import model_check
from ..common.process_sets import ProcessSet, global_process_set
from ..common.reduce_ops import Sum
from . import library
from .library import ALLGATHER, ALLREDUCE, BROADCAST, How

try:  # also pickles functions and classes of the main program
    import cloudpickle
except ImportError:
    cloudpickle = pickle


def _one(how: How, values: np.ndarray) -> np.ndarray:
    with jax.ensure_compile_time_eval():
        return np.asarray(library.call(how, [values])[0])


def _sizes(size: int, name: str, set_id: int) -> list[int]:
    """Number of each rank. Sent as 32-bit integers, JAX's largest by default."""
    gather = How(ALLGATHER, (f"{name}.sz",), set_id=set_id)
    return _one(gather, np.array([size], np.int32)).tolist()


def _bytes_of(obj: Any) -> np.ndarray:
    data = np.frombuffer(cloudpickle.dumps(obj), np.uint8)
    if data.size > np.iinfo(np.int32).max:
        raise ValueError(f"the pickled object has {data.size} bytes, more than {np.iinfo(np.int32).max}")
    return data


def broadcast_object(
    obj: Any, root_rank: int = 0, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Returns the object of rank ``root_rank``, which is pickled.

    Unpickling executes code: the ranks of a job trust each other.
    """
    name = name or type(obj).__name__
    set_id = library.set_id_of(process_set)
    is_root = _ronde.rank() == root_rank
    data = _bytes_of(obj) if is_root else np.empty(0, np.uint8)
    how = How(BROADCAST, (f"{name}.sz",), root=root_rank, set_id=set_id)
    (size,) = _one(how, np.array([data.size], np.int32)).tolist()
    if not is_root:
        data = np.zeros(size, np.uint8)
    data = _one(how._replace(names=(f"{name}.t",)), data)
    return obj if is_root else cloudpickle.loads(data.tobytes())


def allgather_object(
    obj: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Returns the objects of all ranks in order. Objects are pickled, see
    :func:`broadcast_object`."""
    name = name or type(obj).__name__
    set_id = library.set_id_of(process_set)
    data = _bytes_of(obj)
    sizes = _sizes(data.size, name, set_id)
    gathered = _one(How(ALLGATHER, (f"{name}.t",), set_id=set_id, rows=sum(sizes)), data)
    ends = np.cumsum(sizes)
    return [cloudpickle.loads(gathered[end - size : end].tobytes()) for end, size in zip(ends, sizes)]


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


def check_same_tree(tree: Any, process_set: ProcessSet) -> None:
    """Raises ValueError on all ranks unless they have trees of the same arrays."""
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    descriptions = {
        jax.tree_util.keystr(path) or "the array": f"{np.dtype(leaf.dtype).name} of shape {tuple(leaf.shape)}"
        for path, leaf in paths
    }
    model_check.check_same_model(
        Operations(), descriptions, process_set, where="All ranks need the same tree of arrays"
    )
