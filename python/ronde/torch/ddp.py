"""Ronde's reduction for models in PyTorch's own ``DistributedDataParallel``, as a communication hook::

    model = torch.nn.parallel.DistributedDataParallel(model)  # over gloo, say
    hvd.init()
    model.register_comm_hook(None, hvd.ddp_hook)

Ranks must be the same in both. Gradients of a bucket travel while the backward pass fills the next one.
"""

# No `from __future__ import annotations`: torch compares the hook's annotations with types, not with names.

import itertools
import os
import queue
import threading
import weakref
from typing import Any, Dict, Iterator, Optional, Tuple, Type, Union

import torch
import torch.distributed as dist

from ..common.process_sets import ProcessSet, global_process_set
from .compression import Compression, Compressor
from .mpi_ops import Average, send_in_place, synchronize
from .reducer import Shipment


class DdpHookState:
    """The state to register the hook with, if ranks or compression are not the defaults."""

    def __init__(
        self,
        process_set: ProcessSet = global_process_set,
        compression: Type[Compressor] = Compression.none,
    ) -> None:
        self.process_set = process_set
        self.compression = compression


_DEFAULT_STATE = DdpHookState()


def ddp_hook(
    state: Union[DdpHookState, ProcessSet, None], bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Averages a bucket of gradients over the ranks, for ``model.register_comm_hook(state, ddp_hook)``.

    ``state``: None for all ranks, a process set, or a :class:`DdpHookState`. What goes wrong between ranks
    comes out of ``backward()`` as a RuntimeError with HorovodInternalError's message.
    """
    if state is None:
        state = _DEFAULT_STATE
    elif isinstance(state, ProcessSet):
        state = DdpHookState(state)
    buffer = bucket.buffer()
    shipment = Shipment(buffer, None, state.compression)
    name = f"ddp.bucket.{_number_of(bucket.parameters()[0], state.process_set)}"
    handle = send_in_place(
        shipment.sent, name, Average, (1.0, 1.0), state.process_set, shipment.wire_dtype
    )
    done: torch.futures.Future = torch.futures.Future()
    _waiter().put((handle, done))

    def result(done: torch.futures.Future) -> torch.Tensor:
        error = done.value()
        if error is not None:
            raise error
        reduced = shipment.result(state.compression)
        return reduced if reduced is buffer else buffer.copy_(reduced)

    # To DDP an exception that is set as a future's result is a value; one that a callback raises is an error.
    return done.then(result)


#: Numbers of buckets: by the id of a bucket's first parameter, which is no other bucket's.
_numbers: Dict[int, Tuple["weakref.ref[torch.Tensor]", int]] = {}
#: What numbers come next, by the process set: its ranks all have seen the same buckets of it.
_next_numbers: "weakref.WeakKeyDictionary[ProcessSet, Iterator[int]]" = weakref.WeakKeyDictionary()


def _number_of(first_parameter: torch.Tensor, process_set: ProcessSet) -> int:
    """The number of the bucket that begins with this parameter, in the order in which buckets are first used.

    It is the bucket's index at first. But several models have buckets of the same index, and DDP makes others
    after the first step: these get numbers of their own, on all ranks the same ones, as they do so in the
    same order.
    """
    key = id(first_parameter)
    known = _numbers.get(key)
    if known is not None and known[0]() is first_parameter:
        return known[1]
    number = next(_next_numbers.setdefault(process_set, itertools.count()))
    _numbers[key] = weakref.ref(first_parameter), number
    return number


_lock = threading.Lock()
#: What the waiter is to do, and the process that its thread is in.
_orders: Optional["queue.SimpleQueue[Tuple[int, Any]]"] = None
_owner = 0


def _waiter() -> "queue.SimpleQueue[Tuple[int, Any]]":
    """The queue of a thread that waits for operations and fulfils futures; a forked process has its own."""
    global _orders, _owner
    with _lock:
        if _orders is None or _owner != os.getpid():
            _orders, _owner = queue.SimpleQueue(), os.getpid()
            threading.Thread(target=_wait, args=(_orders,), name="ronde-ddp", daemon=True).start()
        return _orders


def _wait(orders: "queue.SimpleQueue[Tuple[int, Any]]") -> None:
    while True:
        handle, done = orders.get()
        error: Optional[BaseException] = None
        try:
            synchronize(handle)
        except BaseException as raised:
            error = raised
        done.set_result(error)
        # Nothing of an order is kept while waiting for the next one.
        del handle, done, error
