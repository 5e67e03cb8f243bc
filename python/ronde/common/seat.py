"""Place of this process in an elastic job, which the launcher assigns at each ``init``."""

from __future__ import annotations

import logging
import os
from typing import Callable

from .. import _ronde

_log = logging.getLogger("ronde.elastic")

#: Largest number of attempts of a new process to join the job.
_ATTEMPTS = 3

#: Reason of the next request for a place: "started", "interrupted" (by changed hosts) or "failed".
why = "started"

#: How often the ranks of the job have changed, as far as this process knows.
resets = 0

#: Whether the process has received the state of the training since it was started.
has_state = False


class NotNeeded(SystemExit):
    """The launcher of the elastic job no longer needs this process, which ends with code 0."""


def is_elastic() -> bool:
    """Whether an elastic launcher has started this process."""
    return "RONDE_ELASTIC_SOCKET" in os.environ


def has_new_ranks() -> bool:
    """Whether some ranks may be newer than others: an elastic job that has been reset."""
    return is_elastic() and resets > 0


def size() -> int:
    """Number of ranks of an elastic job, after :func:`take`."""
    return int(os.environ["HOROVOD_SIZE"])


def join(init: Callable[[], None]) -> None:
    """Takes this process's place in the job, then calls ``init``.

    A new process takes another place if ``init`` fails because of other ranks, which may have
    ended. The loop of :mod:`ronde.common.elastic` does so for the others. Raises what :func:`take`
    raises.
    """
    global why
    attempts = 1 if why == "started" else _ATTEMPTS
    while True:
        take()
        try:
            return init()
        except ValueError as error:
            if attempts == _ATTEMPTS or not _ronde.elastic_join_failed():
                raise
            _log.warning("joining the job again: %s", error)
            why = "failed"
            attempts += 1


def take() -> None:
    """Waits for this process's place in the job, and sets the variables of its identity.

    Raises NotNeeded if the launcher no longer needs the process, RuntimeError if there is no
    connection to the launcher.
    """
    global why, resets
    place = _ronde.elastic_seat(why, has_state)
    why = "interrupted" if has_state else "failed"  # unless the next failure says otherwise
    if place is None:
        raise NotNeeded(0)
    variables, generation, server = place
    resets = generation - 1
    # Few different values: the C library keeps each value of a variable for ever, where it keeps
    # the heap from being reused.
    os.environ.update({name: str(number) for name, number in variables})
    if server is None:
        os.environ.pop("RONDE_TCP_SERVER", None)
    else:
        os.environ["RONDE_TCP_SERVER"] = server
