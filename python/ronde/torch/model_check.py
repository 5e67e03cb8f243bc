"""The check that all ranks train the same model (:mod:`ronde.common.model_check`), with torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..common import model_check
from ..common.model_check import NAME, Answer
from ..common.process_sets import ProcessSet
from .functions import allgather_object
from .mpi_ops import Max, Sum, allreduce


class _Operations:
    def sums(self, numbers: Sequence[int], name: str, process_set: ProcessSet) -> list[int]:
        tensor = torch.tensor(numbers, dtype=torch.int64, device="cpu")
        return allreduce(tensor, op=Sum, name=name, process_set=process_set).tolist()

    def gather(self, obj: Any, name: str, process_set: ProcessSet) -> list[Any]:
        return allgather_object(obj, name, process_set)


def check_same_model(
    parameters: Mapping[str, str], process_set: ProcessSet, has_sparse: bool = False
) -> Answer:
    """Raises ValueError on all ranks unless they have the same parameters: names and descriptions.

    All ranks of the set call it, except joined ranks.
    """
    return model_check.check_same_model(_Operations(), parameters, process_set, has_sparse)


def largest(numbers: list[int], process_set: ProcessSet) -> list[int]:
    """Elementwise maximum of ``numbers`` over the ranks of the set. All have the same length."""
    tensor = torch.tensor(numbers, dtype=torch.int32, device="cpu")
    return allreduce(tensor, op=Max, name=f"{NAME}.largest", process_set=process_set).tolist()
