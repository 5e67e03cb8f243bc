"""Whether all ranks train the same model, asked before the first gradients are handed over.

A parameter that only some ranks have would be waited for without end. So the ranks compare what they have
first: a digest of all names, dtypes, shapes and memory layouts, in one small allreduce. Only where it differs
do they tell each other all of it, to say what is different.

An allreduce of sums, since ranks that have joined take part in no other operation. Numbers x of n ranks are
equal if and only if n times the sum of x² is the square of the sum of x (Cauchy–Schwarz), so that all ranks
come to the same verdict.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Mapping, NamedTuple

import torch

from ..common.process_sets import ProcessSet
from .functions import allgather_object
from .mpi_ops import Max, Sum, allreduce

_NAME = "model_check"

#: The digest is compared in parts of 16 bits, whose squares no number of ranks can bring to overflow.
_DIGEST = struct.Struct("<8H")


class Answer(NamedTuple):
    """What the ranks have told each other besides."""

    #: Whether no rank has joined, which would have to be asked when it is back.
    is_final: bool
    #: Whether some rank has said ``has_sparse``.
    has_sparse: bool


def check_same_model(
    parameters: Mapping[str, str], process_set: ProcessSet, has_sparse: bool = False
) -> Answer:
    """Raises ValueError on all ranks unless they have the same parameters: names, and what is said of each.

    All ranks of the set call it, but for those that have joined.
    """
    digest = hashlib.blake2b(repr(sorted(parameters.items())).encode(), digest_size=_DIGEST.size)
    parts = _DIGEST.unpack(digest.digest())
    numbers = [1, has_sparse, *parts, *(part * part for part in parts)]
    tensor = torch.tensor(numbers, dtype=torch.int64)
    sums = allreduce(tensor, op=Sum, name=_NAME, process_set=process_set).tolist()
    ranks, sparse, parts, squares = sums[0], sums[1], sums[2 : 2 + len(parts)], sums[2 + len(parts) :]
    if any(ranks * square != part * part for part, square in zip(parts, squares)):
        of_ranks = allgather_object(dict(parameters), _NAME, process_set)
        raise ValueError(_first_difference(of_ranks, process_set))
    return Answer(is_final=ranks == process_set.size(), has_sparse=sparse > 0)


def largest(numbers: list[int], process_set: ProcessSet) -> list[int]:
    """For each of ``numbers``, the largest that a rank of the set has there. All have equally many."""
    tensor = torch.tensor(numbers, dtype=torch.int32)
    return allreduce(tensor, op=Max, name=f"{_NAME}.largest", process_set=process_set).tolist()


def _first_difference(of_ranks: list[dict[str, str]], process_set: ProcessSet) -> str:
    """What to say of models that differ: a parameter in which a rank is unlike the set's first."""
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
        f"the models of ranks {first_rank} ({len(first)} parameters) and {rank} ({len(other)}) differ: "
        f"{what}. DistributedOptimizer wants the same parameters, by the same names, on all ranks"
    )
