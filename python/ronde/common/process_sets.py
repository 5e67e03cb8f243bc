"""Process sets: subsets of a job's ranks that run operations among themselves.

A set gets a number when it is registered (``init(process_sets=[…])`` or
:func:`add_process_set`) and keeps it until it is removed or the rank leaves the job. After a reset
of an elastic job, the sets that were handed to ``init`` are registered again (:func:`remaining`).
"""

from __future__ import annotations

import logging
import sys
import weakref
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, Optional, Union

from .. import _ronde
from . import seat

_log = logging.getLogger("ronde.elastic")


def is_communicator(it: Any) -> bool:
    """Whether it is an mpi4py communicator. Detected by its methods, so that mpi4py is not
    imported."""
    return hasattr(it, "Get_rank") and hasattr(it, "allgather")


class ProcessSet:
    """Some ranks of the job.

    ``ranks_or_comm``: the ranks in any order, or an mpi4py communicator. With communicators, each
    rank passes the one that it belongs to, and all of them become process sets.
    """

    #: Number of the set in the job; None while it is not registered.
    process_set_id: Optional[int] = None
    #: Its ranks in ascending order; None before ``init`` if they are not known.
    ranks: Optional[list[int]] = None
    #: The communicator that it was created from.
    mpi_comm: Any = None
    #: Why a reset of an elastic job has removed it.
    _lost: Optional[str] = None

    def __init__(self, ranks_or_comm: Union[Iterable[int], Any]) -> None:
        if is_communicator(ranks_or_comm):
            self.mpi_comm = ranks_or_comm
        else:
            self.ranks = sorted(int(rank) for rank in ranks_or_comm)

    def size(self) -> Optional[int]:
        """Number of ranks in the set; None if it is not registered."""
        if self.process_set_id is None:
            return None
        return _ronde.size() if self.ranks is None else len(self.ranks)

    def rank(self) -> Optional[int]:
        """This process's rank within the set; None outside of it, or if it is not registered."""
        return None if self.process_set_id is None else _ronde.process_set_rank(self.process_set_id)

    def included(self) -> Optional[bool]:
        """Whether this process's rank is one of the set's, which need not be registered; None if
        its ranks are not known. ValueError before ``init``."""
        if self.ranks is None and self.process_set_id is None:
            return None
        return _ronde.rank() in (self.ranks or ())

    def __repr__(self) -> str:
        about = f"process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm}"
        return f"ProcessSet({about})"


#: All ranks of the job. Its number is fixed; it has ranks between ``init`` and ``shutdown``.
global_process_set = ProcessSet([])
global_process_set.process_set_id = 0
global_process_set.ranks = None

#: Other registered sets, to be reset at ``shutdown``.
_registered: weakref.WeakSet[ProcessSet] = weakref.WeakSet()

#: Sets that were registered before the last ``shutdown``.
_unbound: weakref.WeakSet[ProcessSet] = weakref.WeakSet()


def add_process_set(process_set: Union[ProcessSet, Iterable[int], Any]) -> ProcessSet:
    """Registers a process set while the job runs: a :class:`ProcessSet`, or ranks or a
    communicator.

    All ranks call it, members or not, with the same ranks, in the same order as other calls that
    add or remove sets. Returns the set. Raises ValueError if a set of the same ranks exists, or if
    the job's process sets are fixed, which is the default; ``init(process_sets="dynamic")`` or
    ``HOROVOD_DYNAMIC_PROCESS_SETS=1`` allows changes.
    """
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set.process_set_id is not None:
        raise ValueError(f"{process_set} is registered already")
    numbers = {tuple(ranks): _ronde.add_process_set(ranks) for ranks in agree([process_set], None)}
    process_set.process_set_id = numbers[tuple(process_set.ranks or ())]
    process_set._lost = None
    _registered.add(process_set)
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a process set from the job; all ranks call it, members or not.

    Returns false for the set of all ranks, which cannot be removed, and for a set that is not
    registered.
    """
    if process_set.process_set_id in (None, 0):
        return False
    removed = _ronde.remove_process_set(process_set.process_set_id)
    _forget(process_set)
    return removed


def get_process_set_ids_and_ranks() -> dict[int, list[int]]:
    """The ranks of the job's process sets by number."""
    return _ronde.process_sets()


