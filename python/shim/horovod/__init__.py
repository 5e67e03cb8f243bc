"""Horovod's package name, provided by Ronde: `horovod.torch` is the module `ronde.torch`, and so are
`horovod.tensorflow`, `horovod.keras` and `horovod.tensorflow.keras`.

Not included: MXNet, Spark and Ray.
"""

import importlib
from typing import Any

from . import _alias, _conflict

_conflict.refuse()
_alias.install()

# Under its own name, so that `python -m horovod.runner.launch` finds its alias not yet imported.
from ronde.runner import run  # noqa: E402
from ronde.runner.launch import horovod_version  # noqa: E402

__all__ = ["__version__", "run"]

__version__: str = horovod_version()


def __getattr__(name: str) -> Any:
    # Programs may access horovod.torch after only `import horovod`.
    if name in ("common", "keras", "tensorflow", "torch"):
        try:
            return importlib.import_module(f"horovod.{name}")
        except ImportError as error:
            raise AttributeError(f"horovod.{name} cannot be imported: {error}") from error
    raise AttributeError(f"module 'horovod' has no attribute {name!r}")
