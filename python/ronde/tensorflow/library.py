"""The ops of the extension module, as Python functions.

The extension registers its ops and kernels through TensorFlow's C interface
(``python/src/tensorflow``); it is not compiled against TensorFlow. The functions come from the
generator that :func:`tf.load_op_library` uses.
"""

from __future__ import annotations

import contextlib
import struct
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Optional

import tensorflow as tf

from .. import _ronde
from ..common import seat
from ..common.process_sets import ProcessSet, global_process_set, size_of, unregistered
from ..common.reduce_ops import Sum
from .errors import raised_for
from .util import type_numbers

#: Releases (major, minor) of TensorFlow with which the tests run: the oldest and the newest.
OLDEST, NEWEST = (2, 16), (2, 21)

# Kinds of operations, as numbered in python/src/collective.rs.
ALLREDUCE, ALLGATHER, BROADCAST, ALLTOALL, REDUCESCATTER, JOIN, BARRIER = range(7)

# Queries, as numbered in python/src/tensorflow/kernels.rs.
SIZE, RANK, LOCAL_RANK, LOCAL_SIZE, INCLUDED = range(5)

# Flags of operations, as in python/src/tensorflow/kernels.rs.
GROUP = 1
_MEMBERS_ONLY = 2
_HELD = 4

_OPS = ("RondeCollective", "RondeExchange", "RondeSubmit", "RondeWait", "RondeQuery")


def _check_version() -> None:
    """Raises ImportError for a TensorFlow that is too old, and warns about one that is too new."""
    numbers = tf.__version__.split(".")
    version = int(numbers[0]), int(numbers[1])
    oldest, newest = (".".join(map(str, release)) for release in (OLDEST, NEWEST))
    if version < OLDEST:
        raise ImportError(
            f"ronde.tensorflow needs TensorFlow {oldest} or newer, and this is {tf.__version__}: "
            f"pip install 'tensorflow>={oldest}'",
            name="tensorflow",
        )
    if version > NEWEST:
        warnings.warn(
            f"ronde.tensorflow was tested with TensorFlow {oldest} to {newest}, not with {tf.__version__}",
            stacklevel=2,
        )


def _functions() -> dict[str, Any]:
    """Registers the ops and returns the functions that call them, by name."""
    try:
        _ronde.register_tensorflow()
    except ImportError as error:
        raise ImportError(
            f"ronde.tensorflow cannot register its ops with TensorFlow {tf.__version__}: {error}. Install "
            f"a wheel from PyPI: pip install 'tensorflow>={OLDEST[0]}.{OLDEST[1]}'",
            name="tensorflow",
        ) from error
    from tensorflow.core.framework import op_def_pb2
    from tensorflow.python.framework import _pywrap_python_op_gen, op_def_registry

    ops = op_def_pb2.OpList(op=[op_def_registry.get(name) for name in _OPS])
    functions: dict[str, Any] = {"__name__": f"{__name__}.generated"}
    exec(_pywrap_python_op_gen.GetPythonWrappers(ops.SerializeToString()), functions)
    return functions


_check_version()
_generated = _functions()
_collective = _generated["ronde_collective"]
_exchange = _generated["ronde_exchange"]
_submit = _generated["ronde_submit"]
_wait = _generated["ronde_wait"]
_query = _generated["ronde_query"]


def _bits(number: float) -> int:
    """The bits of a 64-bit float; TensorFlow's attributes have 32-bit floats only."""
    return struct.unpack("<q", struct.pack("<d", number))[0]


_ONE = _bits(1.0)


def set_id_of(process_set: ProcessSet) -> int:
    """Number of a process set. ValueError if it is not registered."""
    if process_set.process_set_id is None:
        raise unregistered(process_set)
    return process_set.process_set_id


def _attributes(
    kind: int,
    names: Sequence[str],
    op: int,
    prescale: float,
    postscale: float,
    root: int,
    process_set: ProcessSet,
    flags: int,
) -> dict[str, Any]:
    if tf.executing_eagerly():
        flags |= _HELD  # by Python
    return {
        "kind": kind,
        "op": op,
        "prescale": _ONE if prescale == 1.0 else _bits(prescale),
        "postscale": _ONE if postscale == 1.0 else _bits(postscale),
        "root": root,
        "process_set": set_id_of(process_set),
        "flags": flags,
        "names": names,
    }


def _types(tensors: Sequence[tf.Tensor]) -> Sequence[Any]:
    """Element types of the tensors, as the ops take them."""
    return type_numbers(tensors) if tf.executing_eagerly() else [tensor.dtype for tensor in tensors]