def unregistered(process_set: ProcessSet) -> ValueError:
    """The error for an operation of a set that is not registered."""
    if process_set._lost is not None:
        why = f"reset {seat.resets} of the elastic job has removed it, as {process_set._lost}"
    else:
        why = "hand it to hvd.init(process_sets=[…]) or hvd.add_process_set"
    return ValueError(f"{process_set} does not exist, or has not been registered: {why}")


def size_of(process_set: ProcessSet) -> int:
    """Number of ranks of a registered set. ValueError if it is not registered."""
    size = process_set.size()
    if size is None:
        raise unregistered(process_set)
    return size


def remaining(wanted: Sequence[ProcessSet]) -> list[ProcessSet]:
    """Those of the sets that exist after a reset of an elastic job: all their ranks do.

    A set of all ranks gets the number 0. The others, and sets that were added while the job ran,
    are reported as lost.
    """
    size = seat.size() if seat.is_elastic() else None
    lost = [process_set for process_set in _unbound if process_set not in wanted]
    _unbound.clear()
    for process_set in lost:
        process_set._lost = "it was added while the job ran; add it again in the training function"
    exist = []
    for process_set in wanted:
        _forget(process_set)  # an earlier attempt to join, with more ranks, may have set its number
        process_set._lost = None
        ranks = process_set.ranks or []
        if size is not None and any(rank >= size for rank in ranks):
            process_set._lost = f"the job has only {size} rank{'s' * (size > 1)} now"
            lost.append(process_set)
        elif len(ranks) == size:
            process_set.process_set_id = 0
            _registered.add(process_set)
        else:
            exist.append(process_set)
    for process_set in lost:
        reason = process_set._lost
        _log.warning("the process set of ranks %s is lost: %s", process_set.ranks, reason)
    return exist


def communicator_ranks(communicator: Any) -> list[int]:
    """The job's ranks in a communicator, in its order. All ranks of the communicator call it."""
    return communicator.allgather(_world_of(communicator).Get_rank())


def agree(process_sets: Sequence[ProcessSet], job: Any) -> list[list[int]]:
    """Ranks of the sets to register, equal on all ranks.

    These are ``process_sets`` and, where some are communicators, those of the other ranks too; sets
    their ``ranks``. ``job``: the communicator of the job's ranks, if it is not MPI's world.
    """
    communicators = [process_set.mpi_comm for process_set in process_sets if process_set.mpi_comm is not None]
    for process_set in process_sets:
        if process_set.mpi_comm is not None:
            number = (job or _world_of(process_set.mpi_comm)).Get_rank()
            process_set.ranks = sorted(process_set.mpi_comm.allgather(number))
    lists = [process_set.ranks or [] for process_set in process_sets]
    everybodys = (job or _world_of(communicators[0])).allgather(lists) if communicators else [lists]
    agreed: list[list[int]] = []
    for entries in zip_longest(*everybodys):
        for ranks in entries:
            if ranks is not None and ranks not in agreed:
                agreed.append(ranks)
    return agreed


def bind(process_sets: Sequence[ProcessSet], job: Any) -> None:
    """Sets the numbers of the sets, and the ranks of the set of all ranks, after ``init``.

    Raises ValueError for a set that is not registered, and for two sets of the same ranks.
    """
    known = _ronde.process_sets()
    global_process_set.ranks = known[0]
    if job is not None:
        global_process_set.mpi_comm = job
    numbers = {tuple(ranks): number for number, ranks in known.items()}
    bound: dict[int, ProcessSet] = {0: global_process_set}
    for process_set in process_sets:
        number = numbers.get(tuple(process_set.ranks or ()))
        if number is None:
            raise ValueError(f"{process_set} is none of the process sets of this job, which are {known}")
        other = bound.setdefault(number, process_set)
        if other is not process_set:
            raise ValueError(f"process set of ranks {process_set.ranks} is there twice; use one of both")
    for number, process_set in bound.items():
        process_set.process_set_id = number
        if number:
            _registered.add(process_set)


def unbind() -> None:
    """Reverts :func:`bind` and :func:`add_process_set`, after ``shutdown``."""
    _unbound.clear()
    _unbound.update(_registered)
    for process_set in list(_registered):
        _forget(process_set)
    global_process_set.ranks = None
    global_process_set.mpi_comm = None


def _forget(process_set: ProcessSet) -> None:
    process_set.process_set_id = None
    _registered.discard(process_set)


def _world_of(communicator: Any) -> Any:
    """MPI's world, or the communicator itself if its library has none."""
    library = sys.modules.get(type(communicator).__module__)
    return getattr(library, "COMM_WORLD", communicator)
