"""Alias `horovod.X` for the module `ronde.X`.

Both names refer to one module object, so that classes are identical under both names, and a
patch of one name applies to both.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Optional, Sequence

_OURS = ("_keras", "common", "jax", "keras", "runner", "tensorflow", "torch")
_ABSENT = ("data", "mxnet", "ray", "spark")

# Parts of Horovod's launcher that Ronde does not have, as it starts and connects processes
# differently.
_LAUNCHER = (
    "runner.common.service",
    "runner.common.util.network",
    "runner.driver",
    "runner.elastic.constants",
    "runner.elastic.driver",
    "runner.elastic.registration",
    "runner.elastic.rendezvous",
    "runner.gloo_run",
    "runner.http",
    "runner.js_run",
    "runner.mpi_run",
    "runner.run_task",
    "runner.task",
    "runner.task_fn",
    "runner.util.cache",
    "runner.util.lsf",
    "runner.util.network",
    "runner.util.remote",
    "runner.util.streams",
)


def install() -> None:
    """Installs the alias before all other finders, which would load the files of `ronde` a second
    time under the other name.
    """
    sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        package, *rest = fullname.split(".")
        if package != "horovod" or not rest:
            return None
        if rest[0] in _ABSENT:
            raise ModuleNotFoundError(
                f"Ronde provides no {fullname}: it has horovod.torch, horovod.tensorflow, horovod.keras, "
                f"horovod.common and horovod.runner",
                name=fullname,
            )
        if any(".".join(rest[: part.count(".") + 1]) == part for part in _LAUNCHER):
            raise ModuleNotFoundError(
                f"Ronde provides no {fullname}, a part of Horovod's own launcher: start jobs with "
                f"horovodrun, ronde.run or mpirun",
                name=fullname,
            )
        if rest[0] not in _OURS:
            return None
        real = importlib.util.find_spec(".".join(["ronde", *rest]))
        if real is None:
            return None
        is_package = real.submodule_search_locations is not None
        return ModuleSpec(fullname, _Loader(real.name), origin=real.origin, is_package=is_package)


class _Loader(importlib.abc.Loader):
    def __init__(self, name: str) -> None:
        self._name = name

    def get_code(self, fullname: str) -> Optional[CodeType]:
        """Code of the module as a program (`python -m`): only the launcher is one."""
        if self._name != "ronde.runner.launch":
            return None
        text = f"import sys; from {self._name} import run_commandline; sys.exit(run_commandline())"
        return compile(text, fullname, "exec")

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._name)
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # It was executed under its own name. The import system has just replaced its spec.
        module.__spec__ = self._own_spec
