"""Helpers that programs import from ``horovod.common.util``."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Optional

from .basics import _basics

_FRONT_ENDS = ("torch", "tensorflow", "keras", "jax")

#: The supported frameworks, under the name that programs for Horovod use.
EXTENSIONS = list(_FRONT_ENDS)


def _cache(f: Callable[..., Any]) -> Callable[..., Any]:
    """Caches the results of ``f`` by its arguments.

    The arguments must be hashable. Exceptions are not cached.
    """
    results: dict[Any, Any] = {}

    @functools.wraps(f)
    def cached(*args: Any, **kwargs: Any) -> Any:
        key = args, frozenset(kwargs.items())
        if key not in results:
            results[key] = f(*args, **kwargs)
        return results[key]

    return cached


def get_ext_suffix() -> str:
    """File name suffix of extension modules in this Python."""
    return sysconfig.get_config_var("EXT_SUFFIX") or ".so"


def get_extension_full_path(pkg_path: str, *args: str) -> str:
    """Path of the extension module ``args`` (folders, then a name) in the folder of the file
    ``pkg_path``.
    """
    *folders, name = args
    return os.path.join(os.path.dirname(pkg_path), *folders, name + get_ext_suffix())


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the framework (``torch``, ``tensorflow``) is supported and installed."""
    return ext_base_name in _FRONT_ENDS and importlib.util.find_spec(ext_base_name) is not None


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Raises ImportError unless the framework (``horovod.torch``) is supported.

    The other arguments, the location of Horovod's extension, are ignored: Ronde has one
    extension.
    """
    if ext_name.rpartition(".")[2] not in _FRONT_ENDS:
        raise ImportError(f"there is no {ext_name}: Ronde has {', '.join(_FRONT_ENDS)}")


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether a GPU is available whose tensors can be reduced with this framework (``torch``,
    ``tensorflow``)."""
    if not extension_available(ext_base_name) or not _basics.cuda_built():
        return False
    if ext_base_name == "torch":
        import torch

        return torch.cuda.is_available()
    if ext_base_name == "tensorflow":
        import tensorflow

        return bool(tensorflow.config.list_physical_devices("GPU"))
    return False


def mpi_built(verbose: bool = False) -> bool:
    """Whether the package has a plug-in for MPI."""
    return _basics.mpi_built()


def gloo_built(verbose: bool = False) -> bool:
    """Whether jobs can run without MPI: always."""
    return _basics.gloo_built()


def nccl_built(verbose: bool = False) -> int:
    """Version of the NCCL library that can be loaded, as a number; 0 if there is none."""
    return _basics.nccl_built()


def ddl_built(verbose: bool = False) -> bool:
    """Whether IBM's DDL is built in: never."""
    return _basics.ddl_built()


def ccl_built(verbose: bool = False) -> bool:
    """Whether oneCCL is built in: never."""
    return _basics.ccl_built()


def cuda_built(verbose: bool = False) -> bool:
    """Whether tensors on CUDA devices can be reduced: if NCCL can be loaded."""
    return _basics.cuda_built()


def rocm_built(verbose: bool = False) -> bool:
    """Whether ROCm is built in: never."""
    return _basics.rocm_built()


@contextlib.contextmanager
def env(**kwargs: Optional[str]) -> Iterator[None]:
    """Sets environment variables within a ``with`` block; None unsets a variable."""
    before = {name: os.environ.get(name) for name in kwargs}
    _set_environment(kwargs)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(variables: dict[str, Optional[str]]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def get_average_backwards_compatibility_fun(
    reduce_ops: Any,
) -> Callable[[Optional[int], Optional[bool]], int]:
    """Returns a function that combines ``op`` and the older ``average`` into one ``op``.

    ``reduce_ops`` has the attributes ``Average`` and ``Sum``.
    """

    def one_of(op: Optional[int], average: Optional[bool]) -> int:
        """``op``, or the op for ``average``; Average if both are None. ValueError for both."""
        if average is None:
            return reduce_ops.Average if op is None else op
        if op is not None:
            raise ValueError("op and average both say how to combine the ranks' tensors; give op alone")
        # The stack: this function, the check of the operation, the operation, and the program.
        warnings.warn("average is deprecated; use op=Average or op=Sum", DeprecationWarning, stacklevel=4)
        return reduce_ops.Average if average else reduce_ops.Sum

    return one_of


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether the number is 1, 2, 4, 8 …"""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(items: Sequence[Any], n: int) -> list[Sequence[Any]]:
    """Splits a list into ``n`` slices in order, whose lengths differ by at most one; longer ones
    first."""
    length, longer = divmod(len(items), n)
    ends = [length * (index + 1) + min(index + 1, longer) for index in range(n)]
    return [items[start:end] for start, end in zip([0, *ends], ends)]


def check_installed_version(
    name: str, version: str, exception: Optional[BaseException] = None
) -> None:
    """Does nothing: the extension is not built for a particular version of a framework."""


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Whether version ``ver`` is ``target`` (major.minor.patch) or later. ValueError for anything
    but versions.
    """
    if not isinstance(ver, str) or not isinstance(target, str):
        raise ValueError(f"expected two versions as strings, not {ver!r} and {target!r}")
    if len(target.split(".")) != 3:
        raise ValueError(f"expected a target version major.minor.patch, not {target!r}")
    from packaging import version

    return version.parse(ver) >= version.parse(target)


def is_iterable(x: Any) -> bool:
    """Whether ``x`` is iterable."""
    try:
        iter(x)
    except TypeError:
        return False
    return True
