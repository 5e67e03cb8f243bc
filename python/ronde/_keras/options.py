"""Arguments of a distributed optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..common.process_sets import ProcessSet, global_process_set, size_of
from ..common.reduce_ops import Average, Groups, Sum, check_predivide, checked_groups


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
    groups: Groups = None
    backward_passes_per_step: int = 1
    average_aggregated_gradients: bool = False
    process_set: ProcessSet = global_process_set
    scale_local_gradients: bool = True
    #: Variables whose gradients are not reduced.
    local_variables: list[Any] = field(default_factory=list)
    #: Layers whose variables are local too, also those that they create later.
    local_layers: list[Any] = field(default_factory=list)
    #: Variables with gradients in the current step.
    present: list[Any] = field(default_factory=list)

    def all_local(self) -> list[Any]:
        """Variables whose gradients are not reduced, with those of layers."""
        of_layers = (variable for layer in self.local_layers for variable in layer.trainable_weights)
        return [*self.local_variables, *of_layers]

    @property
    def factors(self) -> tuple[float, float]:
        """Factors before and after the sum."""
        factor = self.gradient_predivide_factor if self.op == Average else 1.0
        return 1.0 / factor, factor

    def divide(
        self, gradients: Sequence[Any], variables: Sequence[Any]
    ) -> tuple[list[Any], list[int]]:
        """Returns the gradients, with those of local variables scaled, and the indices of the
        gradients to reduce."""
        local = {id(variable) for variable in self.all_local()}
        results, places = list(gradients), []
        for index, (gradient, variable) in enumerate(zip(gradients, variables)):
            if gradient is None:
                continue
            if id(variable) not in local:
                places.append(index)
            elif self.scale_local_gradients:
                results[index] = gradient / size_of(self.process_set)
        return results, places

    def check(self) -> None:
        """Raises ValueError for invalid arguments."""
        if self.op not in (Average, Sum):
            raise ValueError(f"op={self.op}: optimizers of Keras support Average and Sum")
        check_predivide(self.gradient_predivide_factor, self.op)
        if self.backward_passes_per_step < 1:
            raise ValueError(f"backward_passes_per_step={self.backward_passes_per_step} must be positive")
        checked_groups(self.groups)
