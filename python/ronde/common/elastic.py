"""Elastic training, independent of the framework: a committed state, and a loop that resumes from
it.

When an operation fails or the hosts change, the loop (:func:`run_fn`) leaves the job and joins it
again. In Horovod the ranks can then wait for each other for ever: if an operation has failed on
some ranks while others have only been notified of a change, some synchronize their states and
others skip it (horovod/horovod#3494). Here all ranks first agree whether to synchronize.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import logging
import queue
import threading
import time
from typing import Any, Callable, Iterable, Iterator

from .. import _ronde
from . import learned, seat
from .exceptions import HorovodInternalError, HostsUpdatedInterrupt

_log = logging.getLogger("ronde.elastic")

#: Largest number of consecutive attempts to join the job again.
_ATTEMPTS = 10


class HostUpdateResult:
    """Kind of a change of the job's hosts, as bits."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class WorkerNotificationManager:
    """Notifies the states of this process that the job's hosts have changed.

    In an elastic job, the launcher reports changes. A program that changes hosts itself calls
    :meth:`handle_hosts_updated`, or a state's `on_hosts_updated`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: set[Any] = set()

    def init(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing; in Horovod it connects to the launcher."""

    def poll(self) -> None:
        """Notifies the states of the changes that the launcher has reported since the last call."""
        added, removed = _ronde.elastic_changes()
        if added or removed:
            update = HostUpdateResult.added * added | HostUpdateResult.removed * removed
            self.handle_hosts_updated(time.monotonic(), update)

    def register_listener(self, listener: Any) -> None:
        """Registers ``listener``, whose method ``on_hosts_updated`` is called at changes."""
        with self._lock:
            self._listeners.add(listener)

    def remove_listener(self, listener: Any) -> None:
        """Removes ``listener``."""
        with self._lock:
            self._listeners.discard(listener)

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Notifies all listeners of a change."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.on_hosts_updated(timestamp, update_res)


notification_manager = WorkerNotificationManager()


class _HostMessages(queue.Queue[tuple[float, int]]):
    """Changes of hosts, of which a state was notified. Programs that wait for one ask for it."""

    def empty(self) -> bool:
        notification_manager.poll()
        return super().empty()


class State:
    """State of a training that survives changes of the ranks: a base class.

    Derived classes define the contents and how they are saved.

    ``bcast_object``: broadcasts an object from rank 0. ``get_rank``: returns this process's rank.
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages = _HostMessages()
        self._last_updated_timestamp: float = 0
        self._reset_callbacks: list[Callable[[], Any]] = []

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """Registers functions called in order after a reset, for example to adapt a learning
        rate."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Called after the job has been joined again."""
        self._host_messages = _HostMessages()
        # Clocks of hosts differ: what a host says later may have an earlier time.
        self._last_updated_timestamp = 0
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Notes a change of hosts (:class:`HostUpdateResult`) for the next commit. Thread-safe."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Saves the state, which is restored if the job fails; then calls
        :meth:`check_host_updates`.

        All ranks call it. It copies the whole state, so call it less often than after every batch.
        If that fails, the commit before it is kept.
        """
        with self._all_or_nothing():
            self.save()
            self._settle()
        self.check_host_updates()

    def _settle(self) -> None:
        """Waits for values that are still computed from results of operations, and raises what such
        an operation raises. All ranks call it."""

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt on all ranks if one was notified of a change. All ranks call
        it."""
        before = latest = self._last_updated_timestamp
        update = HostUpdateResult.no_update
        while not self._host_messages.empty():
            timestamp, result = self._host_messages.get()
            if timestamp > latest:
                latest = timestamp
                update |= result
        of_ranks = self._of_all_ranks((before, latest, update, learned.news()))
        learned.take([entry[3] for entry in of_ranks])
        before = max(entry[0] for entry in of_ranks)
        self._last_updated_timestamp = max(entry[1] for entry in of_ranks)
        if self._last_updated_timestamp > before:
            update = functools.reduce(lambda sum, entry: sum | entry[2], of_ranks, HostUpdateResult.no_update)
            self._settle()  # the state is used as it is
            raise HostsUpdatedInterrupt(update == HostUpdateResult.removed)

    def _of_all_ranks(self, value: Any) -> list[Any]:
        """The values of all ranks; in this base class, which can only broadcast, that of rank 0."""
        return [self._bcast_object(value)]

    def _all_skip_sync(self, skip_sync: bool) -> bool:
        """Whether all ranks want to skip :meth:`sync`. All ranks call it. Raises ValueError on all
        ranks if their states have different parts: they cannot be synchronized."""
        if type(self)._of_all_ranks is State._of_all_ranks:
            return False
        parts = self._parts()
        digest = hashlib.sha256(repr(sorted(parts.items())).encode()).digest()
        of_ranks = self._of_all_ranks((skip_sync, learned.revision(), digest))
        skips, revisions, digests = zip(*of_ranks)
        if len(set(digests)) > 1:
            raise ValueError(_difference(self._of_all_ranks(parts)))
        if seat.is_elastic():
            learned.share(list(revisions), self._rank(), self._of_all_ranks)
        return all(skips)

    def _parts(self) -> dict[str, str]:
        """Parts of the state by name, with what must be equal on all ranks, such as a shape."""
        return {}

    def _keepers(self) -> list[Any]:
        """Objects among whose attributes the last commit is."""
        return [self]

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Keeps the last commit as it was if the body fails: a mixture of two commits is no state
        of the training."""
        kept = [(keeper, dict(vars(keeper))) for keeper in self._keepers()]
        try:
            yield
        except BaseException:
            for keeper, attributes in kept:
                vars(keeper).update(attributes)
            raise

    def save(self) -> None:
        """Saves the current state in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Restores the last saved state."""
        raise NotImplementedError

    def sync(self) -> None:
        """Broadcasts the state of rank 0. All ranks call it."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapts the state to the new ranks, before the callbacks are called."""


