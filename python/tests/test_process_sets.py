"""Process sets: their properties, and operations within them."""

import pytest
import torch


@pytest.fixture
def sets(several):
    """The set of even ranks, that of odd ranks, and the one of this rank."""
    hvd = several
    even = hvd.add_process_set(range(0, hvd.size(), 2))
    odd = hvd.add_process_set(range(1, hvd.size(), 2))
    yield even, odd, (odd if hvd.rank() % 2 else even)
    assert hvd.remove_process_set(odd)
    assert hvd.remove_process_set(even)


def test_the_set_of_all_ranks(hvd):
    everybody = hvd.global_process_set
    assert everybody.process_set_id == 0
    assert everybody.ranks == list(range(hvd.size()))
    assert (everybody.size(), everybody.rank(), everybody.included()) == (hvd.size(), hvd.rank(), True)
    assert everybody.mpi_comm is None
    assert str(everybody) == f"ProcessSet(process_set_id=0, ranks={everybody.ranks}, mpi_comm=None)"
    assert hvd.remove_process_set(everybody) is False


def test_what_sets_tell(several, sets):
    hvd, (even, odd, mine) = several, sets
    rank, size = hvd.rank(), hvd.size()
    assert even.ranks == list(range(0, size, 2)) and odd.ranks == list(range(1, size, 2))
    assert mine.included() and mine.rank() == rank // 2
    assert mine.size() == len(mine.ranks)
    other = even if mine is odd else odd
    assert not other.included() and other.rank() is None and other.size() == len(other.ranks)
    assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {
        0: list(range(size)),
        even.process_set_id: even.ranks,
        odd.process_set_id: odd.ranks,
    }
    assert (
        repr(even) == f"ProcessSet(process_set_id={even.process_set_id}, ranks={even.ranks}, mpi_comm=None)"
    )
    assert hvd.allgather_object(even.process_set_id) == [even.process_set_id] * size


def test_before_and_after_registration(several):
    hvd = several
    pair = hvd.ProcessSet([1, 0][: hvd.size() - 1])
    assert pair.process_set_id is None
    assert pair.size() is None and pair.rank() is None
    assert pair.included() is (hvd.rank() in pair.ranks)
    for work in (hvd.allreduce, hvd.allgather_object, lambda tensor, process_set: hvd.barrier(process_set)):
        with pytest.raises(ValueError, match="not been registered"):
            work(torch.ones(2), process_set=pair)
    for work in (hvd.reducescatter, lambda tensor, **how: hvd.grouped_reducescatter([tensor], **how)):
        with pytest.raises(ValueError, match="not been registered"):
            work(torch.ones(2), op=hvd.Sum, process_set=pair)
    assert hvd.remove_process_set(pair) is False
    assert hvd.add_process_set(pair) is pair
    number = pair.process_set_id
    with pytest.raises(ValueError, match="registered already"):
        hvd.add_process_set(pair)
    assert hvd.remove_process_set(pair) is True
    assert pair.process_set_id is None
    assert pair.size() is None and pair.rank() is None
    assert pair.included() is (hvd.rank() in pair.ranks)
    # The number can be used again.
    assert hvd.add_process_set(pair).process_set_id == number
    assert hvd.remove_process_set(pair)


def test_no_two_of_the_same_ranks(several, sets):
    hvd, (even, _, _) = several, sets
    with pytest.raises(ValueError):
        hvd.add_process_set(reversed(even.ranks))
    with pytest.raises(ValueError):
        hvd.add_process_set(range(hvd.size()))


def test_what_is_no_set(several):
    hvd = several
    for ranks in ([], [0, 0], [hvd.size()]):
        with pytest.raises(ValueError):
            hvd.add_process_set(ranks)


def test_members_only(several, sets):
    hvd, (even, odd, mine) = several, sets
    other = even if mine is odd else odd
    with pytest.raises(ValueError, match="is not a member of the provided process set"):
        hvd.allreduce(torch.ones(2), process_set=other)
    with pytest.raises(ValueError, match="is not a member of the provided process set"):
        hvd.barrier(other)
    unknown = hvd.ProcessSet([0])
    unknown.process_set_id = 1000
    with pytest.raises(ValueError, match="does not exist, or has not been registered"):
        hvd.allreduce(torch.ones(2), process_set=unknown)


def test_operations(several, sets):
    hvd, (_, _, mine) = several, sets
    rank, members = hvd.rank(), mine.ranks
    tensor = torch.full((3,), float(rank))
    total = float(sum(members))
    assert hvd.allreduce(tensor, op=hvd.Sum, process_set=mine).tolist() == [total] * 3
    assert hvd.allreduce(tensor, process_set=mine).tolist() == pytest.approx([total / len(members)] * 3)
    (result,) = hvd.grouped_allreduce([tensor], op=hvd.Sum, process_set=mine)
    assert result.tolist() == [total] * 3
    assert hvd.allgather(tensor[:1], process_set=mine).tolist() == members
    (result,) = hvd.grouped_allgather([tensor[:1]], process_set=mine)
    assert result.tolist() == members
    for root in members:  # a rank within the job
        assert hvd.broadcast(tensor, root, f"from {root}", mine).tolist() == [float(root)] * 3
    with pytest.raises(ValueError, match="invalid root rank"):
        hvd.broadcast(tensor, 1 - rank % 2, process_set=mine)
    output, received = hvd.alltoall(tensor[:1].repeat(len(members)), [1] * len(members), process_set=mine)
    assert output.tolist() == members and received.tolist() == [1] * len(members)
    rows = torch.arange(2.0 * len(members))
    scattered = hvd.reducescatter(rows, op=hvd.Sum, process_set=mine)
    assert torch.equal(scattered, rows[2 * mine.rank() : 2 * mine.rank() + 2] * len(members))
    wait = hvd.sparse_allreduce_async(torch.eye(2).to_sparse(), "sparse_set", hvd.Sum, process_set=mine)
    assert torch.equal(wait().to_dense(), torch.eye(2) * len(members))
    hvd.barrier(mine)
    assert hvd.broadcast_object({rank}, members[-1], process_set=mine) == {members[-1]}
    assert hvd.allgather_object(rank, process_set=mine) == members


def test_unnamed_operations_are_counted_by_set(several, sets):
    hvd, (_, _, mine) = several, sets
    for _ in range(1 + hvd.rank() % 2):  # the set of odd ranks runs one more
        hvd.broadcast(torch.ones(1), mine.ranks[0], process_set=mine)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()


def test_gradients(several, sets):
    hvd, (_, _, mine) = several, sets
    size, rank = mine.size(), hvd.rank()
    weight = torch.ones(size * 2, requires_grad=True)
    hvd.allreduce(weight, op=hvd.Sum, process_set=mine).sum().backward()
    assert weight.grad.tolist() == [size] * size * 2
    weight.grad = None
    rows = torch.arange(size, dtype=torch.float32)
    hvd.allgather(weight[:1], process_set=mine).backward(rows)
    assert weight.grad[0].item() == mine.rank()
    weight.grad = None
    hvd.broadcast(weight, mine.ranks[0], process_set=mine).sum().backward()
    assert (weight.grad == (1 if rank == mine.ranks[0] else 0)).all()
    weight.grad = None
    hvd.reducescatter(weight, op=hvd.Sum, process_set=mine).sum().backward()
    assert weight.grad.tolist() == [size] * size * 2


def test_adasum_wants_all_ranks(several, sets):
    hvd, (_, _, mine) = several, sets
    with pytest.raises(NotImplementedError, match="process sets"):
        hvd.allreduce(torch.ones(2), op=hvd.Adasum, process_set=mine)
