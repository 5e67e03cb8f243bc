"""An optimizer made anew as a distributed one, of a class derived from its own, over the same parameters."""

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
    """The class ``wrapped``, under its own name, with the methods of ``mixin`` in front of its own."""
    # By the module programs tell a distributed optimizer: Lightning looks for "horovod" in the class's `str`.
    package = "horovod" if "horovod" in sys.modules else "ronde"
    attributes = {"__module__": f"{package}.torch.optimizer", "__doc__": wrapped.__doc__}
    return type(wrapped.__name__, (mixin, wrapped), attributes)


def construct(optimizer: Optimizer, wrapped: Optimizer) -> None:
    """Makes ``optimizer``, of a class derived from that of ``wrapped``, from what ``wrapped`` was made from.

    The groups are shared: whoever changes a learning rate there changes it here. The state is a new one.
    """
    kind: Any = type(wrapped)
    parameters = inspect.signature(kind.__init__).parameters.values()
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    accepted = {parameter.name for parameter in parameters}
    options = {name: value for name, value in wrapped.defaults.items() if takes_any or name in accepted}
    try:
        kind.__init__(optimizer, wrapped.param_groups, **options)
    except TypeError:
        # The class takes more than an optimizer tells of itself. A copy lacks only a state made in advance.
        attributes = dict(vars(wrapped), state=defaultdict(dict))
        attributes.pop("step", None)  # a scheduler's, bound to `wrapped`
        optimizer.__dict__.update(attributes)


def rebuild(mixin: type, wrapped: type[Optimizer]) -> Optimizer:
    """What ``pickle`` and ``copy`` begin with: an instance whose attributes ``__setstate__`` then sets."""
    kind: Any = distributed_class(mixin, wrapped)
    return kind.__new__(kind)


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """All parameters of the optimizer, by group."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def default_names(optimizer: _Optimizer, first_group: int = 0) -> dict[torch.Tensor, str]:
    """Names of parameters that nobody has named, from this group on: their places in the optimizer's groups."""
    return {
        parameter: f"allreduce.noname.{number}.{index}"
        for number, group in enumerate(optimizer.param_groups[first_group:], first_group)
        for index, parameter in enumerate(group["params"])
    }


def names_by_parameter(
    optimizer: Optimizer, named_parameters: Optional[Iterable[tuple[str, torch.Tensor]]]
) -> dict[torch.Tensor, str]:
    """The names of the parameters, of the optimizer's and of others that ``named_parameters`` has.

    ValueError for entries that are not tuples, for names that come twice, and for parameters without a name.
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
    """``backward_passes_per_step``, as it is; ValueError if it is not positive."""
    if passes <= 0:
        raise ValueError(f"backward_passes_per_step must be positive, not {passes}")
    return passes
