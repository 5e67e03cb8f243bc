"""Errors are raised on all ranks, with Horovod's words, and the job goes on afterwards."""

import pytest
import torch


@pytest.fixture(autouse=True)
def the_job_goes_on(hvd):
    yield
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2


def raises(hvd, words, operation, *args, **kwargs):
    with pytest.raises(hvd.HorovodInternalError, match=words) as raised:
        operation(*args, **kwargs)
    assert isinstance(raised.value, RuntimeError)
    return raised.value


def test_dtypes_differ(several):
    hvd = several
    tensor = torch.ones(3, dtype=torch.int32 if hvd.rank() else torch.float32)
    error = raises(hvd, "Mismatched data types", hvd.allreduce, tensor, name="dtypes")
    assert error.tensor == "allreduce.dtypes"
    assert error.rank != error.first_rank
    assert {error.rank, error.first_rank} <= set(range(hvd.size()))


def test_shapes_differ(several):
    hvd = several
    raises(hvd, "(?i)mismatched.*tensor shapes", hvd.allreduce, torch.ones(3 + hvd.rank()), name="shapes")
    flat = torch.ones(6) if hvd.rank() else torch.ones(2, 3)
    raises(hvd, "(?i)mismatched.*tensor shapes", hvd.allreduce, flat, name="dimensions")
    raises(hvd, "(?i)mismatched.*tensor shapes", hvd.allgather, torch.ones(2, 3 + hvd.rank()))
    raises(hvd, "(?i)mismatched.*tensor shapes", hvd.broadcast, torch.ones(3 + hvd.rank()), 0)
    raises(hvd, "(?i)mismatched.*tensor shapes", hvd.reducescatter, torch.ones(8 + hvd.rank()))
    size = hvd.size()
    raises(hvd, "(?i)mismatched.*tensor shapes", hvd.alltoall, torch.ones(size, 3 + hvd.rank()))


def test_operations_on_one_tensor_differ(several):
    hvd = several
    op = hvd.Sum if hvd.rank() else hvd.Max
    raises(hvd, "Mismatched reduction operation", hvd.allreduce, torch.ones(3), op=op)
    factor = 1.0 + hvd.rank()
    raises(hvd, "Mismatched (prescale|scale)", hvd.allreduce, torch.ones(3), prescale_factor=factor)
    raises(hvd, "Mismatched.* root ranks", hvd.broadcast, torch.ones(3), min(hvd.rank(), 1))


def test_a_group_differs(several):
    hvd = several
    tensors = [torch.ones(3), torch.ones(3 + hvd.rank())]
    raises(hvd, "(?i)mismatched", hvd.grouped_allreduce, tensors, name="group_differs")


def test_a_name_is_in_use(several):
    hvd = several
    tensor = torch.ones(3)
    handle = None
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(tensor, name="in_use")
        with pytest.raises(ValueError, match="same name as another tensor that is currently being processed") as raised:
            hvd.allreduce_async(tensor, name="in_use")
        assert (raised.value.tensor, raised.value.rank) == ("allreduce.in_use", 0)
    hvd.barrier()
    if hvd.rank():
        handle = hvd.allreduce_async(tensor, name="in_use")
    assert torch.equal(hvd.synchronize(handle), tensor)


def test_what_is_no_root(hvd):
    for root in (-1, hvd.size(), 10_000):
        with pytest.raises(ValueError, match="invalid root rank"):
            hvd.broadcast(torch.ones(2), root)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_dtypes_that_nothing_is_defined_for(hvd, dtype):
    with pytest.raises(ValueError, match="Tensor type torch.* is not supported"):
        hvd.allreduce(torch.ones(2, dtype=dtype))


def test_average_of_truth_values(hvd):
    with pytest.raises(ValueError, match="bool"):
        hvd.allreduce(torch.tensor([True]))


def test_what_is_no_tensor(hvd):
    with pytest.raises(TypeError, match="Tensor"):
        hvd.allreduce_(3.0)


def test_other_devices(hvd):
    with pytest.raises(ValueError, match="meta"):
        hvd.allreduce_(torch.ones(2, device="meta"))
    with pytest.raises(ValueError, match="meta"):
        hvd.grouped_allreduce_([torch.ones(2), torch.ones(2, device="meta")])


def test_op_and_average(hvd):
    for operation in (hvd.allreduce, hvd.allreduce_, hvd.allreduce_async, hvd.allreduce_async_):
        with pytest.raises(ValueError, match="op"):
            operation(torch.ones(2), average=True, op=hvd.Sum)
    with pytest.raises(ValueError, match="op"):
        hvd.grouped_allreduce([torch.ones(2)], average=True, op=hvd.Sum)


