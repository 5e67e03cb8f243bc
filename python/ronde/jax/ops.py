"""Collective operations on JAX's arrays, inside and outside of ``jit``, with gradients and ``vmap``.

All ranks of the process set call the same operation with the same ``name``. Without a name, an
operation is named by a counter: of calls outside of ``jit``, and of traces within it. So all ranks
must call, or trace, unnamed operations in the same order. A traced operation runs in each call of
the program under the same name; a loop must not run the same operation several times at once.

Shapes of results are fixed when a program is traced. So an allgather needs the same number of rows
on all ranks.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any, Optional

import jax
import jax.numpy as jnp

from ..common import seat
from ..common.process_sets import ProcessSet, global_process_set, size_of
from ..common.reduce_ops import Adasum, Average, Max, Min, Product, Sum, check_adasum
from . import library
from .compression import Compression, Compressor
from .library import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER, How, as_array

_traced = itertools.count(1)


def _named(name: Optional[str], kind: str, arrays: Sequence[Any]) -> tuple[str, ...]:
    """Name of an operation; empty if the runtime counts it."""
    if name is not None:
        return (name,)
    if library.is_traced(arrays):
        return (f"traced.{kind}.{next(_traced)}",)
    return ()


def _raw(how: How, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """An operation that ``vmap`` can batch."""

    @jax.custom_batching.custom_vmap
    def one(*arrays: Any) -> tuple[Any, ...]:
        return tuple(library.call(how, arrays))

    @one.def_vmap
    def batched(size: int, is_batched: Sequence[bool], *arrays: Any) -> tuple[Any, Any]:
        full = [
            array if has_axis else jnp.broadcast_to(array, (size, *jnp.shape(array)))
            for array, has_axis in zip(arrays, is_batched)
        ]
        if how.kind == ALLREDUCE and how.op == Adasum:
            raise NotImplementedError("Adasum combines whole arrays, and has no meaning within vmap")
        if how.kind not in (ALLREDUCE, BROADCAST):
            # Rows stay the first axis.
            full = [jnp.moveaxis(array, 0, 1) for array in full]
            results = tuple(jnp.moveaxis(result, 1, 0) for result in _raw(how, tuple(full)))
        else:
            results = _raw(how, tuple(full))
        return results, tuple(True for _ in results)

    return one(*arrays)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _operation(how: How, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    return _raw(how, arrays)


def _forward(how: How, arrays: tuple[Any, ...]) -> tuple[Any, Any]:
    return _operation(how, arrays), tuple(jnp.shape(array)[:1] for array in arrays)


def _backward(how: How, row_counts: tuple[Any, ...], grads: tuple[Any, ...]) -> tuple[Any]:
    names = tuple(f"{name}.grad" for name in how.names)
    back = how._replace(names=names, marks_step=False)
    process_set = library.set_of(how.set_id)
    if how.kind == ALLREDUCE:
        if how.op in (Min, Max, Product):
            raise NotImplementedError(
                "allreduce has no gradient for Min, Max and Product; use jax.lax.stop_gradient"
            )
        return (_operation(back, grads),)
    if how.kind == ALLGATHER:
        averages = _operation(back._replace(kind=ALLREDUCE, op=Average, rows=None), grads)
        rank = process_set.rank() or 0
        own = [
            jax.lax.dynamic_slice_in_dim(average, rank * rows[0], rows[0])
            for average, rows in zip(averages, row_counts)
        ]
        return (tuple(own),)
    if how.kind == BROADCAST:
        averages = _operation(back._replace(kind=ALLREDUCE, op=Average), grads)
        is_root = library._ronde.rank() == how.root
        return (tuple(average if is_root else jnp.zeros_like(average) for average in averages),)
    if how.kind == ALLTOALL:
        return (_operation(back, grads),)
    factor = how.prescale * how.postscale * (size_of(process_set) if how.op == Sum else 1)
    gathered = []
    for index, (grad, rows) in enumerate(zip(grads, row_counts)):
        gather = How(ALLGATHER, tuple(f"{name}.{index}" for name in names), set_id=how.set_id, rows=rows[0])
        (result,) = _operation(gather, (grad,))
        gathered.append(result if factor == 1 else result * jnp.asarray(factor, result.dtype))
    return (tuple(gathered),)


_operation.defvjp(_forward, _backward)


def _run(how: How, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
    """Runs an operation; outside of ``jit`` it returns when the operation has completed."""
    if library.is_traced(arrays):
        return _operation(how, arrays)
    return tuple(library.call(how, arrays))


def _is_alone(process_set: ProcessSet, arrays: Sequence[Any]) -> bool:
    """Whether this rank is the only one, and stays so: a program of an elastic job may get others."""
    return size_of(process_set) == 1 and not (seat.is_elastic() and library.is_traced(arrays))


def _reduction(op: Optional[int], process_set: ProcessSet) -> int:
    op = Average if op is None else op
    if op == Adasum:
        check_adasum(process_set)
    return op


def allreduce(
    x: Any,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: type[Compressor] = Compression.none,
    process_set: ProcessSet = global_process_set,
) -> jax.Array:
    """Reduces the ranks' arrays, of the same shape and dtype, element by element.

    ``op``: Average (the default), Sum, Min, Max, Product or Adasum. Arrays are multiplied by
    ``prescale_factor`` before the reduction, the result by ``postscale_factor``. The gradient is
    reduced in the same way; Min, Max and Product have none.
    """
    sent, context = compression.compress(as_array(x))
    how = How(
        ALLREDUCE,
        _named(name, "allreduce", [sent]),
        _reduction(op, process_set),
        prescale_factor,
        postscale_factor,
        set_id=library.set_id_of(process_set),
    )
    (result,) = _run(how, (sent,))
    return compression.decompress(result, context)


@functools.lru_cache(maxsize=64)
def _names_in_tree(name: str, structure: Any) -> tuple[str, ...]:
    """Names of the arrays of a tree: `name` and their places."""
    tree = jax.tree_util.tree_unflatten(structure, range(structure.num_leaves))
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return tuple(f"{name}{jax.tree_util.keystr(path)}".replace("\n", " ") for path, _ in paths)


def allreduce_tree(
    tree: Any,
    name: Optional[str] = None,
    op: Optional[int] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    compression: type[Compressor] = Compression.none,
    process_set: ProcessSet = global_process_set,
    marks_step: bool = False,
) -> Any:
    """:func:`allreduce` of all arrays in a tree, in one call. None stays None.

    The runtime fuses the arrays, each of which has a name with its place in the tree. Within
    ``jit``, all ranks must use some of the results, or none: otherwise JAX removes the call on some
    ranks, and the others wait. XLA compiles a large tree as several calls, unless it marks a step.
    ``marks_step``: marks the end of a training step for the tuner.
    """
    leaves, structure = jax.tree_util.tree_flatten(tree)
    if not leaves:
        return tree
    arrays = library.as_arrays(leaves)
    contexts = None
    if compression is not Compression.none and not _is_alone(process_set, arrays):
        arrays, contexts = zip(*map(compression.compress, arrays))
    (name,) = _named(name, "tree", arrays) or ("tree",)
    how = How(
        ALLREDUCE,
        _names_in_tree(name, structure),
        _reduction(op, process_set),
        prescale_factor,
        postscale_factor,
        set_id=library.set_id_of(process_set),
        marks_step=marks_step,
        has_effect=False,
    )
    results = _run(how, arrays)
    if contexts is not None:
        results = tuple(map(compression.decompress, results, contexts))
    return jax.tree_util.tree_unflatten(structure, results)


def _rows(kind: int, word: str, x: Any, name: Optional[str], process_set: ProcessSet, **how: Any) -> jax.Array:
    x = as_array(x)
    set_id = library.set_id_of(process_set)
    (result,) = _run(How(kind, _named(name, word, [x]), set_id=set_id, **how), (x,))
    return result


def allgather(
    x: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> jax.Array:
    """Concatenates the rows of all ranks, which have the same number of rows.

    The gradient is this rank's rows of the result's gradient, averaged over the ranks.
    """
    return _rows(ALLGATHER, "allgather", x, name, process_set)


def broadcast(
    x: Any, root_rank: int, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> jax.Array:
    """Copies the array of rank ``root_rank`` of the job to all ranks.

    The gradient of the root's array is the average of the ranks' gradients, that of others zero.
    """
    return _rows(BROADCAST, "broadcast", x, name, process_set, root=root_rank)


def reducescatter(
    x: Any,
    name: Optional[str] = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> jax.Array:
    """Reduces the ranks' arrays, by average or sum; each rank gets a share of the rows.

    Of ``n`` rows a rank gets ``n / size``, the first ``n % size`` ranks one more.
    """
    factors = {"prescale": prescale_factor, "postscale": postscale_factor}
    return _rows(REDUCESCATTER, "reducescatter", x, name, process_set, op=op, **factors)


def alltoall(
    x: Any, name: Optional[str] = None, process_set: ProcessSet = global_process_set
) -> jax.Array:
    """Sends the same number of rows to every rank, and receives as many from each, in rank order."""
    return _rows(ALLTOALL, "alltoall", x, name, process_set)


def broadcast_tree(
    tree: Any,
    root_rank: int = 0,
    name: Optional[str] = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """:func:`broadcast` of all arrays in a tree, such as parameters or the state of an optimizer, in
    one call."""
    leaves, structure = jax.tree_util.tree_flatten(tree)
    if not leaves:
        return tree
    arrays = library.as_arrays(leaves)
    names = _named(name, "tree", arrays)
    how = How(
        BROADCAST, names, root=root_rank, set_id=library.set_id_of(process_set), is_group=len(arrays) > 1
    )
    return jax.tree_util.tree_unflatten(structure, list(_run(how, arrays)))
