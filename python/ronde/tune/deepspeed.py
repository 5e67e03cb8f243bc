"""Tunes `reduce_bucket_size` of DeepSpeed's ZeRO while it trains.

    from ronde.tune.deepspeed import BucketTuner

    engine, *_ = deepspeed.initialize(model=model, config=config)
    tuner = BucketTuner(engine, state="bucket.json")
    for inputs, targets in data:
        engine.backward(loss(engine(inputs), targets))
        engine.step()
        tuner.step()

Stages 1 and 2 read the size in every backward pass, and allocate a buffer of that size at its
begin. Stage 3 allocates the buffer once, so there the configured size is the largest. The size is a
number of elements.

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


class BucketTuner(ModelTuner):
    """Tunes `reduce_bucket_size`, from the configured value.

    `low` and `high` are the bounds, in elements. `high` is by default the number of the model's
    elements, or the configured value with stage 3. Other options are those of `Tuner`.

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
            high = sum(p.numel() for p in engine.module.parameters())
        low = min(low, start)
        super().__init__(
            "reduce_bucket_size",
            Log(low, max(high, low, start), start),
            lambda size: setattr(optimizer, "reduce_bucket_size", int(size)),
            engine.module,
            engine.data_parallel_group,
            **options,
        )


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
