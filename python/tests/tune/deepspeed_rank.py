"""One rank of the test of `ronde.tune.deepspeed`: ZeRO's stages on the CPU, over gloo.

    deepspeed_rank.py               # with torchrun's variables
"""

import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")

import deepspeed
import torch
import torch.distributed as dist
from ronde.tune.deepspeed import BucketTuner

STEPS = 10
# Methods that reduce one bucket: of stages 1 and 2, and of stage 3.
REDUCTIONS = (
    "reduce_ipg_grads",
    "_DeepSpeedZeroOptimizer_Stage3__reduce_and_partition_ipg_grads",
)


def engine_of(stage, size, batches=1, **options):
    torch.manual_seed(5)
    model = torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(8)))
    zero = {"stage": stage, "reduce_bucket_size": size, "overlap_comm": False, **options}
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": batches,
        "zero_optimization": zero,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": True}},
        "zero_allow_untested_optimizer": True,
    }
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


def train(engine, change=None):
    """Trains; returns this rank's losses."""
    data = torch.Generator().manual_seed(dist.get_rank())
    losses = []
    for step in range(STEPS):
        inputs = torch.randn(4, 128, generator=data).bfloat16()
        loss = (engine(inputs) - inputs).float().pow(2).mean()
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
        if change is not None:
            change(step)
    return losses


def count_reductions(optimizer):
    """Counts the buckets that are reduced."""
    counts = []
    name = next(name for name in REDUCTIONS if hasattr(optimizer, name))
    reduce = getattr(optimizer, name)

    def counted(*arguments, **options):
        counts.append(optimizer.reduce_bucket_size)
        return reduce(*arguments, **options)

    setattr(optimizer, name, counted)
    return counts


def compare(stage, **options):
    """A changed size changes the number of reductions, and not the losses."""
    largest = 100_000
    fixed = train(engine_of(stage, largest, **options))
    engine = engine_of(stage, largest, **options)
    counts = count_reductions(engine.optimizer)
    tuner = BucketTuner(engine, low=1000)
    sizes = [2000, 50_000, 20_000, 100_000]
    tuned = train(engine, lambda step: tuner._apply(sizes[step % len(sizes)]))
    assert tuned == fixed, (stage, tuned, fixed)
    by_size = {size: counts.count(size) for size in set(counts)}
    assert by_size[2000] > by_size[50_000], by_size
    tuner.close()


def search():
    """A whole search."""
    engine = engine_of(2, 100_000)
    tuner = BucketTuner(engine, low=1000)
    sizes = []
    while not tuner.finished and len(sizes) < 600:
        inputs = torch.randn(4, 128).bfloat16()
        engine.backward((engine(inputs) - inputs).float().pow(2).mean())
        engine.step()
        size = tuner.settings["reduce_bucket_size"]
        assert engine.optimizer.reduce_bucket_size == int(size)
        sizes.append(size)
        tuner.step(0.01 + 0.001 * abs(size / 10_000 - 1) + 0.00001 * (len(sizes) % 7))
    assert tuner.finished and not tuner.verdict["kept_default"], tuner.verdict
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, sizes)
    assert all(other == sizes for other in gathered)


def accumulated():
    """A step is one of the optimizer; its time is that of all of its batches."""
    engine = engine_of(2, 100_000, batches=4)
    tuner, steps = BucketTuner(engine, low=1000), []
    tuner._tuner.step = lambda seconds: steps.append(engine.global_steps)
    for _ in range(12):
        inputs = torch.randn(4, 128).bfloat16()
        engine.backward((engine(inputs) - inputs).float().pow(2).mean())
        engine.step()
        tuner.step()
    assert steps == [1, 2, 3], steps


def refused():
    for create, text in [
        (lambda: BucketTuner(torch.nn.Linear(2, 2)), "a Linear is no DeepSpeed engine"),
        (lambda: BucketTuner(engine_of(3, 100_000), high=200_000), "stage 3 has allocated"),
        (lambda: BucketTuner(engine_of(0, 100_000)), "has no reduce_bucket_size"),
    ]:
        try:
            create()
        except ValueError as error:
            assert text in str(error), error
        else:
            raise AssertionError(text)


if __name__ == "__main__":
    # DeepSpeed would compile an allreduce of its own for minutes.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(dist_backend="gloo")
    for stage in (1, 2, 3):
        compare(stage)
        print(f"stage {stage}: good", flush=True)
    compare(2, contiguous_gradients=False)
    search()
    print("search: good", flush=True)
    accumulated()
    refused()
    dist.destroy_process_group()
