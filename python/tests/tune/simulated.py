"""Step times that depend on the bucket size alone: a search is the same on every machine."""

import math

from ronde.tune import tuner
from ronde.tune._model import ModelTuner


def simulate_steps(best_mb):
    """Lets every tuner of a model measure such steps: the fastest are those of `best_mb`."""
    tuner.SEARCH_STEPS = 1  # otherwise the agreements depend on the time that broadcasts take
    step, counts = ModelTuner.step, []

    def simulated(self, seconds=None):
        counts.append(1)
        distance = math.log2(self.settings["bucket_cap_mb"] / best_mb)
        return step(self, 0.1 + 0.003 * distance**2 + 0.0001 * (len(counts) % 7))

    ModelTuner.step = simulated
