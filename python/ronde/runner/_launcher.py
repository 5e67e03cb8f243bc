"""`ronde run` as a child of another Python process.

    python -m ronde.runner._launcher PARENT FLAG… -- COMMAND…

PARENT is the process id of the parent. When the parent ends in any way, the kernel signals this
process, which then ends the ranks.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from ..cli import main

PR_SET_PDEATHSIG = 1  # prctl(2)


def _end_with(parent: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # the parent ended before the line above
        sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    _end_with(int(sys.argv[1]))
    sys.exit(main(["run", *sys.argv[2:]]))