class ObjectState(State):
    """A state whose attributes are plain Python objects.

    ``kwargs``: the objects by name. They are deep-copied when saved, so that restoring also
    reverts changes inside them.
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(bcast_object=bcast_object, get_rank=get_rank)
        self._saved_state = kwargs
        self._set_attributes(kwargs)
        ObjectState.save(self)

    def save(self) -> None:
        self._saved_state = {name: copy.deepcopy(getattr(self, name)) for name in self._saved_state}

    def restore(self) -> None:
        self._set_attributes(copy.deepcopy(self._saved_state))

    def sync(self) -> None:
        if self._saved_state:
            values = {name: getattr(self, name) for name in self._saved_state}
            self._set_attributes(self._bcast_object(values))
            ObjectState.save(self)

    def _set_attributes(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    def _parts(self) -> dict[str, str]:
        return dict.fromkeys(self._saved_state, "a value")


def parts_of(variables: Iterable[Any]) -> dict[str, str]:
    """Variables of a state as its parts."""
    return {
        f"variables[{number}]": f"a variable {variable.shape} of {variable.dtype}"
        for number, variable in enumerate(variables)
    }


def is_seed(variable: Any) -> bool:
    """Whether a variable is the state of a seed generator of Keras. These stay different on the
    ranks: with equal ones, Dropout would leave out the same units on all ranks."""
    return "seed_generator_state" in getattr(variable, "path", "")


def _difference(parts_of_ranks: list[dict[str, str]]) -> str:
    """Describes the first difference between the parts of rank 0's state and another rank's."""
    first = parts_of_ranks[0]
    for rank, parts in enumerate(parts_of_ranks):
        for name in sorted({*first, *parts}):
            ours, theirs = (of_rank.get(name, "missing") for of_rank in (first, parts))
            if ours != theirs:
                return (
                    f"the elastic state differs between ranks: {name!r} is {ours} on rank 0 and "
                    f"{theirs} on rank {rank}; create it with the same attributes and shapes on "
                    "all ranks"
                )
    return "the elastic state differs between ranks"


def run_fn(func: Callable[..., Any], reset: Callable[[], Any]) -> Callable[..., Any]:
    """Makes ``func`` elastic; see :func:`ronde.torch.elastic.run`. ``reset`` leaves the job and
    joins it again."""

    @functools.wraps(func)
    def wrapper(state: Any, *args: Any, **kwargs: Any) -> Any:
        notification_manager.init()
        notification_manager.register_listener(state)
        skip_sync = is_reset = False
        try:
            while True:
                try:
                    if is_reset:
                        state.on_reset()  # its callbacks may call operations, which may fail
                    # A new rank has to receive the state, whatever the other ranks want.
                    own = isinstance(state, State)
                    if not (state._all_skip_sync(skip_sync) if own else skip_sync):
                        with state._all_or_nothing() if own else contextlib.nullcontext():
                            state.sync()
                            if own:
                                state._settle()
                    seat.has_state = True
                    return func(state, *args, **kwargs)
                except HorovodInternalError as error:
                    # If joining fails, its error would hide this one.
                    _log.warning("restoring the last commit, as an operation failed: %s", error)
                    state.restore()
                    skip_sync = False
                    seat.why = "failed"
                except HostsUpdatedInterrupt as interrupt:
                    skip_sync = interrupt.skip_sync
                    seat.why = "interrupted"
                skip_sync &= _join_again(reset)
                is_reset = True
        finally:
            notification_manager.remove_listener(state)

    return wrapper


def _join_again(reset: Callable[[], Any]) -> bool:
    """Leaves the job and joins it again. Returns whether the first attempt succeeded: in an elastic
    job a rank may end meanwhile, and the remaining ranks then try again. An error of this process
    alone is raised."""
    attempts = 1
    seat.resets += 1  # an elastic launcher says it itself
    while True:
        try:
            reset()
            return attempts == 1
        except ValueError as error:
            if not seat.is_elastic() or attempts == _ATTEMPTS or not _ronde.elastic_join_failed():
                raise
            _log.warning("joining the job again: %s", error)
            seat.why = "failed"
            attempts += 1
