"""Ronde: data-parallel training whose tensor fusion is tuned while it runs.

`ronde.torch` is a drop-in replacement for `horovod.torch`; `ronde.run` calls a function on several
ranks. Importing this package imports neither torch nor the runner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._ronde import version as _version

if TYPE_CHECKING:
    from .runner import run as run

__all__ = ["__version__", "run"]

__version__: str = _version()


def __getattr__(name: str) -> Any:
    if name == "run":
        from .runner import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
