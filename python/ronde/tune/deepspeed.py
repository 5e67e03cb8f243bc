"""Tunes `reduce_bucket_size` of DeepSpeed's ZeRO while it trains.

    from ronde.tune.deepspeed import BucketTuner

    engine, *_ = deepspeed.initialize(model=model, config=config)
    tuner = BucketTuner(engine, state="bucket.json")
    for inputs, targets in data:
        engine.backward(loss(engine(inputs), targets))
        engine.step()
        tuner.step()
    tuner.close()

A step is one of the optimizer: calls of `tuner.step` after other micro-batches have no effect.

Stages 1 and 2 read the size in every backward pass, and allocate a buffer of that size at its
start: larger sizes cost memory, which the search needs too. Stage 3 allocates the buffer once, so
there the configured size is the largest. The size is a number of elements.

Needs `pip install ronde[deepspeed]`.
"""

from __future__ import annotations

from typing import Any, Optional

try:
    from deepspeed import DeepSpeedEngine
except ImportError as error:
    raise ImportError(
        "ronde.tune.deepspeed needs DeepSpeed; run: pip install 'ronde[deepspeed]'"
    ) from error

from ._model import ModelTuner
from .parameters import Log

# Smallest size of the search, in elements: 1 MB of 16-bit gradients.
LOW = 500_000
# Largest size of the search in stages 1 and 2, unless `high` is given: this many times the
# configured one, and at most DeepSpeed's default or the configured one. The buffers of the search
# must not need much more memory than the user has planned for.
HIGH_FACTOR = 4
HIGH = 500_000_000


class BucketTuner(ModelTuner):
    """Tunes `reduce_bucket_size`, from the configured value.

    `low` and `high` are the bounds, in elements. `high` is by default four times the configured
    value, but at most the larger of 5e8 and that value, and not more than the model has elements;
    with stage 3 it is the configured value. Other options are those of `Tuner`.

    Raises ValueError if the engine does not use ZeRO or cannot be changed.
    """

    def __init__(
        self,
        engine: DeepSpeedEngine,
        *,
        low: float = LOW,
        high: Optional[float] = None,
        **options: Any,
    ) -> None:
        optimizer = _optimizer(engine)
        start = optimizer.reduce_bucket_size
        if engine.zero_optimization_stage() >= 3:
            if high is not None and high > start:
                raise ValueError(
                    f"high is {high}, but stage 3 has allocated reduce_bucket_size = {start} "
                    "elements; configure the largest size to try"
                )
            high = start if high is None else high
        elif high is None:
            elements = sum(p.numel() for p in engine.module.parameters())
            high = min(HIGH_FACTOR * start, max(HIGH, start), elements)
        low = min(low, start)
        super().__init__(
            "reduce_bucket_size",
            Log(low, max(high, low, start), start),
            lambda size: setattr(optimizer, "reduce_bucket_size", int(size)),
            engine.module,
            engine.data_parallel_group,
            **options,
        )
        self._engine = engine
        self._global_step = engine.global_steps

    def step(self, seconds: Optional[float] = None) -> bool:
        """Marks the end of a step; returns whether the setting has changed.

        Has no effect after a micro-batch without a step of the optimizer: stages 1 and 2 reduce
        gradients at the last one only, so others say nothing about the size. The time since the
        last step of the optimizer counts, or `seconds`.
        """
        global_step = self._engine.global_steps
        if global_step == self._global_step:
            return False
        self._global_step = global_step
        return super().step(seconds)


def _optimizer(engine: DeepSpeedEngine) -> Any:
    """Returns the ZeRO optimizer, which holds the size."""
    if not isinstance(engine, DeepSpeedEngine):
        raise ValueError(f"a {type(engine).__name__} is no DeepSpeed engine")
    optimizer = engine.optimizer
    if not isinstance(getattr(optimizer, "reduce_bucket_size", None), int):
        raise ValueError(
            f"the optimizer {type(optimizer).__name__} has no reduce_bucket_size; configure "
            "zero_optimization with stage 1, 2 or 3"
        )
    return optimizer
