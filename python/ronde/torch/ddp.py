"""Communication hook that reduces the gradients of PyTorch's ``DistributedDataParallel``::

    model = torch.nn.parallel.DistributedDataParallel(model)  # over gloo, say
    hvd.init()
    model.register_comm_hook(None, hvd.ddp_hook)

Ranks must be equal in both. A bucket is reduced while the backward pass fills the next one.
"""

# No `from __future__ import annotations`: torch compares the hook's annotations with types, not
# with names.

import itertools
import os
import queue
import threading
import weakref
from typing import Any, Dict, Iterator, Optional, Tuple, Type, Union

import torch
import torch.distributed as dist

from ..common.basics import HorovodBasics
from ..common.process_sets import ProcessSet, global_process_set
from .compression import Compression, Compressor
from .mpi_ops import Average, send_in_place, synchronize
from .reducer import Shipment


class DdpHookState:
    """State to register with the hook, if ranks or compression differ from the defaults."""

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
    """Averages a bucket of gradients over the ranks, for ``model.register_comm_hook(state,
    ddp_hook)``.

    ``state``: None for all ranks, a process set, or a :class:`DdpHookState`. Errors between ranks
    are raised by ``backward()`` as a RuntimeError with HorovodInternalError's message.
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
        reduced = reduced if reduced is buffer else buffer.copy_(reduced)
        if reduced.is_cuda:
            # This thread's stream, and not the one on which DDP reads the bucket.
            torch.cuda.current_stream(reduced.device).synchronize()
        return reduced

    # For DDP, an exception set as a future's result is a value; one raised by a callback is an
    # error.
    return done.then(result)


#: Numbers of buckets, by the id of the first parameter, which no other bucket has.
_numbers: Dict[int, Tuple["weakref.ref[torch.Tensor]", int]] = {}
#: The job that the numbers are of.
_job = 0
#: Next numbers by process set: all its ranks have seen the same buckets.
_next_numbers: "weakref.WeakKeyDictionary[ProcessSet, Iterator[int]]" = weakref.WeakKeyDictionary()


def _number_of(first_parameter: torch.Tensor, process_set: ProcessSet) -> int:
    """Number of the bucket that begins with this parameter, in order of first use.

    At first this is the bucket's index. But several models have buckets of the same index, and DDP
    creates new buckets after the first step. These get new numbers, equal on all ranks, since all
    ranks use them in the same order.
    """
    global _job
    if _job != HorovodBasics.jobs:
        # Ranks that join a new job have other buckets behind them.
        _numbers.clear()
        _next_numbers.clear()
        _job = HorovodBasics.jobs
    key = id(first_parameter)
    known = _numbers.get(key)
    if known is not None and known[0]() is first_parameter:
        return known[1]
    number = next(_next_numbers.setdefault(process_set, itertools.count()))
    _numbers[key] = weakref.ref(first_parameter), number
    return number


_lock = threading.Lock()
#: Work for the waiting thread, and the process that the thread runs in.
_orders: Optional["queue.SimpleQueue[Tuple[int, Any]]"] = None
_owner = 0


def _waiter() -> "queue.SimpleQueue[Tuple[int, Any]]":
    """Queue of a thread that waits for operations and completes futures; one thread per process,
    also after a fork."""
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
        # Keep no reference while waiting for the next order.
        del handle, done, error
