"""The folder through which a function travels to its ranks, and what became of it travels back."""

from __future__ import annotations

import os
import pickle
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional, Union

from ..common.exceptions import HorovodInternalError

try:
    import cloudpickle as pickler
except ImportError:  # then the function must be one that ranks can import
    pickler = pickle


@dataclass(frozen=True)
class Returned:
    """A rank's result, pickled, so that one that cannot be read spoils no other."""

    value: bytes


@dataclass(frozen=True)
class Raised:
    """A rank's exception: its type and text, its traceback, when it was, and whether it speaks of peers."""

    summary: str
    traceback: str
    time: float
    blames_peers: bool


Outcome = Union[Returned, Raised]


class JobFolder:
    """See the module. All of it is written by the same user: the folder must be open to nobody else."""

    def __init__(self, path: Union[str, Path]) -> None:
        self.path = Path(path)

    def write_function(self, function: Callable[[], Any], *, with_path: bool) -> None:
        """Writes `function`; with where this process looks for modules, if the ranks are to look there too.

        Raises TypeError if it cannot be pickled.
        """
        try:
            body = pickler.dumps(function)
        except Exception as error:
            hint = "; install cloudpickle for functions of a notebook or script" if pickler is pickle else ""
            raise TypeError(f"the function or its arguments cannot be pickled: {error}{hint}") from error
        path = sys.path if with_path else []
        (self.path / "function").write_bytes(pickle.dumps((path, body)))

    def read_function(self) -> Callable[[], Any]:
        """Reads the function, and extends this process's path by what it was written with."""
        path, body = pickle.loads((self.path / "function").read_bytes())
        sys.path[:0] = [entry for entry in path if entry not in sys.path]
        function: Callable[[], Any] = pickle.loads(body)
        return function

    def write_result(self, rank: int, value: Any) -> None:
        """Writes what the function returned on `rank`. Raises whatever pickling raises."""
        self._write_outcome(rank, Returned(pickler.dumps(value)))

    def write_exception(self, rank: int, error: BaseException) -> None:
        """Writes what was raised on `rank`."""
        summary = "".join(traceback.format_exception_only(type(error), error)).strip()
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        self._write_outcome(rank, Raised(summary, text, time.time(), isinstance(error, HorovodInternalError)))

    def outcomes(self, ranks: int) -> list[Optional[Outcome]]:
        """What became of each rank; None for one that ended without a word."""
        return [self._read_outcome(rank) for rank in range(ranks)]

    def _write_outcome(self, rank: int, outcome: Outcome) -> None:
        part = self.path / f"outcome.{rank}.part"
        part.write_bytes(pickle.dumps(outcome))
        os.replace(part, self.path / f"outcome.{rank}")  # a rank killed while it writes has said nothing

    def _read_outcome(self, rank: int) -> Optional[Outcome]:
        try:
            body = (self.path / f"outcome.{rank}").read_bytes()
        except FileNotFoundError:
            return None
        outcome: Outcome = pickle.loads(body)
        return outcome
