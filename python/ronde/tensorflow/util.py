"""Helpers that programs import from ``horovod.tensorflow.util``, and names of tensors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Optional

import tensorflow as tf
from tensorflow.python.framework.ops import EagerTensor

from ..common.util import _cache as _cache_by_arguments


#: Keeps AutoGraph from converting the code of this package in a ``tf.function``.
unconverted = tf.autograph.experimental.do_not_convert


def _executing_eagerly() -> bool:
    """Whether operations run at once."""
    return tf.executing_eagerly()


def _make_subgraph(f: Any) -> Any:
    return tf.function(f)


def _cache(f: Any) -> Any:
    """Caches the results of ``f`` by its arguments, separately for eager execution and graphs."""
    cached = _cache_by_arguments(lambda _, *args: f(*args))
    return lambda *args: cached(tf.executing_eagerly(), *args)


def vars_to_refs(vars: Any) -> Any:
    """Replaces variables in nested lists by hashable references; lists become tuples."""
    if isinstance(vars, list):
        return tuple(vars_to_refs(var) for var in vars)
    return vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """Reverts :func:`vars_to_refs`."""
    if isinstance(refs, tuple):
        return [refs_to_vars(ref) for ref in refs]
    return refs.deref()


def normalize_name(name: str) -> str:
    """``name`` with characters that TensorFlow allows in names of operations."""
    return re.sub("[^a-zA-Z0-9_]", "_", name)


def names_for(
    name: Optional[str], kind: str, tensors: list[tf.Tensor], ignore_name_scope: bool = False
) -> list[str]:
    """Name of an operation on ``tensors``, as a list of one; empty if a counter names it.

    In a graph an operation without a name has that of its tensors. The name contains the scope, and
    a number if the graph has the name already.
    """
    if tf.executing_eagerly():
        return [] if name is None else [name]
    graph = tf.compat.v1.get_default_graph()
    if name is None:
        ends = tensors[:1] if len(tensors) == 1 else [tensors[0], tensors[-1]]
        name = "_".join(["Horovod" + kind, *(normalize_name(tensor.name) for tensor in ends)])
    if ignore_name_scope:
        return [name]
    return [graph.unique_name(name, mark_as_used=True)]


def _is_number(dtype: Any) -> bool:
    return isinstance(dtype, tf.DType) and (
        dtype.is_floating or dtype.is_integer or dtype.is_bool or dtype.is_complex
    )


#: TensorFlow's numbers of the types of elements that operations take.
_NUMBERS = frozenset(dtype.as_datatype_enum for dtype in filter(_is_number, vars(tf.dtypes).values()))


def type_numbers(tensors: Sequence[EagerTensor]) -> list[int]:
    """TensorFlow's numbers of the element types: quicker than the objects, which are looked up."""
    # Without a loop in Python, which takes seven times as long.
    return list(map(EagerTensor._datatype_enum, tensors))


def are_eager(values: Sequence[Any]) -> bool:
    """Whether all values are tensors of eager execution."""
    return set(map(type, values)) == {EagerTensor}


def as_tensors(operation: str, values: Iterable[Any]) -> list[tf.Tensor]:
    """The values as dense tensors. TypeError for sparse, ragged and string tensors."""
    values = list(values)
    if are_eager(values) and _NUMBERS.issuperset(type_numbers(values)):
        return values
    return [_converted(operation, value) for value in values]


def as_tensor(operation: str, value: Any) -> tf.Tensor:
    """The value as a dense tensor, like :func:`as_tensors`."""
    (tensor,) = as_tensors(operation, [value])
    return tensor


def _converted(operation: str, value: Any) -> tf.Tensor:
    if isinstance(value, (tf.SparseTensor, tf.RaggedTensor)):
        instead = "tf.sparse.to_dense(...)" if isinstance(value, tf.SparseTensor) else "its to_tensor()"
        raise TypeError(
            f"hvd.{operation} expects a dense tensor, not a {type(value).__name__}: use {instead}, or "
            f"reduce its components"
        )
    if isinstance(value, tf.IndexedSlices):
        raise TypeError(f"hvd.{operation} expects a dense tensor, not tf.IndexedSlices: use tf.convert_to_tensor")
    tensor = tf.convert_to_tensor(value)
    if tensor.dtype.as_datatype_enum not in _NUMBERS:
        raise TypeError(
            f"hvd.{operation} expects numbers, not a tensor of {tensor.dtype.name}: "
            f"hvd.allgather_object and hvd.broadcast_object take any object"
        )
    return tensor