def test_what_is_no_operation(hvd):
    with pytest.raises(ValueError):
        hvd.allreduce(torch.ones(2), op=17)


def test_scalars_have_no_rows(hvd):
    scalar = torch.tensor(1.0)
    raises(hvd, "rank-zero tensor", hvd.allgather, scalar)
    raises(hvd, "rank-zero tensor", hvd.alltoall, scalar)
    raises(hvd, "rank-zero tensor", hvd.alltoall, scalar, splits=[1] * hvd.size())
    with pytest.raises(ValueError, match="does not support scalar inputs"):
        hvd.reducescatter(scalar)
    with pytest.raises(ValueError, match="does not support scalar inputs"):
        hvd.grouped_reducescatter([torch.ones(hvd.size()), scalar])


@pytest.mark.parametrize("op", ["Adasum", "Min", "Max", "Product"])
def test_reducescatter_knows_two_operations(hvd, op):
    rows = torch.ones(hvd.size())
    raises(hvd, "only supports AVERAGE and SUM", hvd.reducescatter, rows, op=getattr(hvd, op))


def test_splits(hvd):
    size = hvd.size()
    tensor = torch.ones(size * 2)

    def wrong(words, splits):
        with pytest.raises(ValueError, match=words):
            hvd.alltoall(tensor, splits)

    wrong("1D splits tensor", torch.ones(1, size, dtype=torch.int32))
    wrong("32-bit integer", torch.ones(size))
    wrong("greater than the first dimension", torch.full((size,), 3, dtype=torch.int32))
    wrong("does not equal number of workers", [1] * (size + 1))
    wrong("negative", [-1] * size)
    if size > 1:
        with pytest.raises(ValueError, match="not an even multiple"):
            hvd.alltoall(torch.ones(size + 1))


def test_sparse_tensors_know_two_operations(hvd):
    with pytest.raises(ValueError, match="Average or Sum"):
        hvd.sparse_allreduce_async(torch.eye(2).to_sparse(), name="sparse", op=hvd.Max)


def test_sparse_averages_are_not_defined_for_bool(hvd):
    tensor = torch.tensor([True, False]).to_sparse()
    with pytest.raises(ValueError, match="average is not defined for bool"):
        hvd.sparse_allreduce_async(tensor, name="sparse.bool", op=hvd.Average)
    assert hvd.sparse_allreduce_async(tensor, name="sparse.bool", op=hvd.Sum)().dtype == torch.bool


@pytest.mark.parametrize(
    "shape", [lambda rank: (5 + rank, 2), lambda rank: (5, 2 + rank), lambda rank: (5,) + (1,) * rank]
)
@pytest.mark.parametrize("rows", [[4], [0], []])
def test_sparse_tensors_of_different_shapes(several, shape, rows):
    """Also where the elements of all ranks are within the shape of each."""
    hvd = several
    shape = shape(hvd.rank())
    indices = torch.tensor([rows], dtype=torch.int64)
    tensor = torch.sparse_coo_tensor(indices, torch.ones(len(rows), *shape[1:]), shape)
    wait = hvd.sparse_allreduce_async(tensor, name="sparse.shapes", op=hvd.Sum)
    with pytest.raises(hvd.HorovodInternalError, match="Mismatched ALLGATHER tensor shapes"):
        wait()
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [hvd.size()] * 2


def test_adasum_wants_a_power_of_two(hvd):
    if hvd.size() & (hvd.size() - 1) == 0:
        pytest.skip("there are as many ranks as it wants")
    with pytest.raises(NotImplementedError, match="ranks"):
        hvd.allreduce_async_(torch.ones(2), op=hvd.Adasum)


def test_a_tensor_that_was_resized_before_its_handle_was_used(hvd):
    tensor = torch.ones(4)
    handle = hvd.allreduce_async_(tensor, name="resized")
    while not hvd.poll(handle):  # or its memory might be written to after it was freed
        pass
    tensor.resize_(1 << 20)  # larger than its memory, so it is moved
    with pytest.raises(RuntimeError, match="resize_"):
        hvd.synchronize(handle)


def test_others_fail_while_a_rank_has_joined(several):
    hvd = several
    if hvd.rank():
        raises(hvd, "(?i)not supported with join|joined", hvd.broadcast, torch.ones(2), 0, name="from_joined")
    hvd.join()


def test_errors_of_the_caller_tell_the_tensor_too(hvd):
    with pytest.raises(ValueError, match="invalid root rank") as raised:
        hvd.broadcast_async(torch.zeros(3), 99, name="no root")
    assert raised.value.tensor == "broadcast.no root"
