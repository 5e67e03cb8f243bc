"""Callback for Lightning that tunes DDP's buckets while it trains.

    from lightning.pytorch import Trainer
    from ronde.tune.lightning import RondeTuner

    trainer = Trainer(strategy="ddp", devices=4, callbacks=[RondeTuner(state="bucket.json")])

Needs `pip install ronde[lightning]`.
"""

from __future__ import annotations

import logging
import multiprocessing
from typing import Any

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    try:
        from pytorch_lightning import Callback, LightningModule, Trainer
    except ImportError:
        raise ImportError(
            "ronde.tune.lightning needs Lightning; run: pip install 'ronde[lightning]'"
        ) from error

from ._callback import CallbackTuner, TunedCallback, wrapper_of

log = logging.getLogger("ronde.tune")


class RondeTuner(TunedCallback, Callback):
    """Tunes `bucket_cap_mb` of the strategy "ddp", or DeepSpeed's `reduce_bucket_size`.

    A step ends with the optimizer's; batches whose gradients are accumulated are one step. Time
    between batches, such as that of validation, does not count. With another strategy, nothing is
    tuned, and a warning says so.

    With the strategies "ddp_spawn", "ddp_fork" and "ddp_notebook", `verdict` and `settings` are
    empty in the main process after the training: its ranks are other processes. The state file has
    the result, and a warning says so.

    `options` are those of `ronde.tune.ddp.BucketTuner`, such as `state`, `low`, `high` and `steps`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._tuner = CallbackTuner(options)
        self._global_step = 0
        self._is_open = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        model = trainer.strategy.model
        self._tuner.start(wrapper_of(model if model is not None else pl_module))
        self._global_step = trainer.global_step

    def on_train_batch_start(self, trainer: Trainer, *others: Any) -> None:
        if not self._is_open:
            self._is_open = True
            self._tuner.begin()

    def on_train_batch_end(self, trainer: Trainer, *others: Any) -> None:
        global_step = trainer.global_step  # which Lightning looks up in several objects
        if global_step != self._global_step:
            self._global_step = global_step
            self._is_open = False
            self._tuner.step()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._tuner.end()
        # A rank that multiprocessing has started ends with the training, and its callback with it.
        if multiprocessing.parent_process() is None or not trainer.is_global_zero:
            return
        if self._tuner.state is not None and self.settings:
            log.warning(
                "the main process has no RondeTuner.verdict; the result is in the state file %s",
                self._tuner.state,
            )
        elif self.settings:
            log.warning(
                "the main process has no RondeTuner.verdict; give state= for a file with the "
                "result, which is %s",
                self.verdict,
            )

    def on_exception(self, trainer: Trainer, *others: Any) -> None:
        self._tuner.end()
