"""The operations of the extension module, as calls of XLA's foreign function interface.

The extension has one handler for all operations (``python/src/jax``); it is not compiled against
JAX.
"""

from __future__ import annotations

import collections
import functools
import os
import re
import warnings
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import mlir

from .. import _ronde
from ..common.exceptions import HorovodInternalError
from ..common.process_sets import ProcessSet, global_process_set, size_of, unregistered
from ..common.reduce_ops import Sum

#: Releases of JAX with which the tests run: the oldest and the newest.
OLDEST, NEWEST = (0, 9), (0, 10)

# Kinds of operations, as numbered in python/src/collective.rs.
ALLREDUCE, ALLGATHER, BROADCAST, ALLTOALL, REDUCESCATTER = range(5)

_TARGET = "ronde_collective"

#: Prefix of the error messages of operations, see python/src/jax/ffi.rs.
_MARK = "ronde: "


def _check_version() -> None:
    """Raises ImportError for a JAX without the interface, and warns about untested releases."""
    numbers = jax.__version__.split(".")
    version = int(numbers[0]), int(numbers[1])
    oldest, newest = (".".join(map(str, release)) for release in (OLDEST, NEWEST))
    if not hasattr(jax, "ffi"):
        raise ImportError(
            f"ronde.jax needs JAX {oldest} or newer, and this is {jax.__version__}: pip install 'jax>={oldest}'",
            name="jax",
        )
    if not OLDEST <= version <= NEWEST:
        warnings.warn(
            f"ronde.jax was tested with JAX {oldest} to {newest}, not with {jax.__version__}", stacklevel=2
        )


