"""Parameters of a tuner: scale, bounds, and the value in force at the start.

A value is a number of the caller's unit. The tuner checks the bounds, and its errors name the
parameter.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any, ClassVar, Dict, Mapping, Optional, Union

Value = Union[bool, int, float]


@dataclasses.dataclass(frozen=True)
class Log:
    """Numbers > 0 on a logarithmic scale: `levels` values (17 by default) from `low` to `high`.

    `zero` adds the value 0. `rough` says that neighbouring values may differ by more than a smooth
    curve allows, as those of a threshold may; the tuner then measures more of them.
    """

    low: float
    high: float
    start: float
    levels: Optional[int] = None
    zero: bool = False
    rough: bool = False
    scale: ClassVar[str] = "log"


@dataclasses.dataclass(frozen=True)
class Linear:
    """Numbers on a linear scale: `levels` values (17 by default) from `low` to `high`."""

    low: float
    high: float
    start: float
    levels: Optional[int] = None
    rough: bool = False
    scale: ClassVar[str] = "linear"


@dataclasses.dataclass(frozen=True)
class Integer:
    """Whole numbers from `low` to `high`; 17 of them, if there are more."""

    low: int
    high: int
    start: int
    rough: bool = False
    scale: ClassVar[str] = "integer"


@dataclasses.dataclass(frozen=True)
class Boolean:
    """True or False."""

    start: bool
    scale: ClassVar[str] = "boolean"


Parameter = Union[Log, Linear, Integer, Boolean]


def space_line(parameters: Mapping[str, Parameter]) -> Dict[str, Any]:
    """Returns the fields `parameters` and `start` of the service's first line."""
    if not parameters:
        raise ValueError("the tuner has no parameters; give it at least one")
    return {
        "parameters": [_fields(name, parameter) for name, parameter in parameters.items()],
        "start": {name: _number(name, "start", one.start) for name, one in parameters.items()},
    }


def _fields(name: str, parameter: Parameter) -> Dict[str, Any]:
    if not isinstance(parameter, (Log, Linear, Integer, Boolean)):
        raise ValueError(
            f"parameter {name!r} is {parameter!r}; give a Log, Linear, Integer or Boolean"
        )
    fields: Dict[str, Any] = {"name": name, "scale": parameter.scale}
    for field, value in dataclasses.asdict(parameter).items():
        # Unset fields are omitted: the scale may not have them.
        if field != "start" and value is not None and value is not False:
            fields[field] = value if value is True else _number(name, field, value)
    return fields


def whole(value: Any) -> Any:
    """Returns a whole number of NumPy or the like as an int, and any other value as it is."""
    if isinstance(value, bool):
        return value
    try:
        return operator.index(value)
    except TypeError:
        return value


def _number(name: str, field: str, value: Any) -> Value:
    """Returns a number that JSON has; accepts those of NumPy."""
    value = whole(value)
    if isinstance(value, (bool, int)):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if number - number != 0.0:  # not finite
        raise ValueError(f"parameter {name!r}: {field} is {value!r}, expected a finite number")
    return number
