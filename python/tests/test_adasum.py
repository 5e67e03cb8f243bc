"""`DistributedOptimizer(op=Adasum)` combines the changes of the ranks' own steps."""

import copy

import pytest
import torch
from torch import nn


@pytest.fixture
def pairs(several):
    """``ronde.torch`` on a number of ranks that Adasum supports."""
    if several.size() & (several.size() - 1):
        with pytest.raises(NotImplementedError, match="2, 4, 8"):
            several.DistributedOptimizer(
                torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1), op=several.Adasum
            )
        pytest.skip("wants 2, 4, 8 … ranks")
    return several


def adasum(a, b):
    a, b = a.double(), b.double()
    dot = (a * b).sum()
    return (1 - dot / (2 * a.square().sum())) * a + (1 - dot / (2 * b.square().sum())) * b


def of_ranks(changes):
    while len(changes) > 1:
        changes = [adasum(*changes[place : place + 2]) for place in range(0, len(changes), 2)]
    return changes[0].float()


KINDS = [(torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}), (torch.optim.Adam, {"lr": 0.01})]


@pytest.mark.parametrize("kind, options", KINDS, ids=[kind.__name__ for kind, _ in KINDS])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_changes_are_combined(pairs, kind, options, layout):
    hvd = pairs
    torch.manual_seed(3)
    model = nn.Conv2d(3, 4, 3).to(memory_format=layout)
    others = [copy.deepcopy(model) for _ in range(hvd.size())]
    plain = [kind(other.parameters(), **options) for other in others]
    optimizer = hvd.DistributedOptimizer(
        kind(model.parameters(), **options), model.named_parameters(), op=hvd.Adasum
    )
    assert isinstance(optimizer, kind) and type(optimizer).__name__ == kind.__name__
    images = [torch.randn(2, 3, 5, 5) for _ in range(hvd.size())]
    for _ in range(3):
        optimizer.zero_grad()
        model(images[hvd.rank()]).square().sum().backward()
        optimizer.step()
        # The changes that each rank would make alone, from the common start.
        starts = [parameter.detach().clone() for parameter in others[0].parameters()]
        for other, one, batch in zip(others, plain, images):
            one.zero_grad()
            other(batch).square().sum().backward()
            one.step()
        for place, start in enumerate(starts):
            copies = [list(other.parameters())[place] for other in others]
            combined = start + of_ranks([parameter.detach() - start for parameter in copies])
            for parameter in copies:
                parameter.data.copy_(combined)
    for parameter, expected in zip(model.parameters(), others[0].parameters()):
        assert torch.allclose(parameter, expected, atol=1e-5)


def test_equal_changes_are_averaged(pairs):
    hvd = pairs
    weight = nn.Parameter(torch.zeros(5))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([weight], lr=0.1),
        op=hvd.Adasum,
        backward_passes_per_step=2,
        compression=hvd.Compression.fp16,
    )
    for _ in range(2):
        weight.sum().backward()
    optimizer.step()
    assert torch.allclose(weight, torch.full((5,), -0.2), atol=1e-3)


def test_a_parameter_without_gradient_on_one_rank(pairs):
    hvd = pairs
    weights = [nn.Parameter(torch.zeros(3)) for _ in range(2)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=1.0), op=hvd.Adasum)
    weights[min(hvd.rank(), 1)].sum().backward()
    optimizer.step()
    # Changes of one rank alone are not scaled.
    assert torch.allclose(weights[0], torch.full((3,), -1.0))
    gathered = hvd.allgather(weights[1].detach()[None])
    assert (gathered == gathered[0]).all() and gathered.any()


def test_what_adasum_cannot_do(pairs):
    hvd = pairs
    model = nn.Linear(2, 2)
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters(), op=hvd.Adasum)
    optimizer.synchronize()
    with pytest.raises(AssertionError, match="not supported when using Adasum"):
        with optimizer.skip_synchronize():
            pass
    process_set = hvd.add_process_set([0])
    with pytest.raises(NotImplementedError, match="process set"):
        hvd.DistributedOptimizer(plain, op=hvd.Adasum, process_set=process_set)
    hvd.remove_process_set(process_set)


def test_closures_and_copies(pairs):
    hvd = pairs
    torch.manual_seed(3)
    model = nn.Linear(2, 2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Adasum)
    model, optimizer = copy.deepcopy((model, optimizer))
    before = model.weight.detach().clone()

    def closure():
        optimizer.zero_grad(set_to_none=True)
        loss = model(torch.full((1, 2), hvd.rank() + 1.0)).sum()
        loss.backward()
        return loss

    optimizer.set_backward_passes_per_step(2)
    with optimizer.no_sync():
        assert optimizer.step(closure).numel() == 1
    assert not torch.equal(model.weight, before)
    gathered = hvd.allgather(model.weight.detach()[None])
    assert (gathered == gathered[0]).all()


def test_models_that_differ(pairs):
    hvd = pairs
    model = nn.Linear(2, 2 + hvd.rank())
    before = model.weight.detach().clone()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Adasum)
    model(torch.ones(1, 2)).sum().backward()
    with pytest.raises(ValueError, match="the models of ranks 0 .* and 1 .* differ"):
        optimizer.step()
    assert torch.equal(model.weight, before)


def test_an_error_leaves_the_parameters(pairs):
    hvd = pairs
    weight = nn.Parameter(torch.ones(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.1), op=hvd.Adasum)
    weight.sum().backward()
    optimizer._compression = hvd.Compression.bf16 if hvd.rank() else hvd.Compression.none
    with pytest.raises(hvd.HorovodInternalError):
        optimizer.step()
    assert torch.equal(weight, torch.ones(3))


def test_a_single_rank_gets_a_plain_step(hvd):
    if hvd.size() > 1:
        pytest.skip("wants one rank")
    weight = nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), op=hvd.Adasum)
    weight.sum().backward()
    optimizer.step()
    assert torch.equal(weight, torch.full((3,), -1.0))
