"""Optimizers of Keras that reduce gradients over the ranks.

The class of a distributed optimizer is derived from that of the other one and has its name, so a
saved model can be loaded without ronde.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
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
    inner = _inner_of(optimizer)
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
    derived = type(kind.__name__, (_Distributed, kind), attributes)
    package, _, registered = keras.saving.get_registered_name(kind).rpartition(">")
    if package:
        # So that a saved model has this name. The other class comes last: look-ups return it.
        for one in (derived, kind):
            keras.saving.register_keras_serializable(package, registered)(one)
    return derived


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
    if options.backward_passes_per_step > 1:
        if optimizer.gradient_accumulation_steps:
            raise ValueError(
                "backward_passes_per_step and Keras' gradient_accumulation_steps have the same meaning: set one"
            )
        if _inner_of(optimizer) is not None:
            _check_passes(options)
    is_of_sums = options.backward_passes_per_step > 1 and not options.average_aggregated_gradients
    saved_name = options.name + (_OF_SUMS if is_of_sums else "")
    return _copy_of(optimizer, kind, saved_name, options.backward_passes_per_step)


#: End of the name of an optimizer that applies the sum of several passes, where Keras applies the
#: average. Nothing else in the configuration could say so to :func:`load_model`.
_OF_SUMS = "_of_sums"


def _inner_of(optimizer: Any) -> Any:
    return getattr(optimizer, "inner_optimizer", None)


#: Attributes that are not in the configuration: variables without weight decay.
_EXCLUDED = ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern")


def _copy_of(optimizer: Any, kind: type, name: Optional[str] = None, passes: int = 1) -> Any:
    """A new optimizer of class ``kind`` with the configuration of ``optimizer``.

    Functions, and objects whose class is not registered, have no configuration that Keras can read.
    So the new one gets the same schedule of learning rates, and a copy of the inner optimizer.
    """
    import keras

    rate, inner = optimizer._learning_rate, _inner_of(optimizer)
    has_variable = isinstance(rate, keras.Variable)
    stand_ins: dict[str, Any] = {} if has_variable else {"_learning_rate": 0.0}
    if inner is not None:
        stand_ins["inner_optimizer"] = keras.optimizers.SGD(name="stand_in")
    with _replaced(optimizer, stand_ins):
        config = optimizer.get_config()
    if not has_variable and "learning_rate" in config:
        config["learning_rate"] = rate
    if name is not None and "name" in config:
        config["name"] = name
    if passes > 1:
        config["gradient_accumulation_steps"] = passes
    copy = kind.from_config(config)
    if inner is not None:
        copy.inner_optimizer = _copy_of(inner, type(inner))
    for attribute in _EXCLUDED:
        if hasattr(optimizer, attribute):
            setattr(copy, attribute, getattr(optimizer, attribute))
    return copy


@contextlib.contextmanager
def _replaced(owner: Any, attributes: dict[str, Any]) -> Iterator[None]:
    """Sets attributes for a while."""
    before = {name: getattr(owner, name) for name in attributes}
    try:
        for name, value in attributes.items():
            setattr(owner, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def move_outward(optimizer: Any) -> None:
    """Makes a LossScaleOptimizer the distributed optimizer if the one in it is.

    Keras adds it for mixed_float16. It applies gradients only on ranks where they are finite: a
    distributed optimizer in it would wait for ever on the others.
    """
    inner = _inner_of(optimizer)
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
        make_distributed(
            optimizer,
            compression=compression,
            backward_passes_per_step=optimizer.gradient_accumulation_steps or 1,
            average_aggregated_gradients=not optimizer.name.endswith(_OF_SUMS),
        )
    return model
