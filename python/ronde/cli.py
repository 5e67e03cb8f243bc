"""The `ronde` program, which lives in the extension module, as a console script."""

from __future__ import annotations

import signal
import sys
from typing import Optional, Sequence

from . import _ronde


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs `ronde` with `argv`, the process's own arguments if None.

    Returns its exit code: that of the rank that failed first for `ronde run`, 2 for wrong usage. What only
    prints, such as `--help`, may end the process by itself.
    """
    _restore_signals()
    return _ronde.cli(list(sys.argv[1:] if argv is None else argv), [sys.executable, "-m", "ronde"])


def _restore_signals() -> None:
    """Undoes what the interpreter did to signals at its start, for the program and the ranks that inherit
    from it.

    With Python's own handler a Ctrl-C would wait for bytecode to run, of which there is none. A signal that
    was ignored from the start, as `nohup` has it, stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
