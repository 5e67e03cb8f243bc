"""`distributed`: an optimizer of optax whose gradients are reduced over the ranks."""

from __future__ import annotations

from typing import Any, Optional

import jax
import jax.numpy as jnp

from ..common.basics import HorovodBasics
from ..common.process_sets import ProcessSet, global_process_set
from ..common.reduce_ops import Average
from . import library
from .compression import Compression, Compressor
from .functions import check_same_tree
from .ops import allreduce_tree


class _Reducer:
    """Reduces gradients; at the first use of a tree, inside and outside of ``jit``, the ranks check
    that they have the same one."""

    def __init__(self, name: str, process_set: ProcessSet, **arguments: Any) -> None:
        self._name = name
        self._process_set = process_set
        self._arguments = arguments
        self._checked: set[Any] = set()
        self._job = 0

    def __call__(self, gradients: Any) -> Any:
        if not self._process_set.included():
            return gradients
        if self._job != HorovodBasics.jobs:
            self._checked.clear()
            self._job = HorovodBasics.jobs
        leaves, structure = jax.tree_util.tree_flatten(gradients)
        is_traced = library.is_traced(leaves)
        if (is_traced, structure) not in self._checked:
            arrays = jax.tree_util.tree_map(jnp.asarray, gradients)
            if check_same_tree(arrays, self._process_set, is_traced):
                self._checked.add((is_traced, structure))
        # Optimizers with the same name may reduce in one program, at the same time.
        number = library.number_in_program((self._name, self._process_set.process_set_id), leaves)
        name = f"{self._name}.{number}" if number else self._name
        return allreduce_tree(
            gradients, name, process_set=self._process_set, marks_step=True, **self._arguments
        )


def distributed(
    optimizer: Any,
    name: str = "distributed",
    op: int = Average,
    compression: type[Compressor] = Compression.none,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """An optimizer of optax like ``optimizer``, which gets the gradients of all ranks. Of an object
    such as ``MultiSteps`` it is a ``GradientTransformationExtraArgs``.

    ``update`` reduces the gradients in one call, inside or outside of ``jit``.
    ``gradient_predivide_factor``: the average divides by this factor before the sum and by the rest
    after it. ``name``: in one program, later updates under the same name get a number. Optimizers
    of programs that run at the same time need different names. ValueError for an optimizer that is
    distributed already.
    """
    if getattr(optimizer.update, "_is_distributed", False):
        raise ValueError("the optimizer is distributed already: its gradients would be reduced twice")
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError(f"gradient_predivide_factor={gradient_predivide_factor} needs op=Average")
    reduce = _Reducer(
        name,
        process_set,
        op=op,
        compression=compression,
        prescale_factor=1.0 / gradient_predivide_factor,
        postscale_factor=gradient_predivide_factor,
    )

    def update(gradients: Any, state: Any, params: Optional[Any] = None, **extra: Any) -> Any:
        return optimizer.update(reduce(gradients), state, params, **extra)

    update._is_distributed = True
    if isinstance(optimizer, tuple):  # GradientTransformation and its kinds
        return type(optimizer)(optimizer.init, update)
    import optax  # only such an optimizer needs it

    return optax.GradientTransformationExtraArgs(optimizer.init, update)
