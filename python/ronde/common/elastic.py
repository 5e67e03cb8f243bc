"""Elastic training, whatever the framework: a state that is committed, and a loop that goes on from there.

The loop (:func:`run_fn`) leaves the job and joins it anew when an operation fails or the hosts change.
Horovod's ranks can wait for each other there for ever, when some have failed and others have only heard of a
change: some then bring their states together and the others skip that (horovod/horovod#3494). Here all ranks
ask each other first.
"""

from __future__ import annotations

import copy
import functools
import logging
import queue
import threading
from typing import Any, Callable, Iterable

from .exceptions import HorovodInternalError, HostsUpdatedInterrupt

_log = logging.getLogger("ronde.elastic")


class HostUpdateResult:
    """What has become of the job's hosts; bits, to be combined."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class WorkerNotificationManager:
    """Tells the states of this process that the job's hosts have changed.

    Ronde's launcher changes no hosts: whoever does calls :meth:`handle_hosts_updated`, or a state's
    `on_hosts_updated`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: set[Any] = set()

    def init(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: in Horovod it connects with the launcher, where the arguments say."""

    def register_listener(self, listener: Any) -> None:
        """From now on changes are told to ``listener``, by its method ``on_hosts_updated``."""
        with self._lock:
            self._listeners.add(listener)

    def remove_listener(self, listener: Any) -> None:
        """Changes are told to ``listener`` no more."""
        with self._lock:
            self._listeners.discard(listener)

    def handle_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """Tells all listeners of a change."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.on_hosts_updated(timestamp, update_res)


notification_manager = WorkerNotificationManager()


class State:
    """The state of a training that is to survive changes of the ranks: a base class.

    What the state consists of, and how it is kept, is for derived classes to say.

    ``bcast_object``: gives all ranks an object of rank 0. ``get_rank``: this process's rank.
    """

    def __init__(self, bcast_object: Callable[..., Any], get_rank: Callable[[], int]) -> None:
        self._bcast_object = bcast_object
        self._rank = get_rank
        self._host_messages: queue.Queue[tuple[float, int]] = queue.Queue()
        self._last_updated_timestamp: float = 0
        self._reset_callbacks: list[Callable[[], Any]] = []

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """Has these called, in order, when the job has been joined anew: to adapt a learning rate, say."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """The job has been joined anew."""
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp: float, update_res: int) -> None:
        """The hosts have changed (a :class:`HostUpdateResult`): the next commit sees it. From any thread."""
        self._host_messages.put((timestamp, update_res))

    def commit(self) -> None:
        """Saves the state, to go back to if the job fails; then :meth:`check_host_updates`.

        All ranks call it. It copies everything: not needed after every batch.
        """
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Raises HostsUpdatedInterrupt, on all ranks, if one has heard of new hosts. All ranks call it."""
        before = latest = self._last_updated_timestamp
        update = HostUpdateResult.no_update
        while not self._host_messages.empty():
            timestamp, result = self._host_messages.get()
            if timestamp > latest:
                latest = timestamp
                update |= result
        of_ranks = self._of_all_ranks((before, latest, update))
        before = max(entry[0] for entry in of_ranks)
        self._last_updated_timestamp = max(entry[1] for entry in of_ranks)
        if self._last_updated_timestamp > before:
            update = functools.reduce(lambda sum, entry: sum | entry[2], of_ranks, HostUpdateResult.no_update)
            raise HostsUpdatedInterrupt(update == HostUpdateResult.removed)

    def _of_all_ranks(self, value: Any) -> list[Any]:
        """The values that the ranks bring: as far as a broadcast can tell, that is rank 0's."""
        return [self._bcast_object(value)]

    def _all_skip_sync(self, skip_sync: bool) -> bool:
        """Whether all ranks want to skip :meth:`sync`. All ranks call it."""
        can_ask = type(self)._of_all_ranks is not State._of_all_ranks
        return can_ask and all(self._of_all_ranks(skip_sync))

    def save(self) -> None:
        """Keeps the state as it is now, in memory."""
        raise NotImplementedError

    def restore(self) -> None:
        """Goes back to what was kept last."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives all ranks the state of rank 0. All ranks call it."""
        raise NotImplementedError

    def reset(self) -> None:
        """Adapts the state to the ranks that there are now, before the callbacks are called."""


class ObjectState(State):
    """A state of plain Python objects, which are its attributes.

    ``kwargs``: the objects by name. They are copied when they are kept, so that changes within them are
    undone too.
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


def run_fn(func: Callable[..., Any], reset: Callable[[], Any]) -> Callable[..., Any]:
    """``func``, made elastic; see :func:`ronde.torch.elastic.run`. ``reset`` leaves the job and joins it
    anew."""

    @functools.wraps(func)
    def wrapper(state: Any, *args: Any, **kwargs: Any) -> Any:
        notification_manager.init()
        notification_manager.register_listener(state)
        skip_sync = False
        try:
            while True:
                try:
                    # A rank that is new to the job has a state to get, whatever the others think.
                    if not (state._all_skip_sync(skip_sync) if isinstance(state, State) else skip_sync):
                        state.sync()
                    return func(state, *args, **kwargs)
                except HorovodInternalError as error:
                    # If the job cannot be joined again, that alone would be raised.
                    _log.warning("back to the last commit, as an operation failed: %s", error)
                    state.restore()
                    skip_sync = False
                except HostsUpdatedInterrupt as interrupt:
                    skip_sync = interrupt.skip_sync
                reset()
                state.on_reset()
        finally:
            notification_manager.remove_listener(state)

    return wrapper
