"""Reduction operations, and checks of the arguments that choose one."""

from __future__ import annotations

import warnings
from typing import Any, Union

from .. import _ronde
from .process_sets import ProcessSet, global_process_set
from .util import get_average_backwards_compatibility_fun, num_rank_is_power_2

Average = 0
Sum = 1
Adasum = 2
Min = 3
Max = 4
Product = 5

#: Tensors that are reduced together: a number of groups, lists of variables, or no groups.
Groups = Union[int, list[list[Any]], None]


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


def checked_groups(groups: Groups, num_groups: int = 0) -> Groups:
    """The argument ``groups``, or the older ``num_groups``. ValueError for invalid ones."""
    if num_groups != 0:
        warnings.warn("num_groups is deprecated; use groups", DeprecationWarning, stacklevel=3)
        groups = num_groups if groups is None else groups
    if groups is not None and not (isinstance(groups, list) or groups > 0):
        raise ValueError(
            f"groups={groups!r}: expected a positive number of groups, or a list of lists of "
            f"variables"
        )
    return groups


def check_predivide(gradient_predivide_factor: float, op: int) -> None:
    """Raises ValueError for a factor that the operation does not support."""
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError(
            f"gradient_predivide_factor={gradient_predivide_factor} needs op=Average, which it "
            f"splits into factors before and after the sum"
        )