def collective(
    kind: int,
    tensors: Sequence[tf.Tensor],
    names: Sequence[str] = (),
    op: int = Sum,
    prescale: float = 1.0,
    postscale: float = 1.0,
    root: int = 0,
    process_set: ProcessSet = global_process_set,
    is_group: bool = False,
    results: Optional[Sequence[tf.DType]] = None,
) -> list[tf.Tensor]:
    """Runs an operation and returns its results, of the tensors' dtypes unless stated.

    A ``tf.function`` runs operations in the order in which they were created, which is the same on
    all ranks. A session of TensorFlow 1 has no order; each operation blocks one of its threads.
    """
    check_not_compiled()
    attributes = _attributes(kind, names, op, prescale, postscale, root, process_set, GROUP * is_group)
    with _errors() if tf.executing_eagerly() else contextlib.nullcontext():
        if results is not None:
            return list(_exchange(tensors, R=results, **attributes))
        outputs = _collective(tensors, **attributes)
    return list(outputs) if tensors else []


def submit(
    kind: int,
    tensors: Sequence[tf.Tensor],
    names: Sequence[str],
    op: int = Sum,
    prescale: float = 1.0,
    postscale: float = 1.0,
    process_set: ProcessSet = global_process_set,
    is_group: bool = False,
    members_only: bool = False,
) -> tf.Tensor:
    """Submits tensors without waiting, and returns the token for :func:`wait`.

    In a ``tf.function`` the tensors are submitted as soon as they are there, in any order.
    ``members_only``: ranks outside of the process set call it too, and keep their tensors.
    """
    flags = GROUP * is_group + _MEMBERS_ONLY * members_only
    attributes = _attributes(kind, names, op, prescale, postscale, 0, process_set, flags)
    # The results of an allreduce are written to memory that TensorFlow knows as an output.
    outputs = _types(tensors) if kind == ALLREDUCE else []
    if tf.executing_eagerly():
        with _errors():
            return _submit(tensors, R=outputs, **attributes)[0]
    token, _ = _submit(tensors, R=outputs, **attributes)
    manager = getattr(token.graph, "experimental_acd_manager", None)
    if manager is not None:
        manager.run_independently(token.op)
    return token


def wait(tokens: Sequence[tf.Tensor], results: Sequence[tf.DType], is_step: bool) -> list[tf.Tensor]:
    """Waits for submitted tensors and returns the results. ``is_step``: marks the end of a step."""
    if tf.executing_eagerly():
        with _errors():
            return list(_wait(list(tokens), R=list(results), step=int(is_step)))
    outputs = _wait(list(tokens), R=list(results), step=int(is_step))
    return list(outputs)


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Replaces TensorFlow's exceptions by those of :mod:`.errors`."""
    try:
        yield
    except tf.errors.CancelledError:
        _ronde.raise_interrupt()
        raise
    except tf.errors.OpError as error:
        raise raised_for(error) from None


def query(what: int, process_set_id: int = 0, name: Optional[str] = None) -> tf.Tensor:
    """An int32 scalar that is computed when the graph runs."""
    return _query(what=what, process_set=process_set_id, name=name)


def _changes() -> bool:
    """Whether ranks may change while what is now made exists: a graph of an elastic job."""
    return seat.is_elastic() and not tf.executing_eagerly()


def is_reduced(process_set: ProcessSet) -> bool:
    """Whether tensors of this rank may meet those of other ranks."""
    return _changes() or (size_of(process_set) > 1 and bool(process_set.included()))


def count_of(process_set: ProcessSet, dtype: Any) -> tf.Tensor:
    """Number of ranks; in a graph of an elastic job, that when it runs."""
    count = query(SIZE, set_id_of(process_set)) if _changes() else size_of(process_set)
    return tf.cast(count, dtype)


def rank_in(process_set: ProcessSet) -> Any:
    """This process's rank in the set; in a graph of an elastic job, that when it runs."""
    return query(RANK, set_id_of(process_set)) if _changes() else process_set.rank()


def check_not_compiled() -> None:
    """Raises NotImplementedError in a function that XLA will compile."""
    if tf.executing_eagerly():
        return
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        context = graph._get_control_flow_context()
        while context is not None:
            if context.IsXLAContext():
                raise NotImplementedError(
                    "ronde's operations cannot be compiled by XLA, which has no kernels for them: use "
                    "tf.function(jit_compile=False), or model.compile(..., jit_compile=False)"
                )
            context = context.outer_context
        graph = getattr(graph, "outer_graph", None)
