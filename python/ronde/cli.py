"""Console script of the `ronde` program, which is in the extension module."""

from __future__ import annotations

import signal
import sys
from typing import Optional, Sequence

from . import _ronde


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs `ronde` with `argv`; None means the arguments of the process.

    Returns the exit code: for `ronde run`, that of the rank that failed first; 2 for wrong usage.
    Options that only print, such as `--help`, may end the process themselves.
    """
    _restore_signals()
    return _ronde.cli(list(sys.argv[1:] if argv is None else argv), [sys.executable, "-m", "ronde"])


def _restore_signals() -> None:
    """Restores the default signal handlers for the program and the ranks, which inherit them.

    With Python's own handler, Ctrl-C would wait for bytecode to run, and none runs. A signal that
    was ignored from the start, as with `nohup`, stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
