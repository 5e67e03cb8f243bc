"""Batch normalization over the batches of all ranks, as if they were one.

With ``n`` values per channel on a rank, ``m`` their mean and ``v`` their variance, the ranks add up
``n``, ``n·m`` and ``n·(v + m²)``; the batches may differ in size.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ..common import seat
from .mpi_ops import Sum, _allreduce, size


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """``tf.keras.layers.BatchNormalization`` with the statistics of all ranks in training.

    ``fused`` is a parameter of Horovod: a value other than False raises ValueError. In training all
    ranks call the layer.
    """

    def __init__(self, fused: bool = False, **kwargs: Any) -> None:
        if fused in (True, None):
            raise ValueError("SyncBatchNormalization does not support fused=True")
        kwargs["name"] = kwargs.get("name") or "sync_batch_normalization"
        super().__init__(**kwargs)

    def _moments(self, inputs: Any, mask: Any) -> tuple[Any, Any]:
        """Mean and variance per channel over all ranks."""
        mean, variance = super()._moments(inputs, mask)
        if size() == 1 and not seat.is_elastic():  # where a traced step may run on more ranks later
            return mean, variance
        dtype = tf.float64 if mean.dtype == tf.float64 else tf.float32
        if mask is None:
            count = tf.cast(tf.size(inputs) / tf.size(mean), dtype)
        else:
            count = tf.reduce_sum(tf.cast(mask, dtype))
        mean_, variance_ = tf.cast(mean, dtype), tf.cast(variance, dtype)
        # An empty batch has no mean.
        own = tf.where(count > 0, tf.stack([mean_, variance_ + tf.square(mean_)]), 0.0) * count
        counts = tf.fill([1, tf.shape(mean_)[0]], count)
        sums = _allreduce(tf.concat([own, counts], 0), op=Sum)
        total = sums[0] / sums[2]
        return tf.cast(total, mean.dtype), tf.cast(sums[1] / sums[2] - tf.square(total), variance.dtype)
