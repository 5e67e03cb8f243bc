"""Fixes the seed of the tuners, here and in the processes that the tests start."""

import os

os.environ.setdefault("RONDE_AUTOTUNE_SEED", "7")
