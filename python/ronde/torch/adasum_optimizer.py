"""Distributed optimizer for ``op=Adasum``: combines the ranks' own steps, not their gradients.

Adasum depends on the angles between its inputs, and the step of an adaptive optimizer is not
a multiple of the gradient. So Adasum must combine the steps themselves.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterable, Iterator, Optional

import torch

from ..common.process_sets import global_process_set
from .compression import Compressor
from .model_check import check_same_model
from .mpi_ops import Adasum, allreduce_async_, synchronize
from .reducer import Shipment, described, generation, memory_order
from .wrapping import construct, default_names, names_by_parameter, parameters_of, positive, rebuild


class _DistributedAdasumOptimizer(torch.optim.Optimizer):
    """Methods that are added to the class of the wrapped optimizer."""

    def __init__(
        self,
        wrapped: torch.optim.Optimizer,
        named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]],
        compression: type[Compressor],
        backward_passes_per_step: int,
    ) -> None:
        construct(self, wrapped)
        self._attach(names_by_parameter(self, named_parameters), compression, backward_passes_per_step)

    def _attach(self, names: dict[torch.Tensor, str], compression: type[Compressor], passes: int) -> None:
        self._parameter_names = names
        self._compression = compression
        #: Horovod's attribute, without effect: backward passes accumulate until `step`.
        self.backward_passes_per_step = passes
        self._compared: Optional[int] = None
        #: The parameters before the step, then their changes; kept, so that memory is allocated
        #: once.
        self._buffers: dict[torch.Tensor, torch.Tensor] = {}

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes ``backward_passes_per_step``. ValueError if it is not positive."""
        self.backward_passes_per_step = positive(passes)

    def synchronize(self) -> None:
        """Does nothing: gradients are not reduced."""

    def skip_synchronize(self) -> Any:
        """Raises AssertionError: a step without the other ranks would make the models differ."""
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """No effect: backward passes never reduce."""
        yield

    def step(self, closure: Optional[Callable[[], Any]] = None, **kwargs: Any) -> Any:
        """Makes this rank's own step and combines its changes with those of the other ranks.

        Every rank calls it. If it fails or is interrupted, the parameters have their values before
        the step (the optimizer's state has not). HorovodInternalError is raised if combining fails,
        and ValueError at the first step if the ranks' models differ.
        """
        trained = [parameter for parameter in parameters_of(self) if parameter.requires_grad]
        if self._compared != generation():
            names = self._parameter_names
            parameters = {names[parameter]: described(parameter) for parameter in trained}
            answer = check_same_model(parameters, global_process_set)
            self._compared = generation() if answer.is_final else None
        for parameter in trained:
            self._keep_start(parameter)
        try:
            loss = super().step(**kwargs) if closure is None else super().step(closure, **kwargs)
        finally:
            changes = [self._take_change(parameter) for parameter in trained]
        self._combine(trained, changes)
        return loss

    # Torch must not wrap it: the wrapped class's step is wrapped, and step hooks would run twice.
    step.hooked = True  # type: ignore[attr-defined]

    def _keep_start(self, parameter: torch.Tensor) -> None:
        start = self._buffers.get(parameter)
        if start is None or start.shape != parameter.shape or start.dtype != parameter.dtype:
            start = self._buffers[parameter] = torch.empty_like(parameter, requires_grad=False)
        start.copy_(parameter.detach())

    def _take_change(self, parameter: torch.Tensor) -> torch.Tensor:
        """Restores the parameter, and returns its buffer with the change by this rank's step."""
        changed, buffer = parameter.detach(), self._buffers[parameter]
        change = changed - buffer
        changed.copy_(buffer)
        return buffer.copy_(change)

    def _combine(self, trained: list[torch.Tensor], changes: list[torch.Tensor]) -> None:
        """Adds the ranks' combined changes to the parameters, or nothing if it raises an error."""
        started = []
        failure: Optional[Exception] = None
        try:
            try:
                for parameter, change in zip(trained, changes):
                    shipment = Shipment(change, memory_order(change), self._compression)
                    name = self._parameter_names[parameter]
                    started.append((allreduce_async_(shipment.sent, None, name, Adasum), shipment))
            except Exception as error:
                failure = error
            for handle, _ in started:
                # Waits for all, even after an error: nothing may be in flight in the next step.
                try:
                    synchronize(handle)
                except Exception as error:
                    failure = failure or error
        except BaseException:
            self._buffers.clear()  # operations in flight may write to them
            raise
        if failure is not None:
            raise failure
        for parameter, (_, shipment) in zip(trained, started):
            parameter.detach().add_(shipment.result(self._compression))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Like that of the wrapped optimizer; all ranks add the same group."""
        before = len(self.param_groups)
        super().add_param_group(param_group)
        if "_parameter_names" not in vars(self):
            return  # called by the constructor
        self._parameter_names = {**default_names(self, before), **self._parameter_names}  # given names win
        self._compared = None

    def __reduce__(self) -> Any:
        # The class cannot be imported by name, so it is created again.
        names = [self._parameter_names[parameter] for parameter in parameters_of(self)]
        distributed = (names, self._compression, self.backward_passes_per_step)
        state = dict(super().__getstate__(), _distributed=distributed)
        return rebuild, (_DistributedAdasumOptimizer, type(self).__mro__[2]), state

    def __setstate__(self, state: dict[str, Any]) -> None:
        distributed = state.pop("_distributed", None)
        super().__setstate__(state)
        if distributed is not None:
            names, compression, passes = distributed
            self._attach(dict(zip(parameters_of(self), names)), compression, passes)
