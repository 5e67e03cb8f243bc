"""Optimizers of Keras that reduce gradients over the ranks.

The class of a distributed optimizer is derived from that of the other one and has its name, so a
saved model can be loaded without ronde.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from . import backend
from .options import Options


class _Distributed:
    """Mixin before the class of an optimizer; each distributed optimizer has a class of its own,
    with these attributes."""

    _options: Options
    _reduce: Any

    def apply(self, grads: Sequence[Any], trainable_variables: Optional[Sequence[Any]] = None) -> Any:
        """Applies the reduced gradients. All ranks of the process set call it."""
        grads = list(grads)
        variables = trainable_variables
        if variables is None:
            variables = self._trainable_variables
        variables = list(variables)
        if self._options.backward_passes_per_step == 1:
            grads = type(self)._reduce(grads, variables) if grads else grads
        else:
            # Keras sums them and calls `_clip_gradients` with the sum.
            self._options.present = [
                variable for gradient, variable in zip(grads, variables) if gradient is not None
            ]
        if trainable_variables is None:
            return super().apply(grads)
        return super().apply(grads, variables)

    def _clip_gradients(self, grads: Sequence[Any]) -> Any:
        """Also reduces the gradients that Keras has summed over the passes of a step."""
        options = self._options
        if options.backward_passes_per_step > 1:
            grads = type(self)._reduce(list(grads), options.present)
            if not options.average_aggregated_gradients:
                # Keras has averaged them.
                passes = options.backward_passes_per_step
                grads = [None if gradient is None else gradient * passes for gradient in grads]
        return super()._clip_gradients(grads)

    def register_local_var(self, var: Any) -> None:
        """Excludes a variable from reduction: its gradient is this rank's, divided by the number of
        ranks unless ``scale_local_gradients=False``."""
        self._options.local_variables.append(var)


def _stateless_apply(self: Any, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
    """Reduces the gradients before they are checked to be finite, as the ranks must agree on that."""
    grads = type(self)._reduce(list(grads), list(self._trainable_variables))
    return super(type(self), self).stateless_apply(optimizer_variables, grads, trainable_variables)


def is_distributed(optimizer: Any) -> bool:
    """Whether an optimizer reduces gradients, or one in it does."""
    inner = getattr(optimizer, "inner_optimizer", None)
    return isinstance(optimizer, _Distributed) or (inner is not None and is_distributed(inner))


def _class_of(kind: type, options: Options) -> type:
    """Class of a distributed optimizer, derived from ``kind``."""
    import keras

    options.check()
    is_of_keras = kind.__module__.split(".")[0] == "keras"
    attributes = {
        "_options": options,
        "_reduce": staticmethod(backend().reducer(options)),
        # Under this name Keras finds the other class when it loads a model.
        "__module__": "keras.optimizers" if is_of_keras else kind.__module__,
        "__doc__": kind.__doc__,
    }
    if issubclass(kind, keras.optimizers.LossScaleOptimizer):
        # It does not call `apply` on JAX.
        attributes["stateless_apply"] = _stateless_apply
    return type(kind.__name__, (_Distributed, kind), attributes)


def _check_not_distributed(optimizer: Any) -> None:
    if is_distributed(optimizer):
        raise ValueError(
            "the optimizer is a DistributedOptimizer already: its gradients would be reduced twice"
        )


def distributed(optimizer: Any, name: Optional[str], **arguments: Any) -> Any:
    """A new distributed optimizer with the configuration of ``optimizer``. ValueError if it is
    distributed already."""
    import keras

    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise TypeError(
            f"expected an optimizer of Keras, not {type(optimizer).__module__}.{type(optimizer).__qualname__}"
        )
    _check_not_distributed(optimizer)
    options = Options(name or f"Distributed{type(optimizer).__name__}", **arguments)
    kind = _class_of(type(optimizer), options)
    config = optimizer.get_config()
    if "name" in config:
        config["name"] = options.name
    if options.backward_passes_per_step > 1:
        if config.get("gradient_accumulation_steps"):
            raise ValueError(
                "backward_passes_per_step and Keras' gradient_accumulation_steps have the same meaning: set one"
            )
        if "inner_optimizer" in config:
            _check_passes(options)
        config["gradient_accumulation_steps"] = options.backward_passes_per_step
    return kind.from_config(config)


def move_outward(optimizer: Any) -> None:
    """Makes a LossScaleOptimizer the distributed optimizer if the one in it is.

    Keras adds it for mixed_float16. It applies gradients only on ranks where they are finite: a
    distributed optimizer in it would wait for ever on the others.
    """
    inner = getattr(optimizer, "inner_optimizer", None)
    if not isinstance(inner, _Distributed) or isinstance(optimizer, _Distributed):
        return
    options = inner._options
    _check_passes(options)
    inner.__class__ = type(inner).__bases__[1]
    optimizer.__class__ = _class_of(type(optimizer), options)


def _check_passes(options: Options) -> None:
    if options.backward_passes_per_step > 1:
        raise ValueError(
            "backward_passes_per_step does not support LossScaleOptimizer: set "
            "gradient_accumulation_steps of the inner optimizer"
        )


def make_distributed(optimizer: Any, **arguments: Any) -> None:
    """Makes an optimizer distributed that has variables already, in place."""
    _check_not_distributed(optimizer)
    options = Options(f"Distributed{type(optimizer).__name__}", **arguments)
    optimizer.__class__ = _class_of(type(optimizer), options)


def load_model(
    filepath: Any,
    custom_optimizers: Optional[Sequence[type]],
    custom_objects: Optional[dict[str, Any]],
    compression: Any,
) -> Any:
    """Loads a model of Keras and makes its optimizer distributed."""
    import keras

    objects = {kind.__name__: kind for kind in custom_optimizers or ()}
    objects.update(custom_objects or {})
    model = keras.models.load_model(filepath, custom_objects=objects)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not is_distributed(optimizer):
        make_distributed(optimizer, compression=compression)
    return model
