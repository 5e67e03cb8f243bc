"""Common part of the callbacks: finds the tunable model and tunes it."""

from __future__ import annotations

import gc
import logging
import sys
from typing import Any, Dict, Optional

import torch
from torch.nn.parallel import DistributedDataParallel

from ._model import ModelTuner

log = logging.getLogger("ronde.tune")


class CallbackTuner:
    """Tunes the model of a trainer, from `start` to `end`.

    `options` are those of the `BucketTuner` of `ronde.tune.ddp` or `ronde.tune.deepspeed`.
    """

    def __init__(self, options: Dict[str, Any]) -> None:
        self._options = options
        self._tuner: Optional[ModelTuner] = None

    @property
    def settings(self) -> Dict[str, Any]:
        """The setting in force, by name; empty before the training."""
        return {} if self._tuner is None else self._tuner.settings

    @property
    def verdict(self) -> Optional[Dict[str, Any]]:
        """Result of the search; None before."""
        return None if self._tuner is None else self._tuner.verdict

    @property
    def state(self) -> Any:
        """Path of the state file, or None."""
        return self._options.get("state")

    def start(self, model: torch.nn.Module) -> None:
        """Begins to tune. A model without buckets is trained untuned."""
        self.end()
        if isinstance(model, DistributedDataParallel):
            from .ddp import BucketTuner

            self._tuner = BucketTuner(model, **self._options)
        elif is_deepspeed(model):
            from .deepspeed import BucketTuner as ZeroBucketTuner

            self._tuner = ZeroBucketTuner(model, **self._options)
        else:
            log.warning(
                "the model is a %s, not a DistributedDataParallel or a DeepSpeed engine: "
                "nothing is tuned",
                type(model).__name__,
            )

    def begin(self) -> None:
        """Marks the start of a step."""
        if self._tuner is not None:
            self._tuner.begin()

    def step(self) -> None:
        """Marks the end of a step."""
        if self._tuner is not None:
            self._tuner.step()

    def end(self) -> None:
        """Ends tuning and saves what was measured."""
        if self._tuner is not None:
            self._tuner.close()


class TunedCallback:
    """Base of the callbacks: their tuner, and its properties."""

    _tuner: CallbackTuner

    @property
    def settings(self) -> Dict[str, Any]:
        """The setting in force, by name; empty before the training."""
        return self._tuner.settings

    @property
    def verdict(self) -> Optional[Dict[str, Any]]:
        """Result of the search; None before."""
        return self._tuner.verdict


def is_deepspeed(model: Any) -> bool:
    """Whether this is a DeepSpeed engine. Does not import DeepSpeed."""
    deepspeed = sys.modules.get("deepspeed")
    return deepspeed is not None and isinstance(model, deepspeed.DeepSpeedEngine)


def wrapper_of(module: torch.nn.Module) -> torch.nn.Module:
    """Returns the DistributedDataParallel or DeepSpeed engine that holds `module`, or `module`.

    If there are several, from an earlier training, it is the one that has not run yet.
    """
    module = getattr(module, "_orig_mod", module)  # of torch.compile
    if isinstance(module, DistributedDataParallel) or is_deepspeed(module):
        return module
    wrappers = []
    for found in gc.get_objects():
        # Not isinstance, which runs code of proxies.
        if issubclass(type(found), torch.nn.Module) and found is not module:
            held = found.__dict__.get("_modules", {}).get("module")
            is_it = getattr(held, "_orig_mod", held) is module
            if is_it and (isinstance(found, DistributedDataParallel) or is_deepspeed(found)):
                wrappers.append(found)
    unused = [found for found in wrappers if not getattr(found, "_lazy_init_ran", False)]
    chosen = wrappers if len(wrappers) == 1 else unused
    return chosen[0] if len(chosen) == 1 else module
