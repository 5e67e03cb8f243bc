"""Callbacks of Keras' ``fit``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Optional, Union

import keras
import numpy as np

from .. import _ronde
from ..common.elastic import is_seed
from . import backend


def _digest(parts: Mapping[str, str]) -> bytes:
    return hashlib.blake2b(repr(sorted(parts.items())).encode(), digest_size=8).digest()


def _difference(parts: Mapping[str, str], name: str) -> str:
    """A part that differs between the first rank and another. All ranks call it, with parts that
    are not equal on all of them."""
    of_ranks = backend().allgather_object(dict(parts), name=name)
    first = of_ranks[0]
    rank, other = next((rank, other) for rank, other in enumerate(of_ranks) if other != first)
    part = next(part for part in (*first, *other) if first.get(part) != other.get(part))
    here, there = (of_rank.get(part, "missing") for of_rank in (first, other))
    return f"{part} is {here} on rank 0 ({len(first)} in all) and {there} on rank {rank} ({len(other)})"


class BroadcastGlobalVariablesCallback(keras.callbacks.Callback):
    """Broadcasts the variables of the model and its optimizer from rank ``root_rank``.

    It does so at the beginning of training, or after the first batch if variables of some rank are
    created then. All ranks need the callback, and the same variables: otherwise ValueError.
    ``local_variables`` are left out; ``device`` is a parameter of Horovod, and not used.
    """

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.broadcast_done = False
        self._local: list[Any] = []
        if local_variables is None:
            local_variables = []
        elif not isinstance(local_variables, Iterable):
            local_variables = [local_variables]
        for variable in local_variables:
            if not hasattr(variable, "assign"):
                raise ValueError(f"local_variables has a {type(variable).__name__}: expected variables")
            self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """Leaves a variable out."""
        self._local.append(var)

    def on_train_begin(self, logs: Optional[dict[str, Any]] = None) -> None:
        """Broadcasts if the model is built on all ranks."""
        # A rank may have loaded the model, while others create its variables in the first batch.
        if not self.broadcast_done and all(backend().allgather_object(self.model.built, name="model_built")):
            optimizer = getattr(self.model, "optimizer", None)
            if not getattr(optimizer, "built", True):
                optimizer.build(self.model.trainable_variables)
            self._broadcast()

    def on_batch_end(self, batch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Broadcasts unless that is done."""
        self._broadcast()

    def _broadcast(self) -> None:
        if self.broadcast_done:
            return
        front = backend()
        front.sync_model(self.model)
        optimizer = getattr(self.model, "optimizer", None)
        local = {id(variable) for variable in self._local}
        variables = [
            variable
            for variable in [*self.model.variables, *(optimizer.variables if optimizer is not None else ())]
            if id(variable) not in local and not is_seed(variable)
        ]
        self._check(variables)
        front.broadcast_variables(variables, self.root_rank)
        self.broadcast_done = True

    def _check(self, variables: list[Any]) -> None:
        """Raises ValueError on all ranks unless they have the same variables."""
        # By position: names are numbered within a process, and may differ.
        parts = {
            f"variable {index}": f"{keras.backend.standardize_dtype(variable.dtype)} of shape {tuple(variable.shape)}"
            for index, variable in enumerate(variables)
        }
        name = "broadcast_variables"
        if len(set(backend().allgather_object(_digest(parts), name=f"{name}.digest"))) > 1:
            difference = _difference(parts, name)
            raise ValueError(
                f"the variables of model and optimizer differ among the ranks: {difference}. "
                f"BroadcastGlobalVariablesCallback needs the same ones, in the same order, on all ranks"
            )


class MetricAverageCallback(keras.callbacks.Callback):
    """Averages metrics over the ranks at the end of an epoch.

    It comes before callbacks that use the metrics, such as ReduceLROnPlateau. All ranks have the
    same metrics, otherwise ValueError. ``device`` is a parameter of Horovod, and not used.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Replaces the numbers and arrays in ``logs`` by their averages."""
        logs = {} if logs is None else logs
        names = sorted(logs)
        arrays = [np.asarray(keras.ops.convert_to_numpy(logs[name]), np.float64) for name in names]
        self._check({repr(name): f"of shape {array.shape}" for name, array in zip(names, arrays)})
        if not names:
            return
        averages = backend().averages(np.concatenate([array.ravel() for array in arrays]), "metrics")
        ends = np.cumsum([array.size for array in arrays])
        for name, array, part in zip(names, arrays, np.split(averages, ends[:-1])):
            logs[name] = part.reshape(array.shape) if array.ndim else float(part[0])

    def _check(self, parts: Mapping[str, str]) -> None:
        """Raises ValueError on all ranks unless they have the same metrics."""
        size = _ronde.size()
        if size == 1:
            return
        # Averages, as ranks that have joined take part in no other operation; they count as zeros.
        # The mean of n signs is 1 or -1 if they are equal, and otherwise at least 2 / n from both.
        signs = np.unpackbits(np.frombuffer(_digest(parts), np.uint8)) * 2.0 - 1.0
        means = np.abs(backend().averages([1.0, *signs], "metrics.digest"))
        if (means > means[0] - 1 / size).all():
            return
        difference = "where is unknown, as a rank has joined"
        if means[0] > 1 - 0.5 / size:
            difference = _difference(parts, "metrics.names")
        raise ValueError(
            f"the metrics differ among the ranks: {difference}. MetricAverageCallback needs the same ones on all ranks"
        )


