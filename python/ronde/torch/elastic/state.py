"""State of an elastic training with PyTorch: models, optimizers, samplers, and any Python
objects."""

from __future__ import annotations

import copy
import os
from typing import Any, Optional

import torch

from ...common.elastic import ObjectState
from ..functions import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters
from ..mpi_ops import rank
from .sampler import ElasticSampler


class StateHandler:
    """Saves, restores and broadcasts values of one type. Programs can register their own with
    :func:`set_handler_registry`."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Saves the value's state."""
        raise NotImplementedError

    def restore(self) -> None:
        """Restores the last saved state."""
        raise NotImplementedError

    def sync(self) -> None:
        """Broadcasts the state of rank 0 and saves it."""
        raise NotImplementedError

    def reset(self) -> None:
        """Called after the ranks of the job have changed."""

    def set_value(self, value: Any) -> None:
        """Replaces the value."""
        self.value = value
        self.save()

    def parts(self) -> dict[str, str]:
        """Parts of the value by name, with what must be equal on all ranks; the value as a whole
        has the name ""."""
        return {"": type(self.value).__name__}


class StateDictHandler(StateHandler):
    """Handler for values with ``state_dict`` and ``load_state_dict``, such as learning rate
    schedulers: copied as plain objects, they would copy their optimizers."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        # A copy: the value may keep and modify the loaded state.
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self) -> None:
        self.value.load_state_dict(broadcast_object(self.value.state_dict()))
        self.save()


class ModelStateHandler(StateDictHandler):
    """For models."""

    def sync(self) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank=0)
        self.save()

    def parts(self) -> dict[str, str]:
        return {f".{name}": _described(value) for name, value in self.value.state_dict().items()}


class OptimizerStateHandler(StateDictHandler):
    """Handler for optimizers."""

    def sync(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()

    def parts(self) -> dict[str, str]:
        groups = [len(group["params"]) for group in self.value.param_groups]
        return {"": f"an optimizer with {groups} parameters"}


def _described(value: Any) -> str:
    """Text about a value of a model: a parameter, a buffer, or what a module adds to them."""
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    try:
        return f"a tensor {tuple(value.shape)} of {value.dtype}"
    except RuntimeError:
        return "a tensor without a shape"  # of a lazy module before its first use


class SamplerStateHandler(StateDictHandler):
    """Handler for samplers."""

    def reset(self) -> None:
        self.value.reset()


_handler_registry: list[tuple[type, type[StateHandler]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> list[tuple[type, type[StateHandler]]]:
    """Pairs of a type and the handler for its instances; the first match is used. Other values
    with ``state_dict`` and ``load_state_dict`` have a :class:`StateDictHandler`."""
    return _handler_registry


def set_handler_registry(registry: list[tuple[type, type[StateHandler]]]) -> None:
    """Replaces the result of :func:`get_handler_registry`, for states created from now on."""
    global _handler_registry
    _handler_registry = registry


def _handler_of(value: Any) -> Optional[StateHandler]:
    for kind, handler in _handler_registry:
        if isinstance(value, kind):
            return handler(value)
    # By their methods: some schedulers, and gradient scalers, have no base class in common.
    methods = [getattr(value, name, None) for name in ("state_dict", "load_state_dict")]
    if all(map(callable, methods)) and not isinstance(value, type):
        return StateDictHandler(value)
    return None


class TorchState(ObjectState):
    """State of a training: ``model``, ``optimizer`` and other values, as attributes.

    Models, optimizers, :class:`ElasticSampler` and other values with ``state_dict`` and
    ``load_state_dict``, such as schedulers, are restored in place. Other values are copied when
    saved and pickled when broadcast.
    """

    def __init__(
        self,
        model: Optional[torch.nn.Module] = None,
        optimizer: Optional[torch.optim.Optimizer] = None,
        **kwargs: Any,
    ) -> None:
        values = dict(kwargs, model=model, optimizer=optimizer)
        handlers = {name: _handler_of(value) for name, value in values.items()}
        self._handlers = {name: handler for name, handler in handlers.items() if handler is not None}
        for name in self._handlers:
            super().__setattr__(name, values.pop(name))
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **values)

    def save(self) -> None:
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def _settle(self) -> None:
        # A host that runs ahead of its GPUs has saved what they have still to compute.
        runs_ahead = os.environ.get("HOROVOD_ENABLE_ASYNC_COMPLETION", "0").strip() not in ("", "0")
        if runs_ahead:
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                torch.cuda.synchronize()
            self._of_all_ranks(None)  # the job may have failed meanwhile

    def restore(self) -> None:
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def reset(self) -> None:
        for handler in self._handlers.values():
            handler.reset()

    def _parts(self) -> dict[str, str]:
        of_handlers = {
            f"{name}{part}": text
            for name, handler in self._handlers.items()
            for part, text in handler.parts().items()
        }
        return {**super()._parts(), **of_handlers}

    def _keepers(self) -> list[Any]:
        return [self, *self._handlers.values()]

    def _of_all_ranks(self, value: Any) -> list[Any]:
        return allgather_object(value, "elastic")

    def __setattr__(self, name: str, value: Any) -> None:
        handler = vars(self).get("_handlers", {}).get(name)
        if handler is not None:
            handler.set_value(value)
        super().__setattr__(name, value)
