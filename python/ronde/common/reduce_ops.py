"""Reduction operations, and checks of the arguments that choose one."""

from __future__ import annotations

from .. import _ronde
from .process_sets import ProcessSet, global_process_set
from .util import get_average_backwards_compatibility_fun, num_rank_is_power_2

Average = 0
Sum = 1
Adasum = 2
Min = 3
Max = 4
Product = 5


class _ReduceOps:
    Average = Average
    Sum = Sum


handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_ReduceOps)


def check_adasum(process_set: ProcessSet) -> None:
    """Raises NotImplementedError for ranks that Adasum does not support."""
    if process_set is not global_process_set:
        raise NotImplementedError("Adasum does not work with process sets other than that of all ranks")
    if not num_rank_is_power_2(_ronde.size()):
        raise NotImplementedError(f"Adasum needs 2, 4, 8 … ranks; this job has {_ronde.size()}")
