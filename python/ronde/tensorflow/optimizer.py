"""`DistributedOptimizer`: for Keras' optimizers, and for those of TensorFlow 1."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from ..common.process_sets import ProcessSet, global_process_set
from ..common.reduce_ops import Adasum, Average, Groups, check_predivide, checked_groups
from .compression import Compression, Compressor
from .gradient_aggregation import LocalGradientAggregationHelper
from .gradients import LocalVariables, Reduction, reducer

_LegacyOptimizer = tf.compat.v1.train.Optimizer


class _DistributedOptimizer(_LegacyOptimizer):
    """An optimizer of TensorFlow 1 around another one, which reduces gradients when they are
    computed."""

    def __init__(
        self,
        optimizer: Any,
        use_locking: bool,
        how: Reduction,
        backward_passes_per_step: int,
        average_aggregated_gradients: bool,
        scale_local_gradients: bool,
    ) -> None:
        super().__init__(name=how.name, use_locking=use_locking)
        self._optimizer = optimizer
        self._allreduce_grads = reducer(how)
        self._local_vars = LocalVariables(how.process_set, scale_local_gradients)
        self.process_set = how.process_set
        self.scale_local_gradients = scale_local_gradients
        self._helper: Optional[LocalGradientAggregationHelper] = None
        if backward_passes_per_step > 1:
            if tf.executing_eagerly():
                raise ValueError(
                    "backward_passes_per_step > 1 needs a graph with optimizers of TensorFlow 1; use one of Keras"
                )
            self._helper = LocalGradientAggregationHelper(
                backward_passes_per_step,
                self._reduced,
                how.sparse_as_dense,
                average_aggregated_gradients,
            )

    def _reduced(self, gradients: Any, variables: Any) -> list[Any]:
        return self._local_vars.reduce(self._allreduce_grads, gradients, variables)

    def register_local_var(self, var: Any) -> None:
        """Excludes a variable from reduction."""
        self._local_vars.add(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Pairs of reduced gradient and variable; arguments as in the other optimizer."""
        gradients, variables = zip(*self._optimizer.compute_gradients(*args, **kwargs))
        reduce = self._reduced if self._helper is None else self._helper.compute_gradients
        return list(zip(reduce(gradients, variables), variables))

    def apply_gradients(self, grads_and_vars: Any, global_step: Any = None, name: Optional[str] = None) -> Any:
        """Applies gradients by the other optimizer, with ``backward_passes_per_step`` after the last
        pass of a step only."""
        pairs = list(grads_and_vars)

        def apply() -> Any:
            return self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)

        return apply() if self._helper is None else self._helper.apply_gradients(apply)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """The other optimizer's."""
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> Any:
        """The other optimizer's."""
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args: Any, **kwargs: Any) -> Any:
        """The other optimizer's."""
        return self._optimizer.variables(*args, **kwargs)


def DistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """An optimizer like ``optimizer``, whose gradients are reduced over the ranks before they are
    applied.

    ``optimizer``: one of Keras, or of ``tf.compat.v1.train``. ``backward_passes_per_step``: gradients
    of so many passes are summed before they are reduced, or averaged with
    ``average_aggregated_gradients``. ``use_locking``: for optimizers of TensorFlow 1. Other arguments
    as in :func:`DistributedGradientTape`.
    """
    check_predivide(gradient_predivide_factor, op)
    if op == Adasum and average_aggregated_gradients:
        raise ValueError("Adasum does not support average_aggregated_gradients=True")
    groups = checked_groups(groups, num_groups)
    if not isinstance(optimizer, _LegacyOptimizer):
        if op == Adasum:
            raise ValueError("Adasum does not support optimizers of Keras: use DistributedGradientTape(op=Adasum)")
        from . import keras

        return keras.DistributedOptimizer(
            optimizer,
            name=name,
            device_dense=device_dense,
            device_sparse=device_sparse,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            op=op,
            groups=groups,
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )
    if isinstance(optimizer, _DistributedOptimizer):
        raise ValueError("the optimizer is a DistributedOptimizer already: its gradients would be reduced twice")
    if op == Adasum:
        raise NotImplementedError(
            "Adasum of changes of weights is not available for optimizers of TensorFlow 1: use "
            "DistributedGradientTape(op=Adasum)"
        )
    how = Reduction(
        name or f"Distributed{type(optimizer).__name__}",
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        groups,
        process_set,
    )
    return _DistributedOptimizer(
        optimizer,
        use_locking,
        how,
        backward_passes_per_step,
        average_aggregated_gradients,
        scale_local_gradients,
    )
