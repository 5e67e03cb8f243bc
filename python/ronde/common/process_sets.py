"""Process sets: some of a job's ranks, which work together while others do something else.

A set is known to the job by its number, and has one from its registration (``init(process_sets=[…])`` or
:func:`add_process_set`) until it is removed or the rank leaves the job.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, Optional, Union

from .. import _ronde


def is_communicator(it: Any) -> bool:
    """Whether it is an mpi4py communicator. Told by its methods: mpi4py is not for us to import."""
    return hasattr(it, "Get_rank") and hasattr(it, "allgather")


class ProcessSet:
    """Some ranks of the job.

    ``ranks_or_comm``: their numbers, in any order, or an mpi4py communicator. With communicators each rank
    names the one that it is in, and all of them become process sets.
    """

    #: The job's number for it; None while it is not registered.
    process_set_id: Optional[int] = None
    #: Its ranks in ascending order; None while they are not known, before ``init``.
    ranks: Optional[list[int]] = None
    #: The communicator that it was made of.
    mpi_comm: Any = None

    def __init__(self, ranks_or_comm: Union[Iterable[int], Any]) -> None:
        if is_communicator(ranks_or_comm):
            self.mpi_comm = ranks_or_comm
        else:
            self.ranks = sorted(int(rank) for rank in ranks_or_comm)

    def size(self) -> int:
        """Number of ranks in the set. ValueError if it is not registered."""
        self._registered_id()
        return _ronde.size() if self.ranks is None else len(self.ranks)

    def rank(self) -> Optional[int]:
        """This process's place in the set, None outside of it. ValueError if it is not registered."""
        return _ronde.process_set_rank(self._registered_id())

    def included(self) -> bool:
        """Whether this process is in the set. ValueError if it is not registered."""
        return self.rank() is not None

    def _registered_id(self) -> int:
        if self.process_set_id is None:
            raise unregistered(self)
        return self.process_set_id

    def __repr__(self) -> str:
        about = f"process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm}"
        return f"ProcessSet({about})"


#: All ranks of the job. It has its number from the start, and its ranks from ``init`` to ``shutdown``.
global_process_set = ProcessSet([])
global_process_set.process_set_id = 0
global_process_set.ranks = None

#: What is registered beside it, to be forgotten at ``shutdown``.
_registered: weakref.WeakSet[ProcessSet] = weakref.WeakSet()


def add_process_set(process_set: Union[ProcessSet, Iterable[int], Any]) -> ProcessSet:
    """Registers a process set while the job runs: a :class:`ProcessSet`, or what it is made of.

    All ranks call it, members or not, with the same ranks, in the same order as other calls that add and
    remove sets. Returns the set. ValueError if there is one of the same ranks, or if the job's process sets
    are fixed: they are not with ``init(process_sets="dynamic")`` or ``HOROVOD_DYNAMIC_PROCESS_SETS=1``.
    """
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    if process_set.process_set_id is not None:
        raise ValueError(f"{process_set} is registered already")
    numbers = {tuple(ranks): _ronde.add_process_set(ranks) for ranks in agree([process_set], None)}
    process_set.process_set_id = numbers[tuple(process_set.ranks or ())]
    _registered.add(process_set)
    return process_set


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a process set from the job; all ranks call it, members or not.

    Returns whether it was there: false for the set of all ranks, which stays, and for one that is not
    registered.
    """
    if process_set.process_set_id in (None, 0):
        return False
    removed = _ronde.remove_process_set(process_set.process_set_id)
    _forget(process_set)
    return removed


def get_process_set_ids_and_ranks() -> dict[int, list[int]]:
    """The job's process sets: their numbers and ranks."""
    return _ronde.process_sets()


def unregistered(process_set: ProcessSet) -> ValueError:
    """What to raise where a set is to work that has no number."""
    return ValueError(
        f"{process_set} does not exist, or has not been registered: hand it to "
        f"hvd.init(process_sets=[…]) or hvd.add_process_set"
    )


def communicator_ranks(communicator: Any) -> list[int]:
    """The job's ranks in a communicator, in its order. All its ranks call it."""
    return communicator.allgather(_world_of(communicator).Get_rank())


def agree(process_sets: Sequence[ProcessSet], job: Any) -> list[list[int]]:
    """The ranks of the sets to register, the same on all ranks.

    They are those of ``process_sets`` and, where some are made of communicators, those of the other ranks';
    their ``ranks`` are set. ``job``: the communicator of the job's ranks, where it is not all that MPI has.
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
    """Gives the sets their numbers, and the set of all ranks its ranks, after ``init``.

    ValueError for a set that is not registered, and for two of the same ranks.
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
    """Forgets what :func:`bind` and :func:`add_process_set` have noted, after ``shutdown``."""
    for process_set in list(_registered):
        _forget(process_set)
    global_process_set.ranks = None
    global_process_set.mpi_comm = None


def _forget(process_set: ProcessSet) -> None:
    process_set.process_set_id = None
    _registered.discard(process_set)


def _world_of(communicator: Any) -> Any:
    """All that MPI has, or the communicator itself if its library has no such thing."""
    library = sys.modules.get(type(communicator).__module__)
    return getattr(library, "COMM_WORLD", communicator)
