"""Aggregation of the gradients of several passes, for optimizers of TensorFlow 1 in graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


class LocalGradientAggregationHelper:
    """Sums gradients in variables, and reduces them in every ``backward_passes_per_step``-th pass.

    ``allreduce_func``: reduces gradients of variables.
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[[Sequence[Any], Sequence[Any]], list[Any]],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
    ) -> None:
        if backward_passes_per_step <= 0:
            raise ValueError(f"backward_passes_per_step={backward_passes_per_step} must be positive")
        self.backward_passes_per_step = backward_passes_per_step
        self.allreduce_grads = allreduce_func
        self.sparse_as_dense = sparse_as_dense
        self.average_aggregated_gradients = average_aggregated_gradients
        self._sums: dict[int, tf.Variable] = {}

    def compute_gradients(self, grads: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """The sums of the gradients: over the passes of this rank, and in the last pass of a step
        over all ranks."""
        self._counter = tf.Variable(0, trainable=False, dtype=tf.int32, name="aggregation_counter")
        sums: list[Any] = []
        for index, grad in enumerate(grads):
            if isinstance(grad, tf.IndexedSlices):
                if not self.sparse_as_dense:
                    raise ValueError(
                        "backward_passes_per_step > 1 does not support tf.IndexedSlices: pass sparse_as_dense=True"
                    )
                grad = tf.convert_to_tensor(grad)
            if grad is None:
                sums.append(None)
                continue
            kept = tf.Variable(tf.zeros(grad.shape, grad.dtype), trainable=False, name="aggregated_gradient")
            self._sums[index] = kept
            sums.append(kept.assign_add(grad))
        with tf.control_dependencies([one for one in sums if one is not None]):
            count = self._counter.assign_add(1)
        present = [index for index, one in enumerate(sums) if one is not None]
        own = [tf.convert_to_tensor(sums[index]) for index in present]

        def reduced() -> list[Any]:
            everything: list[Any] = [None] * len(sums)
            for index, one in zip(present, own):
                everything[index] = one
            result = self.allreduce_grads(everything, variables)
            factor = self.backward_passes_per_step if self.average_aggregated_gradients else 1
            return [result[index] / factor if factor > 1 else result[index] for index in present]

        self._is_last = tf.equal(tf.convert_to_tensor(count), self.backward_passes_per_step)
        outcome = tf.cond(self._is_last, reduced, lambda: own)
        outcome = [outcome] if len(present) == 1 and not isinstance(outcome, (list, tuple)) else outcome
        results: list[Any] = [None] * len(sums)
        for index, one in zip(present, outcome):
            results[index] = one
        return results

    def apply_gradients(self, apply: Callable[[], Any]) -> Any:
        """Calls ``apply`` in the last pass of a step, and then starts again."""

        def last() -> tf.Operation:
            with tf.control_dependencies([apply()]):
                reset = [self._counter.assign(0)]
                reset += [kept.assign(tf.zeros_like(kept)) for kept in self._sums.values()]
                with tf.control_dependencies(reset):
                    return tf.constant(True)

        return tf.cond(self._is_last, last, lambda: tf.constant(False)).op
