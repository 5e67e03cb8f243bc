"""`ddp_hook`: PyTorch's DistributedDataParallel with gradient buckets reduced by Ronde."""

import copy
import os
import tempfile

import pytest
import torch
from torch import nn

dist = pytest.importorskip("torch.distributed")
if not dist.is_available():
    pytest.skip("this torch has no torch.distributed", allow_module_level=True)


@pytest.fixture(scope="module")
def group(hvd):
    """``ronde.torch``, beside torch's own process group of the same ranks."""
    folder = tempfile.mkdtemp() if hvd.rank() == 0 else None
    store = os.path.join(hvd.broadcast_object(folder), "store")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=hvd.rank(), world_size=hvd.size())
    yield hvd
    dist.destroy_process_group()


def network(seed=1):
    torch.manual_seed(seed)
    # Large enough for several buckets of 1 MB, the smallest that DDP makes by default.
    return nn.Sequential(nn.Linear(20, 600), nn.ReLU(), nn.Linear(600, 600), nn.ReLU(), nn.Linear(600, 3))


def parallel(model, hook, state=None):
    model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
    model.register_comm_hook(state, hook)
    return model


def loss_of(model, batch):
    return model(batch).square().sum(dim=1).mean()


def batches(hvd):
    torch.manual_seed(2)
    everybodys = [torch.randn(4, 20) for _ in range(hvd.size())]
    return torch.cat(everybodys), everybodys[hvd.rank()]


def assert_alike(model, other, tolerance=1e-5):
    for parameter, expected in zip(model.parameters(), other.parameters()):
        assert (parameter - expected).abs().max().item() <= tolerance


def train(models, own, others, joined, steps=4):
    """Trains some models in one backward pass, and copies of them in one process with the joined
    batch."""
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in [*models, *others]]
    for _ in range(steps):  # DDP makes other buckets after the first
        for optimizer in optimizers:
            optimizer.zero_grad()
        sum(loss_of(model, own) for model in models).backward()
        sum(loss_of(other, joined) for other in others).backward()
        for optimizer in optimizers:
            optimizer.step()


def test_steps_are_those_of_the_joined_batch(group):
    hvd = group
    joined, own = batches(hvd)
    model = network()
    other = copy.deepcopy(model)
    train([parallel(model, hvd.ddp_hook)], own, [other], joined)
    assert_alike(model, other)


def test_several_models_in_one_backward_pass(group):
    hvd = group
    joined, own = batches(hvd)
    models = [network(seed) for seed in (1, 2)]
    others = copy.deepcopy(models)
    train([parallel(model, hvd.ddp_hook) for model in models], own, others, joined)
    for model, other in zip(models, others):
        assert_alike(model, other)


def test_compression(group):
    from ronde.torch.ddp import DdpHookState

    hvd = group
    joined, own = batches(hvd)
    model = network()
    other = copy.deepcopy(model)
    state = DdpHookState(compression=hvd.Compression.fp16)
    train([parallel(model, hvd.ddp_hook, state)], own, [other], joined)
    assert_alike(model, other, 2e-3)


def test_a_process_set(group):
    hvd = group
    if hvd.size() == 1:
        pytest.skip("wants two ranks")
    process_set = hvd.add_process_set([hvd.size() - 1])
    joined, own = batches(hvd)
    model = network()
    other = copy.deepcopy(model)
    if process_set.included():
        # The one rank of the set averages alone, whatever DDP's own ranks are.
        train([parallel(model, hvd.ddp_hook, process_set)], own, [other], own)
        assert_alike(model, other)
    else:
        train([parallel(model, lambda state, bucket: done(bucket))], own, [other], own)
    hvd.barrier()
    hvd.remove_process_set(process_set)


def done(bucket):
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def test_errors_come_out_of_the_backward_pass(group):
    from ronde.torch.ddp import DdpHookState

    hvd = group
    if hvd.size() == 1:
        pytest.skip("wants two ranks")
    _, own = batches(hvd)
    model = network()
    compression = hvd.Compression.fp16 if hvd.rank() else hvd.Compression.none
    wrapped = parallel(model, hvd.ddp_hook, DdpHookState(compression=compression))
    with pytest.raises(RuntimeError, match="Mismatched data types"):
        loss_of(wrapped, own).backward()
