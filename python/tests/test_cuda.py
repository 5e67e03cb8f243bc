"""Torch tensors on CUDA devices. Each rank has a device, or all ranks share the first
(scripts/test-gpu configures NCCL for that). Skipped without a device; tests/gpu then tests the Rust
code with a driver that computes on the CPU.
"""

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@pytest.fixture
def device(hvd):
    """This rank's device."""
    device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def of_rank(rank, dtype, shape=(17, 5)):
    """Small integers, different on each rank: sums are exact in all types."""
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(-4 if dtype.is_signed else 0, 5, shape, generator=generator).to(dtype)


def of_all(hvd, dtype, shape=(17, 5)):
    return torch.stack([of_rank(rank, dtype, shape) for rank in range(hvd.size())])


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_allreduce_sums(hvd, device, dtype):
    result = hvd.allreduce(of_rank(hvd.rank(), dtype).to(device), op=hvd.Sum, name=f"cuda.sum.{dtype}")
    assert result.device == device
    torch.testing.assert_close(result.cpu(), of_all(hvd, dtype).sum(0).to(dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_allreduce_averages_and_scales(hvd, device, dtype):
    mine = of_rank(hvd.rank(), dtype).to(device)
    average = hvd.allreduce(mine, op=hvd.Average, name=f"cuda.average.{dtype}")
    torch.testing.assert_close(average.cpu(), of_all(hvd, torch.float64).mean(0).to(dtype))
    scaled = hvd.allreduce(
        mine, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0, name=f"cuda.scaled.{dtype}"
    )
    torch.testing.assert_close(scaled.cpu(), (of_all(hvd, torch.float64).sum(0) * 1.5).to(dtype))


def test_groups_gathers_scatters_and_exchanges(hvd, device):
    rank, size = hvd.rank(), hvd.size()
    tensors = [of_rank(rank, torch.float32, (length,)).to(device) for length in (1, 1000, 33)]
    for length, result in zip((1, 1000, 33), hvd.grouped_allreduce(tensors, op=hvd.Sum, name="cuda.group")):
        torch.testing.assert_close(result.cpu(), of_all(hvd, torch.float32, (length,)).sum(0))
    rows = torch.full((rank + 1, 3), float(rank), device=device)
    gathered = hvd.allgather(rows, name="cuda.gather")
    expected = torch.cat([torch.full((other + 1, 3), float(other)) for other in range(size)])
    assert gathered.device == device
    torch.testing.assert_close(gathered.cpu(), expected)
    scattered = hvd.reducescatter(torch.ones(2 * size + 1, 3, device=device), op=hvd.Sum, name="cuda.scatter")
    assert scattered.shape == (2 + (rank == 0), 3) and torch.all(scattered == size)
    sent = torch.arange(size, dtype=torch.float32, device=device).repeat_interleave(2)
    received, splits = hvd.alltoall(sent, splits=[2] * size, name="cuda.exchange")
    assert torch.all(received == rank) and splits.tolist() == [2] * size
    splits = torch.tensor([2] * size, dtype=torch.int32, device=device)
    received, splits = hvd.alltoall(sent, splits, name="cuda.exchange")
    assert torch.all(received == rank) and splits.tolist() == [2] * size and splits.device == device
    root = hvd.broadcast(torch.full((5,), float(rank), device=device), size - 1, name="cuda.broadcast")
    assert torch.all(root == size - 1)


def test_what_a_stream_is_still_computing_is_waited_for(hvd, device):
    stream = torch.cuda.Stream(device)
    for step in range(10):
        with torch.cuda.stream(stream):
            tensor = torch.zeros(1 << 20, device=device)
            for _ in range(50):
                tensor += 1.0
            handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name="cuda.late")
        hvd.synchronize(handle)
        assert torch.all(tensor == 50.0 * hvd.size()), step


def test_gradients_flow(hvd, device):
    tensor = torch.ones(7, device=device, requires_grad=True)
    hvd.allreduce(tensor, op=hvd.Sum, name="cuda.gradient").sum().backward()
    assert torch.all(tensor.grad == hvd.size())


def test_training_is_that_of_the_cpu(hvd, device):
    def train(device):
        torch.manual_seed(7)
        model = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.Tanh(), torch.nn.Linear(50, 3)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        for step in range(10):
            inputs = of_rank(100 * step + hvd.rank(), torch.float32, (8, 20)).to(device)
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
        return [parameter.detach().cpu() for parameter in model.parameters()]

    for on_gpu, on_cpu in zip(train(device), train("cpu")):
        torch.testing.assert_close(on_gpu, on_cpu, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("groups", [None, 1])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_gradients_travel_as_halves(several, device, dtype, groups):
    hvd = several
    parameters = [torch.nn.Parameter(torch.zeros(length, device=device)) for length in (5, 3000)]
    compression = hvd.Compression.fp16 if dtype is torch.float16 else hvd.Compression.bf16
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(parameters, lr=1.0),
        named_parameters=[(f"cuda.{dtype}.{groups}.{index}", one) for index, one in enumerate(parameters)],
        compression=compression,
        groups=groups,
    )
    for _ in range(3):
        optimizer.zero_grad()
        sum((parameter / 3).sum() for parameter in parameters).backward()
        before = [parameter.detach().clone() for parameter in parameters]
        optimizer.step()
        third = torch.tensor(1 / 3).to(dtype).float().item()
        for parameter, start in zip(parameters, before):
            assert parameter.dtype is torch.float32
            torch.testing.assert_close((start - parameter.detach()).cpu(), torch.full(parameter.shape, third))


def test_one_rank_on_the_gpu_and_the_others_not(several, device):
    hvd = several
    tensor = torch.ones(3, device=device if hvd.rank() == 0 else "cpu")
    with pytest.raises(hvd.HorovodInternalError, match="CPU/GPU device selection"):
        hvd.allreduce(tensor, name="cuda.mixed")


def test_adasum_is_refused(hvd, device):
    with pytest.raises(ValueError, match="host memory"):
        hvd.allreduce_async(torch.ones(3, device=device), op=hvd.Adasum, name="cuda.adasum")


def test_sync_batch_norm(hvd, device):
    everybodys = torch.arange(4.0 * 3 * hvd.size()).sin().view(4 * hvd.size(), 3)
    layer, alone = hvd.SyncBatchNorm(3).to(device), torch.nn.BatchNorm1d(3)
    mine = slice(4 * hvd.rank(), 4 * hvd.rank() + 4)
    output = layer(everybodys[mine].to(device))
    torch.testing.assert_close(output.cpu(), alone(everybodys)[mine], atol=1e-4, rtol=1e-4)
