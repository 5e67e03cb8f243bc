"""Results of the operations by dtype, shape and form of the call."""

import pytest
import torch

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SHAPES = [(), (0,), (7,), (3, 5), (2, 3, 4)]


def of_rank(rank, shape, dtype):
    """A tensor that differs between ranks, of small numbers that every dtype can represent."""
    count = torch.Size(shape).numel()
    numbers = (torch.arange(count) * (rank + 2) + rank) % 7 + 1
    return numbers.reshape(shape).to(dtype)


def all_of(hvd, shape, dtype):
    return torch.stack([of_rank(rank, shape, dtype) for rank in range(hvd.size())])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", INTEGERS + FLOATS, ids=str)
def test_allreduce(hvd, dtype, shape):
    tensor = of_rank(hvd.rank(), shape, dtype)
    before = tensor.clone()
    exact = all_of(hvd, shape, torch.float64)
    total = exact.sum(0).to(dtype)
    assert torch.equal(hvd.allreduce(tensor, op=hvd.Sum), total)
    assert torch.equal(hvd.allreduce(tensor, op=hvd.Min), exact.amin(0).to(dtype))
    assert torch.equal(hvd.allreduce(tensor, op=hvd.Max), exact.amax(0).to(dtype))
    assert torch.equal(hvd.allreduce(tensor, op=hvd.Product), exact.prod(0).to(dtype))
    average = hvd.allreduce(tensor)
    mean = exact.mean(0)
    if dtype.is_floating_point:
        assert torch.allclose(average.double(), mean, rtol=2 * torch.finfo(dtype).eps)
    else:
        assert torch.equal(average, mean.trunc().to(dtype))
    assert average.dtype == dtype and average.shape == tensor.shape
    assert torch.equal(tensor, before)
    assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
    assert torch.equal(tensor, total)


def test_allreduce_of_truth_values(hvd):
    mine = torch.tensor([True, False, hvd.rank() == 0])
    others = hvd.size() > 1
    assert hvd.allreduce(mine, op=hvd.Sum).tolist() == [True, False, True]
    assert hvd.allreduce(mine, op=hvd.Max).tolist() == [True, False, True]
    assert hvd.allreduce(mine, op=hvd.Min).tolist() == [True, False, not others]
    assert hvd.allreduce(mine, op=hvd.Product).tolist() == [True, False, not others]
    gathered = hvd.allgather(mine)
    assert gathered.dtype == torch.bool
    assert gathered.tolist() == [value for rank in range(hvd.size()) for value in (True, False, rank == 0)]


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32, torch.float16], ids=str)
def test_scale_factors(hvd, dtype):
    tensor = of_rank(hvd.rank(), (17,), dtype)
    exact = all_of(hvd, (17,), torch.float64)
    before = hvd.allreduce(tensor, op=hvd.Sum, prescale_factor=0.5)
    assert torch.equal(before, (exact * 0.5).to(dtype).double().sum(0).to(dtype))
    after = hvd.allreduce(tensor, op=hvd.Sum, postscale_factor=0.5)
    assert torch.equal(after, (exact.sum(0) * 0.5).to(dtype))


def test_asynchronous_and_in_any_order(hvd):
    tensors = [of_rank(hvd.rank(), (n,), torch.float32) for n in range(1, 40)]
    expected = [all_of(hvd, (n,), torch.float32).sum(0) for n in range(1, 40)]
    order = range(len(tensors)) if hvd.rank() % 2 else reversed(range(len(tensors)))
    handles = {i: hvd.allreduce_async(tensors[i], name=f"any_order.{i}", op=hvd.Sum) for i in order}
    for i, handle in handles.items():
        assert torch.equal(hvd.synchronize(handle), expected[i])


def test_poll_ends_up_true(hvd):
    handle = hvd.allreduce_async_(torch.ones(4), name="polled")
    while not hvd.poll(handle):
        pass
    assert torch.equal(hvd.synchronize(handle), torch.ones(4))
    with pytest.raises(ValueError, match="was not created or has been cleared"):
        hvd.poll(handle)
    assert hvd.synchronize(handle) is None


