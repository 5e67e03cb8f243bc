"""Callback for Hugging Face's Trainer that tunes DDP's buckets while it trains.

    from ronde.tune.huggingface import RondeTunerCallback
    from transformers import Trainer

    trainer = Trainer(model, arguments, callbacks=[RondeTunerCallback(state="bucket.json")], …)

Needs `pip install ronde[huggingface]`.
"""

from __future__ import annotations

from typing import Any

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(
        "ronde.tune.huggingface needs transformers and accelerate; run: "
        "pip install 'ronde[huggingface]'"
    ) from error

from ._callback import CallbackTuner, TunedCallback, wrapper_of


class RondeTunerCallback(TunedCallback, TrainerCallback):  # type: ignore[misc]
    """Tunes `ddp_bucket_cap_mb`, or DeepSpeed's `reduce_bucket_size`.

    A step is one of the optimizer, with all of its accumulated batches. Evaluation, logging and
    checkpoints do not count. A model that is not in DistributedDataParallel or a DeepSpeed engine
    is not tuned, and a warning says so.

    `options` are those of `ronde.tune.ddp.BucketTuner`, such as `state`, `low`, `high` and `steps`.
    """

    def __init__(self, **options: Any) -> None:
        self._tuner = CallbackTuner(options)

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        # The Trainer gives the model without its wrapper.
        self._tuner.start(wrapper_of(others["model"]))

    def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._tuner.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._tuner.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._tuner.end()
