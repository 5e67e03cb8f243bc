"""`ronde.tune.ddp` with real torch ranks over gloo."""

import pathlib

import pytest
import torch
from ddp_rank import CASES
from ranks import run

RANK = pathlib.Path(__file__).with_name("ddp_rank.py")
HAS_COMPILE = hasattr(torch, "compile")


@pytest.mark.parametrize("size", [2, 3])
def test_weights_are_those_of_an_untuned_run(size):
    """And searches, communication hooks, kept losses, frozen layers, memory, bad input."""
    cases = [case for case in CASES if case != "compile" or HAS_COMPILE]
    others = ["search", "hook", "late_hook", "bucket_state", "loss", "frozen", "freed", "refused"]
    run(size, RANK, *cases, *others)
