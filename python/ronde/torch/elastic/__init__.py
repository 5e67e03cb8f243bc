"""Elastic training with PyTorch: the state is committed now and then, and restored after a
failure::

@hvd.elastic.run
def train(state):
    for state.epoch in range(state.epoch, epochs):
        …
        state.commit()

train(hvd.elastic.TorchState(model, optimizer, epoch=0))
"""

from __future__ import annotations

from typing import Any, Callable

from ...common.elastic import run_fn
from ..mpi_ops import init, shutdown
from ..reducer import ranks_have_changed
from .sampler import ElasticSampler
from .state import TorchState

__all__ = ["ElasticSampler", "TorchState", "run"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a training function elastic. Its first argument is its state, a
    :class:`ronde.common.elastic.State`.

    All ranks synchronize their states, then call the function. When an operation fails
    (HorovodInternalError), the last commit is restored; when hosts are added or removed
    (HostsUpdatedInterrupt), the state is kept. In both cases the process leaves the job, joins it
    again and calls the function again. Other exceptions end it.
    """
    return run_fn(func, _reset)


def _reset() -> None:
    shutdown()
    init()
    ranks_have_changed()