def test_in_place_on_a_leaf_that_requires_a_gradient(hvd):
    weight = torch.nn.Parameter(torch.full((3, 3), float(hvd.rank() + 1)))
    assert hvd.allreduce_(weight, op=hvd.Max) is weight
    assert weight.requires_grad and weight.is_leaf
    assert torch.equal(weight.detach(), torch.full((3, 3), float(hvd.size())))


def test_a_tensor_is_kept_until_its_handle_is_used(hvd):
    handles = [hvd.allreduce_async_(torch.full((1000,), 2.0), name=f"dropped.{i}") for i in range(50)]
    # If it were freed, these tensors would get its memory.
    others = [torch.full((1000,), float("nan")) for _ in range(100)]
    for handle in handles:
        assert torch.equal(hvd.synchronize(handle), torch.full((1000,), 2.0))
    del others


@pytest.mark.parametrize("dtype", [torch.int64, torch.float16, torch.float64], ids=str)
def test_grouped_allreduce(hvd, dtype):
    shapes = [(5,), (2, 3), (4, 1)]
    tensors = [of_rank(hvd.rank(), shape, dtype) for shape in shapes]
    expected = [all_of(hvd, shape, torch.float64).sum(0).to(dtype) for shape in shapes]
    for result, total in zip(hvd.grouped_allreduce(tensors, op=hvd.Sum), expected):
        assert torch.equal(result, total)
    handle = hvd.grouped_allreduce_async(tensors, name="group", op=hvd.Sum)
    for result, total in zip(hvd.synchronize(handle), expected):
        assert torch.equal(result, total)
    results = hvd.grouped_allreduce_(tensors, op=hvd.Sum)
    for result, tensor, total in zip(results, tensors, expected):
        assert result is tensor
        assert torch.equal(tensor, total)


def test_a_group_may_mix_dtypes(hvd):
    size = hvd.size()
    tensors = [torch.ones(3), torch.ones(2, dtype=torch.int32), torch.ones(4, dtype=torch.float64)]
    results = hvd.grouped_allreduce(tensors, op=hvd.Sum)
    assert [result.dtype for result in results] == [tensor.dtype for tensor in tensors]
    assert all((result == size).all() for result in results)


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS, ids=str)
def test_allgather_of_different_lengths(hvd, dtype):
    parts = [of_rank(rank, (rank * 2, 3), dtype) for rank in range(hvd.size())]
    assert torch.equal(hvd.allgather(parts[hvd.rank()]), torch.cat(parts))


def test_grouped_allgather(hvd):
    groups = [
        [of_rank(rank, (rank + 1, 2), torch.float32), of_rank(rank, (3,), torch.int32)]
        for rank in range(hvd.size())
    ]
    results = hvd.grouped_allgather(groups[hvd.rank()])
    for result, parts in zip(results, zip(*groups)):
        assert torch.equal(result, torch.cat(parts))


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS + [torch.bool], ids=str)
def test_broadcast_from_every_rank(hvd, dtype):
    for root in range(hvd.size()):
        tensor = of_rank(hvd.rank(), (3, 4), dtype)
        before = tensor.clone()
        expected = of_rank(root, (3, 4), dtype)
        assert torch.equal(hvd.broadcast(tensor, root), expected)
        assert torch.equal(tensor, before)
        assert hvd.broadcast_(tensor, root) is tensor
        assert torch.equal(tensor, expected)


