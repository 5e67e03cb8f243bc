"""Data-parallel training with JAX: one process for each device, and collective operations among them.

::

    import ronde.jax as hvd

    hvd.init()
    params = hvd.broadcast_tree(params)
    optimizer = hvd.distributed(optax.adam(1e-3))
"""

from __future__ import annotations

from contextlib import suppress as _suppress

try:
    import jax as _jax  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "jax":
        raise
    raise ImportError(
        "ronde.jax needs JAX, which is not installed: `pip install jax`", name="jax"
    ) from error

from .. import _ronde
from ..common.basics import (
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from ..common.exceptions import HorovodInternalError
from ..common.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set
from ..common.reduce_ops import Adasum, Average, Max, Min, Product, Sum
from .compression import Compression
from .functions import after_join as _after_join
from .functions import allgather_object, broadcast_object
from .library import ERRORS as _ERRORS
from .library import set_id_of as _set_id_of
from .ops import (
    allgather,
    allreduce,
    allreduce_tree,
    alltoall,
    broadcast,
    broadcast_tree,
    reducescatter,
)
from .optimizer import distributed

mark_step = _ronde.mark_step
mark_epoch = _ronde.mark_epoch
autotune_report = _ronde.autotune_report


def join() -> int:
    """Declares that this rank has no more data, and waits until all ranks have. Returns the rank
    that joined last.

    If other ranks have traced an update of a :func:`distributed` optimizer meanwhile, updates that
    are traced after the join are not checked to have the same tree of arrays on all ranks.
    """
    # Programs that still run submit their operations first. An operation that has failed has raised
    # its error where its result was used.
    for wait in (_jax.effects_barrier, *(array.block_until_ready for array in _jax.live_arrays())):
        with _suppress(*_ERRORS):
            wait()
    last = _ronde.join()
    _after_join()
    return last


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until every rank of the set has called it."""
    _ronde.barrier(_set_id_of(process_set))


__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "HorovodInternalError",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "allreduce_tree",
    "alltoall",
    "autotune_report",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_tree",
    "cross_rank",
    "cross_size",
    "distributed",
    "global_process_set",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "mark_epoch",
    "mark_step",
    "rank",
    "reducescatter",
    "remove_process_set",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
