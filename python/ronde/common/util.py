"""Small helpers, by the names under which programs import them from ``horovod.common.util``."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Optional

from .basics import HorovodBasics

_FRONT_ENDS = ("torch",)

_basics = HorovodBasics()


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether there is a front end of this name (``torch``), and its framework is installed."""
    return ext_base_name in _FRONT_ENDS and importlib.util.find_spec(ext_base_name) is not None


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Raises ImportError unless there is a front end of this name (``horovod.torch``)."""
    if ext_name.rpartition(".")[2] not in _FRONT_ENDS:
        raise ImportError(f"there is no {ext_name}: Ronde has horovod.torch")


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether operations run on a GPU: no, they run in host memory."""
    return False


def mpi_built(verbose: bool = False) -> bool:
    """Whether MPI is built in."""
    return _basics.mpi_built()


def gloo_built(verbose: bool = False) -> bool:
    """Whether ranks can meet without MPI: always."""
    return _basics.gloo_built()


def nccl_built(verbose: bool = False) -> bool:
    """Whether NCCL is built in: no."""
    return bool(_basics.nccl_built())


def ddl_built(verbose: bool = False) -> bool:
    """Whether IBM's DDL is built in: no."""
    return _basics.ddl_built()


def ccl_built(verbose: bool = False) -> bool:
    """Whether oneCCL is built in: no."""
    return _basics.ccl_built()


def cuda_built(verbose: bool = False) -> bool:
    """Whether tensors on CUDA devices can be reduced: where NCCL can be loaded."""
    return _basics.cuda_built()


def rocm_built(verbose: bool = False) -> bool:
    """Whether ROCm is built in: no."""
    return _basics.rocm_built()


@contextlib.contextmanager
def env(**kwargs: Optional[str]) -> Iterator[None]:
    """Sets environment variables for the length of a ``with`` block; None unsets one."""
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
    """What makes one of ``op`` and the older ``average``; ``reduce_ops`` has ``Average`` and ``Sum``."""

    def one_of(op: Optional[int], average: Optional[bool]) -> int:
        """``op``, or what ``average`` stands for, or the average. ValueError for both."""
        if average is None:
            return reduce_ops.Average if op is None else op
        if op is not None:
            raise ValueError("op and average both say how to combine the ranks' tensors; give op alone")
        # This function, the front end's check, the operation, and then the program.
        warnings.warn("average is deprecated; use op=Average or op=Sum", DeprecationWarning, stacklevel=4)
        return reduce_ops.Average if average else reduce_ops.Sum

    return one_of


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether it is 1, 2, 4, 8 …"""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(items: Sequence[Any], n: int) -> list[Sequence[Any]]:
    """``n`` slices of a list, in order, whose lengths differ by one at most, the longer first."""
    length, longer = divmod(len(items), n)
    ends = [length * (index + 1) + min(index + 1, longer) for index in range(n)]
    return [items[start:end] for start, end in zip([0, *ends], ends)]


def is_iterable(x: Any) -> bool:
    """Whether one can iterate over it."""
    try:
        iter(x)
    except TypeError:
        return False
    return True
