"""Elastic training with TensorFlow: the state is committed now and then, and restored after a
failure::

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, epochs):
            …
            state.commit()

    train(hvd.elastic.TensorFlowKerasState(model, optimizer, epoch=0))
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Callable, Optional

import numpy as np
import tensorflow as tf

from ..common.elastic import ObjectState, is_seed, parts_of, run_fn
from .errors import ERRORS, as_horovod_error
from .functions import (
    allgather_object,
    allgather_object_fn,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from .mpi_ops import init, rank, shutdown

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a training function elastic. Its first argument is its state, a
    :class:`ronde.common.elastic.State`.

    All ranks synchronize their states, then call the function. When an operation fails
    (HorovodInternalError, or TensorFlow's error of one of ronde's operations), the last commit is
    restored; when hosts are added or removed (HostsUpdatedInterrupt), the state is kept. In both
    cases the process leaves the job, joins it again and calls the function again. Other exceptions
    end it.
    """

    def wrapper(state: Any, *args: Any, **kwargs: Any) -> Any:
        with _horovods_errors():
            return func(state, *args, **kwargs)

    return run_fn(wrapper, _reset)


@contextlib.contextmanager
def _horovods_errors() -> Iterator[None]:
    """Replaces TensorFlow's errors of ronde's operations by Horovod's."""
    try:
        yield
    except ERRORS as error:
        converted = as_horovod_error(error)
        if converted is error:
            raise
        raise converted from error


def _reset() -> None:
    shutdown()
    init()


def _variables_of(optimizer: Any) -> list[Any]:
    """An optimizer's variables: an attribute in Keras 3, a method before."""
    variables = getattr(optimizer, "variables", [])
    return list(variables() if callable(variables) else variables)


class _VariablesState(ObjectState):
    """State of variables and other values."""

    def __init__(self, session: Any, **kwargs: Any) -> None:
        self._session = session
        self._save_variables()
        bcast = broadcast_object
        if not tf.executing_eagerly():
            # Once: names of operations count up within a graph, and new ranks have a graph of their own.
            bcast = broadcast_object_fn(session=session)
            self._gather = allgather_object_fn("elastic", session)
            self._broadcast = broadcast_variables(self._shared(), root_rank=0)
        super().__init__(bcast_object=bcast, get_rank=rank, **kwargs)

    def _tracked(self) -> list[Any]:
        raise NotImplementedError

    def _shared(self) -> list[Any]:
        return [variable for variable in self._tracked() if not is_seed(variable)]

    def _save_variables(self) -> None:
        tracked = self._tracked()
        if tf.executing_eagerly():
            # Copies: the values of variables change in place.
            self._saved = [np.array(variable.numpy()) for variable in tracked]
        else:
            self._saved = self._session.run(tracked)

    def _assign(self) -> None:
        for variable, value in zip(self._tracked(), self._saved):
            if tf.executing_eagerly():
                variable.assign(value)
            else:
                variable.load(value, self._session)

    def save(self) -> None:
        self._save_variables()
        super().save()

    def restore(self) -> None:
        self._assign()
        super().restore()

    def on_reset(self) -> None:
        with _horovods_errors():
            super().on_reset()

    def sync(self) -> None:
        with _horovods_errors():
            if tf.executing_eagerly():
                broadcast_variables(self._shared(), root_rank=0)
            else:
                self._session.run(self._broadcast)
            self._save_variables()
            super().sync()

    def _parts(self) -> dict[str, str]:
        return {**super()._parts(), **parts_of(self._tracked())}

    def _of_all_ranks(self, value: Any) -> list[Any]:
        if tf.executing_eagerly():
            return allgather_object(value, name="elastic")
        with _horovods_errors():
            return self._gather(value)


class TensorFlowKerasState(_VariablesState):
    """State of a Keras model and its optimizer, and of other values as attributes.

    ``optimizer``: by default the model's. ``backend`` is a parameter of Horovod, and not used.
    ValueError unless the model is built.
    """

    def __init__(self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any) -> None:
        if not getattr(model, "built", True):
            raise ValueError("the model is not built: call model.build(input_shape), or the model with a batch")
        self.model = model
        self.optimizer = optimizer or model.optimizer
        self.backend = backend
        if self.optimizer is not None and not getattr(self.optimizer, "built", True):
            # Otherwise ranks with and without state could not synchronize it.
            self.optimizer.build(model.trainable_variables)
        super().__init__(None, **kwargs)

    def _tracked(self) -> list[Any]:
        return [*self.model.variables, *_variables_of(self.optimizer)]


class TensorFlowState(_VariablesState):
    """State of variables, by default all of a graph of TensorFlow 1, and of other values as
    attributes. ``session``: that of the graph."""

    def __init__(self, variables: Optional[list[Any]] = None, session: Any = None, **kwargs: Any) -> None:
        self.variables = variables or tf.compat.v1.global_variables()
        self.session = session or tf.compat.v1.get_default_session()
        super().__init__(self.session, **kwargs)

    def _tracked(self) -> list[Any]:
        return list(self.variables)
