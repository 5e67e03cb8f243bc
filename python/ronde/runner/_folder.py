"""The folder that passes a function to its ranks and their results back."""

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
except ImportError:  # then only importable functions can be pickled
    pickler = pickle


@dataclass(frozen=True)
class Returned:
    """A rank's result, pickled separately, so that an unreadable one does not affect the others;
    number of ranks, and of resets of an elastic job."""

    value: bytes
    size: int = 1
    resets: int = 0


@dataclass(frozen=True)
class Raised:
    """A rank's exception: type and text, traceback, time, and whether it blames a peer."""

    summary: str
    traceback: str
    time: float
    blames_peers: bool


Outcome = Union[Returned, Raised]


class JobFolder:
    """The files of one call. The folder must be accessible to its user only, as they are
    unpickled."""

    def __init__(self, path: Union[str, Path]) -> None:
        self.path = Path(path)

    def write_function(self, function: Callable[[], Any], *, with_path: bool) -> None:
        """Writes `function`, with this process's module search path if `with_path`.

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
        """Reads the function, and extends this process's search path by the one written with it."""
        path, body = pickle.loads((self.path / "function").read_bytes())
        sys.path[:0] = [entry for entry in path if entry not in sys.path]
        function: Callable[[], Any] = pickle.loads(body)
        return function

    def write_result(self, rank: int, value: Any, size: int = 1, resets: int = 0) -> None:
        """Writes the result of the function on `rank`. Raises any exception of pickling."""
        self._write_outcome(rank, Returned(pickler.dumps(value), size, resets))

    def write_exception(self, rank: int, error: BaseException) -> None:
        """Writes the exception of the function on `rank`."""
        summary = "".join(traceback.format_exception_only(type(error), error)).strip()
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        self._write_outcome(rank, Raised(summary, text, time.time(), isinstance(error, HorovodInternalError)))

    def outcomes(self, ranks: Optional[int] = None) -> list[Optional[Outcome]]:
        """Outcome of each rank; None for a rank that ended without writing one. ``ranks``: their
        number; None for those up to the last that has written one, at least one."""
        if ranks is None:
            names = [path.name.split(".") for path in self.path.glob("outcome.*")]
            ranks = max((int(name[1]) + 1 for name in names if len(name) == 2), default=1)
        return [self._read_outcome(rank) for rank in range(ranks)]

    def final_outcomes(self) -> list[Optional[Outcome]]:
        """Outcomes of the ranks at the end of an elastic job; those of earlier ranks only if no
        rank has returned."""
        outcomes = self.outcomes()
        returned = [outcome for outcome in outcomes if isinstance(outcome, Returned)]
        if not returned:
            return outcomes
        last = max(returned, key=lambda outcome: outcome.resets)
        return (outcomes + [None] * last.size)[: last.size]

    def _write_outcome(self, rank: int, outcome: Outcome) -> None:
        part = self.path / f"outcome.{rank}.part"
        part.write_bytes(pickle.dumps(outcome))
        os.replace(part, self.path / f"outcome.{rank}")  # atomic: a rank may be killed while it writes

    def _read_outcome(self, rank: int) -> Optional[Outcome]:
        try:
            body = (self.path / f"outcome.{rank}").read_bytes()
        except FileNotFoundError:
            return None
        outcome: Outcome = pickle.loads(body)
        return outcome
