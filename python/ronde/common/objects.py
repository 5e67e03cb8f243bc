"""Exchange of Python objects among ranks, for front ends whose tensors NumPy can read.

Objects are pickled. Their lengths are sent first, as eight bytes, since frameworks differ in their
integers; a length of 0 says that a rank could not pickle its object, so that no other rank waits
for it. Large objects are broadcast in pieces, which a rank that cannot allocate the object receives
too, for the same reason. Unpickling executes code: the ranks of a job trust each other.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Optional

import numpy as np

from .. import _ronde
from .exceptions import HorovodInternalError
from .process_sets import ProcessSet, size_of

try:  # also pickles functions and classes of the main program
    import cloudpickle
except ImportError:
    cloudpickle = pickle

#: Number of bytes in which a length is sent.
LENGTH_BYTES = 8

#: Most bytes that one broadcast sends; larger objects take several.
PIECE_BYTES = 64 << 20


def broadcast_object(
    obj: Any,
    root_rank: int,
    name: Optional[str],
    broadcast: Callable[[np.ndarray, str], np.ndarray],
    bytes_max: Optional[int] = None,
) -> Any:
    """Returns the object of rank ``root_rank``; ``obj`` is ignored on other ranks.

    ``broadcast`` returns the root's array of bytes for one with the same number on each rank, and
    the name of the operation. If the object cannot be pickled or has more than ``bytes_max`` bytes,
    the root raises the reason, and other ranks HorovodInternalError. A rank that cannot allocate
    the object raises HorovodInternalError; the other ranks get it.
    """
    name = name or "object"
    if _ronde.rank() == root_rank:
        data = _pickled(obj, bytes_max, lambda length: broadcast(length, f"{name}.sz"))
        for start in range(0, data.size, PIECE_BYTES):
            # One after another under one name: TensorFlow's graph has one operation for them all.
            broadcast(data[start : start + PIECE_BYTES], f"{name}.t")
        return obj
    (length,) = _numbers(broadcast(_length(0), f"{name}.sz"))
    if not length:
        raise _not_pickled(f"rank {root_rank}", name)
    return pickle.loads(_received(length, name, broadcast))


def _received(length: int, name: str, broadcast: Callable[[np.ndarray, str], np.ndarray]) -> Any:
    """The root's bytes, received in pieces."""
    scratch = np.zeros(min(length, PIECE_BYTES), np.uint8)
    if length <= PIECE_BYTES:
        return broadcast(scratch, f"{name}.t").tobytes()
    try:
        data: Optional[np.ndarray] = np.empty(length, np.uint8)
    except MemoryError:
        data = None
    for start in range(0, length, PIECE_BYTES):
        piece = broadcast(scratch[: length - start], f"{name}.t")
        if data is not None:
            data[start : start + PIECE_BYTES] = piece
    if data is None:
        raise HorovodInternalError(
            f"rank {_ronde.rank()} cannot allocate {length} bytes for the object {name}; broadcast it in parts"
        )
    return data


def allgather_object(
    obj: Any,
    name: Optional[str],
    process_set: ProcessSet,
    allgather: Callable[[np.ndarray, str, int], np.ndarray],
    bytes_max: Optional[int] = None,
) -> list[Any]:
    """Returns the objects of all ranks of the set, by rank.

    ``allgather`` returns the arrays of all ranks one after another, for this rank's array of bytes,
    the name of the operation, and the number of bytes of all. If an object cannot be pickled or has
    more than ``bytes_max`` bytes, its rank raises the reason, and other ranks HorovodInternalError.
    """
    name = name or "object"
    lengths: list[int] = []

    def gather_lengths(length: np.ndarray) -> None:
        total = LENGTH_BYTES * size_of(process_set)
        lengths.extend(_numbers(allgather(length, f"{name}.sz", total)))

    data = _pickled(obj, bytes_max, gather_lengths)
    if 0 in lengths:
        raise _not_pickled(f"rank {lengths.index(0)} of {process_set}", name)
    gathered = allgather(data, f"{name}.t", sum(lengths))
    parts = np.split(gathered, np.cumsum(lengths)[:-1])
    return [pickle.loads(part.tobytes()) for part in parts]


def _not_pickled(rank: str, name: str) -> HorovodInternalError:
    return HorovodInternalError(f"{rank} could not pickle the object {name}: see its error")


def _pickled(obj: Any, bytes_max: Optional[int], send: Callable[[np.ndarray], Any]) -> np.ndarray:
    """The pickled object, after its length was sent. If it cannot be pickled, 0 is sent and the
    reason is raised."""
    try:
        data = np.frombuffer(cloudpickle.dumps(obj), np.uint8)
        if bytes_max is not None and data.size > bytes_max:
            raise ValueError(f"the pickled object has {data.size} bytes, more than {bytes_max}")
    except BaseException:
        send(_length(0))
        raise
    send(_length(data.size))
    return data


def _length(count: int) -> np.ndarray:
    return np.frombuffer(count.to_bytes(LENGTH_BYTES, "little"), np.uint8)


def _numbers(lengths: np.ndarray) -> list[int]:
    return np.ascontiguousarray(lengths).view("<i8").tolist()
