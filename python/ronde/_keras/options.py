"""Arguments of a distributed optimizer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Union

from ..common.process_sets import ProcessSet, global_process_set
from ..common.reduce_ops import Average, Sum


@dataclass
class Options:
    """How an optimizer's gradients are reduced; see :func:`ronde.keras.DistributedOptimizer`."""

    name: str
    device_dense: str = ""
    device_sparse: str = ""
    compression: Any = None
    sparse_as_dense: bool = False
    gradient_predivide_factor: float = 1.0
    op: int = Average
    groups: Union[int, list[list[Any]], None] = None
    backward_passes_per_step: int = 1
    average_aggregated_gradients: bool = False
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True
    #: Variables whose gradients are not reduced.
    local_variables: list[Any] = field(default_factory=list)
    #: Variables with gradients in the current step.
    present: list[Any] = field(default_factory=list)

    def check(self) -> None:
        """Raises ValueError for invalid arguments."""
        if self.op not in (Average, Sum):
            raise ValueError(f"op={self.op}: optimizers of Keras support Average and Sum")
        if self.gradient_predivide_factor != 1.0 and self.op != Average:
            raise ValueError(
                f"gradient_predivide_factor={self.gradient_predivide_factor} needs op=Average, which it "
                f"splits into factors before and after the sum"
            )
        if self.backward_passes_per_step < 1:
            raise ValueError(f"backward_passes_per_step={self.backward_passes_per_step} must be positive")
        groups = self.groups
        if groups is not None and not (isinstance(groups, list) or groups > 0):
            raise ValueError(
                f"groups={groups!r}: expected a positive number of groups, or a list of lists of variables"
            )