class LearningRateScheduleCallback(keras.callbacks.Callback):
    """Sets the learning rate to ``initial_lr * multiplier`` in epochs ``start_epoch`` to
    ``end_epoch`` (exclusive).

    ``multiplier``: a function of the epoch, or a number, for which it is
    ``multiplier ** (epoch - start_epoch)``. ``staircase``: once for each epoch; otherwise for each
    batch, with fractions of epochs. ``steps_per_epoch``: needed if Keras does not know it.
    ``momentum_correction``: scales the momentum of the first batch after a change by the ratio of
    the learning rates. Keras compiles the momentum into the training step on TensorFlow and JAX; it
    is corrected only where steps are not compiled.
    """

    def __init__(
        self,
        initial_lr: float,
        multiplier: Union[float, Callable[[float], float]],
        start_epoch: int = 0,
        end_epoch: Optional[int] = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise ValueError("initial_lr is required: the learning rate that the multiplier refers to")
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0
        self._momentum: Optional[float] = None
        if callable(multiplier):
            self.multiplier = multiplier
        else:
            self.multiplier = lambda epoch: multiplier ** (epoch - start_epoch)

    def on_train_begin(self, logs: Optional[dict[str, Any]] = None) -> None:
        """Finds the number of steps in an epoch."""
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self.params.get("steps")
            if not self.steps_per_epoch:
                raise ValueError(
                    f"{type(self).__name__}: Keras does not know the number of steps in an epoch; pass steps_per_epoch"
                )

    def on_epoch_begin(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Notes the epoch."""
        self.current_epoch = epoch

    def on_batch_begin(self, batch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Sets the learning rate."""
        epoch = self.current_epoch
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        if not self.staircase:
            self._adjust(epoch + batch / self.steps_per_epoch)
        elif batch == 0:
            self._adjust(epoch)

    def _adjust(self, epoch: float) -> None:
        backend().sync_model(self.model)
        optimizer = self.model.optimizer
        before, after = self._learning_rate(), self.initial_lr * self.multiplier(epoch)
        optimizer.learning_rate = after
        momentum = getattr(optimizer, "momentum", None)
        if self.momentum_correction and momentum and before and self._is_eager():
            self._momentum = momentum
            optimizer.momentum = momentum * after / before

    def _is_eager(self) -> bool:
        return self.model.run_eagerly or keras.backend.backend() == "torch"

    def _learning_rate(self) -> float:
        return float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))

    def on_batch_end(self, batch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Restores the momentum."""
        if self._momentum is not None:
            self.model.optimizer.momentum = self._momentum
            self._momentum = None

    def on_epoch_end(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Adds the learning rate to ``logs``, as ``lr``."""
        if logs is not None:
            backend().sync_model(self.model)
            logs["lr"] = self._learning_rate()


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from ``initial_lr / size`` to ``initial_lr`` in the first epochs
    (Goyal et al., *Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour*, §2.2).

    After ``epoch`` epochs of ``warmup_epochs`` it is
    ``initial_lr / size * (epoch * (size - 1) / warmup_epochs + 1)``.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: Optional[int] = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            # The end of a batch, so that an epoch ends with a round number.
            epoch += 1.0 / self.steps_per_epoch
            size = _ronde.size()
            return (epoch * (size - 1) / warmup_epochs + 1) / size

        super().__init__(
            initial_lr,
            multiplier,
            start_epoch=0,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Optional[dict[str, Any]] = None) -> None:
        """Adds the learning rate to ``logs``; rank 0 prints the end of the warm-up."""
        super().on_epoch_end(epoch, logs)
        if epoch == self.end_epoch - 1 and self.verbose > 0 and _ronde.rank() == 0:
            print(f"\nEpoch {epoch + 1}: learning rate is {self._learning_rate():g} after warm-up.")


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """Keeps the best model, in the file ``filepath`` (``best_model.keras``)."""

    def __init__(
        self, monitor: str = "val_loss", verbose: int = 0, mode: str = "auto", save_freq: Any = "epoch"
    ) -> None:
        super().__init__(
            filepath="best_model.keras",
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=False,
            mode=mode,
            save_freq=save_freq,
        )