def test_alltoall(hvd):
    rank, size = hvd.rank(), hvd.size()
    # Rank r sends r + 1 rows of the number s to rank s.
    tensor = torch.arange(size).repeat_interleave(rank + 1).unsqueeze(1).expand(-1, 2)
    splits = torch.tensor([rank + 1] * size, dtype=torch.int32)
    output, received = hvd.alltoall(tensor, splits)
    assert received.dtype == torch.int32
    assert received.tolist() == [sender + 1 for sender in range(size)]
    assert torch.equal(output, torch.full((size * (size + 1) // 2, 2), rank))
    assert torch.equal(hvd.alltoall(tensor), output)
    output, received = hvd.synchronize(hvd.alltoall_async(tensor.contiguous(), [rank + 1] * size, "alltoall"))
    assert torch.equal(output, torch.full((size * (size + 1) // 2, 2), rank))
    assert received.tolist() == [sender + 1 for sender in range(size)]


class Elsewhere(torch.Tensor):
    """A tensor in host memory that claims to be on another device."""

    device = torch.device("meta")


def test_received_splits_are_on_the_device_of_the_splits(hvd):
    splits = torch.tensor([1] * hvd.size(), dtype=torch.int32)
    tensor = torch.arange(float(hvd.size()), requires_grad=True)
    output, received = hvd.alltoall(tensor, splits.as_subclass(Elsewhere))
    assert output.tolist() == [hvd.rank()] * hvd.size()
    assert received.is_meta and received.shape == splits.shape
    output.sum().backward()  # uses the splits in host memory
    assert tensor.grad.tolist() == [1.0] * hvd.size()


def test_alltoall_sends_the_first_rows(hvd):
    size = hvd.size()
    tensor = torch.arange(size + 3)
    output, received = hvd.alltoall(tensor, [1] * size)
    assert output.tolist() == [hvd.rank()] * size
    assert received.tolist() == [1] * size


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS, ids=str)
def test_reducescatter(hvd, dtype):
    size, rank = hvd.size(), hvd.rank()
    rows = 2 * size + 1  # the first rank gets one more
    tensor = of_rank(rank, (rows, 3), dtype)
    exact = all_of(hvd, (rows, 3), torch.float64)
    start, end = (0, 3) if rank == 0 else (2 * rank + 1, 2 * rank + 3)
    total = exact.sum(0)[start:end].to(dtype)
    assert torch.equal(hvd.reducescatter(tensor, op=hvd.Sum), total)
    average = hvd.reducescatter(tensor)
    mean = exact.mean(0)[start:end]
    if dtype.is_floating_point:
        assert torch.allclose(average.double(), mean, rtol=2 * torch.finfo(dtype).eps)
    else:
        assert torch.equal(average, mean.trunc().to(dtype))
    scaled = hvd.reducescatter(tensor, op=hvd.Sum, prescale_factor=2.0, postscale_factor=2.0)
    assert torch.equal(scaled, (4 * exact.sum(0)[start:end]).to(dtype))


def test_grouped_reducescatter(hvd):
    size, rank = hvd.size(), hvd.rank()
    tensors = [torch.arange(size * 2.0), torch.arange(size * 3).reshape(size, 3)]
    first, second = hvd.grouped_reducescatter(tensors, op=hvd.Sum)
    assert torch.equal(first, tensors[0][2 * rank : 2 * rank + 2] * size)
    assert torch.equal(second, tensors[1][rank : rank + 1] * size)


@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_sparse_allreduce(hvd, op):
    size, rank = hvd.size(), hvd.rank()
    dense = [torch.zeros(6, 2) for _ in range(size)]
    for sender, tensor in enumerate(dense):
        tensor[sender % 6] = sender + 1.0
        tensor[5] = 1.0
    wait = hvd.sparse_allreduce_async(dense[rank].to_sparse(1), name="sparse", op=getattr(hvd, op))
    result = wait()
    assert result.is_sparse
    total = torch.stack(dense).sum(0)
    assert torch.allclose(result.to_dense(), total / size if op == "Average" else total)
    # Again, as after a KeyboardInterrupt.
    assert torch.equal(wait().to_dense(), result.to_dense())


def test_compression(hvd):
    tensor = of_rank(hvd.rank(), (9,), torch.float32)
    expected = all_of(hvd, (9,), torch.float32).sum(0)
    for compression in (hvd.Compression.fp16, hvd.Compression.bf16, hvd.Compression.none):
        result = hvd.allreduce(tensor, op=hvd.Sum, compression=compression)
        assert result.dtype == torch.float32
        assert torch.equal(result, expected)
        (result,) = hvd.grouped_allreduce([tensor], op=hvd.Sum, compression=compression)
        assert torch.equal(result, expected)
    counts = torch.tensor([70_000])
    assert hvd.allreduce(counts, op=hvd.Max, compression=hvd.Compression.fp16).tolist() == [70_000]
    assert hvd.Compression.fp16.compress(tensor)[0].dtype == torch.float16
    assert hvd.Compression.bf16.compress(tensor)[0].dtype == torch.bfloat16


def test_not_contiguous(hvd):
    tensor = of_rank(hvd.rank(), (4, 6), torch.float32).t()
    assert not tensor.is_contiguous()
    expected = all_of(hvd, (4, 6), torch.float32).sum(0).t()
    assert torch.equal(hvd.allreduce(tensor, op=hvd.Sum), expected)
    assert torch.equal(hvd.grouped_allreduce([tensor], op=hvd.Sum)[0], expected)
    assert torch.equal(hvd.allgather(tensor)[: tensor.shape[0]], of_rank(0, (4, 6), torch.float32).t())
    for operation in (hvd.allreduce_, hvd.allreduce_async, hvd.allreduce_async_, hvd.allgather_async):
        with pytest.raises(ValueError, match="required to be contiguous"):
            operation(tensor)


def test_join_counts_for_nothing(several):
    hvd = several
    last = hvd.size() - 1
    if hvd.rank() == last:
        hvd.barrier()
        for _ in range(3):
            # The other ranks have joined, or will.
            result = hvd.allreduce(torch.ones(2), name="after_join", op=hvd.Sum)
            assert result.tolist() == [1.0, 1.0]
    else:
        hvd.barrier()
    assert hvd.join() == last


def test_average_alone_is_deprecated(hvd):
    with pytest.warns(DeprecationWarning, match="average is deprecated") as warnings:
        result = hvd.allreduce(torch.ones(2), average=False)
    assert warnings[0].filename == __file__
    assert torch.equal(result, torch.full((2,), float(hvd.size())))
    with pytest.warns(DeprecationWarning) as warnings:
        handle = hvd.allreduce_async_(torch.ones(2), average=True, name="deprecated")
    assert warnings[0].filename == __file__
    assert torch.equal(hvd.synchronize(handle), torch.ones(2))


def test_positional_arguments_are_horovods(hvd):
    ones, size = torch.ones(2), float(hvd.size())
    assert torch.equal(
        hvd.allreduce(ones, None, "a", hvd.Compression.none, hvd.Sum, 2.0, 3.0), ones * 6 * size
    )
    assert torch.equal(hvd.allreduce_(torch.ones(2), None, "b", hvd.Sum, 2.0, 3.0), ones * 6 * size)
    (result,) = hvd.grouped_allreduce_([torch.ones(2)], None, "c", hvd.Sum, 2.0, 3.0, hvd.global_process_set)
    assert torch.equal(result, ones * 6 * size)
    rows = torch.ones(hvd.size())
    scattered = hvd.reducescatter(rows, "d", hvd.Compression.none, hvd.Sum, hvd.global_process_set, 2.0, 3.0)
    assert scattered.tolist() == [6 * size]
    handle = hvd.reducescatter_async(rows, "e", hvd.Sum, hvd.global_process_set, 2.0, 3.0)
    assert hvd.synchronize(handle).tolist() == [6 * size]


def test_a_handle_may_be_named(hvd):
    handle = hvd.allreduce_async(torch.ones(2), name="handle by name", op=hvd.Sum)
    result = hvd.synchronize(handle=handle)
    assert result.tolist() == [hvd.size()] * 2
