"""Check that all ranks train the same model, before the first gradients are submitted.

All ranks would wait for ever for a parameter that only some of them have. So the ranks first
compare a digest of the descriptions of their parameters, in one small allreduce. Only if the
digests differ, they exchange the descriptions to report the difference, unless a rank has joined.

The operation is an allreduce of sums, as ranks that have joined take part in no other operation.
The numbers x of n ranks are equal if and only if n times the sum of x² is the square of the sum of
x (Cauchy–Schwarz), so all ranks reach the same result.

Threads of a process that train a model each check them one after another, since the operation has
the same name for all models: with a name for each, ranks whose models differ would wait for ever.
So the threads must begin to train in the same order on all ranks.
"""

from __future__ import annotations

import hashlib
import struct
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, Protocol

from .. import _ronde
from .process_sets import ProcessSet, global_process_set

#: By the number of a process set, held during a check.
_locks: dict[Optional[int], threading.RLock] = {}

#: Name of the operations.
NAME = "model_check"

#: The digest is compared in parts of 16 bits, so that the squares cannot overflow in the sum.
_DIGEST = struct.Struct("<8H")


class Operations(Protocol):
    """Functions of a framework that the check needs."""

    def sums(self, numbers: Sequence[int], name: str, process_set: ProcessSet) -> list[int]:
        """Sums of 64-bit integers over the ranks."""

    def gather(self, obj: Any, name: str, process_set: ProcessSet) -> list[Any]:
        """Objects of all ranks, in order."""


def lock(process_set: ProcessSet) -> threading.RLock:
    """Held while a thread checks a model, and agrees on more with the other ranks."""
    return _locks.setdefault(process_set.process_set_id, threading.RLock())


class Traces:
    """Checks of models while a framework traces a step, which compiled steps do not repeat.

    A rank that had joined then traces the step in a later epoch, and would wait for the other ranks
    in its check. So the ranks exchange after each join whether there are such steps.
    """

    #: Whether a rank had joined during a check since the last join.
    has_open = False
    #: Whether that was so on some rank before a join: traced steps are no longer checked.
    is_unchecked = False

    def after_join(self, operations: Operations) -> None:
        """Called by all ranks when all have joined."""
        if _ronde.size() == 1:
            return
        flags = [self.has_open or self.is_unchecked]
        (count,) = operations.sums(flags, f"{NAME}.join", global_process_set)
        self.has_open, self.is_unchecked = False, count > 0


class Answer(NamedTuple):
    """Further results of the check."""

    #: Whether no rank has joined; otherwise the check must be repeated later.
    is_final: bool
    #: Whether some rank has passed ``has_sparse``.
    has_sparse: bool


def check_same_model(
    operations: Operations,
    parameters: Mapping[str, str],
    process_set: ProcessSet,
    has_sparse: bool = False,
    where: str = "DistributedOptimizer needs the same parameters, with the same names, on all ranks",
) -> Answer:
    """Raises ValueError on all ranks unless they have the same parameters: names and descriptions.

    All ranks of the set call it, except joined ranks. ``where``: end of the message.
    """
    digest = hashlib.blake2b(repr(sorted(parameters.items())).encode(), digest_size=_DIGEST.size)
    parts = _DIGEST.unpack(digest.digest())
    numbers = [1, has_sparse, *parts, *(part * part for part in parts)]
    with lock(process_set):
        sums = operations.sums(numbers, NAME, process_set)
        ranks, sparse = sums[:2]
        is_final = ranks == process_set.size()
        parts, squares = sums[2 : 2 + len(parts)], sums[2 + len(parts) :]
        if any(ranks * square != part * part for part, square in zip(parts, squares)):
            if is_final:
                of_ranks = operations.gather(dict(parameters), NAME, process_set)
                difference = _first_difference(of_ranks, process_set)
            else:
                difference = "the models of the ranks differ; where is unknown, as a rank has joined"
            raise ValueError(f"{difference}. {where}")
    return Answer(is_final, has_sparse=sparse > 0)


def _first_difference(of_ranks: list[dict[str, str]], process_set: ProcessSet) -> str:
    """Message for models that differ: a parameter that differs between a rank and the set's first
    rank."""
    first = of_ranks[0]
    place = next(place for place, parameters in enumerate(of_ranks) if parameters != first)
    other = of_ranks[place]
    ranks = process_set.ranks or range(len(of_ranks))
    first_rank, rank = ranks[0], ranks[place]
    missing = [name for name in first if name not in other]
    surplus = [name for name in other if name not in first]
    if missing:
        name = missing[0]
        what = f"rank {rank} does not have parameter {name!r}, which is {first[name]} on rank {first_rank}"
    elif surplus:
        name = surplus[0]
        what = f"rank {first_rank} does not have parameter {name!r}, which is {other[name]} on rank {rank}"
    else:
        name = next(name for name in first if first[name] != other[name])
        what = f"parameter {name!r} is {first[name]} on rank {first_rank} and {other[name]} on rank {rank}"
    return (
        f"the models of ranks {first_rank} ({len(first)} parameters) and {rank} ({len(other)}) differ: {what}"
    )