def _interface_version() -> tuple[int, int]:
    """Version of XLA's interface in the installed jaxlib, from its header."""
    header = os.path.join(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h")
    with open(header, encoding="utf-8") as file:
        text = file.read()
    numbers = [re.search(rf"#define XLA_FFI_API_{part} (\d+)", text) for part in ("MAJOR", "MINOR")]
    if None in numbers:
        raise ImportError(f"{header} does not state the version of XLA's interface", name="jax")
    return int(numbers[0][1]), int(numbers[1][1])


_check_version()
jax.ffi.register_ffi_target(_TARGET, _ronde.jax_handler(*_interface_version()), platform="cpu")


class How(NamedTuple):
    """An operation without its arrays; hashable."""

    kind: int
    #: One name for each array, or one for the group; empty: a counter names it.
    names: tuple[str, ...] = ()
    op: int = Sum
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0
    set_id: int = 0
    is_group: bool = False
    marks_step: bool = False
    #: Rows of the result of an allgather; none: as many from each rank as from this one.
    rows: Optional[int] = None
    #: Size of the set and this process's rank in it if the shape of the result depends on them, for
    #: JAX's caches: a later set may get the number of this one.
    place: tuple[int, Optional[int]] = (0, None)
    #: Whether JAX keeps the operation in a program that does not use its results.
    has_effect: bool = True


def set_id_of(process_set: ProcessSet) -> int:
    """Number of a process set. ValueError if it is not registered."""
    if process_set.process_set_id is None:
        raise unregistered(process_set)
    return process_set.process_set_id


def set_of(set_id: int) -> ProcessSet:
    """The process set of this number, for its size and this process's rank."""
    if set_id == 0:
        return global_process_set
    process_set = ProcessSet(_ronde.process_sets().get(set_id, []))
    process_set.process_set_id = set_id
    return process_set


def as_array(value: Any) -> jax.Array:
    """The value as an array of JAX."""
    # `asarray` takes several microseconds even for an array.
    return value if isinstance(value, jax.Array) else jax.numpy.asarray(value)


def as_arrays(values: Sequence[Any]) -> tuple[jax.Array, ...]:
    """The values as arrays of JAX."""
    if all(issubclass(kind, jax.Array) for kind in set(map(type, values))):
        return tuple(values)
    return tuple(map(as_array, values))


def is_traced(arrays: Sequence[Any]) -> bool:
    """Whether some of them are of a function that JAX traces."""
    # A thousand arrays have few types.
    return any(issubclass(kind, jax.core.Tracer) for kind in set(map(type, arrays)))


#: Uses of keys in the programs that are being traced.
_uses: weakref.WeakKeyDictionary[Any, collections.Counter[Any]] = weakref.WeakKeyDictionary()


def number_in_program(key: Any, arrays: Sequence[Any]) -> int:
    """Counts the uses of a key in the program that is being traced, from 0; always 0 outside of one.

    Ranks that trace the same program count the same, whatever they traced before: in an elastic job,
    new ranks trace programs that others have compiled.
    """
    trace = next((getattr(array, "_trace", None) for array in arrays if isinstance(array, jax.core.Tracer)), None)
    if trace is None:
        return 0
    uses = _uses.setdefault(trace, collections.Counter())
    uses[key] += 1
    return uses[key] - 1


def result_shape(how: How, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of the result for an array of this shape. ValueError for an array without rows."""
    if how.kind in (ALLREDUCE, BROADCAST):
        return shape
    if not shape:
        raise ValueError("the operation is on rows: an array without dimensions has none")
    process_set = set_of(how.set_id)
    count, rows = size_of(process_set), shape[0]
    if how.kind == ALLGATHER:
        return (rows * count if how.rows is None else how.rows, *shape[1:])
    if how.kind == ALLTOALL:
        if rows % count:
            raise ValueError(f"alltoall of {rows} rows to {count} ranks: the number must be a multiple")
        return shape
    rank = process_set.rank()
    if rank is None:
        raise ValueError(f"this rank is not a member of process set {how.set_id}")
    return (rows // count + (rank < rows % count), *shape[1:])


#: Separates the names in their attribute, see python/src/jax/handler.rs.
_SEPARATOR = "\n"


def _text(names: tuple[str, ...]) -> str:
    """The names as one attribute. ValueError for a name that it cannot contain."""
    for name in names:
        if _SEPARATOR in name:
            raise ValueError(f"name={name!r} contains a newline, which separates names")
        if not name.isascii() and any("\ud800" <= letter <= "\udfff" for letter in name):
            raise ValueError(f"name={name!r} contains a surrogate, which is not a character of a text")
    # The empty text is that of no names: an operation whose name is empty is not named by a counter.
    return _SEPARATOR.join(names) or " " * len(names)


def _attributes(how: How) -> dict[str, Any]:
    return {
        "kind": np.int64(how.kind),
        "op": np.int64(how.op),
        "prescale": np.float64(how.prescale),
        "postscale": np.float64(how.postscale),
        "root": np.int64(how.root),
        "process_set": np.int64(how.set_id),
        "group": np.int64(how.is_group),
        "step": np.int64(how.marks_step),
        "names": _text(how.names),
    }


def _aliases(how: How, count: int) -> Optional[dict[int, int]]:
    return {index: index for index in range(count)} if how.kind in (ALLREDUCE, BROADCAST) else None


#: A call without an effect for JAX: its Python code starts programs with effects, which takes
#: milliseconds for hundreds of arrays. XLA knows of the effect, and neither removes the call nor
#: merges it with another one.
_pure = Primitive("ronde_collective")
_pure.multiple_results = True


@_pure.def_abstract_eval
def _(*arrays: Any, how: How) -> list[Any]:
    return [array.update(shape=result_shape(how, array.shape), weak_type=False) for array in arrays]


#: Most arrays of a call of the handler if it can be divided: XLA's time for a call grows with the
#: square of their number.
_ARRAYS_MAX = 250

#: Most calls of a divided one: the handler keeps the names of the newest 32 calls.
_PARTS_MAX = 8


def _lowered(context: Any, *arrays: Any, how: How) -> Any:
    # A group is one call, and so is the end of a step, which is marked when all arrays are complete.
    can_divide = len(how.names) == len(arrays) and not (how.is_group or how.marks_step)
    count = max(_ARRAYS_MAX, -(-len(arrays) // _PARTS_MAX)) if can_divide else len(arrays)
    results: list[Any] = []
    for begin in range(0, len(arrays), count):
        part = slice(begin, begin + count)
        aliases = _aliases(how, len(arrays[part]))
        rule = jax.ffi.ffi_lowering(_TARGET, has_side_effect=True, operand_output_aliases=aliases)
        place = context.replace(avals_in=context.avals_in[part], avals_out=context.avals_out[part])
        names = how.names[part] if can_divide else how.names
        results.extend(rule(place, *arrays[part], **_attributes(how._replace(names=names))))
    return results


mlir.register_lowering(_pure, _lowered, platform="cpu")


@functools.partial(jax.jit, static_argnums=0)
def _compiled(how: How, arrays: tuple[Any, ...]) -> list[jax.Array]:
    return _pure.bind(*arrays, how=how)


_pure.def_impl(lambda *arrays, how: _compiled(how, arrays))


def _check_devices(arrays: Sequence[jax.Array]) -> None:
    """Raises ValueError for an array on several devices: XLA does not divide calls of the handler."""
    for array in arrays:
        sharding = array.sharding
        # The class of most arrays, for which the number is slow.
        if not isinstance(sharding, jax.sharding.SingleDeviceSharding) and sharding.num_devices > 1:
            raise ValueError(
                f"an array of shape {array.shape} is on {sharding.num_devices} devices of this process, and "
                "an operation needs arrays on one: move it with jax.device_put(array, jax.local_devices()[0]), "
                "and start one rank for each device"
            )


def call(how: How, arrays: Sequence[Any]) -> list[jax.Array]:
    """Calls the handler. Within ``jit`` it becomes a part of the program; with arrays it returns
    when the operation has completed.

    Raises HorovodInternalError and ValueError for failed operations, except within ``jit``.
    """
    arrays = as_arrays(arrays)
    if not is_traced(arrays):
        _check_devices(arrays)
        if how.kind not in (ALLREDUCE, BROADCAST):
            process_set = set_of(how.set_id)
            how = how._replace(place=(size_of(process_set), process_set.rank()))
        try:
            return jax.block_until_ready(_compiled(how, arrays))
        except ERRORS as error:
            raise as_horovod_error(error) from None
    if not how.has_effect:
        return _pure.bind(*arrays, how=how)
    shapes = [jax.ShapeDtypeStruct(result_shape(how, array.shape), array.dtype) for array in arrays]
    aliases = _aliases(how, len(arrays))
    function = jax.ffi.ffi_call(_TARGET, shapes, has_side_effect=True, input_output_aliases=aliases)
    return list(function(*arrays, **_attributes(how)))


#: End of the text that JAX puts before the error of a result that a later program uses.
_DISPATCH = "Error dispatching computation"

#: Exceptions of JAX for failed operations. ValueError is raised if a program starts with a result
#: of a failed operation.
ERRORS = (jax.errors.JaxRuntimeError, ValueError)


def as_horovod_error(error: Exception) -> Exception:
    """The exception for a failed operation: ValueError for invalid arguments, HorovodInternalError
    for differences between ranks and failed jobs; others unchanged."""
    code, mark, message = str(error).partition(f": {_MARK}")
    if code == "INVALID_ARGUMENT":
        return ValueError(message)
    # A program that uses a failed result has lost the code of the error.
    if code in ("FAILED_PRECONDITION", "UNKNOWN") or (mark and code.endswith(_DISPATCH)):
        return HorovodInternalError(message)
    return error
