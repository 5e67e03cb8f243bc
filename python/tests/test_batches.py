"""Batches of small gradients: the call that the optimizer uses, and the optimizer."""

import copy

import pytest
import torch
from torch import nn

from ronde import _ronde
from ronde.torch import reducer


@pytest.fixture(autouse=True)
def the_job_goes_on(hvd):
    yield
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2


def send(hvd, tensors, names, op=None, factors=(1.0, 1.0)):
    op = hvd.Sum if op is None else op
    return _ronde.allreduce_batch(tensors, [_ronde.AllreduceName(name) for name in names], op, *factors, 0)


def values(hvd, count):
    generator = torch.Generator().manual_seed(hvd.rank())
    dtypes = [torch.float32, torch.float64, torch.float16, torch.int32]
    tensors = [torch.randint(-50, 50, (number % 7, 3), generator=generator) / 3 for number in range(count)]
    return [tensor.to(dtypes[number % 4]) for number, tensor in enumerate(tensors)]


def test_a_batch_equals_single_operations(hvd):
    for op in (hvd.Sum, hvd.Average, hvd.Max):
        for _ in range(3):
            alone = values(hvd, 40)
            batch = [tensor.clone() for tensor in alone]
            names = [f"batch.{number}" for number in range(40)]
            handles = [hvd.allreduce_async_(tensor, name=name, op=op) for tensor, name in zip(alone, names)]
            for handle in handles:
                hvd.synchronize(handle)
            results = hvd.synchronize(send(hvd, batch, names, op))
            assert all(result is tensor for result, tensor in zip(results, batch))
            for one, other in zip(alone, batch):
                assert one.dtype == other.dtype and torch.equal(one, other)


def test_a_batch_meets_single_operations_of_other_ranks(hvd):
    tensors = [torch.full((3,), float(number + hvd.rank())) for number in range(10)]
    names = [f"meeting.{number}" for number in range(10)]
    if hvd.rank():
        handles = [hvd.allreduce_async_(tensor, name=name, op=hvd.Sum) for tensor, name in zip(tensors, names)]
    else:
        handles = [send(hvd, tensors, names)]
    for handle in handles:
        hvd.synchronize(handle)
    ranks = sum(range(hvd.size()))
    assert [tensor.tolist() for tensor in tensors] == [[float(n * hvd.size() + ranks)] * 3 for n in range(10)]


def test_an_empty_batch(hvd):
    assert hvd.synchronize(send(hvd, [], [])) == []


def test_of_a_bad_batch_nothing_is_sent(hvd):
    good = [torch.ones(3), torch.ones(4)]
    with pytest.raises(ValueError, match="same name as another tensor"):
        send(hvd, good, ["twice", "twice"])
    with pytest.raises(ValueError, match="allreduce.bad.*contiguous"):
        send(hvd, [good[0], torch.ones(4, 3).t(), good[1]], ["bad.a", "bad", "bad.b"])
    with pytest.raises(TypeError):
        send(hvd, [good[0], 3.0], ["bad.a", "bad"])
    with pytest.raises(ValueError, match="as many names"):
        send(hvd, good, ["bad.a"])
    with pytest.raises(TypeError):
        _ronde.allreduce_batch(good, ["bad.a", "bad.b"], hvd.Sum, 1.0, 1.0, 0)
    # The names can be used again.
    hvd.synchronize(send(hvd, good, ["twice", "bad.a"]))
    assert good[0].tolist() == [hvd.size()] * 3


def small_network():
    return nn.Sequential(*(nn.Linear(3, 3) for _ in range(70)), nn.Linear(3, 9000), nn.Linear(9000, 2))


def gradients(model, optimizer, batch):
    for _ in range(3):  # the first step compares models
        optimizer.zero_grad()
        model(batch).square().sum().backward()
        optimizer.synchronize()
    return [parameter.grad.clone() for parameter in model.parameters()]


def test_batched_gradients_equal_single_ones(hvd, monkeypatch):
    torch.manual_seed(1)
    model = small_network()
    other = copy.deepcopy(model)
    batch = torch.full((4, 3), 0.5 + hvd.rank())
    sent = []
    whole = reducer.send_batch_in_place
    monkeypatch.setattr(
        reducer,
        "send_batch_in_place",
        lambda tensors, *rest: sent.append(len(tensors)) or whole(tensors, *rest),
    )
    optimizers = []
    for one in (model, other):
        optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
        optimizers.append(hvd.DistributedOptimizer(optimizer, one.named_parameters()))
    batched = gradients(model, optimizers[0], batch)
    if hvd.size() > 1:
        assert sum(sent) == 3 * len(batched)
        assert max(sent) == reducer.BATCH_TENSORS_MAX
    monkeypatch.setattr(reducer, "BATCH_TENSORS_MAX", 1)
    single = gradients(other, optimizers[1], batch)
    assert all(torch.equal(one, another) for one, another in zip(batched, single))


def test_what_a_backward_pass_leaves_is_sent_when_it_ends(several):
    hvd = several
    model = nn.Linear(2, 2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        waits = list(optimizer._reducer._in_flight)
        optimizer.synchronize()
    # Before `synchronize`: other ranks must not wait until this rank calls it.
    assert [len(slots) for slots in waits] == [2]


def test_a_backward_pass_that_fails_leaves_no_gradient_behind(several):
    hvd = several

    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.clone()

        @staticmethod
        def backward(context, gradient):
            raise RuntimeError("on purpose")

    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    parameters = [*first.parameters(), *second.parameters()]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(parameters, lr=0.1), [(f"p{index}", one) for index, one in enumerate(parameters)]
    )
    for is_good in (True, False, True, True):
        hidden = first(torch.ones(1, 2))
        loss = second(hidden if is_good else Fails.apply(hidden)).sum()
        if is_good:
            loss.backward()
        else:
            with pytest.raises(RuntimeError, match="on purpose"):
                loss.backward()
        optimizer.synchronize()
        optimizer.zero_grad()
