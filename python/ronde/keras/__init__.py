"""Data-parallel training with Keras 3 on TensorFlow, JAX or torch, with the interface of
``horovod.keras``.

::

    import ronde.keras as hvd

    hvd.init()
    model.compile(optimizer=hvd.DistributedOptimizer(optimizer), …)
    model.fit(…, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])
"""

from __future__ import annotations

try:
    import keras as _keras_package  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "keras":
        raise
    raise ImportError(
        "ronde.keras needs Keras 3, which is not installed: `pip install keras`", name="keras"
    ) from error

from collections.abc import Sequence
from typing import Any, Optional

from .. import _keras as _impl
from .. import _ronde
from .._keras.optimizer import distributed as _distributed
from .._keras.optimizer import load_model as _load_model
from .._keras.training import wrap_methods as _wrap_methods
from ..common.basics import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from ..common.exceptions import HorovodInternalError
from ..common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from ..common.reduce_ops import Adasum, Average, Groups, Sum, checked_groups
from . import callbacks, elastic

autotune_report = _ronde.autotune_report

_wrap_methods()

Compression = _impl.backend().Compression


def DistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    num_groups: int = 0,
    groups: Groups = None,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """An optimizer like ``optimizer``, whose gradients are reduced over the ranks before they are
    applied.

    It is a new optimizer with the same configuration and class name, so that a saved model can be
    loaded without ronde; :func:`load_model` makes it distributed again. ``op``: Average or Sum.
    ``gradient_predivide_factor``: the average divides by this factor before the sum and by the rest
    after it. ``backward_passes_per_step``: gradients of so many batches are summed before they are
    reduced, or averaged with ``average_aggregated_gradients``. ``process_set``: the ranks that
    reduce. On TensorFlow, ``groups`` is a number of groups, or lists of variables, that are reduced
    together, ``sparse_as_dense`` converts tf.IndexedSlices, and the devices are those of the
    operations. ``register_local_var`` of the optimizer excludes variables; their gradients are
    divided by the number of ranks unless ``scale_local_gradients=False``.

    ValueError for an optimizer that is distributed already.
    """
    return _distributed(
        optimizer,
        name,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        groups=checked_groups(groups, num_groups),
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )


def PartialDistributedOptimizer(
    optimizer: Any,
    name: Optional[str] = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: int = Average,
    groups: Groups = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """:func:`DistributedOptimizer` that does not reduce the gradients of ``local_layers``: a layer of
    Keras, or several, which need not be built yet."""
    layers = [] if local_layers is None else local_layers
    layers = [layers] if isinstance(layers, _keras_package.layers.Layer) else list(layers)
    for layer in layers:
        if not isinstance(layer, _keras_package.layers.Layer):
            raise ValueError(f"local_layers has a {type(layer).__name__}: expected layers of Keras")
    distributed = DistributedOptimizer(
        optimizer,
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    distributed._options.local_layers.extend(layers)
    return distributed


def broadcast_variables(variables: Sequence[Any], root_rank: int) -> None:
    """Assigns the values of rank ``root_rank`` to the variables of all ranks."""
    _impl.backend().broadcast_variables(variables, root_rank)


def broadcast_global_variables(root_rank: int) -> None:
    """RuntimeError: Keras 3 has no list of all variables; use :func:`broadcast_variables` or the
    callback."""
    raise RuntimeError(
        "Keras 3 has no list of all variables: use hvd.broadcast_variables(model.variables, root_rank), or "
        "hvd.callbacks.BroadcastGlobalVariablesCallback"
    )


def _op_of(average: Optional[bool], op: Optional[int]) -> int:
    if op is not None:
        return op
    return Sum if average is False else Average


def allreduce(
    value: Any,
    name: Optional[str] = None,
    average: bool = True,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Optional[int] = None,
    compression: Any = Compression.none,
) -> Any:
    """Reduces a value that the backend can convert to a tensor. ``op`` takes precedence over
    ``average``, which chooses between the average and the sum."""
    front = _impl.backend()
    return front.allreduce(value, name, _op_of(average, op), prescale_factor, postscale_factor, compression)


def allgather(value: Any, name: Optional[str] = None) -> Any:
    """Concatenates the rows of all ranks, whose numbers may differ."""
    return _impl.backend().allgather(_keras_package.ops.convert_to_tensor(value), name=name)


def broadcast(value: Any, root_rank: int, name: Optional[str] = None) -> Any:
    """Returns the value of rank ``root_rank``."""
    return _impl.backend().broadcast(_keras_package.ops.convert_to_tensor(value), root_rank, name=name)


def reducescatter(value: Any, name: Optional[str] = None, op: int = Average) -> Any:
    """Reduces a value; each rank gets a share of the rows."""
    return _impl.backend().reducescatter(_keras_package.ops.convert_to_tensor(value), name=name, op=op)


def broadcast_object(obj: Any, root_rank: int = 0, name: Optional[str] = None) -> Any:
    """Returns the object of rank ``root_rank``, which is pickled."""
    return _impl.backend().broadcast_object(obj, root_rank, name=name)


def allgather_object(obj: Any, name: Optional[str] = None) -> list[Any]:
    """Returns the objects of all ranks in order; they are pickled."""
    return _impl.backend().allgather_object(obj, name=name)


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until every rank of the set has called it."""
    _impl.backend().barrier(process_set)


def load_model(
    filepath: Any,
    custom_optimizers: Optional[Sequence[type]] = None,
    custom_objects: Optional[dict[str, Any]] = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Loads a model of Keras, and makes its optimizer a :func:`DistributedOptimizer` with the saved
    configuration and state.

    ``custom_optimizers``: further classes of optimizers; ``custom_objects``: as in Keras.
    ``legacy_opts``: ValueError, as Keras 3 has no legacy optimizers.
    """
    if legacy_opts:
        raise ValueError("legacy_opts=True: Keras 3 has no legacy optimizers")
    return _load_model(filepath, custom_optimizers, custom_objects, compression)


__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "autotune_report",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_initialized",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
