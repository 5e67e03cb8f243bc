"""Elastic training with Keras: state, loop and callbacks."""

from __future__ import annotations

from typing import Any, Callable, Optional

import keras
import numpy as np

from .. import _ronde
from ..common.basics import init, shutdown
from ..common.elastic import ObjectState, is_seed, parts_of, run_fn
from . import backend


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a training function elastic. Its first argument is its state, a
    :class:`ronde.common.elastic.State`.

    All ranks synchronize their states, then call the function. When an operation fails, the last
    commit is restored; when hosts are added or removed (HostsUpdatedInterrupt), the state is kept.
    In both cases the process leaves the job, joins it again and calls the function again. Other
    exceptions end it.
    """

    def wrapper(state: Any, *args: Any, **kwargs: Any) -> Any:
        front = backend()
        try:
            return func(state, *args, **kwargs)
        except front.ERRORS as error:
            converted = front.converted(error)
            if converted is error:
                raise
            raise converted from error

    return run_fn(wrapper, _reset)


def _reset() -> None:
    shutdown()
    init()


class KerasState(ObjectState):
    """State of a Keras model and its optimizer, and of other values as attributes.

    ``optimizer``: by default the model's. ValueError unless the model is built.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        if not model.built:
            raise ValueError("the model is not built: call model.build(input_shape), or the model with a batch")
        self.model = model
        self.optimizer = optimizer or model.optimizer
        if self.optimizer is not None and not self.optimizer.built:
            # Otherwise ranks with and without state could not synchronize it.
            self.optimizer.build(model.trainable_variables)
        self._save_variables()
        super().__init__(bcast_object=backend().broadcast_object, get_rank=_ronde.rank, **kwargs)

    def _variables(self) -> list[Any]:
        of_optimizer = self.optimizer.variables if self.optimizer is not None else ()
        return [*self.model.variables, *of_optimizer]

    def _save_variables(self) -> None:
        # Copies: the values of variables may change in place.
        self._saved = [np.array(keras.ops.convert_to_numpy(variable)) for variable in self._variables()]

    def save(self) -> None:
        if getattr(self.model, "_jax_state", None):
            backend().sync_model(self.model)
        self._save_variables()
        super().save()

    def restore(self) -> None:
        for variable, value in zip(self._variables(), self._saved):
            variable.assign(value)
        super().restore()

    def sync(self) -> None:
        shared = [variable for variable in self._variables() if not is_seed(variable)]
        backend().broadcast_variables(shared, 0)
        self._save_variables()
        super().sync()

    def _parts(self) -> dict[str, str]:
        return {**super()._parts(), **parts_of(self._variables())}

    def _of_all_ranks(self, value: Any) -> list[Any]:
        return backend().allgather_object(value, name="elastic")


class CommitStateCallback(keras.callbacks.Callback):
    """Commits ``state`` after every ``batches_per_commit`` batches, and at the end of an epoch."""

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Optional[dict[str, Any]] = None) -> None:
        """Starts to count, on all ranks."""
        self.batches_remaining = self.batches_per_commit

    def on_batch_end(self, batch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Commits after the last batch of a commit."""
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self.state.commit()
            self.batches_remaining = self.batches_per_commit

    def on_epoch_end(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Commits."""
        self.state.commit()


class UpdateBatchStateCallback(keras.callbacks.Callback):
    """Keeps the number of the batch in ``state.batch``, 0 at the end of an epoch.

    The first epoch after a reset is shortened in Keras' parameters by the batches that were done.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.steps_per_epoch: Optional[int] = None

    def on_train_begin(self, logs: Optional[dict[str, Any]] = None) -> None:
        """Forgets the number of steps of an earlier training."""
        self.steps_per_epoch = None

    def on_epoch_begin(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Sets the number of steps that are left."""
        if self.params.get("steps"):
            if self.steps_per_epoch is None:
                self.steps_per_epoch = self.params["steps"]
            self.params["steps"] = self.steps_per_epoch - self.state.batch

    def on_batch_end(self, batch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Notes the batch."""
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Starts again."""
        self.state.batch = 0


class UpdateEpochStateCallback(keras.callbacks.Callback):
    """Keeps the number of the next epoch in ``state.epoch``, over all trainings of the state."""

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch

    def on_train_begin(self, logs: Optional[dict[str, Any]] = None) -> None:
        """Notes the epoch at which this training begins; Keras counts from 0."""
        self.initial_epoch = self.state.epoch

    def on_epoch_end(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Notes the next epoch."""
        self.state.epoch = self.initial_epoch + epoch + 1
