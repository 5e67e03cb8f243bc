"""Reduction of the gradients of a step.

Each gradient, or group of gradients, is submitted as soon as it is there, without blocking one of
TensorFlow's threads; one operation at the end waits for all. In eager execution, where all gradients
are there, they are submitted in one call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional, Union

import tensorflow as tf

from ..common.process_sets import ProcessSet, global_process_set
from ..common.reduce_ops import Adasum, Average, Groups, check_adasum
from ..common.util import split_list
from . import library
from .compression import Compression, Compressor
from .models import kinds_of, name_of, number_of
from .reduce import check_sparse
from .util import unconverted

Gradient = Union[tf.Tensor, tf.IndexedSlices, None]


class Reduction(NamedTuple):
    """How the gradients of an optimizer or tape are reduced."""

    name: str
    device_dense: str
    device_sparse: str
    compression: type[Compressor]
    sparse_as_dense: bool
    op: int
    gradient_predivide_factor: float
    #: None: each gradient is reduced alone.
    groups: Groups
    process_set: ProcessSet = global_process_set

    @property
    def factors(self) -> tuple[float, float]:
        """Factors before and after the reduction. The average divides by the number of ranks in
        between."""
        if self.op != Average:
            return 1.0, 1.0
        return 1.0 / self.gradient_predivide_factor, self.gradient_predivide_factor


class _Wait:
    """Tokens of submitted tensors, with what becomes of the results."""

    def __init__(self) -> None:
        self._tokens: list[tf.Tensor] = []
        self._dtypes: list[tf.DType] = []
        self._uses: list[Callable[[tf.Tensor], None]] = []

    def add(
        self, token: tf.Tensor, tensors: Sequence[tf.Tensor], uses: Sequence[Callable[[tf.Tensor], None]]
    ) -> None:
        self._tokens.append(token)
        self._dtypes += [tensor.dtype for tensor in tensors]
        self._uses += uses

    def run(self) -> None:
        """Waits for all results and uses them; marks the end of the step."""
        if not self._tokens:
            return
        results = library.wait(self._tokens, self._dtypes, is_step=True)
        for use, result in zip(self._uses, results):
            use(result)


def reduce_gradients(
    how: Reduction,
    gradients: Sequence[Gradient],
    variables: Optional[Sequence[Any]] = None,
    use_generic_names: bool = False,
) -> list[Gradient]:
    """Returns the reduced gradients; those that are None stay None.

    ``variables``: to which they belong, for groups and for errors. ``use_generic_names``: the
    gradients are called ``grad_0`` and so on, whatever the scope.
    """
    library.check_not_compiled()
    if how.op == Adasum:
        check_adasum(how.process_set)
    gradients = [_checked(gradient, index, variables) for index, gradient in enumerate(gradients)]
    if how.sparse_as_dense:
        gradients = [
            tf.convert_to_tensor(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient
            for gradient in gradients
        ]
    names = _names(how, gradients, variables, use_generic_names)
    results: list[Any] = list(gradients)
    wait = _Wait()
    sparse = [index for index, gradient in enumerate(gradients) if isinstance(gradient, tf.IndexedSlices)]
    with tf.device(how.device_sparse or None):
        for index in sparse:
            _submit_sparse(how, index, gradients[index], names[index], results, wait)
    with tf.device(how.device_dense or None):
        for group, is_group in _groups(how, gradients, variables):
            _submit_dense(how, group, is_group, gradients, names, results, wait)
        wait.run()
    for index in sparse:
        rows, places = results[index].pop("values"), results[index].pop("indices")
        if how.op == Average and how.process_set.included():
            rows = rows / library.count_of(how.process_set, rows.dtype)
        results[index] = tf.IndexedSlices(rows, places, dense_shape=gradients[index].dense_shape)
    return results


def _checked(gradient: Any, index: int, variables: Optional[Sequence[Any]]) -> Gradient:
    if gradient is None or isinstance(gradient, (tf.Tensor, tf.IndexedSlices)):
        return gradient
    if isinstance(gradient, (tf.SparseTensor, tf.RaggedTensor)):
        name = name_of(variables[index]) if variables is not None else str(index)
        raise TypeError(
            f"the gradient of variable {name!r} is a {type(gradient).__name__}, which cannot be reduced: "
            f"use a dense tensor or tf.IndexedSlices"
        )
    return tf.convert_to_tensor(gradient)


def _names(
    how: Reduction,
    gradients: Sequence[Gradient],
    variables: Optional[Sequence[Any]],
    use_generic_names: bool,
) -> list[str]:
    """Names of the gradients: equal on all ranks, different in one graph."""
    number = 0
    if variables is not None:
        number = number_of(how.name, variables, gradients, how.process_set)
    if use_generic_names:
        return [f"grad_{index}" for index in range(len(gradients))]
    scope = f"{how.name}_Allreduce"
    if any(gradient is None for gradient in gradients):
        # Otherwise a rank without some gradients would go on, and reduce those of its next step with
        # those of this step of the others.
        scope = f"{scope}.{hashlib.blake2b(kinds_of(gradients), digest_size=4).hexdigest()}"
    if tf.executing_eagerly():
        scope = f"{scope}.{number}" if number else scope
    else:
        # Not with the name of the function, which has a number of the process in it.
        scope = tf.compat.v1.get_default_graph().unique_name(scope, mark_as_used=True)
    return [f"{scope}/grads_{index}" for index in range(len(gradients))]


def _groups(
    how: Reduction, gradients: Sequence[Gradient], variables: Optional[Sequence[Any]]
) -> list[tuple[list[int], bool]]:
    """Places of the dense gradients that are submitted together, and whether as a group.

    Later variables come first, as their gradients are there first.
    """
    dense = [
        index
        for index, gradient in enumerate(gradients)
        if gradient is not None and not isinstance(gradient, tf.IndexedSlices)
    ]
    if isinstance(how.groups, int):
        parts = split_list(dense, how.groups) if how.groups > 0 else [[index] for index in dense]
        return [(list(part), True) for part in reversed(parts) if part]
    if how.groups is not None and variables is not None:
        # Keras' variables are not hashable.
        place_of = {id(variables[index]): index for index in dense}
        parts = []
        for group in how.groups:
            members = [place_of.pop(id(variable)) for variable in group if id(variable) in place_of]
            if members:
                parts.append((members, True))
        return parts + [([index], False) for index in reversed(place_of.values())]
    if tf.executing_eagerly():
        return [(dense, False)] if dense else []
    return [([index], False) for index in reversed(dense)]


def _submit_dense(
    how: Reduction,
    places: list[int],
    is_group: bool,
    gradients: Sequence[Gradient],
    names: Sequence[str],
    results: list[Any],
    wait: _Wait,
) -> None:
    compressed, uses = [], []
    # Gradients that stay on this rank need not lose precision.
    compression = how.compression if library.is_reduced(how.process_set) else Compression.none
    for place in places:
        tensor, context = compression.compress(gradients[place])
        compressed.append(tensor)

        def use(result: tf.Tensor, place: int = place, context: Any = context, shape: Any = tensor.shape) -> None:
            if not tf.executing_eagerly():
                result.set_shape(shape)
            results[place] = compression.decompress(result, context)

        uses.append(use)
    token = library.submit(
        library.ALLREDUCE,
        compressed,
        [names[places[0]]] if is_group else [names[place] for place in places],
        how.op,
        *how.factors,
        process_set=how.process_set,
        is_group=is_group,
        members_only=True,
    )
    wait.add(token, compressed, uses)


def _submit_sparse(
    how: Reduction,
    place: int,
    gradient: tf.IndexedSlices,
    name: str,
    results: list[Any],
    wait: _Wait,
) -> None:
    """Submits rows and indices, which are gathered from all ranks."""
    check_sparse(how.op, 1.0, 1.0)
    parts: dict[str, tf.Tensor] = {}
    results[place] = parts
    for part, tensor in (("values", gradient.values), ("indices", gradient.indices)):
        token = library.submit(
            library.ALLGATHER,
            [tensor],
            [f"{name}.{part}"],
            process_set=how.process_set,
            members_only=True,
        )

        def use(result: tf.Tensor, part: str = part, shape: Any = tensor.shape) -> None:
            if not tf.executing_eagerly() and shape.rank:
                result.set_shape(tf.TensorShape([None]).concatenate(shape[1:]))
            parts[part] = result

        wait.add(token, [tensor], [use])


def reducer(how: Reduction) -> Callable[..., list[Gradient]]:
    """Returns the function ``(grads, vars=None, use_generic_names=False)`` that reduces
    gradients."""

    @unconverted
    def allreduce_grads(
        grads: Sequence[Gradient], vars: Optional[Sequence[Any]] = None, use_generic_names: bool = False
    ) -> list[Gradient]:
        return reduce_gradients(how, grads, vars, use_generic_names)

    return allreduce_grads


def _make_allreduce_grads_fn(*args: Any, **kwargs: Any) -> Callable[..., list[Gradient]]:
    """:func:`reducer`, with the fields of :class:`Reduction` as arguments. Programs for Horovod
    import it under this name."""
    return reducer(Reduction(*args, **kwargs))


class LocalVariables:
    """Variables whose gradients are not reduced. Gradients are divided by the number of ranks if
    ``scale``, as the reduced ones are averages."""

    def __init__(self, process_set: ProcessSet, scale: bool) -> None:
        self._process_set = process_set
        self._scale = scale
        # By identity: Keras' variables are not hashable.
        self._variables: dict[int, Any] = {}

    def add(self, variable: Any) -> None:
        """Registers a variable."""
        self._variables[id(variable)] = variable

    def __contains__(self, variable: Any) -> bool:
        return id(variable) in self._variables

    def reduce(
        self,
        allreduce_grads: Callable[..., list[Gradient]],
        gradients: Sequence[Gradient],
        variables: Sequence[Any],
        *args: Any,
    ) -> list[Gradient]:
        """Gradients of all variables in order, reduced except those of local variables."""
        places = [index for index, variable in enumerate(variables) if variable not in self]
        reduced = allreduce_grads(
            [gradients[place] for place in places], [variables[place] for place in places], *args
        )
        results = [
            self._scaled(gradient) if variable in self else gradient
            for gradient, variable in zip(gradients, variables)
        ]
        for place, gradient in zip(places, reduced):
            results[place] = gradient
        return results

    def _scaled(self, gradient: Gradient) -> Gradient:
        if gradient is None or not self._scale:
            return gradient
        count = library.count_of(self._process_set, gradient.dtype)
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(gradient.values / count, gradient.indices, gradient.dense_shape)
        return gradient / count
