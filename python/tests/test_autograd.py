"""Gradients of the operations."""

import pytest
import torch


@pytest.fixture(params=[torch.float32, torch.float64, torch.float16], ids=str)
def dtype(request):
    return request.param


def leaf(*shape, dtype=torch.float32):
    return torch.ones(*shape, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("shape", [(4,), (3, 2), (2, 3, 2)], ids=str)
def test_allreduce(hvd, dtype, shape):
    for op, gradient in ((hvd.Sum, hvd.size()), (hvd.Average, 1)):
        weight = leaf(*shape, dtype=dtype)
        output = hvd.allreduce(weight, op=op, name="named", prescale_factor=2.0, postscale_factor=0.25)
        output.backward(torch.ones(shape, dtype=dtype))
        assert torch.equal(weight.grad, torch.full(shape, gradient * 0.5, dtype=dtype))


def test_allreduce_takes_the_other_ranks_gradients(hvd):
    weight = leaf(3)
    (hvd.allreduce(weight, op=hvd.Sum) * hvd.rank()).sum().backward()
    assert weight.grad.tolist() == [sum(range(hvd.size()))] * 3


@pytest.mark.parametrize("op", ["Min", "Max", "Product"])
def test_allreduce_has_no_gradient_for_others(hvd, op):
    output = hvd.allreduce(leaf(3), op=getattr(hvd, op))
    with pytest.raises(NotImplementedError, match="gradient"):
        output.sum().backward()


def test_gradients_need_not_be_contiguous(hvd):
    weight = leaf(3, 4)
    output = hvd.allreduce(weight, op=hvd.Sum)
    output.t().sum().backward()  # an expanded scalar
    assert torch.equal(weight.grad, torch.full((3, 4), float(hvd.size())))
    weight.grad = None
    gradient = torch.arange(12.0).reshape(4, 3).t()
    hvd.allreduce(weight, op=hvd.Sum).backward(gradient)
    assert torch.equal(weight.grad, gradient * hvd.size())


def test_second_derivatives(hvd):
    weight = leaf(2)
    output = hvd.allreduce(weight * weight, op=hvd.Sum, name="twice").sum()
    (first,) = torch.autograd.grad(output, weight, create_graph=True)
    assert first.tolist() == [2.0 * hvd.size()] * 2
    (second,) = torch.autograd.grad(first.sum(), weight)
    assert second.tolist() == [2.0 * hvd.size()] * 2


def test_without_gradients(hvd):
    weight = leaf(2)
    with torch.no_grad():
        assert not hvd.allreduce(weight).requires_grad
    assert hvd.allreduce(weight).requires_grad
    assert not hvd.allreduce(torch.ones(2)).requires_grad
    assert not hvd.synchronize(hvd.allreduce_async(weight, name="no_gradient")).requires_grad


def test_grouped_allreduce(hvd, dtype):
    weights = [leaf(n + 1, dtype=dtype) for n in range(4)]
    outputs = hvd.grouped_allreduce(weights, op=hvd.Sum)
    for output in outputs:  # one by one: the gradients of the others are zero
        output.backward(torch.ones_like(output))
    for weight in weights:
        assert torch.equal(weight.grad, torch.full_like(weight, hvd.size()))


def test_allgather(hvd, dtype):
    rank, size = hvd.rank(), hvd.size()
    rows = [3 + (7 * r) % 5 for r in range(size)]
    weight = leaf(rows[rank], 2, dtype=dtype)
    gradient = torch.cat([torch.full((count, 2), float(r)) for r, count in enumerate(rows)]).to(dtype)
    hvd.allgather(weight, name="uneven").backward(gradient)
    assert torch.equal(weight.grad, torch.full_like(weight, rank))


def test_grouped_allgather(hvd):
    rank, size = hvd.rank(), hvd.size()
    weights = [leaf(rank + 1, 2), leaf(2 * (size - rank))]
    rows = [[r + 1 for r in range(size)], [2 * (size - r) for r in range(size)]]
    for output, counts in zip(hvd.grouped_allgather(weights), rows):
        owner = torch.arange(size, dtype=torch.float32).repeat_interleave(torch.tensor(counts))
        output.backward(owner.view(-1, *[1] * (output.dim() - 1)).expand_as(output))
    for weight in weights:
        assert torch.equal(weight.grad, torch.full_like(weight, rank))


def test_broadcast(hvd, dtype):
    for root in range(hvd.size()):
        weight = leaf(3, dtype=dtype)
        hvd.broadcast(weight, root).backward(torch.full((3,), 2.0, dtype=dtype))
        assert weight.grad.tolist() == [2.0 if hvd.rank() == root else 0.0] * 3


def test_alltoall(hvd, dtype):
    rank, size = hvd.rank(), hvd.size()
    splits = [rank + to + 1 for to in range(size)]
    weight = leaf(sum(splits) + 2, 2, dtype=dtype)  # the last two rows are not sent
    output, _ = hvd.alltoall(weight, splits)
    output.backward(torch.full_like(output, rank))
    receivers = torch.arange(size).repeat_interleave(torch.tensor(splits)).to(dtype)
    expected = torch.cat([receivers, torch.zeros(2, dtype=dtype)]).unsqueeze(1).expand(-1, 2)
    assert torch.equal(weight.grad, expected)


def test_alltoall_of_even_parts(hvd):
    size = hvd.size()
    weight = leaf(size * 2)
    hvd.alltoall(weight).backward(torch.full((size * 2,), 3.0))
    assert weight.grad.tolist() == [3.0] * size * 2


def test_reducescatter(hvd, dtype):
    size = hvd.size()
    for op, gradient in ((hvd.Sum, size), (hvd.Average, 1)):
        weight = leaf(size * 2 + 1, 3, dtype=dtype)
        output = hvd.reducescatter(weight, op=op, prescale_factor=2.0, postscale_factor=0.5)
        output.backward(torch.ones_like(output))
        assert torch.equal(weight.grad, torch.full_like(weight, gradient))


def test_grouped_reducescatter(hvd):
    size = hvd.size()
    weights = [leaf(size * 2), leaf(size, 3)]
    for output in hvd.grouped_reducescatter(weights, op=hvd.Sum, postscale_factor=0.5):
        output.backward(torch.ones_like(output))
    for weight in weights:
        assert torch.equal(weight.grad, torch.full_like(weight, size * 0.5))


def test_allgather_after_reducescatter_is_allreduce(hvd):
    factor = torch.arange(hvd.size() * 2.0) + hvd.rank()
    gradients = []
    for composed in (True, False):
        weight = leaf(hvd.size() * 2)
        if composed:
            output = hvd.allgather(hvd.reducescatter(weight, op=hvd.Sum))
        else:
            output = hvd.allreduce(weight, op=hvd.Sum)
        (output * factor).sum().backward()
        gradients.append(weight.grad)
    assert torch.allclose(*gradients)


def test_compressed(hvd):
    weight = leaf(3)
    hvd.allreduce(weight, op=hvd.Sum, compression=hvd.Compression.fp16).sum().backward()
    assert weight.grad.dtype == torch.float32
    assert weight.grad.tolist() == [hvd.size()] * 3
