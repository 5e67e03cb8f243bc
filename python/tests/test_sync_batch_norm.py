"""`SyncBatchNorm` over all ranks' batches equals batch normalization over the joined batch."""

import pytest
import torch


def batch_of(rank, channels, shape):
    torch.manual_seed(rank)
    return torch.randn(2 + rank, channels, *shape, dtype=torch.float64) * (rank + 1) + rank


@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 3, 2)], ids=str)
@pytest.mark.parametrize("options", [{}, {"affine": False}, {"momentum": None}, {"eps": 0.1}], ids=str)
def test_as_one_batch(hvd, shape, options):
    rank, size, channels = hvd.rank(), hvd.size(), 4
    torch.manual_seed(17)
    weight, bias = torch.randn(2, channels, dtype=torch.float64)
    layers = hvd.SyncBatchNorm(channels, **options).double(), joined_layer(shape, channels, options)
    for layer in layers:
        if layer.affine:
            layer.weight.data.copy_(weight)
            layer.bias.data.copy_(bias)
    synced, joined = layers
    for _ in range(2):
        batches = [batch_of(r, channels, shape) for r in range(size)]
        mine = batches[rank].requires_grad_()
        batch = torch.cat([b.detach() for b in batches]).requires_grad_()
        factors = torch.cos(torch.arange(batch.numel(), dtype=torch.float64)).view_as(batch)
        start = sum(b.shape[0] for b in batches[:rank])
        own = slice(start, start + mine.shape[0])
        output, expected = synced(mine), joined(batch)
        assert torch.allclose(output, expected[own])
        (output * factors[own]).sum().backward()
        (expected * factors).sum().backward()
        assert torch.allclose(mine.grad, batch.grad[own])
    assert torch.allclose(synced.running_mean, joined.running_mean)
    assert torch.allclose(synced.running_var, joined.running_var)
    assert synced.num_batches_tracked == joined.num_batches_tracked
    if synced.affine:
        assert torch.allclose(hvd.allreduce(synced.weight.grad, op=hvd.Sum), joined.weight.grad)
        assert torch.allclose(hvd.allreduce(synced.bias.grad, op=hvd.Sum), joined.bias.grad)
    synced.eval(), joined.eval()
    assert torch.allclose(synced(mine), joined(batch)[own])


def joined_layer(shape, channels, options):
    kinds = {
        0: torch.nn.BatchNorm1d,
        1: torch.nn.BatchNorm1d,
        2: torch.nn.BatchNorm2d,
        3: torch.nn.BatchNorm3d,
    }
    return kinds[len(shape)](channels, **options).double()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_other_dtypes(hvd, dtype):
    layer = hvd.SyncBatchNorm(3)
    batch = (torch.randn(4, 3, 2) + hvd.rank()).to(dtype).requires_grad_()
    output = layer(batch)
    assert output.dtype == dtype
    output.float().square().sum().backward()
    assert batch.grad.dtype == dtype and layer.weight.grad.dtype == torch.float32
    total = hvd.allreduce(output.detach().float().sum((0, 2)), op=hvd.Sum)
    assert torch.allclose(total, torch.zeros(3), atol=0.5 if dtype == torch.bfloat16 else 1e-3)


def test_a_rank_without_a_batch(several):
    hvd = several
    batches = [batch_of(r, 3, (2,))[: 0 if r == 0 else 2 + r] for r in range(hvd.size())]
    synced, joined = hvd.SyncBatchNorm(3).double(), torch.nn.BatchNorm1d(3).double()
    mine = batches[hvd.rank()].requires_grad_()
    output = synced(mine)
    joined(torch.cat([b.detach() for b in batches]))
    output.square().sum().backward()
    assert mine.grad.shape == mine.shape
    assert torch.allclose(synced.running_mean, joined.running_mean)
    assert torch.allclose(synced.running_var, joined.running_var)


def test_running_statistics_need_not_be_tracked(hvd):
    layer = hvd.SyncBatchNorm(3, track_running_stats=False)
    assert layer.running_mean is None
    total = hvd.allreduce(layer(torch.randn(4, 3) + hvd.rank()).detach().sum(0), op=hvd.Sum)
    assert torch.allclose(total, torch.zeros(3), atol=1e-4)
    # In evaluation every rank uses only its own input.
    layer.eval()
    assert torch.allclose(layer(torch.randn(4, 3) + hvd.rank()).sum(0), torch.zeros(3), atol=1e-4)


def test_wrong_inputs(hvd):
    with pytest.raises(ValueError, match="2D"):
        hvd.SyncBatchNorm(3)(torch.ones(3))
    if hvd.size() > 1:
        alone = torch.ones(1 if hvd.rank() == 0 else 0, 3)
        with pytest.raises(ValueError, match="more than one value"):
            hvd.SyncBatchNorm(3)(alone)
