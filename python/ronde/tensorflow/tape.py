"""Gradient tapes that reduce gradients over the ranks."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from ..common.process_sets import ProcessSet, global_process_set
from ..common.reduce_ops import Average, Groups, check_predivide, checked_groups
from .compression import Compression, Compressor
from .gradients import LocalVariables, Reduction, reducer
from .util import unconverted


class _DistributedGradientTape(tf.GradientTape):
    """A tape around another one: the same recording, with reduced gradients."""

    def __init__(self, tape: tf.GradientTape, how: Reduction, scale_local_gradients: bool) -> None:
        # Not initialized as a tape: all recording is done by the other one.
        self._other = tape
        self._allreduce_grads = reducer(how)
        self._local_sources = LocalVariables(how.process_set, scale_local_gradients)
        #: Layers whose variables are local sources, also those that they create later.
        self._local_layers: list[Any] = []
        self.process_set = how.process_set
        self.scale_local_gradients = scale_local_gradients

    def __getattr__(self, name: str) -> Any:
        return getattr(self._other, name)

    def __enter__(self) -> _DistributedGradientTape:
        self._other.__enter__()
        return self

    def __exit__(self, *exception: Any) -> Any:
        return self._other.__exit__(*exception)

    def __del__(self) -> None:
        """Does nothing: the other tape ends its own recording."""

    def watch(self, tensor: Any) -> None:
        """Records the operations on a tensor."""
        self._other.watch(tensor)

    def stop_recording(self) -> Any:
        """Context without recording."""
        return self._other.stop_recording()

    def reset(self) -> None:
        """Forgets what was recorded."""
        self._other.reset()

    def watched_variables(self) -> Any:
        """Variables whose operations are recorded."""
        return self._other.watched_variables()

    def jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """The Jacobian on this rank, not reduced."""
        return self._other.jacobian(*args, **kwargs)

    def batch_jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """The Jacobian on this rank, not reduced."""
        return self._other.batch_jacobian(*args, **kwargs)

    def register_local_source(self, source: Any) -> None:
        """Excludes a variable from reduction: :meth:`gradient` returns this rank's gradient."""
        self._local_sources.add(source)

    @unconverted
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        unconnected_gradients: tf.UnconnectedGradients = tf.UnconnectedGradients.NONE,
    ) -> Any:
        """Gradients of ``target`` with respect to ``sources``, reduced over the ranks.

        All ranks of the process set call it with the same sources in the same order.
        ``use_generic_names``: the gradients are called ``grad_0`` and so on, for ranks whose graphs
        have different names.
        """
        gradients = self._other.gradient(target, sources, output_gradients, unconnected_gradients)
        variables = tf.nest.flatten(sources)
        for layer in self._local_layers:
            for variable in layer.trainable_weights:
                self._local_sources.add(variable)
        # None is a value here, and IndexedSlices are not taken apart.
        flat = tf.nest.flatten(gradients) if isinstance(sources, (list, tuple, dict)) else [gradients]
        reduced = self._local_sources.reduce(self._allreduce_grads, flat, variables, use_generic_names)
        return tf.nest.pack_sequence_as(sources, reduced) if isinstance(sources, (list, tuple, dict)) else reduced[0]

    @unconverted
    def get_local_and_global_gradients(
        self, target: Any, sources: Any, output_gradients: Any = None, use_generic_names: bool = False
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """Pairs of source and gradient: those of local sources, and those that were reduced."""
        gradients = self.gradient(target, sources, output_gradients, use_generic_names)
        pairs = list(zip(sources, gradients))
        local = [pair for pair in pairs if pair[0] in self._local_sources]
        return local, [pair for pair in pairs if pair[0] not in self._local_sources]


def DistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> tf.GradientTape:
    """A tape whose :meth:`gradient` reduces the gradients over the ranks.

    ``sparse_as_dense``: gradients that are tf.IndexedSlices are reduced as dense tensors.
    ``gradient_predivide_factor``: the average divides by this factor before the sum and by the rest
    after it. ``groups``: a number of groups, or lists of variables; the gradients of a group are
    reduced together. ``scale_local_gradients``: gradients of local sources
    (``register_local_source``) are divided by the number of ranks. Other arguments as in
    :func:`allreduce`.
    """
    check_predivide(gradient_predivide_factor, op)
    if isinstance(gradtape, _DistributedGradientTape):
        raise ValueError("the tape is a DistributedGradientTape already: its gradients would be reduced twice")
    how = Reduction(
        "DistributedGradientTape",
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        checked_groups(groups, num_groups),
        process_set,
    )
    return _DistributedGradientTape(gradtape, how, scale_local_gradients)


def PartialDistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Optional[Any] = None,
    scale_local_gradients: bool = True,
) -> tf.GradientTape:
    """:func:`DistributedGradientTape` that does not reduce the gradients of ``local_layers``: a
    Keras layer, or several, which need not be built yet."""
    layers = _checked_layers(local_layers)
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    tape._local_layers.extend(layers)
    return tape


def _checked_layers(layers: Any) -> list[Any]:
    """List of a Keras layer or several. ValueError for anything else."""
    layers = [] if layers is None else layers
    layers = [layers] if isinstance(layers, tf.keras.layers.Layer) else list(layers)
    for layer in layers:
        if not isinstance(layer, tf.keras.layers.Layer):
            raise ValueError(f"local_layers has a {type(layer).__name__}: expected layers of Keras")
    return layers
