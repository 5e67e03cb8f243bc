"""A rank of `ronde.run`: `python -m ronde.runner._task FOLDER` calls the function in the folder."""

from __future__ import annotations

import sys
import traceback

from ..common import seat
from ._folder import JobFolder
from .common.util.env import get_env_rank_and_size


def main(path: str) -> int:
    """Writes the function's result or exception to the folder. Returns the exit code."""
    folder = JobFolder(path)
    try:
        value = _call(folder)
        # Resets of an elastic job have changed it.
        rank, size = get_env_rank_and_size()
        folder.write_result(rank, value, size, seat.resets)
    except seat.NotNeeded:
        return 0
    except BaseException as error:  # includes interrupts and SystemExit: the caller waits for an outcome
        rank, _ = get_env_rank_and_size()
        folder.write_exception(rank, error)
        traceback.print_exc()
        return 1
    return 0


def _call(folder: JobFolder) -> object:
    function = folder.read_function()
    try:
        return function()
    except seat.NotNeeded:
        raise
    except SystemExit as exit:
        if exit.code in (None, 0):
            return None
        raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
