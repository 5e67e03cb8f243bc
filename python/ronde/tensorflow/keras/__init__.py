"""`ronde.keras` under the name and with the arguments of ``horovod.tensorflow.keras``.

``tf.keras`` is Keras 3 in the supported releases of TensorFlow, so both names have the same
classes.
"""

from __future__ import annotations

from typing import Any, Optional

from ...common.process_sets import ProcessSet
from ...common.reduce_ops import Groups, checked_groups
from ...keras import *  # noqa: F403
from ...keras import Average, Compression, broadcast_variables, global_process_set
from ...keras import DistributedOptimizer as _DistributedOptimizer
from ...keras import __all__ as _names
from ...keras import allreduce as _allreduce
from . import callbacks as callbacks
from . import elastic as elastic

__all__ = [*_names, "broadcast_variables"]


def DistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """:func:`ronde.keras.DistributedOptimizer`, with Horovod's order of arguments in this module."""
    return _DistributedOptimizer(
        optimizer,
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        groups=checked_groups(groups, num_groups),
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )


def allreduce(
    value: Any,
    name: Optional[str] = None,
    average: Optional[bool] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Optional[int] = None,
    compression: Any = Compression.none,
) -> Any:
    """Reduces a value that the backend can convert to a tensor; by default their average."""
    return _allreduce(value, name, average, prescale_factor, postscale_factor, op, compression)
