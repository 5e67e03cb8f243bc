"""Results of rank 0's tuner, kept by all ranks of an elastic job.

A process that becomes rank 0 after a reset continues from it. Rank 0 tells changes with each
commit; after a reset, the rank that knows most tells the others."""

from __future__ import annotations

import logging
from typing import Any, Callable, Iterable, Optional

from .. import _ronde
from . import seat

_log = logging.getLogger("ronde.elastic")

#: Revision that all ranks have.
_shared = 0


def revision() -> int:
    """Number of changes of what was learned, as far as this process knows."""
    return _ronde.tuner_revision()


def news() -> Optional[str]:
    """What has been learned since the last call that :func:`take` or :func:`share` followed."""
    return _ronde.tuner_memory(_shared) if seat.is_elastic() else None


def take(texts: Iterable[Optional[str]]) -> None:
    """Stores the :func:`news` of other ranks."""
    global _shared
    for text in texts:
        if text is not None:
            try:
                _ronde.learn_tuner_memory(text)
            except ValueError as error:
                _log.warning("ignoring what another rank's tuner has learned: %s", error)
            _shared = revision()


def share(revisions: list[int], rank: int, of_all_ranks: Callable[[Any], list[Any]]) -> None:
    """Stores on all ranks what the rank with the highest of ``revisions`` knows. All ranks call it;
    ``of_all_ranks`` returns the values of all ranks."""
    global _shared
    latest = max(revisions)
    if min(revisions) < latest:
        tells = rank == revisions.index(latest)
        take(of_all_ranks(_ronde.tuner_memory(0) if tells else None))
    _shared = latest
