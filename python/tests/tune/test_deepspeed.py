"""`ronde.tune.deepspeed` with a stand-in for the engine; deepspeed_rank.py has the real one."""

import importlib
import sys
import types

import pytest
import torch
import torch.distributed as dist

ELEMENTS = 1000 * 1000


class Engine:
    """The part of a DeepSpeed engine that the tuner uses: ZeRO with 4 micro-batches in a step."""

    data_parallel_group = None

    def __init__(self, size, stage=2):
        self.module = torch.nn.Linear(1000, 1000, bias=False)
        self.optimizer = types.SimpleNamespace(reduce_bucket_size=size)
        self.global_steps = self._batches = 0
        self._stage = stage

    def zero_optimization_stage(self):
        return self._stage

    def step(self):
        self._batches += 1
        self.global_steps = self._batches // 4


@pytest.fixture
def tuners(monkeypatch, tmp_path):
    """The module under test, with a process group of one rank."""
    monkeypatch.setitem(
        sys.modules, "deepspeed", types.SimpleNamespace(DeepSpeedEngine=Engine, __spec__=None)
    )
    monkeypatch.delitem(sys.modules, "ronde.tune.deepspeed", raising=False)
    module = importlib.import_module("ronde.tune.deepspeed")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield module
    dist.destroy_process_group()
    del sys.modules["ronde.tune.deepspeed"]


def test_a_step_is_one_of_the_optimizer_with_all_of_its_batches(tuners, monkeypatch):
    clock, reported = [0.0], []
    monkeypatch.setattr("ronde.tune.tuner.time.perf_counter", lambda: clock[0])
    monkeypatch.setattr(
        "ronde.tune.tuner.Search.add", lambda self, seconds: reported.append(seconds)
    )
    engine = Engine(100_000)
    tuner = tuners.BucketTuner(engine)
    tuner.begin()
    for batch in range(12):
        clock[0] += 2 if batch % 4 == 3 else 1  # the last one reduces
        engine.step()
        tuner.step()
    assert reported == [5, 5, 5]


@pytest.fixture
def bounds(tuners, monkeypatch):
    """The bounds and start of each parameter that is made."""
    found, log = [], tuners.Log
    monkeypatch.setattr(tuners, "Log", lambda *values: found.append(values) or log(*values))
    return found


@pytest.mark.parametrize(
    "size, stage, high",
    [
        (50_000, 2, 200_000),  # four times as many
        (500_000, 1, ELEMENTS),  # those of the model
        (2_000_000, 2, 2_000_000),
        (600_000_000, 2, 600_000_000),
        (50_000, 3, 50_000),
    ],
)
def test_larger_buckets_do_not_need_much_more_memory(size, stage, high, tuners, bounds):
    tuners.BucketTuner(Engine(size, stage), low=1000).close()
    assert bounds == [(1000, high, size)]


@pytest.mark.parametrize("size, high", [(50, 150), (150, 150), (300, 300)])
def test_the_largest_size_is_the_default_of_deepspeed_or_the_configured_one(
    size, high, tuners, bounds, monkeypatch
):
    monkeypatch.setattr(tuners, "HIGH", 150)  # as for a model that is larger than the default
    tuners.BucketTuner(Engine(size), low=10).close()
    assert bounds == [(10, high, size)]
