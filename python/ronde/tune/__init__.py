"""Tuner for any training loop: step times in, settings out.

    from ronde.tune import Log, Tuner

    tuner = Tuner({"bucket_cap_mb": Log(1, 256, start=25)})
    for batch in data:
        train(batch, **tuner.settings)
        tuner.step()
    tuner.close()

Needs no framework. `ronde.tune.ddp` tunes torch's DistributedDataParallel, `ronde.tune.deepspeed`
DeepSpeed's ZeRO; `ronde.tune.lightning` and `ronde.tune.huggingface` are callbacks. docs/TUNE.md
describes them all.
"""

from .parameters import Boolean, Integer, Linear, Log
from .tuner import Tuner, TunerError

__all__ = ["Boolean", "Integer", "Linear", "Log", "Tuner", "TunerError"]
