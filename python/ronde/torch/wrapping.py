"""Creation of a distributed optimizer from another optimizer: a subclass with the same
parameters."""

from __future__ import annotations

import functools
import inspect
import sys
from collections import defaultdict
from typing import Any, Iterable, Optional

import torch
from torch.optim import Optimizer


@functools.lru_cache(maxsize=None)
def distributed_class(mixin: type, wrapped: type[Optimizer]) -> Any:
    """Returns a subclass of ``wrapped`` with the same name, whose methods come from ``mixin``
    first."""
    # Programs identify a distributed optimizer by module: Lightning looks for "horovod" in the
    # class's `str`.
    package = "horovod" if "horovod" in sys.modules else "ronde"
    attributes = {"__module__": f"{package}.torch.optimizer", "__doc__": wrapped.__doc__}
    return type(wrapped.__name__, (mixin, wrapped), attributes)


def construct(optimizer: Optimizer, wrapped: Optimizer) -> None:
    """Initializes ``optimizer``, of a subclass of that of ``wrapped``, with the arguments of
    ``wrapped``.

    The parameter groups are shared, so a changed learning rate applies to both. The state is new.
    """
    kind: Any = type(wrapped)
    parameters = inspect.signature(kind.__init__).parameters.values()
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    accepted = {parameter.name for parameter in parameters}
    options = {name: value for name, value in wrapped.defaults.items() if takes_any or name in accepted}
    try:
        kind.__init__(optimizer, wrapped.param_groups, **options)
    except TypeError:
        # The class needs arguments that the optimizer does not keep. So copy it, except its state.
        attributes = dict(vars(wrapped), state=defaultdict(dict))
        attributes.pop("step", None)  # set by a scheduler, bound to `wrapped`
        optimizer.__dict__.update(attributes)


def rebuild(mixin: type, wrapped: type[Optimizer]) -> Optimizer:
    """First step of ``pickle`` and ``copy``: an instance whose attributes ``__setstate__`` sets."""
    kind: Any = distributed_class(mixin, wrapped)
    return kind.__new__(kind)


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """All parameters of the optimizer, group by group."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def default_names(optimizer: _Optimizer, first_group: int = 0) -> dict[torch.Tensor, str]:
    """Default names of parameters, from ``first_group`` on: their positions in the optimizer's
    groups."""
    return {
        parameter: f"allreduce.noname.{number}.{index}"
        for number, group in enumerate(optimizer.param_groups[first_group:], first_group)
        for index, parameter in enumerate(group["params"])
    }


def names_by_parameter(
    optimizer: Optimizer, named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]]
) -> dict[torch.Tensor, str]:
    """Names of the optimizer's parameters and of others in ``named_parameters``.

    Raises ValueError for entries that are not tuples, duplicate names, and parameters without a
    name.
    """
    if named_parameters is None:
        return default_names(optimizer)
    named: list[Any] = list(named_parameters)
    if not all(isinstance(entry, tuple) for entry in named):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), such as "
            "model.named_parameters() gives"
        )
    count: dict[str, int] = defaultdict(int)
    for name, _ in named:
        count[name] += 1
    twice = sorted(name for name in count if count[name] > 1)
    if twice:
        names = ", ".join(twice)
        raise ValueError(f"Parameter names in named_parameters must be unique; these are not: {names}")
    by_parameter = {parameter: name for name, parameter in sorted(named, key=lambda entry: entry[0])}
    unnamed = [parameter for parameter in parameters_of(optimizer) if parameter not in by_parameter]
    if unnamed:
        shapes = ", ".join(str(tuple(parameter.shape)) for parameter in unnamed)
        raise ValueError(
            f"named_parameters was specified, but one or more of the optimizer's parameters were not named; "
            f"those have shapes {shapes}"
        )
    return by_parameter


def positive(passes: int) -> int:
    """Returns ``backward_passes_per_step``; ValueError if it is not positive."""
    if passes <= 0:
        raise ValueError(f"backward_passes_per_step must be positive, not {passes}")
    return passes
